"""Spark looks for data sources in modules that are called ``pyspark_…``: installed, ``tiltframe`` needs no registering."""

from spark_udaf.source import TiltframeSource as DefaultSource

__all__ = ["DefaultSource"]
