"""Registration of a Python data source without Spark's search for other data sources.

At the first registration, Spark searches for data sources, which starts a Python worker and takes seconds. On classic
Spark 4.2 and newer, this module adds the source to Spark's registry directly, so that the search is delayed until a
data source is read. On older versions, the source is registered by PySpark's ``spark.dataSource.register``, because a
stream on Spark 4.0 copies the session, and the copy raises an error if the search finds a source that was added
directly.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_udaf.versions.features import has_session_sources
from spark_udaf.versions.same_version import TaskFunction


class _VersionedSource(TaskFunction):
    """A wrapper of the class of a data source. The pickle of the wrapper contains the version of tiltframe on the
    driver. Unpickling compares this version with the installed version, and returns the class without the wrapper.
    """

    def name(self) -> str:
        """Return the name of the data source."""
        return str(self._function.name())  # type: ignore[attr-defined]


def register_data_source(spark: SparkSession, source: Any) -> None:
    """Register a subclass of ``pyspark.sql.datasource.DataSource`` in a session. A second registration of the class has
    no effect.
    """
    source = _VersionedSource(source)
    if hasattr(spark, "_jsparkSession") and has_session_sources():
        try:
            _add_to_registry(spark, source)
            return
        except Exception as error:
            # `_add_to_registry` uses internal parts of Spark, which a release or a cluster may lack. The registration
            # below uses only public parts of PySpark.
            log = logging.getLogger("spark_udaf")
            log.info(
                "cannot add the data source to Spark's registry directly, so its registration takes seconds longer: %s",
                str(error).partition("\n")[0],
            )
    try:
        spark.dataSource.register(source)
    # Spark 4.0 raises this error if its own search for data sources has already found this data source in the module
    # pyspark_tiltframe.
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _add_to_registry(spark: Any, source: Any) -> None:
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    java_class = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"
    java_source = getattr(context._jvm, java_class)(_wrap_function(context, source))
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    field = manager.getClass().getDeclaredField("runtimeDataSourceBuilders")
    field.setAccessible(True)
    field.get(manager).put(source.name(), java_source)
