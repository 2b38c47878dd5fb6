"""The work of tasks in a stream of ordered windows: they send rows to shards as messages (Arrow batches as bytes), and
return results.

This code needs no Spark session, so it also runs without a JVM. Rows are shuffled unchanged. Messages are ordered by
task; the messages of one task keep the order in which the task sent them. Rows with equal times keep the order of their
messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Row

from aggr.arrow.normalize import normalize
from aggr.tables.flat_results import flattened
from aggr.tables.keys import key_fields, keyed
from spark_udaf.batch.running import with_key_columns_only
from spark_udaf.plan.columns import Batches
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.shard_messages import Content, read_message, shard_messages
from spark_udaf.plan.two_phase import keys_as_in_states
from spark_udaf.streaming.shard_job import NEWEST_START_OR_POSITION, SHARD_INPUT_SCHEMA, Job
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.ordered.query import OrderedQuery
from tiltframe.streaming import OrderedStream
from tiltframe.streaming.saved import Saved

# The maximum number of messages of a task. The messages of task n are numbered from n * _MESSAGES_PER_TASK in the
# column `NEWEST_START_OR_POSITION`, so that a shard can order them by task and then by arrival.
_MESSAGES_PER_TASK = 1 << 32


@dataclass(frozen=True)
class OrderedJob(Job):
    """The work of the tasks of a stream of ordered windows. Spark pickles the job for its tasks."""

    input_schema: pa.Schema  # the schema of the rows of the stream
    aggregator_class: type[OrderedAggregator]
    query: OrderedQuery
    shards: int
    returns_states: bool = False
    is_flat: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the stream to read."""
        return self.query.columns_in(self.input_schema.names)

    @cached_property
    def shard_query(self) -> OrderedQuery:
        """The query that a shard runs. Its keys are all names of columns. If a key of `query` is an expression, tasks
        compute the values of this expression before the shuffle, and the key of the shard's query is the name of the
        column with these values.
        """
        return self.query.ordered_by(with_key_columns_only(self.query.order))

    @property
    def _computed_keys(self) -> dict[str, str]:
        """The keys that are expressions. The dict maps the name of the column that a task adds for a key to the
        expression of the key.
        """
        pairs = zip(self.shard_query.keyed_by.values(), self.query.keyed_by.values(), strict=True)
        return {name: text for name, text in pairs if name != text}

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The schema of shuffled rows."""
        schema = pa.schema([self.input_schema.field(name) for name in self.columns])
        return pa.schema([*schema, *key_fields(self._computed_keys, schema)])

    @cached_property
    def emitted_schema(self) -> pa.Schema:
        no_rows = pa.schema([self.input_schema.field(name) for name in self.columns]).empty_table()
        return self.aggregator_class.for_query(self.query).finish(no_rows).schema

    @cached_property
    def output_schema(self) -> pa.Schema:
        return self.to_output(self.emitted_schema.empty_table()).schema

    def to_output(self, states: pa.Table) -> pa.Table:
        rows = states if self.returns_states else self.aggregator_class.for_query(self.query).results(states)
        return flattened(rows) if self.is_flat else rows

    def _messages(self, batches: Batches, task: int) -> Batches:
        position = task * _MESSAGES_PER_TASK
        if not task:
            yield self._wake_messages(position)
        for batch in batches:
            table, _, keys = keyed(pa.Table.from_batches([batch]), self.query.keyed_by, self.columns)
            for name in self.query.keyed_by:
                if (column := self.shard_query.keyed_by[name]) in self._computed_keys:
                    table = table.append_column(column, normalize(keys[name]))
            shard_columns = keys_as_in_states(keys)
            for messages in shard_messages(
                as_schema(table, self.row_schema), shard_columns, self.shuffle_keys, Content.ROWS
            ):
                positions = pa.array(range(position + 1, position + 1 + messages.num_rows), pa.int64())
                position += messages.num_rows
                yield pa.RecordBatch.from_arrays([*messages.columns, positions], schema=SHARD_INPUT_SCHEMA)

    def create_windows(self) -> OrderedStream:
        """Return the `OrderedStream` of a new shard. The types of its columns are already set, so that the watermark
        can be advanced before the first row arrives.
        """
        stream = OrderedStream(self.aggregator_class.for_query(self.shard_query))
        stream.add_rows(self.row_schema.empty_table())
        return stream

    def load_windows(self, state: Saved) -> OrderedStream:
        """Return the `OrderedStream` of a shard from its saved state. Raise ``ValueError`` if the windows of the saved
        state differ from the windows of the query.
        """
        return OrderedStream.from_ipc(state, self.aggregator_class.for_query(self.shard_query))

    def add_messages(self, stream: OrderedStream, messages: Iterable[Row]) -> pa.Table | None:
        """Add the rows in the messages of a batch to the stream. Return None: in contrast to
        `ShardJob.add_messages`, late rows are counted but not returned.
        """
        sorted_messages = sorted(
            (m for m in messages if m.message is not None), key=lambda message: message[NEWEST_START_OR_POSITION]
        )
        batches = [read_message(message.message, self.row_schema) for message in sorted_messages]
        if batches:
            stream.add_rows(pa.Table.from_batches(batches, self.row_schema))
        return None

    def advance(self, stream: OrderedStream, watermark: int | None, now: int | None) -> pa.Table:
        """Advance the watermark, and return the rows that are now emitted. ``now`` is ignored, because ordered windows
        have no timeouts.
        """
        return stream.advance(watermark)
