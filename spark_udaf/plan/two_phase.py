"""The two-phase plan: reduce where the rows are, one shuffle of small states, merge.

    partition ── reduce ──▶ partial states ─┐
    partition ── reduce ──▶ partial states ─┼─ shuffle by shard ──▶ merge, whole shards at a time
    partition ── reduce ──▶ partial states ─┘

Where a partition has nearly as many groups as rows, rows travel instead of states, and are reduced after the shuffle.
What a partition alone has rows of is merged and read there, and its results travel: nothing has to meet them.
A shard is a set of values of some columns, so whatever agrees in them comes together. A Python UDAF of Spark's own
has no such first phase: all rows cross its shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.normalize import normalize, one_array
from aggr.groups.groups import type_name
from aggr.tables.keys import key_type
from spark_udaf.plan.attachments import attach, attached
from spark_udaf.plan.columns import arrow_schema, check_distinct, map_columns, unsliced_batches
from spark_udaf.plan.conservation import Message, Received, read_rows, with_receipts
from spark_udaf.plan.exclusive_times import Span
from spark_udaf.plan.plain_scan import plain_or_none
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.session import is_sail, prepare, shuffle_partitions
from spark_udaf.plan.shard_messages import (
    MESSAGE,
    SHARD,
    Content,
    empty_message,
    shard_messages,
    spread_messages,
)
from spark_udaf.plan.shards import shard_numbers
from spark_udaf.plan.worker import task_number, tune_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = 1 << 26  # states a task holds before it sends them on: 64 MiB, for each core of a worker
_LEAST_SHARDS = 64  # so that a shard's states fit into memory, however few partitions there are
SHARDS = "shards"  # a column of results that names the shards that they were merged from
_GIVEN_ROWS = 2000  # states sent to the JVM at once, of some kilobytes each: some megabytes

Batches = Iterator[pa.RecordBatch]


class Source(Protocol):
    """Where rows come from: the rows of a DataFrame, or files that the tasks read themselves."""

    @property
    def spark(self) -> SparkSession:
        """The session to run in."""

    @property
    def partitions(self) -> int | None:
        """How many partitions there are, where that is known."""

    def exclusive_times(self, time: str, timezone: str = "UTC") -> list[Span | None] | None:
        """Tell which event times each partition alone has; None if that is not known."""

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Run a function over each partition's batches, with the named columns only, some of them keys.

        It gets the number of the partition as well, 0 where ``partitions`` is not known.
        """


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

    def exclusive_times(self, time: str, timezone: str = "UTC") -> None:
        """Not known: Spark may put any row into any partition."""

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Send only the named columns over to Python."""

        def reduce_rows(batches: Batches) -> Batches:  # Spark names the stage after it
            return function(batches, 0)

        return map_columns(self.df, columns, reduce_rows, schema)


def source_of(
    rows: DataFrame | ParquetScan,
    read: Callable[[Sequence[str]], Sequence[str]] | None = None,
    scan: Literal["auto"] | None = None,
) -> tuple[Source, pa.Schema]:
    """Take a DataFrame or a scan of files as a source, and tell its schema; anything else raises ``TypeError``.

    ``read`` names, of the columns that there are, those that are going to be read, as for
    `spark_udaf.plan.columns.arrow_schema`. With ``scan="auto"`` the files of a DataFrame that is a plain scan of them
    are the source.
    """
    if isinstance(rows, ParquetScan):
        prepare(rows.spark)
        return rows, rows.schema
    if not hasattr(rows, "mapInArrow") or isinstance(rows, type):
        raise TypeError(f"give a Spark DataFrame, or files by su.scan_parquet; got {type_name(rows)}")
    if rows.isStreaming:
        raise TypeError(
            "this is a streaming DataFrame; su.stream emits its windows, and su.stream_into writes it into a store; in "
            "foreachBatch each batch is an ordinary one"
        )
    prepare(rows.sparkSession)
    schema = arrow_schema(rows, None if read is None else read(rows.columns))
    plain = plain_or_none(rows, scan)
    return (Rows(rows), schema) if plain is None else (plain, plain.schema)


@dataclass(frozen=True)
class RawRows:
    """How rows travel where reducing them would leave too many states.

    Parameters
    ----------
    schema : of the rows that travel, the columns that are read
    shard_rows : rows -> the rows that count, and the columns that tell their shards, as those of their states would
    reduce : rows -> table of partial states
    """

    schema: pa.Schema
    shard_rows: Callable[[pa.Table], tuple[pa.Table, list[pa.Array]]]
    reduce: Callable[[pa.Table], pa.Table]


def identity(merged: pa.Table) -> pa.Table:
    """Read what is merged as it is."""
    return merged


@dataclass(frozen=True)
class TwoPhases:
    """A plan of two phases around one shuffle.

    Parameters
    ----------
    source : Source
    columns : names of the columns to read
    keys : names of those that are keys
    reduce : batches of a partition, its number -> pairs of what a table's rows are, and the table: partial states, rows
        where ``unreduced`` is given, or where ``finishes``, what ``merge`` would make of states that meet no others
    partial : schema of the partial states
    shard_by : columns of ``partial``; rows that agree in them meet in one call of ``merge``
    merge : table of partial states -> what is merged
    result : schema of the result; its column ``shards``, if there is one, names the shards of a result
    unreduced : how rows travel; None where only states do
    finishes : whether ``reduce`` may give whole results
    read : what is merged -> table of the result
    one_group : whether all rows are one group, which has a result even if there are no rows: ``merge`` then gets an
        empty table
    """

    source: Source
    columns: Sequence[str]
    keys: Sequence[str]
    reduce: Callable[[Batches, int], Iterator[tuple[Content, pa.Table]]]
    partial: pa.Schema
    shard_by: Sequence[str]
    merge: Callable[[pa.Table], pa.Table]
    result: pa.Schema
    unreduced: RawRows | None = None
    finishes: bool = False
    read: Callable[[pa.Table], pa.Table] = identity
    one_group: bool = False
    sharded: DataFrame | None = None  # what comes together, where it is planned already

    @cached_property
    def partitions(self) -> int:
        """Into how many partitions the shuffle is told to bring shards."""
        partitions, known = _partitions(self.source.spark), self.source.partitions
        return partitions if known is None else max(1, min(known, max(_LEAST_SHARDS, partitions)))

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """By what number each shard goes."""
        return shard_numbers(self.partitions * -(-_LEAST_SHARDS // self.partitions), self.partitions)

    def then(self, read: Callable[[pa.Table], pa.Table], result: pa.Schema) -> TwoPhases:
        """Plan to read the result further in the tasks that make it, without another crossing."""
        before, states = self.read, self.result
        sharded = None if self.finishes else self.sharded  # which holds results that are read no further

        def read_further(merged: pa.Table) -> pa.Table:
            return read(as_schema(before(merged), states))

        return replace(self, read=read_further, result=result, sharded=sharded)

    def run(self) -> DataFrame:
        """Make the DataFrame, which keeps the plan for `plan_of`."""
        check_distinct(self.result.names, self.source.spark)
        sharded = _sharded(self) if self.sharded is None else self.sharded
        planned = sharded.mapInArrow(_second(self), spark_schema(self.result))
        attach(planned, "plan", replace(self, sharded=sharded))
        return planned


def plan_of(df: DataFrame | ParquetScan) -> TwoPhases | None:
    """Find the plan that a DataFrame was made by; None if there is none, or Spark keeps what came of it."""
    plan: TwoPhases | None = attached(df, "plan")
    if plan is None or isinstance(df, ParquetScan):
        return None
    level = df.storageLevel
    if is_sail(df.sparkSession):  # which keeps nothing, and says that it keeps all
        return plan
    return None if level.useMemory or level.useDisk or level.useOffHeap else plan


def as_states(tables: Iterator[pa.Table]) -> Iterator[tuple[Content, pa.Table]]:
    """Say of each table that it is of states."""
    return ((Content.STATES, table) for table in tables)


def as_contents(tables: Iterator[tuple[bool, pa.Table]]) -> Iterator[tuple[Content, pa.Table]]:
    """Say of each table what it is of, as `aggr.tables.partial_aggregation.adaptive_states` says whether of states."""
    return ((Content(reduced), table) for reduced, table in tables)


def rows_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema in which rows travel: the columns that are read, dictionaries decoded."""
    types = [(name, schema.field(name).type) for name in columns]
    return pa.schema(
        [
            (name, getattr(dtype, "value_type", dtype) if pa.types.is_dictionary(dtype) else dtype)
            for name, dtype in types
        ]
    )


def keys_as_in_states(keys: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Give keys of rows as their states keep them, so that both are of one shard."""
    return [normalize(column).cast(key_type(column.type)) for column in keys.values()]


def _sharded(plan: TwoPhases) -> DataFrame:
    """Plan all up to the second phase: messages of states and rows, ordered by shard in each partition."""
    numbers, partitions, known = plan.numbers, plan.partitions, plan.source.partitions
    reduce, partial, unreduced, shard_by = plan.reduce, plan.partial, plan.unreduced, plan.shard_by
    read, result = plan.read, plan.result

    def messages(batches: Batches, number: int) -> Batches:
        for content, table in reduce(batches, number):
            if content is Content.RESULTS:
                yield from spread_messages(as_schema(read(table), result), numbers, partitions, _GIVEN_ROWS)
                continue
            if content is Content.STATES or unreduced is None:
                table = as_schema(table, partial)
                columns = [one_array(table.column(name)) for name in shard_by]
            else:
                table, columns = unreduced.shard_rows(as_schema(table, unreduced.schema))
            yield from shard_messages(table, columns, numbers, content)

    def first(batches: Batches, number: int) -> Batches:
        tune_worker()
        yield from with_receipts(messages(batches, number), numbers, task_number() if known is None else number)

    sent = plan.source.map(plan.columns, plan.keys, first, MESSAGE)
    if plan.one_group:
        sent = sent.union(empty_message(plan.source.spark, int(numbers[0])))
    # Spark joins small partitions by itself where it is not told how many; two cores then wait for a third partition
    sharded = sent.repartition(SHARD) if known is None else sent.repartition(partitions, SHARD)
    return sharded.sortWithinPartitions(SHARD)


def _second(plan: TwoPhases) -> Callable[[Batches], Batches]:
    """Make the second phase, which merges whole shards of messages, and hands on results as they are."""
    partial, merge, read, result, unreduced = plan.partial, plan.merge, plan.read, plan.result, plan.unreduced
    tasks, sail = plan.source.partitions, is_sail(plan.source.spark)
    shards_of_each = None if sail else len(plan.numbers) // plan.partitions

    def merged(messages: Sequence[Message]) -> pa.Table | None:
        states = [read_rows(m, partial) for m in messages if m.content == Content.STATES]
        tables = [pa.Table.from_batches(states, partial)]
        rows = [m for m in messages if m.content == Content.ROWS]
        if unreduced is not None and rows:
            table = pa.Table.from_batches([read_rows(message, unreduced.schema) for message in rows]).combine_chunks()
            tables.append(as_schema(unreduced.reduce(table), partial))
        has_result = states or rows or any(m.content == Content.EMPTY for m in messages)
        return read(merge(pa.concat_tables(tables))) if has_result else None

    def second(batches: Batches) -> Batches:
        tune_worker()
        # Sail drops the order of partitions, and hashes otherwise
        ordered = sorted(_messages(batches), key=attrgetter(SHARD)) if sail else _messages(batches)
        received = Received(shards_of_each, tasks)
        for messages in _whole_shards(ordered):
            received.check(messages)
            for each in messages:
                if each.content == Content.RESULTS:
                    yield read_rows(each, result)
            table = merged(messages)
            if SHARDS in result.names:
                table = _with_shards(table, result, messages)
            if table is not None:
                yield from unsliced_batches(as_schema(table, result), _GIVEN_ROWS)
        received.check_end()

    second.__name__ = "merge_states"  # Spark names the stage after it
    return second


def _with_shards(table: pa.Table | None, result: pa.Schema, messages: Sequence[Message]) -> pa.Table:
    """Name in a row the shards that it was merged from; the row is null for shards without states."""
    if table is None:
        table = pa.table({name: pa.nulls(1, result.field(name).type) for name in result.names if name != SHARDS})
    shards = [sorted({message.shard for message in messages}), *([[]] * (table.num_rows - 1))]
    return table.append_column(SHARDS, pa.array(shards, result.field(SHARDS).type))


def _partitions(spark: SparkSession) -> int:
    """Tell into how many partitions Spark shuffles where it is not told how many, before it joins small ones."""
    initial = spark.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None)
    return int(initial) if initial else shuffle_partitions(spark)


def _messages(batches: Batches) -> Iterator[Message]:
    for batch in batches:
        shards, messages, contents, rows = batch.columns
        buffers = (message.as_buffer() for message in messages)
        yield from map(Message, shards.to_pylist(), buffers, contents.to_pylist(), rows.to_pylist())


def _whole_shards(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Cut shard messages, ordered by shard, where a shard ends, into lists that are large enough to merge."""
    messages_of_shards: list[Message] = []
    size, last = 0, None
    for message in messages:
        if size >= MOST_BYTES and message.shard != last:
            yield messages_of_shards
            messages_of_shards, size = [], 0
        messages_of_shards.append(message)
        size += len(message.data)
        last = message.shard
    if messages_of_shards:
        yield messages_of_shards
