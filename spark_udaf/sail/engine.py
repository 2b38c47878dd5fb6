"""Sail as an engine: how its sessions are recognised and started, and which features of Spark it lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aggr.extend.arguments import MissingExtra
from spark_udaf.extend import Engine, Feature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _is_sail(spark: SparkSession) -> bool:
    """Return whether a session belongs to Sail. Unlike Spark, Sail does not set an application id."""
    return spark.conf.get("spark.app.id", None) is None


@contextmanager
def sail_session() -> Iterator[SparkSession]:
    """Start Sail in this process, without Java, yield its session, and stop Sail at the end. Raise `MissingExtra` if it
    is not installed.
    """
    os.environ.setdefault("RUST_LOG", "error")  # Sail reads its log level from RUST_LOG.
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        raise MissingExtra(what="Spark without Java", extra="sail", error=error) from None
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
        server.stop()


SAIL = Engine(
    "Sail",
    runs=_is_sail,
    lacks={
        Feature.SHARDS: "does not keep the order of sorted partitions, and shuffles by another hash function",
        Feature.ORDER: "does not preserve the order of rows",
        Feature.METADATA: "does not keep the metadata of columns",
        Feature.CACHE: "does not cache, but reports that it does",
        Feature.STREAMS: "does not support stateful streams",
        Feature.DATA_SOURCES: "cannot determine the types of a data source",
        Feature.OBSERVATIONS: "does not support observations",
        Feature.OBSERVED_PYTHON_COLUMNS: "does not support observations of columns that are computed in Python",
    },
    default_partitions=lambda: os.cpu_count() or 1,
    cores=os.cpu_count,
    start=sail_session,
    package="pysail",
)
