"""Warm up a cluster: compile the Numba loops of aggregate functions on the machines of the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from aggr.registry import get
from aggr.warming import warm as warm_functions
from spark_udaf.versions.same_version import TaskFunction


def warm(spark: SparkSession, functions: Sequence[str] | None = None, tasks: int = 16) -> None:
    """Compile the Numba loops of aggregate functions on the machines of the workers, so that the first job need not
    compile them.

    Parameters
    ----------
    spark : SparkSession
    functions : names, optional
        The default is all registered functions.
    tasks : int
        The number of tasks. The tasks on one machine compile each loop only once. Use at least the number of cores, so
        that every machine probably runs a task. Spark does not guarantee where tasks run.

    Raises
    ------
    UnknownFunction
        For an unknown name, before anything runs.
    """
    for name in functions or ():
        get(name)

    def compile_loops(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm_functions(functions)
        yield from batches

    spark.range(0, tasks, 1, tasks).mapInArrow(TaskFunction(compile_loops), "id long").collect()
