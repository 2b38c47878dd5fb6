"""Spilled states: rows whose states do not fit into memory are rolled up by an external merge sort.

    rows ── reduce ──▶ partial states ── sorted ──▶ runs on disk ── merge ──▶ slices of time ── climb ──▶ every level

A run is a table of states, sorted by the starts of their windows. Runs are kept in memory until they exceed a limit;
then all runs are written to files. A slice is a range of time, for which the states of all runs are merged. Slices are
read and merged one after another. A window of the finest level belongs to one slice. A coarser window may extend over
several slices, and is yielded with the slice in which it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.state_checks import mark_as_checked
from aggr.workers import map_in_threads
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level, merge_panes
from tiltframe.names import END
from tiltframe.reducing import partial_states
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants

# the number of bytes of states that are collected before they are merged and written; these steps need several times as
# much memory
MAX_STATE_BYTES = 1 << 26
# the approximate number of bytes of a block, the part of a run that is read at once
_BLOCK_BYTES = 1 << 22
# The runs in memory together are at most this many times as large as one run.
_RUNS_IN_MEMORY = 12


@dataclass(frozen=True)
class _Block:
    """A block of a run: the index of the block, the earliest and the latest start of its windows in microseconds UTC,
    and the size of the block in bytes.
    """

    number: int
    first_start: int
    last_start: int
    bytes: int


class _Run(Protocol):
    """A run, in memory or in a file."""

    @property
    def blocks(self) -> Sequence[_Block]:
        """The blocks of the run, earliest first."""

    def read(self, schema: pa.Schema, low: int, high: int) -> pa.Table:
        """Return the states whose windows start in ``[low, high)``, in microseconds UTC, with the columns of
        ``schema``.
        """


@dataclass(frozen=True)
class _RunInMemory:
    """A run whose states are in memory."""

    states: pa.Table
    starts: Instants  # the starts of the windows in microseconds UTC, ascending

    @cached_property
    def blocks(self) -> Sequence[_Block]:
        """The blocks of the run, which are ranges of its rows."""
        return [
            _Block(
                number,
                first_start=int(self.starts[first]),
                last_start=int(self.starts[min(first + _block_rows(self.states), len(self.starts)) - 1]),
                bytes=min(_BLOCK_BYTES, self.states.nbytes),
            )
            for number, first in enumerate(range(0, len(self.starts), _block_rows(self.states)))
        ]

    def read(self, schema: pa.Schema, low: int, high: int) -> pa.Table:
        """Return the states whose windows start in ``[low, high)``, without copying them."""
        first, last = np.searchsorted(self.starts, [low, high])
        return self.states.select(schema.names).slice(int(first), int(last - first))


@dataclass(frozen=True)
class _RunInFile:
    """A run whose blocks are the batches of an Arrow file."""

    path: Path
    blocks: Sequence[_Block]

    def read(self, schema: pa.Schema, low: int, high: int) -> pa.Table:
        """Return the states whose windows start in ``[low, high)``. Only blocks that overlap this range are read."""
        tables = [schema.empty_table()]
        with pa.memory_map(str(self.path)) as file:
            places = [pa.ipc.open_file(file).schema.get_field_index(name) for name in schema.names]
            reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))
            for block in self.blocks:
                if block.first_start < high and block.last_start >= low:
                    states = pa.Table.from_batches([reader.get_batch(block.number)])
                    first, last = np.searchsorted(instants_of(states), [low, high])
                    tables.append(states.slice(int(first), int(last - first)))
        return pa.concat_tables(tables)


@dataclass(frozen=True)
class Slices:
    """The merged states of the finest level, which are read one slice of time after another. They can be read several
    times within the block of `spill_states`. At the end of the block, the files with the states are removed.
    """

    # a frame in which the windows of every level follow each other without gaps
    frame: TiltFrame
    # the schema of states: window_start, window_end, keys, states
    schema: pa.Schema
    runs: tuple[_Run, ...]
    # the approximate size of a slice in memory, in bytes
    bytes: int

    def finest(self) -> Iterator[tuple[pa.Table, int]]:
        """Yield the states of each slice, earliest first, and the start of the next slice in microseconds UTC
        (`MAX_INSTANT` for the last slice).
        """
        for low, high in pairwise(self._edges()):
            parts = [part for run in self.runs if (part := run.read(self.schema, low, high)).num_rows]
            # A table of several chunks, even of empty ones, would be copied into one chunk below.
            states = pa.concat_tables(parts) if parts else self.schema.empty_table()
            if len(parts) > 1:  # A single run needs no merge: it has only one state for each window and key.
                states = merge_panes(mark_as_checked(states), self.frame)
            del parts
            yield states.combine_chunks(), high
            del states
            pa.default_memory_pool().release_unused()  # return freed memory to the operating system

    def with_states_of(self, frame: TiltFrame) -> Slices:
        """Return the slices with only the columns of states that ``frame`` needs. ``frame`` must have the same levels
        and keys.
        """
        names = frame.states_columns[1:]
        return replace(self, frame=frame, schema=pa.schema([self.schema.field(name) for name in names]))

    def levels(self) -> Iterator[tuple[TimeWindow, pa.Table]]:
        """Yield pairs of a level and a table of its complete states: for each slice, all levels, with the finest first.
        Each window is yielded once, with the slice in which it ends.
        """
        finest, *coarser = self.frame.levels
        incomplete = [self.schema.empty_table()] * len(coarser)
        for states, until in self.finest():
            yield finest, states
            for at, level in enumerate(coarser):
                parts = [table for table in (incomplete[at], states) if table.num_rows] or [states]
                states = merge_level(mark_as_checked(pa.concat_tables(parts)), self.frame, level)
                is_complete = pa.array(instants_of(states, END) <= until)
                incomplete[at] = (
                    self.schema.empty_table() if until == MAX_INSTANT else states.filter(pc.invert(is_complete))
                )
                states = states if until == MAX_INSTANT else states.filter(is_complete)
                yield level, states

    def _edges(self) -> list[int]:
        """Return the starts of the slices, and the end of the last one, in microseconds UTC. The blocks of a slice have
        about ``self.bytes`` bytes in total.
        """
        edges = [MIN_INSTANT]
        size = 0
        blocks = [block for run in self.runs for block in run.blocks]
        begun = min((block.first_start for block in blocks), default=MIN_INSTANT)
        for block in sorted(blocks, key=lambda block: block.first_start):
            if size >= self.bytes and block.first_start > max(begun, edges[-1]):
                edges.append(block.first_start)
                size = 0
            size += block.bytes
        return [*edges, MAX_INSTANT]


@contextmanager
def spill_states(
    batches: Iterable[pa.RecordBatch],
    frame: TiltFrame,
    max_bytes: int = MAX_STATE_BYTES,
    check: Callable[[pa.Table], None] | None = None,
    jobs: int = 1,
) -> Iterator[Slices]:
    """Reduce a stream of at least one batch in ``jobs`` threads, and yield the states as `Slices`, after all rows have
    been read.

    Each thread has about ``max_bytes`` bytes of states in memory, and a run is about as large. Runs are kept in memory
    until they exceed `_RUNS_IN_MEMORY` times this size. Then all runs are written to the folder for temporary files,
    and are removed at the end of the block. ``check`` is called with the states of each run, and may raise an error.
    """

    def run(states: pa.Table) -> pa.Table:
        merged = merge_panes(mark_as_checked(states), frame)
        if check is not None:
            check(merged)
        return merged

    with ExitStack() as stack:
        partials = partial_states(batches, frame, max_bytes, jobs)
        # Only the last table of partial states is smaller than the limit.
        tables = map_in_threads(run, partials, jobs, is_large=lambda states: states.nbytes >= max_bytes)
        stack.enter_context(closing(tables))
        in_memory = list[pa.Table]()
        in_files = list[_RunInFile]()
        folder: Path | None = None
        for states in tables:
            schema = states.schema
            in_memory.append(states)
            del states
            if folder is None and sum(table.nbytes for table in in_memory) > _RUNS_IN_MEMORY * max_bytes:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltframe-")))
            while folder is not None and in_memory:
                in_files.append(_write(in_memory.pop(0), folder / str(len(in_files))))
                pa.default_memory_pool().release_unused()
        runs = [_RunInMemory(table, instants_of(table)) for table in in_memory]
        del in_memory
        yield Slices(frame, schema, runs=(*runs, *in_files), bytes=max_bytes)


def _write(states: pa.Table, path: Path) -> _RunInFile:
    """Write a run to a new file, and return the run in this file."""
    batches = states.combine_chunks().to_batches(max_chunksize=_block_rows(states))
    with pa.ipc.new_file(path, states.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        for batch in batches:
            file.write_batch(batch)
    starts = [instants_of(pa.Table.from_batches([batch])) for batch in batches]
    blocks = [
        _Block(number, first_start=int(at[0]), last_start=int(at[-1]), bytes=batch.nbytes)
        for number, (at, batch) in enumerate(zip(starts, batches, strict=True))
    ]
    return _RunInFile(path, blocks)


def _block_rows(states: pa.Table) -> int:
    """Return the number of rows of a block whose size is about `_BLOCK_BYTES` bytes."""
    rows: int = states.num_rows * _BLOCK_BYTES // max(1, states.nbytes)
    return max(1, rows)
