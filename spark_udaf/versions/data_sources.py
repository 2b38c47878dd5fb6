"""Registration of a data source in Python, without the search for data sources that Spark makes at the first one.

The search starts a Python worker, which takes seconds. On classic Spark from 4.2 on, the source is put where Spark's
own method puts it, so that the search happens when a data source is read for the first time. On 4.0 the copy of the
session that a stream makes refuses a source that the search finds too.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_udaf.versions.features import has_session_sources


def register_data_source(spark: SparkSession, source: Any) -> None:
    """Register a subclass of ``pyspark.sql.datasource.DataSource`` in a session; again has no effect."""
    if hasattr(spark, "_jsparkSession") and has_session_sources():
        try:
            _put(spark, source)
            return
        except Exception as error:  # a release or a cluster may lack any part, and the way below is PySpark's own
            log = logging.getLogger("spark_udaf")
            log.info("Spark searches for data sources before it registers one: %s", str(error).partition("\n")[0])
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:  # 4.0, if Spark has already found the module pyspark_tiltframe
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _put(spark: Any, source: Any) -> None:
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    java_class = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"
    java_source = getattr(context._jvm, java_class)(_wrap_function(context, source))
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    field = manager.getClass().getDeclaredField("runtimeDataSourceBuilders")
    field.setAccessible(True)
    field.get(manager).put(source.name(), java_source)
