"""Spark looks for data sources in modules called ``pyspark_…``: where this is installed, it finds ``tiltframe``."""

from spark_udaf.store.data_source import TiltframeSource as DefaultSource

__all__ = ["DefaultSource"]
