"""Shard messages: Arrow batches with the rows of one shard, as bytes, which the JVM moves without parsing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_udaf.plan.shards import shard_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARD = "shard"
# The minimum size in bytes of a batch of messages, except for the last one. Small messages are sent together, because
# each batch has a fixed cost in the JVM.
_BATCH_BYTES = 1 << 20
MESSAGE_SCHEMA = pa.schema(
    [(SHARD, pa.int32()), ("message", pa.binary()), ("content", pa.int8()), ("rows", pa.int64())]
)


class Content(IntEnum):
    """The kind of rows in a message."""

    # Input rows.
    ROWS = 0

    # Partial states, which are merged after the shuffle.
    STATES = 1

    # Results of the plan, which are complete before the shuffle.
    RESULTS = 2

    # A count message: a message without rows, which contains the numbers of messages and rows that a task sent to the
    # shard. See `spark_udaf.plan.conservation`.
    COUNTS = 3

    # A message without rows, for a plan without keys. All rows of such a plan are one group, which has a result even if
    # there are no rows. The message is sent to the shard of this group, so that a task computes the result.
    EMPTY = 4


def read_message(message: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a message as a batch of ``schema``."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def empty_message(spark: SparkSession, shard: int) -> DataFrame:
    """Return a DataFrame with one message without rows to the shard ``shard``. Because of this message, the shard has
    a result even if no task sends rows to this shard.
    """
    values = {
        SHARD: f"CAST({shard} AS INT)",
        "message": "CAST('' AS BINARY)",
        "content": f"CAST({Content.EMPTY:d} AS TINYINT)",
        "rows": "CAST(0 AS BIGINT)",
    }
    return spark.range(0, 1, 1, 1).selectExpr(*(f"{value} AS {name}" for name, value in values.items()))


def shard_messages(
    table: pa.Table, shard_columns: Sequence[pa.Array], shuffle_keys: NDArray[np.int32], content: Content
) -> Iterator[pa.RecordBatch]:
    """Yield batches of messages. There is one message for each shard that receives rows of ``table``.

    ``shard_columns`` contains the columns whose values determine the shard of a row. If it is empty, all rows are in
    the first shard. ``shuffle_keys[s]`` is the number that Spark hashes for shard ``s``, as
    `spark_udaf.plan.shards.choose_shuffle_keys` returns it, and ``content`` is the kind of the rows. The rows of a
    shard are one binary value, because the JVM moves a few large values faster than many rows. Several small messages
    are in one batch.
    """
    if not table.num_rows:
        return
    shard = shard_of(shard_columns, len(shuffle_keys)) if shard_columns else np.zeros(table.num_rows, np.int32)
    order = np.argsort(shard, kind="stable")
    table = table.take(pa.array(order)).combine_chunks() if (np.diff(shard) < 0).any() else table.combine_chunks()
    shard = shard[order]
    starts = np.flatnonzero(np.diff(shard, prepend=-1))
    stops = np.append(starts[1:], len(shard))
    (batch,) = table.to_batches()
    pieces = (batch.slice(start, stop - start) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True))
    yield from _messages(pieces, shuffle_keys[shard[starts]], content)


def spread_messages(
    table: pa.Table, shuffle_keys: NDArray[np.int32], partitions: int, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of messages with the complete results in ``table``, which are not merged after the shuffle. A
    message has at most ``max_rows`` rows. The messages are assigned in turn to the shards with the shuffle
    keys ``shuffle_keys``, so that all partitions receive about the same number of messages.
    """
    if not table.num_rows:
        return
    parts = partitions * -(-table.num_rows // (partitions * max_rows))
    batches = table.combine_chunks().to_batches(max_chunksize=-(-table.num_rows // parts))
    yield from _messages(batches, shuffle_keys[np.arange(len(batches)) % len(shuffle_keys)], Content.RESULTS)


def _messages(
    pieces: Iterable[pa.RecordBatch], shuffle_keys: NDArray[np.int32], content: Content
) -> Iterator[pa.RecordBatch]:
    """Yield batches of messages: one message with the rows ``pieces[i]`` for each shuffle key ``shuffle_keys[i]``."""
    messages: list[pa.Buffer] = []
    rows: list[int] = []
    sent_count = size = 0
    for piece in pieces:
        messages.append(piece.serialize())
        rows.append(piece.num_rows)
        size += messages[-1].size
        if size >= _BATCH_BYTES:
            yield _message_batch(messages, shuffle_keys[sent_count : sent_count + len(messages)], content, rows)
            sent_count += len(messages)
            messages = []
            rows = []
            size = 0
    if messages:
        yield _message_batch(messages, shuffle_keys[sent_count:], content, rows)


def _message_batch(
    messages: Sequence[pa.Buffer], shuffle_keys: NDArray[np.int32], content: Content, rows: Sequence[int]
) -> pa.RecordBatch:
    count = len(messages)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum([message.size for message in messages], out=offsets[1:])
    data = messages[0] if count == 1 else pa.py_buffer(b"".join(messages))
    message_values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])
    contents = pa.array(np.full(count, content, np.int8))
    columns = [pa.array(shuffle_keys, pa.int32()), message_values, contents, pa.array(rows, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)
