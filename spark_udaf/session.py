"""The session settings that the hand-over between the JVM and Python needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_OLDEST = (4, 1)


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
