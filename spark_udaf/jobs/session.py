"""Sessions: what the hand-over between the JVM and Python needs, and a quiet local one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_OLDEST = (4, 1)


def check_session(spark: SparkSession) -> None:
    """Raise ``TypeError`` for what is no session."""
    if isinstance(spark, type) or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"give a SparkSession; got {spark!r}")


def prepare(spark: SparkSession) -> None:
    """Check the version, and set what makes the hand-over to Python fast.

    Raises ``RuntimeError`` for a PySpark that is too old. Sets, unless the session already has it set:

    - ``spark.sql.execution.arrow.maxBytesPerBatch``, with which Spark otherwise measures every row on its own.
    """
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _OLDEST:
        raise RuntimeError(f"spark_udaf needs PySpark 4.1 or newer; this is {pyspark.__version__}: upgrade pyspark")
    if spark.conf.get(_BATCH_BYTES, None) is None:
        spark.conf.set(_BATCH_BYTES, str(2**31 - 1))


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
