"""The two-phase plan: reduce where the rows are, one shuffle of small states, merge.

    partition ── reduce ──▶ partial states ─┐
    partition ── reduce ──▶ partial states ─┼─ shuffle by shard ──▶ merge, whole shards at a time
    partition ── reduce ──▶ partial states ─┘

A shard is a set of values of some columns, so whatever agrees in them comes together. A Python UDAF of Spark's own
has no such first phase: all rows cross its shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from aggr.kernels.normalize import one_array
from spark_udaf.jobs.columns import arrow_schema, check_distinct, map_columns
from spark_udaf.jobs.hash_partition import shard_of
from spark_udaf.jobs.scan import ParquetScan
from spark_udaf.jobs.schema import as_schema, spark_schema
from spark_udaf.jobs.session import prepare
from spark_udaf.jobs.tune_worker import tune_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = 1 << 26  # states a task holds before it sends them on: 64 MiB, for each core of a worker
_LEAST_SHARDS = 64  # so that a shard's states fit into memory, however few partitions there are
_GIVEN_ROWS = 2000  # states sent to the JVM at once, of some kilobytes each: some megabytes
_SHARD = "shard"
_MESSAGE = pa.schema([(_SHARD, pa.int32()), ("states", pa.binary())])

Batches = Iterator[pa.RecordBatch]


class Source(Protocol):
    """Where rows come from: the rows of a DataFrame, or files that the tasks read themselves."""

    @property
    def spark(self) -> SparkSession:
        """The session to run in."""

    @property
    def partitions(self) -> int | None:
        """How many partitions there are, where that is known."""

    def map(
        self, columns: Sequence[str], keys: Sequence[str], reduce: Callable[[Batches], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Run ``reduce`` over each partition's batches, with the named columns only, some of them keys."""


@dataclass(frozen=True)
class Rows:
    """The rows of a DataFrame."""

    df: DataFrame

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrame."""
        return self.df.sparkSession

    @property
    def partitions(self) -> None:
        """Not known before the DataFrame has been planned."""
        return None

    def map(
        self, columns: Sequence[str], keys: Sequence[str], reduce: Callable[[Batches], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Send only the named columns over to Python."""
        return map_columns(self.df, columns, reduce, schema)


def source_of(given: DataFrame | ParquetScan, read: Sequence[str] | None = None) -> tuple[Source, pa.Schema]:
    """Take a DataFrame or a scan of files as a source, and tell its schema; anything else raises ``TypeError``.

    ``read`` names the columns that are going to be read, as for `spark_udaf.jobs.columns.arrow_schema`.
    """
    if isinstance(given, ParquetScan):
        prepare(given.spark)
        return given, given.schema
    if not hasattr(given, "mapInArrow") or isinstance(given, type):
        raise TypeError(f"give a Spark DataFrame, or files by su.scan_parquet; got {type(given).__name__}")
    if given.isStreaming:
        raise TypeError(
            "this is a streaming DataFrame; su.stream_into writes it into a store; in foreachBatch each batch is an "
            "ordinary one"
        )
    prepare(given.sparkSession)
    return Rows(given), arrow_schema(given, read)


def two_phase(
    source: Source,
    columns: Sequence[str],
    keys: Sequence[str],
    reduce: Callable[[Batches], Iterator[pa.Table]],
    partial: pa.Schema,
    together: Sequence[str],
    merge: Callable[[pa.Table], pa.Table],
    result: pa.Schema,
) -> DataFrame:
    """Plan two phases around one shuffle.

    Parameters
    ----------
    source : Source
    columns : names of the columns to read
    keys : names of those that are keys
    reduce : batches of a partition -> tables of partial states
    partial : schema of those tables
    together : columns of ``partial``; rows that agree in them meet in one call of ``merge``
    merge : table of partial states -> table of the result
    result : schema of the result
    """
    check_distinct(result.names, source.spark)
    shards = max(_LEAST_SHARDS, int(source.spark.conf.get("spark.sql.shuffle.partitions") or 0))

    def first(batches: Batches) -> Batches:
        tune_worker()
        for states in reduce(batches):
            yield from _shard_messages(as_schema(states, partial), together, shards)

    def second(batches: Batches) -> Batches:
        tune_worker()
        for messages in _whole_shards(batches):
            messages = [pa.ipc.read_record_batch(pa.py_buffer(message.as_buffer()), partial) for message in messages]
            merged = merge(pa.Table.from_batches(messages, partial))
            yield from as_schema(merged, result).to_batches(max_chunksize=_GIVEN_ROWS)

    reduced = source.map(columns, keys, first, _MESSAGE)
    # Spark joins small partitions by itself where it is not told how many; two cores then wait for a third partition
    known = source.partitions
    sharded = reduced.repartition(_SHARD) if known is None else reduced.repartition(min(known, shards), _SHARD)
    return sharded.sortWithinPartitions(_SHARD).mapInArrow(second, spark_schema(result))


def _shard_messages(states: pa.Table, together: Sequence[str], shards: int) -> Batches:
    """Pack the states of each shard into one message: the JVM then moves a few large values, whatever is in them."""
    if not states.num_rows:
        return
    columns = [one_array(states.column(name)) for name in together]
    shard = shard_of(columns, shards) if columns else np.zeros(states.num_rows, np.int32)
    order = np.argsort(shard, kind="stable")
    states = states.take(pa.array(order)).combine_chunks() if (np.diff(shard) < 0).any() else states.combine_chunks()
    shard = shard[order]
    starts = np.flatnonzero(np.diff(shard, prepend=-1))
    ends = np.append(starts[1:], len(shard))
    (batch,) = states.to_batches()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        message = batch.slice(start, end - start).serialize()
        yield pa.RecordBatch.from_arrays([pa.array(shard[start : start + 1]), _binary(message)], schema=_MESSAGE)


def _binary(message: pa.Buffer) -> pa.Array:
    offsets = pa.py_buffer(np.array([0, message.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message])


def _whole_shards(batches: Batches) -> Iterator[list[pa.Scalar]]:
    """Cut shard messages, ordered by shard, where a shard ends, into lists that are large enough to merge."""
    held: list[pa.Scalar] = []
    size, last = 0, None
    for batch in batches:
        for shard, message in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if size >= MOST_BYTES and shard != last:
                yield held
                held, size = [], 0
            held.append(message)
            size += message.as_buffer().size
            last = shard
    if held:
        yield held
