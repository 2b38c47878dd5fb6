"""Sessions: what the hand-over between the JVM and Python needs, and a quiet local one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_OLDEST = (4, 2)


def is_old(version: str) -> bool:
    """Say whether a PySpark is too old: Arrow functions came with 4.1, Arrow types in a time zone with 4.2."""
    return tuple(int(part) for part in version.split(".")[:2]) < _OLDEST


def check_session(spark: SparkSession) -> None:
    """Raise ``TypeError`` for what is no session."""
    if isinstance(spark, type) or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"give a SparkSession; got {spark!r}")


def prepare(spark: SparkSession) -> None:
    """Set what makes the hand-over to Python fast, unless the session already has it set.

    That is ``spark.sql.execution.arrow.maxBytesPerBatch``, without which Spark measures every row on its own.
    """
    if spark.conf.get(_BATCH_BYTES, None) is None:
        spark.conf.set(_BATCH_BYTES, str(2**31 - 1))


def shuffle_partitions(spark: SparkSession) -> int:
    """Tell into how many partitions Spark shuffles unless it is told."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 200)


def local_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark in this process, on two cores, quietly; Java must be there."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for setting, value in {**quiet, **settings}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
