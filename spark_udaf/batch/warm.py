"""Warming of a cluster: compile what functions need on the driver's machine and on the workers'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from aggr.registry import get
from aggr.warming import warm as warm_functions


def warm(spark: SparkSession, functions: Sequence[str] | None = None, tasks: int = 16) -> None:
    """Compile what functions need, so that the first job need not.

    Parameters
    ----------
    spark : SparkSession
    functions : names, optional
        All that are registered unless given.
    tasks : int
        How many tasks compile, or wait for one on their machine that does: at least as many as there are cores, so
        that each machine gets some. Spark does not promise where tasks run.

    Raises
    ------
    UnknownFunction
        For a name that no function has, before anything runs.
    """
    for name in functions or ():
        get(name)

    def compile_there(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm_functions(functions)
        yield from batches

    spark.range(0, tasks, 1, tasks).mapInArrow(compile_there, "id long").collect()
