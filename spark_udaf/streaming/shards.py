"""Shards of open windows: the stateful processor that Spark calls in each batch for each shard of keys.

A shard contains one `tiltframe.streaming.OpenWindows`, whose time is advanced in every batch. In a batch with rows,
Spark calls each shard with a message (an Arrow batch as bytes). In a batch without rows, a timer makes Spark call each
shard if the time has changed. All shards therefore have the same watermark, and lateness does not depend on the number
of shards.
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
from spark_udaf.streaming.shard_job import EMITTED_MESSAGE_COLUMN, EVENT_TIME, PROCESSING_TIME, ShardJob, metric_names
from spark_udaf.versions.same_version import SentWithVersion
from tiltframe.streaming.saved import Saved, read_head
from tiltframe.streaming.stored import StoredTable

# The maximum size of one value in Spark's state, in bytes.
_PIECE_BYTES = 1 << 22

# The state of a shard is saved as blocks: tables of its windows, as bytes. A block of at least this size, in bytes, is
# stored in separate values of Spark's state. Smaller blocks are stored together in one value, because each value needs
# a call of the state store, which takes longer than reading a small block.
_SMALL_BYTES = 1 << 18
_PLACE = StructType([StructField("block", StringType()), StructField("piece", IntegerType())])
_PIECE = StructType([StructField("piece", BinaryType())])
_SHARD_STATE = StructType().add("shards", "integer").add("timer", "long").add("head", "binary").add("small", "binary")


class ShardWindows(SentWithVersion, StatefulProcessor):
    """The stateful processor that Spark calls in each batch for each shard of keys.

    The state of a shard is an `OpenWindows`, or an `OrderedStream` if the job is an `OrderedJob`.
    """

    def __init__(self, job: ShardJob | OrderedJob, timer_clock: str) -> None:
        """Store the job, and Spark's name of the clock that timers follow, such as "EventTime". Spark sends both to the
        tasks.
        """
        self._job = job
        self._timer_clock = timer_clock

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of a shard in Spark's state store.

        The state is saved as blocks, which are tables stored as bytes. Values of Spark's state store should be small.
        Large blocks are therefore divided into pieces, which are the values of a map. All other data of the shard is in
        one value: the number of shards, the timer, the bytes of the small blocks, and a description of the state, which
        includes the size and the checksum of each block. Large blocks are read on demand, and written if they have
        changed.
        """
        tune_worker()
        self._handle = handle
        self._pieces = handle.getMapState("windows", _PLACE, _PIECE)
        self._shard_state = handle.getValueState("kept", _SHARD_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Add the messages of a batch to the windows, advance the time, and yield the metrics and emitted rows of the
        shard.
        """
        windows, saved_blocks, timer = self._load_windows()
        if timer is not None:
            self._handle.deleteTimer(timer)
        dropped = self._job.add_messages(windows, self._job.checked_messages(key, rows))
        yield from self._advance_and_save(windows, timerValues, saved_blocks, dropped)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Advance the time in a batch without rows, and yield the metrics and emitted rows of the shard."""
        windows, saved_blocks, _ = self._load_windows()
        yield from self._advance_and_save(windows, timerValues, saved_blocks)

    def close(self) -> None:
        """Do nothing, because the processor has no open resources."""

    def _load_windows(self) -> tuple[Any, Mapping[str, StoredTable], int | None]:
        """Return three values for a shard: its windows, its saved blocks by name, and the time of its timer in
        milliseconds, or None without a timer. Raise ``ValueError`` if the saved state belongs to another stream, or to
        another number of shards.
        """
        value = self._shard_state.get()
        if value is None:
            return self._job.create_windows(), {}, None
        shards, timer, head, small_bytes = value
        state = read_head(bytes(head), self._lazy_block)
        state = Saved(
            state.description, {**state.blocks, **_unpack_small_blocks(state.blocks, memoryview(small_bytes))}
        )
        # `load_windows` raises an error if the keys of the frame have changed. If keys are added to a frame without
        # keys, the number of shards also changes. `load_windows` is called before the number of shards is compared, so
        # that the error names the keys.
        windows = self._job.load_windows(state)
        if shards != self._job.shards:
            raise ValueError(
                f"the checkpoint has {shards} shards of keys, and this stream has "
                f"{self._job.shards}; pass shards={shards}, or use a new checkpoint"
            )
        return windows, state.blocks, timer

    def _lazy_block(self, name: str, size: int, checksum: int) -> StoredTable:
        """Return a block whose bytes are read from Spark's state only when they are needed."""

        def fetch() -> bytes:
            pieces = (self._pieces.getValue((name, number)) for number in range(_piece_count(size)))
            # A missing piece is skipped. The checksum of the block then reveals that the block is incomplete.
            return b"".join(piece[0] for piece in pieces if piece is not None)

        return StoredTable(size, checksum, fetch)

    def _write_blocks(self, state: Saved, saved_blocks: Mapping[str, StoredTable]) -> bytes:
        """Write the large blocks of ``state`` that have changed since ``saved_blocks`` were written, and remove pieces
        of blocks that are not used any more. Return the bytes of all small blocks, one after the other.
        """
        small_names = _small_block_names(state.blocks)
        previous_small_names = _small_block_names(saved_blocks)
        # ``block.data`` reads a block from Spark's state if the block is not in memory.
        small_bytes = b"".join(block.data for name, block in state.blocks.items() if name in small_names)
        for name, block in state.blocks.items():
            if name not in small_names and (block is not saved_blocks.get(name) or name in previous_small_names):
                for number in range(_piece_count(block.size)):
                    piece = block.data[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES]
                    self._pieces.updateValue((name, number), (bytes(piece),))
        for name in saved_blocks.keys() - previous_small_names:
            first_unused = _piece_count(state.blocks[name].size) if name in state.blocks.keys() - small_names else 0
            for number in range(first_unused, _piece_count(saved_blocks[name].size)):
                self._pieces.removeKey((name, number))
        return small_bytes

    def _advance_and_save(
        self,
        windows: Any,
        time_values: TimerValues,
        saved_blocks: Mapping[str, StoredTable],
        dropped: pa.Table | None = None,
    ) -> Iterator[Row]:
        """Advance the time, save the shard, and yield its metrics and emitted rows."""
        watermark = time_values.getCurrentWatermarkInMs()
        now = time_values.getCurrentProcessingTimeInMs()
        emitted = self._job.advance(windows, _micros(watermark), _micros(now))
        state = windows.save()
        small_bytes = self._write_blocks(state, saved_blocks)
        timer = {PROCESSING_TIME: now, EVENT_TIME: max(watermark, 0)}.get(self._timer_clock)
        if timer is not None:
            timer += 1
            self._handle.registerTimer(timer)
        self._shard_state.update((self._job.shards, timer, state.head, small_bytes))
        yield from self._job.pack_emitted(windows, [emitted] if dropped is None else [dropped, emitted])


def _piece_count(size: int) -> int:
    return -(-size // _PIECE_BYTES)


def _small_block_names(blocks: Mapping[str, StoredTable]) -> set[str]:
    """Return the names of the small blocks that are stored together in one value of at most `_PIECE_BYTES` bytes. Only
    the sizes and the order of ``blocks`` determine these names. When the value is read, the same names are therefore
    returned, and the value is divided into its blocks.
    """
    names = set()
    total = 0
    for name, block in blocks.items():
        if block.size < _SMALL_BYTES and total + block.size <= _PIECE_BYTES:
            names.add(name)
            total += block.size
    return names


def _unpack_small_blocks(blocks: Mapping[str, StoredTable], data: memoryview) -> dict[str, StoredTable]:
    tables = {}
    start = 0
    names = _small_block_names(blocks)
    for name, block in blocks.items():
        if name in names:
            tables[name] = StoredTable.in_memory(data[start : start + block.size], block.checksum)
            start += block.size
    return tables


def output_schema(levels: Sequence[str]) -> StructType:
    """Return the schema of the rows that a shard outputs. A row contains either a message with emitted rows or the
    metrics of the shard.
    """
    return StructType(
        [
            StructField(EMITTED_MESSAGE_COLUMN, BinaryType()),
            *(StructField(name, LongType()) for name in metric_names(levels)),
        ]
    )


def _micros(millis: int) -> int | None:
    """Return a number of milliseconds as microseconds. Return None for 0, with which Spark reports that the watermark
    is unknown, and for negative numbers.
    """
    return millis * 1000 if millis > 0 else None
