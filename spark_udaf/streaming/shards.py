"""Shards of open windows: what Spark calls, batch by batch, for each shard of a stream's keys.

    messages of a shard ──▶ OpenWindows of that shard ──▶ messages of what is emitted
                                 ▲        │
                                 └ state ─┘

A shard hosts one `tiltframe.streaming.OpenWindows`, and is told the time in every batch: of rows, by a message that
each batch has for each shard; without rows, by a timer that is due in the next batch whose time is later. So all shards
know the same watermark, and what is late does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from spark_udaf.jobs.tune_worker import tune_worker
from spark_udaf.streaming.numbers import names_of
from spark_udaf.streaming.shard_job import OUT, ShardJob
from tiltframe import TiltFrame
from tiltframe.streaming import OpenWindows

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

ARRIVAL, EVENT, NO_TIME = "ProcessingTime", "EventTime", "None"  # Spark's names of what timers are told by

_PIECE_BYTES = 1 << 22  # of one value of Spark's state
_NUMBER, _PIECE = (StructType([StructField("piece", kind())]) for kind in (IntegerType, BinaryType))
_KEPT = StructType(
    [StructField("shards", IntegerType()), StructField("timer", LongType()), StructField("pieces", IntegerType())]
)


class ShardWindows(StatefulProcessor):
    """The open windows of the shards that a task has, one after the other."""

    def __init__(self, job: ShardJob, timers: str) -> None:
        """Keep what is to be done, and what timers are told by, in Spark's words; Spark sends it to the tasks."""
        self._job, self._timers = job, timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state of a shard: pieces of what it holds, how many there are, and the timer that it waits for.

        A list of Spark's is one value of its store, however long it is; of a map each piece is one.
        """
        tune_worker()
        self._handle = handle
        self._pieces = handle.getMapState("windows", _NUMBER, _PIECE)
        self._kept = handle.getValueState("kept", _KEPT)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Take the messages of a batch, and tell the time."""
        windows, timer, pieces = self._loaded()
        if timer is not None:
            self._handle.deleteTimer(timer)
        dropped = self._job.take(windows, rows)
        yield from self._advanced(windows, timerValues, pieces, dropped)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Row]:
        """Tell the time in a batch that has no rows."""
        windows, _, pieces = self._loaded()
        yield from self._advanced(windows, timerValues, pieces)

    def close(self) -> None:
        """Nothing is open."""

    def _loaded(self) -> tuple[OpenWindows, int | None, int]:
        """Load a shard, its timer, and the number of its pieces; raises ``ValueError`` for one of another stream."""
        kept = self._kept.get()
        if kept is None:
            return self._job.begun(), None, 0
        shards, timer, pieces = kept
        if shards != self._job.shards:
            raise ValueError(
                f"the checkpoint has {shards} shards of keys, and this stream {self._job.shards}; "
                f"give shards={shards}, or a new checkpoint"
            )
        found = (self._pieces.getValue((number,)) or (b"",) for number in range(pieces))  # its checksum tells of a gap
        return self._job.loaded(b"".join(piece for (piece,) in found)), timer, pieces

    def _advanced(
        self, windows: OpenWindows, at: TimerValues, before: int, dropped: pa.Table | None = None
    ) -> Iterator[Row]:
        """Tell the time, save the shard in the place of so many pieces, and give what is emitted."""
        watermark, now = at.getCurrentWatermarkInMs(), at.getCurrentProcessingTimeInMs()
        emitted = windows.advance(_micros(watermark), _micros(now))
        state = windows.to_ipc()
        pieces = range(0, len(state), _PIECE_BYTES)
        for number, start in enumerate(pieces):
            self._pieces.updateValue((number,), (state[start : start + _PIECE_BYTES],))
        for number in range(len(pieces), before):
            self._pieces.removeKey((number,))
        timer = {ARRIVAL: now, EVENT: max(watermark, 0)}.get(self._timers)
        if timer is not None:
            timer += 1
            self._handle.registerTimer(timer)
        self._kept.update((self._job.shards, timer, len(pieces)))
        yield from self._job.told(windows, [emitted] if dropped is None else [dropped, emitted])


def given_by_shards(frame: TiltFrame) -> StructType:
    """Return the schema of what shards give: messages, or numbers."""
    return StructType([StructField(OUT, BinaryType()), *(StructField(name, LongType()) for name in names_of(frame))])


def _micros(millis: int) -> int | None:
    """Read a time of Spark's: there is none before 1970, and 0 is a watermark that is not known."""
    return millis * 1000 if millis > 0 else None
