"""Objects of the JVM that belong to DataFrames and sessions of classic Spark. On Spark Connect and Sail, the functions
return None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_execution(df: DataFrame) -> Any | None:
    """Return the JVM's ``QueryExecution`` of a DataFrame, which contains the plans. Return None for Spark Connect."""
    java_frame = getattr(df, "_jdf", None)
    return None if java_frame is None else java_frame.queryExecution()


def shared_state() -> Any | None:
    """Return the JVM's ``SharedState`` of the active session, or None without a session of classic Spark."""
    java_session = getattr(SparkSession.getActiveSession(), "_jsparkSession", None)
    return None if java_session is None else java_session.sharedState()


def java_context_of(spark: SparkSession) -> Any | None:
    """Return the JVM's ``SparkContext``, or None for Spark Connect and Sail."""
    java_context = getattr(python_context_of(spark), "_jsc", None)
    return None if java_context is None else java_context.sc()


def python_context_of(spark: SparkSession) -> Any | None:
    """Return PySpark's ``SparkContext``, which groups jobs and lists their stages, or None without classic Spark."""
    return spark.sparkContext if hasattr(spark, "_jsparkSession") else None


def process_id(spark: SparkSession) -> int | None:
    """Return the process id of the driver's JVM, or None for Spark Connect and Sail."""
    java_machine = getattr(spark, "_jvm", None)
    return None if java_machine is None else int(java_machine.java.lang.ProcessHandle.current().pid())
