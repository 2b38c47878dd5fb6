"""Collect a DataFrame as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_udaf.versions.arrow_types import to_arrow_schema
from spark_udaf.versions.features import has_to_arrow
from spark_udaf.versions.same_version import TaskFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect_arrow(df: DataFrame) -> pa.Table:
    """Return all rows of a DataFrame as an Arrow table, with the types that Spark uses when it sends them to Python.

    PySpark before version 4.0 does not have ``DataFrame.toArrow``. Each batch is then collected as one binary value,
    which contains the bytes of an Arrow stream.
    """
    if has_to_arrow():
        return df.toArrow()

    def to_stream(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["data"])

    schema = to_arrow_schema(df.schema)
    rows = df.mapInArrow(TaskFunction(to_stream), "data binary").collect()
    tables = [pa.ipc.open_stream(bytes(row["data"])).read_all().cast(schema) for row in rows]
    return pa.concat_tables(tables) if tables else schema.empty_table()
