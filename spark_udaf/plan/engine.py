"""Engines: the systems that run the plans of a session. Spark is the default. Other engines that implement Spark's API
are added by entry points of the group ``spark_udaf.engines``::

    [project.entry-points."spark_udaf.engines"]
    sail = "spark_udaf.sail:SAIL"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from aggr.entry_points import load_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "spark_udaf.engines"


class Feature(Enum):
    """Features of Spark that another engine may not have."""

    SHARDS = "a shuffle by Spark's hash, and a sort within partitions whose order is kept for the next function"
    ORDER = "a sort within partitions whose order is kept for the function that reads the partition"
    METADATA = "metadata of columns"
    CACHE = "a cache of DataFrames, with the information whether a DataFrame is cached"
    STREAMS = "stateful streams"
    DATA_SOURCES = "data sources in Python"
    OBSERVATIONS = "observations of a DataFrame"
    OBSERVED_PYTHON_COLUMNS = "observations of columns that are computed in Python"


def _spark_partitions() -> int:
    """Return 200, Spark's default for the setting ``spark.sql.shuffle.partitions``."""
    return 200


def _unknown_cores() -> None:
    """Return None. The number of cores is unknown, because Spark may start and stop executors while a job runs."""


@dataclass(frozen=True)
class Engine:
    """An engine that implements Spark's API.

    Parameters
    ----------
    name : str
        The name for messages.
    runs : callable
        Receives a session, and returns whether the engine runs it.
    lacks : mapping of Feature to str
        The features that the engine does not have. The value of a feature is a part of an error message, such as
        ``does not keep the order`` in ``… cannot run on Sail, which does not keep the order``.
    default_partitions : callable
        Returns the number of shuffle partitions of a session that does not set ``spark.sql.shuffle.partitions``.
    cores : callable
        Returns the number of tasks that run at once, or None if the number is unknown. This function is called if the
        settings of a session do not determine the number.
    start : callable, optional
        Returns a context manager, which starts the engine in this process, without Java, and yields a session.
    package : str
        The Python package that ``start`` needs.
    """

    name: str
    runs: Callable[[SparkSession], bool]
    lacks: Mapping[Feature, str] = field(default_factory=dict)
    default_partitions: Callable[[], int] = _spark_partitions
    cores: Callable[[], int | None] = _unknown_cores
    start: Callable[[], AbstractContextManager[SparkSession]] | None = None
    package: str = ""

    def has(self, feature: Feature) -> bool:
        """Return whether the engine has a feature of Spark."""
        return feature not in self.lacks


SPARK = Engine("Spark", runs=lambda spark: True)
_ENGINES: list[Engine] = []


def engines() -> tuple[Engine, ...]:
    """Return the engines that entry points declare, and Spark as the last one."""
    _load_engines()
    return (*_ENGINES, SPARK)


def engine_of(spark: SparkSession) -> Engine:
    """Return the engine that runs a session."""
    return next(engine for engine in engines() if engine.runs(spark))


def check_supports(spark: SparkSession, feature: Feature, operation: str, remedy: str) -> None:
    """Raise ``ValueError`` if the engine of a session lacks a feature. For the message, ``operation`` names the
    operation that needs the feature, and ``remedy`` says what the user can do instead.
    """
    engine = engine_of(spark)
    if not engine.has(feature):
        raise ValueError(f"{operation} cannot run on {engine.name}, which {engine.lacks[feature]}; {remedy}")


@cache
def _load_engines() -> None:
    load_group(GROUP, "engine", _ENGINES.append)
