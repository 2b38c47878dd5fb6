"""The work of the tasks of a stream. They send messages with states or rows to shards, and shards emit messages with
results or states. A message is an Arrow batch as bytes.

This code needs no Spark session, so it also runs without a JVM.

rows ── send_messages ──▶ messages to shards ── add_messages ──▶ OpenWindows
OpenWindows ── pack_emitted ──▶ messages of emitted rows ── read_emitted ──▶ rows

The words in the arrows are methods of `ShardJob`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Row

from aggr.arrow.normalize import one_array
from aggr.tables.flat_results import flat_schema, flattened
from aggr.tables.keys import keyed
from spark_udaf.plan.columns import Batches
from spark_udaf.plan.conservation import Message, PartitionCheck, with_count_messages
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.shard_messages import MESSAGE_SCHEMA, Content, read_message, shard_messages
from spark_udaf.plan.shards import choose_shuffle_keys
from spark_udaf.plan.two_phase import MAX_STATE_BYTES, keys_as_in_states, rows_schema
from tiltframe import TiltFrame
from tiltframe.event_time import event_times
from tiltframe.instants import instants_of
from tiltframe.names import LEVEL, PARTIAL, REASON, REVISION
from tiltframe.reducing import adaptive_states, reduce_rows
from tiltframe.streaming import EmitPolicy, LatePolicy, OpenWindows, OrderedStream, Progress
from tiltframe.streaming.saved import OtherSavedFrame, Saved
from tiltframe.streaming.stream_rules import CHANGE, DROPPED

# The name of a column of messages. In a stream of time windows, the column contains null, or the start of the newest
# window for which the sending task has rows, in microseconds UTC. In a stream of ordered windows, it contains the
# position of the message among all messages of the batch.
NEWEST_START_OR_POSITION = "newest_start_or_position"

# The schema of messages to a shard.
SHARD_INPUT_SCHEMA = MESSAGE_SCHEMA.append(pa.field(NEWEST_START_OR_POSITION, pa.int64()))

# The name of the column of a shard's output that contains messages with emitted rows. The other columns contain the
# metrics of the shard.
EMITTED_MESSAGE_COLUMN = "message"

# The approximate maximum size of a message with emitted states, in bytes.
_MESSAGE_BYTES = 1 << 24

# The default name of a stream's metrics in the progress that Spark reports.
METRICS_NAME = "tiltframe"
WATERMARK = "watermark"

# Names of attributes of `Progress`. The attributes in `_TOTAL_METRICS` are numbers. The attributes in `_LEVEL_METRICS`
# are dicts from the name of a level to a number.
_TOTAL_METRICS = (
    "rows",
    "late_rows",
    "partly_late_rows",
    "moved_rows",
    "refused_rows",
    "emitted_rows",
    "keys",
    "state_bytes",
    "refused_values",
    "results_beyond_limit",
)
_LEVEL_METRICS = ("open_windows", "kept_windows")

# Spark's names for the clocks that timers can follow.
PROCESSING_TIME = "ProcessingTime"
EVENT_TIME = "EventTime"
NO_TIMERS = "None"


class Job:
    """Base class of the jobs of a stream. A job sends messages to shards, and packs the rows that shards emit."""

    shards: int
    returns_states: bool  # whether emitted rows contain states instead of results
    is_flat: bool  # whether the fields of results are separate columns
    computed_on_driver: ClassVar[tuple[str, ...]] = (
        "columns",
        "row_schema",
        "emitted_schema",
        "output_schema",
        "shuffle_keys",
    )

    def __post_init__(self) -> None:
        """Compute the attributes that are named in ``computed_on_driver``. Their values are then pickled with the job,
        so that tasks need not compute them again.
        """
        for name in self.computed_on_driver:
            getattr(self, name)

    @cached_property
    def shuffle_keys(self) -> NDArray[np.int32]:
        """The shuffle key of each shard: the number that Spark hashes to choose the partition of its messages. Each
        shard has a separate partition.
        """
        return choose_shuffle_keys(self.shards, self.shards)

    @property
    def levels(self) -> list[str]:
        """The names of the levels; empty for ordered windows."""
        return []

    @property
    def emitted_schema(self) -> pa.Schema:
        """The schema of emitted states."""
        raise NotImplementedError("a subclass of Job must define emitted_schema")

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the rows that the stream returns: of states if ``returns_states`` is true, and otherwise of
        results.
        """
        raise NotImplementedError("a subclass of Job must define output_schema")

    def to_output(self, states: pa.Table) -> pa.Table:
        """Return emitted states as the rows that the stream returns."""
        raise NotImplementedError("a subclass of Job must define to_output")

    def send_messages(self, batches: Batches, task: int) -> Batches:
        """Yield the messages that a task sends to the shards. They contain the rows of the task's partition, or states
        that are reduced from the rows.

        Spark calls only shards that receive a message, but the time of every shard must be advanced. The first task
        therefore also sends a message without rows to every shard. If the late policy closes windows by event times,
        every task with rows sends such a message to every shard. The message then contains the start of the newest
        window for which the task has rows.

        At the end, yield one count message per shard, with the numbers of messages and rows that the task has sent to
        this shard.
        """
        return with_count_messages(self._messages(batches, task), self.shuffle_keys, task, SHARD_INPUT_SCHEMA)

    def _messages(self, batches: Batches, task: int) -> Batches:
        raise NotImplementedError("a subclass of Job must define _messages")

    def checked_messages(self, shard: object, rows: Iterable[Row]) -> list[Row]:
        """Return the messages of a batch for one shard, without count messages. Raise ``NotConserved`` if messages are
        missing or repeated.
        """
        rows = list(rows)
        PartitionCheck(None, None).check(
            [Message(shard, row.message, row.content, row.rows) for row in rows if row.message is not None]
        )
        return [row for row in rows if row.content != Content.COUNTS]

    def _wake_messages(self, value: int | None) -> pa.RecordBatch:
        """Return a batch with one message without rows for each shard, so that Spark calls every shard. All messages
        have ``value`` in the column `NEWEST_START_OR_POSITION`.
        """
        null_columns = [pa.nulls(len(self.shuffle_keys), field.type) for field in list(MESSAGE_SCHEMA)[1:]]
        value_column = pa.array([value] * len(self.shuffle_keys), pa.int64())
        return pa.RecordBatch.from_arrays(
            [pa.array(self.shuffle_keys), *null_columns, value_column], schema=SHARD_INPUT_SCHEMA
        )

    def pack_emitted(self, windows: OpenWindows | OrderedStream, emitted: Sequence[pa.Table]) -> Iterator[Row]:
        """Yield one row with the metrics of the shard, and then one row per message with emitted rows. The shard
        computes the results itself, because messages with results are smaller than messages with states.
        """
        yield Row(**metrics_of(windows.progress))
        tables = [as_schema(table, self.emitted_schema) for table in emitted if table.num_rows]
        if not tables:
            return
        table = pa.concat_tables(tables).combine_chunks()
        rows_per_message = max(1, table.num_rows * _MESSAGE_BYTES // max(table.nbytes, 1))
        for batch in table.to_batches(max_chunksize=rows_per_message):
            rows = as_schema(self.to_output(pa.Table.from_batches([batch])), self.output_schema)
            for message in rows.combine_chunks().to_batches():
                yield Row(**{EMITTED_MESSAGE_COLUMN: message.serialize().to_pybytes()})

    def read_emitted(self, message: pa.Buffer | bytes) -> pa.Table:
        """Return the rows in a message that `pack_emitted` has packed, as a table with the schema `output_schema`."""
        return pa.Table.from_batches([read_message(message, self.output_schema)])


@dataclass(frozen=True)
class ShardJob(Job):
    """The work of the tasks of a stream of time windows. The attributes ``frame`` to ``beyond`` are arguments of
    `tiltframe.streaming.OpenWindows`. Spark pickles the job for its tasks.
    """

    input_schema: pa.Schema  # the schema of the rows of the stream
    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    max_keys: int | None

    # The treatment of rows with new keys if there are already ``max_keys`` keys: "error" or "drop".
    beyond: str

    # Whether dropped late rows are emitted as well.
    emits_dropped: bool
    shards: int
    returns_states: bool = False
    is_flat: bool = False
    computed_on_driver: ClassVar[tuple[str, ...]] = (*Job.computed_on_driver, "states_schema")

    @cached_property
    def partial_frame(self) -> TiltFrame:
        """The frame that tasks use to reduce rows to states before the shuffle."""
        return self._empty_windows().partial_frame

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the stream to read."""
        return self.partial_frame.columns_in(self.input_schema.names)

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The schema of rows that are shuffled instead of states."""
        return rows_schema(self.input_schema, self.columns)

    @cached_property
    def states_schema(self) -> pa.Schema:
        """The schema of the states that are sent to a shard."""
        return pa.schema([f for f in self.partial_frame.states_schema(self.input_schema) if f.name != LEVEL])

    @cached_property
    def emitted_schema(self) -> pa.Schema:
        added_columns = self._empty_windows().emitted_columns
        fields = [pa.field(name, dtype) for name, dtype in added_columns.items()]
        return pa.schema([*self.frame.states_schema(self.input_schema), *fields])

    @cached_property
    def output_schema(self) -> pa.Schema:
        if self.returns_states:
            return self.emitted_schema
        schema = self.result_schema
        return flat_schema(schema) if self.is_flat else schema

    @property
    def result_schema(self) -> pa.Schema:
        """The schema of emitted rows with results, before the fields of results become separate columns."""
        states_schema = self.frame.states_schema(self.input_schema)
        return pa.schema([*self.frame.results_schema(states_schema), *list(self.emitted_schema)[len(states_schema) :]])

    def to_output(self, states: pa.Table) -> pa.Table:
        if self.returns_states:
            return states
        results = self._empty_windows().results(states)
        return flattened(results) if self.is_flat else results

    @property
    def levels(self) -> list[str]:
        return [level.name for level in self.frame.levels]

    def _messages(self, batches: Batches, task: int) -> Batches:
        newest_start: int | None = None
        for has_states, table in adaptive_states(batches, self.partial_frame, MAX_STATE_BYTES):
            if self.late.closes_by_events and table.num_rows:
                table_start = self._newest_start(table, has_states)
                newest_start = table_start if newest_start is None else max(newest_start, table_start)
            table, columns = self._with_shard_columns(table, has_states)
            content = Content.STATES if has_states else Content.ROWS
            for messages in shard_messages(table, columns, self.shuffle_keys, content):
                null_values = pa.nulls(messages.num_rows, pa.int64())
                yield pa.RecordBatch.from_arrays([*messages.columns, null_values], schema=SHARD_INPUT_SCHEMA)
        if not task or newest_start is not None:
            yield self._wake_messages(newest_start)

    def create_windows(self) -> OpenWindows:
        """Return the `OpenWindows` of a new shard. The types of the states are already set, so that the watermark can
        be advanced before the first row arrives.
        """
        return self._with_types(self._empty_windows())

    def load_windows(self, state: Saved) -> OpenWindows:
        """Return the `OpenWindows` of a shard from its saved state. Raise ``ValueError`` if the frame of the saved
        state differs from the frame of the job.
        """
        bounds = {"max_keys": self.max_keys, "beyond": self.beyond}
        try:
            windows = OpenWindows.from_ipc(state, self.frame, self.emit, self.late, **bounds)
        except OtherSavedFrame as error:
            raise ValueError(f"{error}, or give the query a new checkpoint") from None
        self._check_states(windows.frame)
        return self._with_types(windows)

    def _check_states(self, saved_frame: TiltFrame) -> None:
        """Raise ``ValueError`` unless ``saved_frame``, the frame of the saved windows, has the same columns of states
        as the frame of the job. Otherwise, states of new rows could not be merged into the saved states.
        """
        columns, job_columns = ({c.name: c.measure for c in frame.states} for frame in (saved_frame, self.frame))
        for name in [*columns, *job_columns]:
            if columns.get(name) != job_columns.get(name):
                raise ValueError(
                    f"the states {name!r} of the saved windows are {columns.get(name, 'missing')}, and rows are now "
                    f"reduced to {job_columns.get(name, 'no such states')}; add and remove only measures that share no "
                    "states with other measures, or give the query a new checkpoint"
                )

    def _with_types(self, windows: OpenWindows) -> OpenWindows:
        """Return ``windows`` after the types of all states have been set. If a type is unknown, an empty table is
        added, which sets the type. No types are known for new windows. For saved windows, the type of a state is
        unknown if the measure of this state was added to the frame after the windows had been saved.
        """
        if not windows.typed:
            windows.add(self.states_schema.empty_table())
        return windows

    def add_messages(self, windows: OpenWindows, messages: Iterable[Row]) -> pa.Table | None:
        """Add the states and rows in the messages of a batch to the windows. If the job emits dropped late rows, return
        their states, and otherwise None.
        """
        states: list[pa.RecordBatch] = []
        rows: list[pa.RecordBatch] = []
        newest_start: int | None = None
        for message in messages:
            message_start = message[NEWEST_START_OR_POSITION]
            if message_start is not None:
                newest_start = message_start if newest_start is None else max(newest_start, message_start)
            if message.message is not None:
                target, schema = (
                    (states, self.states_schema) if message.content == Content.STATES else (rows, self.row_schema)
                )
                target.append(read_message(message.message, schema))
        table = pa.Table.from_batches(states, self.states_schema)
        if rows:
            states_of_rows = reduce_rows(
                pa.Table.from_batches(rows, self.row_schema).combine_chunks(), self.partial_frame
            )
            table = pa.concat_tables([table, as_schema(states_of_rows, self.states_schema)])
        if not table.num_rows and newest_start is None:
            return None
        dropped = windows.add(table, newest_start)
        return self._as_emitted(dropped) if self.emits_dropped and dropped.num_rows else None

    def advance(self, windows: OpenWindows, watermark: int | None, now: int | None) -> pa.Table:
        """Advance the time, and return the states of the windows that are now emitted. ``watermark`` and ``now`` are in
        microseconds UTC.
        """
        return windows.advance(watermark, now)

    def _as_emitted(self, dropped: pa.Table) -> pa.Table:
        """Return the states of dropped late rows as a table with the columns of emitted states, such as level and
        reason.
        """
        finest = self.frame.levels[0].name
        constants = {REASON: DROPPED, REVISION: 0, PARTIAL: False, CHANGE: 1}
        table = dropped.append_column(LEVEL, pa.array([finest] * dropped.num_rows))
        for field in self.emitted_schema:
            if field.name not in table.column_names:
                # `constants` has no values for the columns that emit policies add, so these columns are null.
                values = [constants.get(field.name)] * dropped.num_rows
                table = table.append_column(field, pa.array(values, field.type))
        return table

    def _empty_windows(self) -> OpenWindows:
        return OpenWindows(self.frame, self.emit, self.late, max_keys=self.max_keys, beyond=self.beyond)

    def _with_shard_columns(self, table: pa.Table, has_states: bool) -> tuple[pa.Table, list[pa.Array]]:
        """Return two values: the table in the schema of messages, and the list of the columns whose values determine
        the shard of each row. ``table`` has states if ``has_states`` is true, and otherwise rows.
        """
        if has_states:
            table = as_schema(table, self.states_schema)
            return table, [one_array(table.column(name)) for name in self.frame.keys]
        table = as_schema(table, self.row_schema)
        return table, keys_as_in_states(keyed(table, self.frame.keyed_by, (), self.frame.timezone).keys)

    def _newest_start(self, table: pa.Table, has_states: bool) -> int:
        """Return the start of the newest window of the finest level in a table, in microseconds UTC. ``table`` has
        states if ``has_states`` is true, and otherwise rows.
        """
        if has_states:
            return int(instants_of(table).max())
        return int(
            self.frame.levels[0]
            .starts(event_times(table.column(self.frame.time), self.frame.time, self.frame.timezone))
            .max()
        )


def metric_names(levels: Sequence[str]) -> list[str]:
    """Return the names of a stream's metrics. Metrics are summed over the shards, except for the watermark, whose
    maximum is taken.
    """
    return [*_TOTAL_METRICS, WATERMARK, *(f"{metric} {level}" for metric in _LEVEL_METRICS for level in levels)]


def metrics_of(progress: Progress) -> dict[str, int | None]:
    """Return the metrics of a shard as a dict from names to numbers."""
    numbers = {name: getattr(progress, name) for name in _TOTAL_METRICS} | {WATERMARK: progress.watermark_us}
    level_metrics = {
        f"{metric} {level}": n for metric in _LEVEL_METRICS for level, n in getattr(progress, metric).items()
    }
    return numbers | level_metrics


def read_metrics(numbers: Mapping[str, int | None]) -> Progress:
    """Return the combined metrics of the shards of a stream as a `Progress`."""
    counts: dict[str, Any] = {name: numbers[name] or 0 for name in _TOTAL_METRICS}
    for metric in _LEVEL_METRICS:
        prefix = f"{metric} "
        counts[metric] = {name.removeprefix(prefix): n or 0 for name, n in numbers.items() if name.startswith(prefix)}
    return Progress(**counts, watermark_us=numbers[WATERMARK])
