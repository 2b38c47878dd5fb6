"""The two-phase plan: reduce rows in their partition, shuffle small states once, and merge them.

    partition ── reduce ──▶ partial states ─┐
    partition ── reduce ──▶ partial states ─┼─ shuffle by shard ──▶ merge the states of complete shards
    partition ── reduce ──▶ partial states ─┘

If a partition has nearly as many groups as rows, its rows are shuffled instead of states, and reduced afterwards.
Groups whose rows are all in one partition are merged and finished there, and their results are shuffled. Each
combination of values in the columns ``shard_by`` belongs to one shard, so that states with equal values are merged in
the same task. In contrast, a Python UDAF of Spark has no first phase: all rows are shuffled.
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
from spark_udaf.plan.attachments import attach, attached_value
from spark_udaf.plan.columns import Batches, arrow_schema, check_distinct_names, map_columns, unsliced_batches
from spark_udaf.plan.conservation import Message, PartitionCheck, read_rows, with_count_messages
from spark_udaf.plan.engine import Feature, engine_of
from spark_udaf.plan.exclusive_times import Span
from spark_udaf.plan.plain_scan import is_cached, scan_or_none
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.session import shuffle_partitions, use_large_batches
from spark_udaf.plan.shard_messages import (
    MESSAGE_SCHEMA,
    SHARD,
    Content,
    empty_message,
    shard_messages,
    spread_messages,
)
from spark_udaf.plan.shards import choose_shuffle_keys
from spark_udaf.plan.worker import partition_index_or_random, tune_worker
from spark_udaf.versions.same_version import TaskFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The maximum size in bytes of the states that a task keeps in memory before it sends them. Spark runs one task per
# core, so a machine needs this memory for each of its cores.
MAX_STATE_BYTES = 1 << 26
# The minimum number of shards, so that the states of one shard fit into memory even if there are few partitions.
_MIN_SHARDS = 64
# The name of the column of results that contains the shuffle keys of the shards whose states were merged.
SHARDS = "shards"

# The number of rows in a batch that is passed to the JVM. The size of such a batch of states is a few megabytes.
_ROWS_PER_BATCH = 2000


class Source(Protocol):
    """The source of rows: a DataFrame, or files that the tasks read."""

    @property
    def spark(self) -> SparkSession:
        """The session in which the plan runs."""

    @property
    def partitions(self) -> int | None:
        """The number of partitions, or None if it is unknown."""

    def exclusive_times(self, time: str, timezone: str = "UTC") -> list[Span | None] | None:
        """Return a list with one range of event times per partition, in microseconds UTC. The rows of other partitions
        have no times in this range.

        A partition without such times has the range None. Return None instead of the list if the times are unknown.
        """

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a DataFrame with the batches of ``schema`` that ``function`` returns for the batches of each
        partition. Only the columns ``columns`` are read. They include the key columns ``keys``.

        The second argument of ``function`` is the index of the partition, or 0 if the number of partitions is unknown.
        """


@dataclass(frozen=True)
class DataFrameSource:
    """A source whose rows are those of a DataFrame."""

    df: DataFrame

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrame."""
        return self.df.sparkSession

    @property
    def partitions(self) -> None:
        """None, because Spark has not planned the DataFrame yet."""
        return None

    def exclusive_times(self, time: str, timezone: str = "UTC") -> None:
        """Return None, because the times of the rows in each partition of a DataFrame are unknown."""

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a DataFrame with the batches that ``function`` returns for the batches of each partition. Only the
        columns ``columns`` are sent to Python.
        """

        def reduce_rows(batches: Batches) -> Batches:  # Spark shows the name of this function as the name of the stage.
            return function(batches, 0)

        return map_columns(self.df, columns, reduce_rows, schema)


def source_of(
    rows: DataFrame | ParquetScan,
    select_names: Callable[[Sequence[str]], Sequence[str]] | None = None,
    scan: Literal["auto"] | None = None,
) -> tuple[Source, pa.Schema]:
    """Return a DataFrame or a scan of files as a source, and its schema. Raise ``TypeError`` for other values.

    ``select_names`` receives the names of the columns of a DataFrame, and returns the names to be read (all by
    default). With ``scan="auto"``, a DataFrame that only selects rows and columns of files is replaced by a scan of the
    files.
    """
    if isinstance(rows, ParquetScan):
        use_large_batches(rows.spark)
        return rows, rows.schema
    if not hasattr(rows, "mapInArrow") or isinstance(rows, type):
        raise TypeError(f"expected a Spark DataFrame, or files from su.scan_parquet; got {type_name(rows)}")
    if rows.isStreaming:
        raise TypeError(
            "this is a streaming DataFrame; use su.stream to emit its windows, or su.stream_into to write it to a "
            "store. In foreachBatch, use the batch, which is an ordinary DataFrame"
        )
    use_large_batches(rows.sparkSession)
    schema = arrow_schema(rows, None if select_names is None else select_names(rows.columns))
    scan_of_files = scan_or_none(rows, scan)
    return (DataFrameSource(rows), schema) if scan_of_files is None else (scan_of_files, scan_of_files.schema)


@dataclass(frozen=True)
class UnreducedRows:
    """Functions for rows that are shuffled unreduced, because they would give nearly as many states as there are rows.

    Parameters
    ----------
    schema : schema of the shuffled rows, with the columns to read
    shard_rows : function of a table of rows
        It returns a table of the rows that belong to a window, and a list of the columns that determine the shard of
        each row. These columns have the types that they have in states, so that rows and states with equal keys have
        the same shard.
    reduce : function of a table of rows that returns a table of partial states
    """

    schema: pa.Schema
    shard_rows: Callable[[pa.Table], tuple[pa.Table, list[pa.Array]]]
    reduce: Callable[[pa.Table], pa.Table]


def identity(merged_states: pa.Table) -> pa.Table:
    """Return merged states unchanged."""
    return merged_states


@dataclass(frozen=True)
class TwoPhasePlan:
    """A plan in two phases: tasks reduce rows to states, a shuffle brings the states of each shard together, and tasks
    merge the states and compute the result.

    Parameters
    ----------
    source : Source
    columns : names of the columns to read
    keys : names of the key columns
    reduce : function
        The first phase. It receives the batches and the index of a partition, and yields pairs of a `Content` and a
        table. A table contains partial states, or rows (only with ``unreduced``), or results (only with
        ``can_finish_early``). Such results belong to windows whose rows are all in the partition.
    partial_schema : schema of the partial states
    shard_by : names of columns of ``partial_schema``
        States that are equal in these columns are in the same table that ``merge`` receives.
    merge : function of a table of partial states that returns a table of merged states
    result_schema : schema of the result
        If it has a column ``shards``, the first row of each table of results lists the shards whose states were merged
        into this table. The list is empty in the other rows.
    unreduced : UnreducedRows, optional
        The functions for rows that are shuffled in the place of states. None means that only states are shuffled.
    can_finish_early : whether ``reduce`` may yield results, before the shuffle
    compute_results : function of a table of merged states that returns a table of the result
    is_one_group : whether all rows are one group, which has a result even without rows
        ``merge`` then receives an empty table if there are no rows.
    """

    source: Source
    columns: Sequence[str]
    keys: Sequence[str]
    reduce: Callable[[Batches, int], Iterator[tuple[Content, pa.Table]]]
    partial_schema: pa.Schema
    shard_by: Sequence[str]
    merge: Callable[[pa.Table], pa.Table]
    result_schema: pa.Schema
    unreduced: UnreducedRows | None = None
    can_finish_early: bool = False
    compute_results: Callable[[pa.Table], pa.Table] = identity
    is_one_group: bool = False
    shuffled: DataFrame | None = None  # the messages after the shuffle; None before the shuffle is planned

    @cached_property
    def partitions(self) -> int:
        """The number of partitions of the shuffle."""
        partitions = _partitions(self.source.spark)
        task_count = self.source.partitions
        if task_count is None:
            return partitions
        return max(1, min(task_count, max(_MIN_SHARDS, partitions)))

    @cached_property
    def shuffle_keys(self) -> NDArray[np.int32]:
        """The shuffle key of each shard: the number that Spark hashes to choose the partition of the shard."""
        return choose_shuffle_keys(self.partitions * -(-_MIN_SHARDS // self.partitions), self.partitions)

    def with_results(self, compute_results: Callable[[pa.Table], pa.Table], result_schema: pa.Schema) -> TwoPhasePlan:
        """Return a new plan whose tasks pass each table of results of this plan to ``compute_results``. The results of
        the new plan have the schema ``result_schema``.
        """
        compute_previous = self.compute_results
        previous_schema = self.result_schema
        # If `can_finish_early` is true, `shuffled` contains results that the first phase has computed without
        # ``compute_results``. The new plan then cannot use `shuffled`, and plans the first phase again.
        shuffled = None if self.can_finish_early else self.shuffled

        def compute_both(merged_states: pa.Table) -> pa.Table:
            return compute_results(as_schema(compute_previous(merged_states), previous_schema))

        return replace(self, compute_results=compute_both, result_schema=result_schema, shuffled=shuffled)

    def run(self) -> DataFrame:
        """Return the DataFrame of the result. The plan is attached to the DataFrame, for `plan_of`."""
        check_distinct_names(self.result_schema.names, self.source.spark)
        shuffled = _plan_shuffle(self) if self.shuffled is None else self.shuffled
        results = shuffled.mapInArrow(TaskFunction(_second_phase(self)), spark_schema(self.result_schema))
        attach(results, "plan", replace(self, shuffled=shuffled))
        return results


def plan_of(df: DataFrame | ParquetScan) -> TwoPhasePlan | None:
    """Return the plan that `TwoPhasePlan.run` has attached to a DataFrame. Return None for other DataFrames, and for a
    DataFrame that Spark caches, because its rows are read from the cache.
    """
    plan: TwoPhasePlan | None = attached_value(df, "plan")
    if plan is None or isinstance(df, ParquetScan):
        return None
    if not engine_of(df.sparkSession).has(Feature.CACHE):
        return plan
    return None if is_cached(df) else plan


def as_states(tables: Iterator[pa.Table]) -> Iterator[tuple[Content, pa.Table]]:
    """Yield pairs of `Content.STATES` and a table, the form in which a first phase returns states."""
    return ((Content.STATES, table) for table in tables)


def as_contents(tables: Iterator[tuple[bool, pa.Table]]) -> Iterator[tuple[Content, pa.Table]]:
    """Yield pairs of a `Content` and a table. ``tables`` contains pairs from `adaptive_states`: a bool, which is true
    for states and false for rows, and a table.
    """
    return ((Content(is_state), table) for is_state, table in tables)


def rows_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of shuffled rows: the columns to read, with dictionaries decoded."""
    types = [(name, schema.field(name).type) for name in columns]
    return pa.schema(
        [
            (name, getattr(dtype, "value_type", dtype) if pa.types.is_dictionary(dtype) else dtype)
            for name, dtype in types
        ]
    )


def keys_as_in_states(keys: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Return the key columns of rows with the types that they have in states, so that rows and states with equal keys
    have the same shard.
    """
    return [normalize(column).cast(key_type(column.type)) for column in keys.values()]


def _plan_shuffle(plan: TwoPhasePlan) -> DataFrame:
    """Return a DataFrame with the messages of the first phase after they have been shuffled. A message contains states,
    rows or results. The messages of each partition are ordered by shard.
    """
    keys_of_shards = plan.shuffle_keys
    partitions = plan.partitions
    task_count = plan.source.partitions
    reduce = plan.reduce
    partial_schema = plan.partial_schema
    unreduced = plan.unreduced
    shard_by = plan.shard_by
    compute_results = plan.compute_results
    result_schema = plan.result_schema

    def send_messages(batches: Batches, number: int) -> Batches:
        for content, table in reduce(batches, number):
            if content is Content.RESULTS:
                yield from spread_messages(
                    as_schema(compute_results(table), result_schema), keys_of_shards, partitions, _ROWS_PER_BATCH
                )
                continue
            if content is Content.STATES or unreduced is None:
                table = as_schema(table, partial_schema)
                columns = [one_array(table.column(name)) for name in shard_by]
            else:
                table, columns = unreduced.shard_rows(as_schema(table, unreduced.schema))
            yield from shard_messages(table, columns, keys_of_shards, content)

    def reduce_partition(batches: Batches, number: int) -> Batches:
        tune_worker()
        task = partition_index_or_random() if task_count is None else number
        yield from with_count_messages(send_messages(batches, number), keys_of_shards, task)

    messages = plan.source.map(plan.columns, plan.keys, reduce_partition, MESSAGE_SCHEMA)
    if plan.is_one_group:
        messages = messages.union(empty_message(plan.source.spark, int(keys_of_shards[0])))
    # If the number of partitions is passed to `repartition`, Spark keeps this number. Otherwise, Spark joins small
    # partitions, for example into three partitions for two cores, so that one core waits at the end. The number of
    # partitions is computed from the number of tasks before the shuffle. If the number of tasks is unknown, no number
    # of partitions is passed.
    shuffled = messages.repartition(SHARD) if task_count is None else messages.repartition(partitions, SHARD)
    return shuffled.sortWithinPartitions(SHARD)


def _second_phase(plan: TwoPhasePlan) -> Callable[[Batches], Batches]:
    """Return the function of the second phase. It receives the messages of a partition, merges the states of complete
    shards, and yields their results. Results of the first phase are yielded unchanged.
    """
    partial_schema = plan.partial_schema
    merge = plan.merge
    compute_results = plan.compute_results
    result_schema = plan.result_schema
    unreduced = plan.unreduced
    task_count = plan.source.partitions
    has_shards = engine_of(plan.source.spark).has(Feature.SHARDS)
    shards_per_partition = len(plan.shuffle_keys) // plan.partitions if has_shards else None

    def merge_and_compute(messages: Sequence[Message]) -> pa.Table | None:
        states = [read_rows(m, partial_schema) for m in messages if m.content == Content.STATES]
        tables = [pa.Table.from_batches(states, partial_schema)]
        rows = [m for m in messages if m.content == Content.ROWS]
        if unreduced is not None and rows:
            table = pa.Table.from_batches([read_rows(message, unreduced.schema) for message in rows]).combine_chunks()
            tables.append(as_schema(unreduced.reduce(table), partial_schema))
        has_result = states or rows or any(m.content == Content.EMPTY for m in messages)
        return compute_results(merge(pa.concat_tables(tables))) if has_result else None

    def merge_shards(batches: Batches) -> Batches:
        tune_worker()
        messages_by_shard = _messages(batches) if has_shards else sorted(_messages(batches), key=attrgetter(SHARD))
        check = PartitionCheck(shards_per_partition, task_count)
        for messages in _whole_shards(messages_by_shard):
            check.check(messages)
            for message in messages:
                if message.content == Content.RESULTS:
                    yield read_rows(message, result_schema)
            table = merge_and_compute(messages)
            if SHARDS in result_schema.names:
                table = _with_shards(table, result_schema, messages)
            if table is not None:
                yield from unsliced_batches(as_schema(table, result_schema), _ROWS_PER_BATCH)
        check.check_end()

    merge_shards.__name__ = "merge_states"  # Spark shows the name of this function as the name of the stage.
    return merge_shards


def _with_shards(table: pa.Table | None, result_schema: pa.Schema, messages: Sequence[Message]) -> pa.Table:
    """Return ``table`` with the additional column ``shards``. In the first row, this column contains the list of the
    shards of ``messages``. In the other rows, it contains an empty list.

    If the messages contain no states, pass None as ``table``. The result is then one row in which all other columns are
    null.
    """
    if table is None:
        table = pa.table(
            {name: pa.nulls(1, result_schema.field(name).type) for name in result_schema.names if name != SHARDS}
        )
    shards = [sorted({message.shard for message in messages}), *([[]] * (table.num_rows - 1))]
    return table.append_column(SHARDS, pa.array(shards, result_schema.field(SHARDS).type))


def _partitions(spark: SparkSession) -> int:
    """Return the number of shuffle partitions in the settings of the session. Spark may join small partitions later."""
    initial = spark.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None)
    return int(initial) if initial else shuffle_partitions(spark)


def _messages(batches: Batches) -> Iterator[Message]:
    for batch in batches:
        shards, messages, contents, rows = batch.columns
        buffers = (message.as_buffer() for message in messages)
        columns = (shards.to_pylist(), buffers, contents.to_pylist(), rows.to_pylist())
        yield from map(Message, *columns)


def _whole_shards(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield lists of messages. Each list contains all messages of one or more shards. Each list except the last one has
    at least `MAX_STATE_BYTES` bytes. ``messages`` must be ordered by shard.
    """
    messages_of_shards: list[Message] = []
    size = 0
    last_shard = None
    for message in messages:
        if size >= MAX_STATE_BYTES and message.shard != last_shard:
            yield messages_of_shards
            messages_of_shards = []
            size = 0
        messages_of_shards.append(message)
        size += len(message.data)
        last_shard = message.shard
    if messages_of_shards:
        yield messages_of_shards
