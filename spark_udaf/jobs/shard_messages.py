"""Shard messages: rows of a shard as one binary value, which the JVM moves without reading it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_udaf.jobs.hash_partition import shard_of

SHARD = "shard"
MESSAGE = pa.schema([(SHARD, pa.int32()), ("message", pa.binary()), ("states", pa.bool_())])


def read_message(message: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Read the rows of one message."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def shard_messages(
    table: pa.Table, together: Sequence[pa.Array], numbers: NDArray[np.int32], reduced: bool
) -> Iterator[pa.RecordBatch]:
    """Pack the rows of each shard into one message: the JVM then moves a few large values, whatever is in them."""
    if not table.num_rows:
        return
    shard = shard_of(together, len(numbers)) if together else np.zeros(table.num_rows, np.int32)
    order = np.argsort(shard, kind="stable")
    table = table.take(pa.array(order)).combine_chunks() if (np.diff(shard) < 0).any() else table.combine_chunks()
    shard = shard[order]
    starts = np.flatnonzero(np.diff(shard, prepend=-1))
    ends = np.append(starts[1:], len(shard))
    (batch,) = table.to_batches()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        message = _binary(batch.slice(start, end - start).serialize())
        number = pa.array(numbers[shard[start : start + 1]])
        yield pa.RecordBatch.from_arrays([number, message, pa.array([reduced])], schema=MESSAGE)


def _binary(message: pa.Buffer) -> pa.Array:
    offsets = pa.py_buffer(np.array([0, message.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message])
