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
from pyspark.sql import functions as F

from spark_udaf.scan import ParquetScan
from spark_udaf.schema import arrow_schema, as_schema, spark_schema
from spark_udaf.session import prepare
from spark_udaf.travel import pack, packed_schema, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_BYTES = 1 << 26  # states a task holds before it hands them on
_SHARDS = 1 << 12
_SHARD = "__shard"

Batches = Iterator[pa.RecordBatch]


class Source(Protocol):
    """Where rows come from: the rows of a DataFrame, or files that the tasks read themselves."""

    def map(
        self, columns: Sequence[str], keys: Sequence[str], reduce: Callable[[Batches], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Run ``reduce`` over each partition's batches, with the named columns only, some of them keys."""


@dataclass(frozen=True)
class Rows:
    """The rows of a DataFrame."""

    df: DataFrame

    def map(
        self, columns: Sequence[str], keys: Sequence[str], reduce: Callable[[Batches], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Send only the named columns over to Python."""
        selected = self.df.select(*[F.col(f"`{name}`") for name in columns])
        return selected.mapInArrow(reduce, spark_schema(schema))


def source_of(given: DataFrame | ParquetScan) -> tuple[Source, pa.Schema]:
    """Take a DataFrame or a scan of files as a source, and tell its schema; anything else raises ``TypeError``."""
    if isinstance(given, ParquetScan):
        prepare(given.spark)
        return given, given.schema
    if not hasattr(given, "mapInArrow"):
        raise TypeError(f"give a Spark DataFrame, or files by su.scan_parquet; got {type(given).__name__}")
    prepare(given.sparkSession)
    return Rows(given), arrow_schema(given)


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
    travelling = packed_schema(partial)

    def first(batches: Batches) -> Batches:
        for states in reduce(batches):
            yield from pack(as_schema(states, partial)).to_batches()

    def second(batches: Batches) -> Batches:
        for shards in _whole_shards(batches):
            yield from as_schema(merge(unpack(shards, partial)), result).to_batches()

    reduced = source.map(columns, keys, first, travelling)
    shard = F.pmod(F.xxhash64(*[F.col(f"`{name}`") for name in together], F.lit(0)), F.lit(_SHARDS)).cast("int")
    sharded = reduced.withColumn(_SHARD, shard).repartition(_SHARD).sortWithinPartitions(_SHARD)
    return sharded.mapInArrow(second, spark_schema(result))


def _whole_shards(batches: Batches) -> Iterator[pa.Table]:
    """Cut batches, ordered by shard, where a shard ends, in pieces worth merging."""
    held: list[pa.Table] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        table, shards = pa.Table.from_batches([batch]), batch.column(batch.schema.names.index(_SHARD)).to_numpy()
        held.append(table)
        size += table.nbytes
        last = int(np.searchsorted(shards, shards[-1], side="left"))  # the last shard may go on
        if size >= MOST_BYTES and (last or len(held) > 1):
            done = pa.concat_tables([*held[:-1], table.slice(0, last)])
            first_of_last = _start_of(done, int(shards[-1]))
            if first_of_last:
                yield done.slice(0, first_of_last).combine_chunks()
            held = [done.slice(first_of_last), table.slice(last)]
            size = sum(piece.nbytes for piece in held)
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _start_of(table: pa.Table, shard: int) -> int:
    return int(np.searchsorted(table.column(_SHARD).to_numpy(), shard, side="left"))
