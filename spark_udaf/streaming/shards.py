"""Shards of open windows: what Spark calls, batch by batch, for each shard of a stream's keys.

A shard hosts one `tiltframe.streaming.OpenWindows`, and is told the time in every batch: of rows, by a message that
each batch has for each shard; without rows, by a timer that is due in the next batch whose time is later. So all shards
know the same watermark, and what is late does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from spark_udaf.plan.worker import tune_worker
from spark_udaf.streaming.ordered_job import OrderedJob
from spark_udaf.streaming.shard_job import ARRIVAL, EVENT, OUT, ShardJob, names_of
from tiltframe.streaming.saved import Saved, of_head
from tiltframe.streaming.stored import StoredTable

_PIECE_BYTES = 1 << 22  # of one value of Spark's state
_SMALL_BYTES = 1 << 18  # below, blocks are kept together in one value: a call costs more than so many bytes do
_PLACE = StructType([StructField("block", StringType()), StructField("piece", IntegerType())])
_PIECE = StructType([StructField("piece", BinaryType())])
_KEPT = StructType().add("shards", "integer").add("timer", "long").add("head", "binary").add("small", "binary")


class ShardWindows(StatefulProcessor):
    """The open windows, or the ordered ones, of the shards that a task has, one after the other."""

    def __init__(self, job: ShardJob | OrderedJob, timers: str) -> None:
        """Keep what is to be done, and what timers are told by, in Spark's words; Spark sends it to the tasks."""
        self._job, self._timers = job, timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state of a shard: the blocks that it is saved in, and what tells of them and of its timer.

        A block is kept in pieces, for a value of Spark's store is to be small: it is fetched where it is needed, and
        put where it has changed. Small blocks are kept together, next to what tells of all.
        """
        tune_worker()
        self._handle = handle
        self._pieces = handle.getMapState("windows", _PLACE, _PIECE)
        self._kept = handle.getValueState("kept", _KEPT)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Take the messages of a batch, and tell the time."""
        windows, before, timer = self._loaded()
        if timer is not None:
            self._handle.deleteTimer(timer)
        dropped = self._job.take(windows, self._job.received(key, rows))
        yield from self._advanced(windows, timerValues, before, dropped)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Tell the time in a batch that has no rows."""
        windows, before, _ = self._loaded()
        yield from self._advanced(windows, timerValues, before)

    def close(self) -> None:
        """Nothing is open."""

    def _loaded(self) -> tuple[Any, Mapping[str, StoredTable], int | None]:
        """Load a shard, the blocks that it was saved as, and its timer; raises ``ValueError`` for another stream's."""
        value = self._kept.get()
        if value is None:
            return self._job.begun(), {}, None
        shards, timer, head, small = value
        state = of_head(bytes(head), self._block)
        state = Saved(state.said, {**state.blocks, **_unpacked(state.blocks, memoryview(small))})
        windows = self._job.loaded(state)  # says so, if keys have changed
        if shards != self._job.shards:
            raise ValueError(
                f"the checkpoint has {shards} shards of keys, and this stream {self._job.shards}; "
                f"give shards={shards}, or a new checkpoint"
            )
        return windows, state.blocks, timer

    def _block(self, name: str, size: int, checksum: int) -> StoredTable:
        """Show a block that is fetched when it is first needed."""

        def fetch() -> bytes:
            pieces = (self._pieces.getValue((name, number)) for number in range(_pieces(size)))
            return b"".join(piece[0] for piece in pieces if piece is not None)  # its checksum tells of a gap

        return StoredTable(size, checksum, fetch)

    def _put(self, state: Saved, before: Mapping[str, StoredTable]) -> bytes:
        """Keep the blocks that have changed in the place of what was there before; return the small ones together."""
        small, were_small = _small(state.blocks), _small(before)
        together = b"".join(block.data for name, block in state.blocks.items() if name in small)  # fetched, if need be
        for name, block in state.blocks.items():
            if name not in small and (block is not before.get(name) or name in were_small):
                for number in range(_pieces(block.size)):
                    piece = block.data[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES]
                    self._pieces.updateValue((name, number), (bytes(piece),))
        for name in before.keys() - were_small:
            left = _pieces(state.blocks[name].size) if name in state.blocks.keys() - small else 0
            for number in range(left, _pieces(before[name].size)):
                self._pieces.removeKey((name, number))
        return together

    def _advanced(
        self, windows: Any, at: TimerValues, before: Mapping[str, StoredTable], dropped: pa.Table | None = None
    ) -> Iterator[Row]:
        """Tell the time, save the shard in the place of what it was, and give what is emitted."""
        watermark, now = at.getCurrentWatermarkInMs(), at.getCurrentProcessingTimeInMs()
        emitted = self._job.advance(windows, _micros(watermark), _micros(now))
        state = windows.save()
        small = self._put(state, before)
        timer = {ARRIVAL: now, EVENT: max(watermark, 0)}.get(self._timers)
        if timer is not None:
            timer += 1
            self._handle.registerTimer(timer)
        self._kept.update((self._job.shards, timer, state.head, small))
        yield from self._job.pack_emitted(windows, [emitted] if dropped is None else [dropped, emitted])


def _pieces(size: int) -> int:
    return -(-size // _PIECE_BYTES)


def _small(blocks: Mapping[str, StoredTable]) -> set[str]:
    """Choose the blocks that are kept together, of a piece's bytes at most; their sizes alone decide."""
    chosen, total = set(), 0
    for name, block in blocks.items():
        if block.size < _SMALL_BYTES and total + block.size <= _PIECE_BYTES:
            chosen.add(name)
            total += block.size
    return chosen


def _unpacked(blocks: Mapping[str, StoredTable], data: memoryview) -> dict[str, StoredTable]:
    tables, at = {}, 0
    chosen = _small(blocks)
    for name, block in blocks.items():
        if name in chosen:
            tables[name] = StoredTable.at(data[at : at + block.size], block.checksum)
            at += block.size
    return tables


def given_by_shards(levels: Sequence[str]) -> StructType:
    """Return the schema of what shards give: messages, or numbers."""
    return StructType([StructField(OUT, BinaryType()), *(StructField(name, LongType()) for name in names_of(levels))])


def _micros(millis: int) -> int | None:
    """Read a time of Spark's: there is none before 1970, and 0 is a watermark that is not known."""
    return millis * 1000 if millis > 0 else None
