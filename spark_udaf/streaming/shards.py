"""Shards of open windows: what Spark calls, batch by batch, for each shard of a stream's keys.

    messages of a shard ──▶ OpenWindows of that shard ──▶ messages of what is emitted
                                 ▲        │
                                 └ state ─┘

A shard hosts one `tiltframe.streaming.OpenWindows`, and is told the time in every batch: of rows, by a message that
each batch has for each shard; without rows, by a timer that is due in the next batch whose time is later. So all shards
know the same watermark, and what is late does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from spark_udaf.jobs.schema import as_schema
from spark_udaf.jobs.shard_messages import MESSAGE, read_message
from spark_udaf.jobs.tune_worker import tune_worker
from spark_udaf.streaming.numbers import counted, names_of
from tiltframe import TiltFrame
from tiltframe.level_chain import reduce_rows
from tiltframe.streaming import EmitPolicy, LatePolicy, OpenWindows

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

ARRIVAL, EVENT, NO_TIME = "ProcessingTime", "EventTime", "None"  # Spark's names of what timers are told by
NEWEST = "newest"
IN = MESSAGE.append(pa.field(NEWEST, pa.int64()))  # what comes to a shard
OUT = "message"  # what a shard emits, beside its numbers

_PIECE_BYTES = 1 << 22  # of one value of Spark's state
_MESSAGE_BYTES = 1 << 24  # of one message of emitted rows
_PIECES = StructType([StructField("piece", BinaryType())])
_KEPT = StructType([StructField("shards", IntegerType()), StructField("timer", LongType())])


@dataclass(frozen=True)
class ShardJob:
    """What all shards of a stream do alike.

    Parameters
    ----------
    frame, emit, late, max_keys, beyond : as `tiltframe.streaming.OpenWindows` takes them
    shards : how many there are
    timers : what timers are told by, in Spark's words
    rows : schema of rows that travel in the place of states
    partial : schema of the states that come
    emitted : schema of the states that are emitted
    """

    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    max_keys: int | None
    beyond: str
    shards: int
    timers: str
    rows: pa.Schema
    partial: pa.Schema
    emitted: pa.Schema

    @cached_property
    def empty(self) -> OpenWindows:
        """Windows of which none is open."""
        return OpenWindows(self.frame, self.emit, self.late, max_keys=self.max_keys, beyond=self.beyond)

    def begun(self) -> OpenWindows:
        """Open no window, but know all types: levels follow the watermark before their first row."""
        windows = OpenWindows(self.frame, self.emit, self.late, max_keys=self.max_keys, beyond=self.beyond)
        windows.add(self.partial.empty_table())
        return windows

    def loaded(self, state: bytes) -> OpenWindows:
        """Go on from a state; raises ``ValueError`` for one of another frame."""
        return OpenWindows.from_ipc(state, self.frame, self.emit, self.late, max_keys=self.max_keys, beyond=self.beyond)

    def take(self, windows: OpenWindows, messages: Iterable[Row]) -> None:
        """Add what has come in a batch."""
        states: list[pa.RecordBatch] = []
        rows: list[pa.RecordBatch] = []
        newest: int | None = None
        for message in messages:
            if message.newest is not None:
                newest = message.newest if newest is None else max(newest, message.newest)
            if message.message is not None:
                kind, schema = (states, self.partial) if message.states else (rows, self.rows)
                kind.append(read_message(message.message, schema))
        table = pa.Table.from_batches(states, self.partial)
        if rows:
            reduced = reduce_rows(pa.Table.from_batches(rows, self.rows).combine_chunks(), windows.partial_frame)
            table = pa.concat_tables([table, as_schema(reduced, self.partial)])
        if table.num_rows or newest is not None:
            windows.add(table, newest)

    def told(self, windows: OpenWindows, emitted: pa.Table) -> Iterator[Row]:
        """Pack what is emitted, and the shard's numbers."""
        yield Row(**counted(windows.progress))
        if not emitted.num_rows:
            return
        table = as_schema(emitted, self.emitted).combine_chunks()
        rows = max(1, table.num_rows * _MESSAGE_BYTES // max(table.nbytes, 1))
        for batch in table.to_batches(max_chunksize=rows):
            yield Row(**{OUT: batch.serialize().to_pybytes()})

    @cached_property
    def out(self) -> StructType:
        """The schema of what shards give: messages, or numbers."""
        return StructType([StructField(OUT, BinaryType()), *(StructField(n, LongType()) for n in names_of(self.frame))])


class ShardWindows(StatefulProcessor):
    """The open windows of the shards that a task has, one after the other."""

    def __init__(self, job: ShardJob) -> None:
        """Keep what is to be done; Spark sends it to the tasks."""
        self._job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state of a shard: pieces of what it holds, and the timer that it waits for."""
        tune_worker()
        self._handle = handle
        self._pieces = handle.getListState("windows", _PIECES)
        self._kept = handle.getValueState("kept", _KEPT)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Take the messages of a batch, and tell the time."""
        windows, timer = self._loaded()
        if timer is not None:
            self._handle.deleteTimer(timer)
        self._job.take(windows, rows)
        yield from self._advanced(windows, timerValues)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Row]:
        """Tell the time in a batch that has no rows."""
        yield from self._advanced(self._loaded()[0], timerValues)

    def close(self) -> None:
        """Nothing is open."""

    def _loaded(self) -> tuple[OpenWindows, int | None]:
        """Load a shard; raises ``ValueError`` where it is of another stream."""
        kept = self._kept.get()
        if kept is None:
            return self._job.begun(), None
        shards, timer = kept
        if shards != self._job.shards:
            raise ValueError(
                f"the checkpoint has {shards} shards of keys, and this stream {self._job.shards}; "
                f"give shards={shards}, or a new checkpoint"
            )
        return self._job.loaded(b"".join(piece for (piece,) in self._pieces.get())), timer

    def _advanced(self, windows: OpenWindows, at: TimerValues) -> Iterator[Row]:
        """Tell the time, save the shard, and give what is emitted."""
        watermark, now = at.getCurrentWatermarkInMs(), at.getCurrentProcessingTimeInMs()
        emitted = windows.advance(_micros(watermark), _micros(now))
        state = windows.to_ipc()
        self._pieces.put([(state[start : start + _PIECE_BYTES],) for start in range(0, len(state), _PIECE_BYTES)])
        timer = {ARRIVAL: now, EVENT: max(watermark, 0)}.get(self._job.timers)
        if timer is not None:
            timer += 1
            self._handle.registerTimer(timer)
        self._kept.update((self._job.shards, timer))
        yield from self._job.told(windows, emitted)


def _micros(millis: int) -> int | None:
    """Read a time of Spark's: there is none before 1970, and 0 is a watermark that is not known."""
    return millis * 1000 if millis > 0 else None
