"""Shard messages: Arrow batches with the rows of one shard, as bytes, which the JVM moves without parsing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_udaf.plan.shards import shard_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARD = "shard"
MESSAGE = pa.schema([(SHARD, pa.int32()), ("message", pa.binary()), ("content", pa.int8()), ("rows", pa.int64())])


class Content(IntEnum):
    """The kind of rows in a message."""

    ROWS = 0  # input rows
    STATES = 1  # partial states, to be merged with others
    RESULTS = 2  # Complete results of the plan.
    RECEIPT = 3  # A message without rows: the number of messages of a task, see `spark_udaf.plan.conservation`.
    EMPTY = 4  # A message without rows: the shard has a result even if it receives no rows.


def read_message(message: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Read the rows of one message."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def empty_message(spark: SparkSession, shard: int) -> DataFrame:
    """Return one message without rows, so that a shard without rows has a result."""
    values = {
        SHARD: f"CAST({shard} AS INT)",
        "message": "CAST('' AS BINARY)",
        "content": f"CAST({Content.EMPTY:d} AS TINYINT)",
        "rows": "CAST(0 AS BIGINT)",
    }
    return spark.range(0, 1, 1, 1).selectExpr(*(f"{value} AS {name}" for name, value in values.items()))


def shard_messages(
    table: pa.Table, together: Sequence[pa.Array], numbers: NDArray[np.int32], content: Content
) -> Iterator[pa.RecordBatch]:
    """Pack the rows of each shard into one message, so that the JVM moves a few large values."""
    if not table.num_rows:
        return
    shard = shard_of(together, len(numbers)) if together else np.zeros(table.num_rows, np.int32)
    order = np.argsort(shard, kind="stable")
    table = table.take(pa.array(order)).combine_chunks() if (np.diff(shard) < 0).any() else table.combine_chunks()
    shard = shard[order]
    starts = np.flatnonzero(np.diff(shard, prepend=-1))
    stops = np.append(starts[1:], len(shard))
    (batch,) = table.to_batches()
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield _message(batch.slice(start, stop - start), numbers[shard[start]], content)


def spread_messages(
    table: pa.Table, numbers: NDArray[np.int32], partitions: int, most_rows: int
) -> Iterator[pa.RecordBatch]:
    """Pack results, which need no merge, into messages of at most ``most_rows`` rows, evenly over the partitions."""
    if not table.num_rows:
        return
    parts = partitions * -(-table.num_rows // (partitions * most_rows))
    batches = table.combine_chunks().to_batches(max_chunksize=-(-table.num_rows // parts))
    for at, batch in enumerate(batches):
        yield _message(batch, numbers[at % len(numbers)], Content.RESULTS)


def _message(rows: pa.RecordBatch, number: np.int32, content: Content) -> pa.RecordBatch:
    packed = rows.serialize()
    offsets = pa.py_buffer(np.array([0, packed.size], np.int32))
    message = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, packed])
    columns = [pa.array([number], pa.int32()), message, pa.array([content], pa.int8()), pa.array([rows.num_rows])]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE)
