"""Spilled states: rows whose states do not fit into memory are rolled up by an external merge sort.

    rows ── reduce ──▶ partial states ── sorted ──▶ runs on disk ── merge ──▶ slices of time ── climb ──▶ every level

A run is a file of states, sorted by the start of their window. A slice is a range of time whose states fit into memory.
Slices are read and merged one after another. A window of the finest level belongs to one slice. A coarser window may
extend over several slices, and is yielded with the one in which it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.state_checks import mark_as_checked
from aggr.workers import Workers
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level, merge_panes
from tiltframe.names import END
from tiltframe.reducing import partial_states
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow

# the number of bytes of states that are collected before they are merged and written; these steps need several times as
# much memory
HELD_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 22  # the approximate number of bytes of a block, the part of a run that is read at once


@dataclass(frozen=True)
class _Block:
    """A block of a run: the file of the run, the index of the block in it, the first and the last start of its windows
    in microseconds UTC, and its size in bytes.
    """

    run: Path
    number: int
    first_start: int
    last_start: int
    bytes: int


@dataclass(frozen=True)
class Slices:
    """The merged states of the finest level, which are read one slice of time after another. They can be read several
    times within the block of `spilled`, which removes the files at its end.
    """

    frame: TiltFrame  # the windows of all levels must be contiguous
    schema: pa.Schema  # the schema of states: window_start, window_end, keys, states
    in_memory: pa.Table | None  # all states, if they fit into memory
    blocks: tuple[_Block, ...]  # the blocks of all runs; empty if ``in_memory`` has the states
    bytes: int  # the approximate size of a slice in memory, in bytes

    def finest(self) -> Iterator[tuple[pa.Table, int]]:
        """Yield the states of each slice, earliest first, and the start of the next slice in microseconds UTC
        (`MAX_INSTANT` for the last slice).
        """
        if self.in_memory is not None:
            yield self.in_memory, MAX_INSTANT
            return
        for low, high in pairwise(self._edges()):
            overlapping = [block for block in self.blocks if block.first_start < high and block.last_start >= low]
            parts = [self.schema.empty_table(), *(_read(block, self.schema, low, high) for block in overlapping)]
            yield merge_panes(mark_as_checked(pa.concat_tables(parts)), self.frame), high
            del parts
            pa.default_memory_pool().release_unused()  # return freed memory to the operating system

    def narrowed(self, frame: TiltFrame) -> Slices:
        """Return the slices with only the columns of states that ``frame`` needs. ``frame`` must have the same levels
        and keys.
        """
        names = frame.states_columns[1:]
        schema = pa.schema([self.schema.field(name) for name in names])
        in_memory = None if self.in_memory is None else self.in_memory.select(names)
        return replace(self, frame=frame, schema=schema, in_memory=in_memory)

    def levels(self) -> Iterator[tuple[TimeWindow, pa.Table]]:
        """Yield pairs of a level and a table of its complete states: for each slice, all levels, with the finest first.
        Each window is yielded once, with the slice in which it ends.
        """
        finest, *coarser = self.frame.levels
        waiting = [self.schema.empty_table()] * len(coarser)
        for states, until in self.finest():
            yield finest, states
            for at, level in enumerate(coarser):
                states = merge_level(mark_as_checked(pa.concat_tables([waiting[at], states])), self.frame, level)
                is_complete = pa.array(instants_of(states, END) <= until)
                waiting[at] = (
                    self.schema.empty_table() if until == MAX_INSTANT else states.filter(pc.invert(is_complete))
                )
                states = states if until == MAX_INSTANT else states.filter(is_complete)
                yield level, states

    def _edges(self) -> list[int]:
        """Return the starts of the slices, and the end of the last one, in microseconds UTC. The blocks of a slice have
        about ``self.bytes`` bytes in total.
        """
        edges, size = [MIN_INSTANT], 0
        begun = min((block.first_start for block in self.blocks), default=MIN_INSTANT)
        for block in sorted(self.blocks, key=lambda block: block.first_start):
            if size >= self.bytes and block.first_start > max(begun, edges[-1]):
                edges.append(block.first_start)
                size = 0
            size += block.bytes
        return [*edges, MAX_INSTANT]


@contextmanager
def spilled(
    batches: Iterable[pa.RecordBatch],
    frame: TiltFrame,
    max_bytes: int = HELD_BYTES,
    check: Callable[[pa.Table], None] | None = None,
    jobs: int = 1,
) -> Iterator[Slices]:
    """Reduce a stream of at least one batch in ``jobs`` threads, and yield the states as `Slices`, after all rows have
    been read.

    Each thread has about ``max_bytes`` bytes of states in memory. Runs are written to the folder for temporary files,
    and are removed at the end of the block. ``check`` is called with the states of each run, and may raise an error.
    """

    def run(states: pa.Table) -> pa.Table:
        merged = merge_panes(mark_as_checked(states), frame)
        if check is not None:
            check(merged)
        return merged

    with ExitStack() as stack:
        workers = stack.enter_context(Workers(jobs))
        runs = workers.map(run, partial_states(batches, frame, max_bytes, jobs))
        states_in_memory = next(runs)
        schema, blocks = states_in_memory.schema, list[_Block]()
        for number, states in enumerate(runs, start=1):
            if states_in_memory is not None:  # there is more than one run, so the first one is written too
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltframe-")))
                blocks += _write(states_in_memory, folder / "0")
                states_in_memory = None
            blocks += _write(states, folder / str(number))
            del states
            pa.default_memory_pool().release_unused()
        yield Slices(frame, schema, in_memory=states_in_memory, blocks=tuple(blocks), bytes=max_bytes)


def _write(states: pa.Table, run: Path) -> list[_Block]:
    rows = max(1, states.num_rows * _BLOCK_BYTES // max(1, states.nbytes))
    batches = states.combine_chunks().to_batches(max_chunksize=rows)
    with pa.ipc.new_file(run, states.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        for batch in batches:
            file.write_batch(batch)
    starts = [instants_of(pa.Table.from_batches([batch])) for batch in batches]
    return [
        _Block(run, number, first_start=int(at[0]), last_start=int(at[-1]), bytes=batch.nbytes)
        for number, (at, batch) in enumerate(zip(starts, batches, strict=True))
    ]


def _read(block: _Block, schema: pa.Schema, low: int, high: int) -> pa.Table:
    """Return the rows of a block whose windows start in ``[low, high)``, in microseconds UTC, with the columns of
    ``schema``.
    """
    with pa.memory_map(str(block.run)) as file:
        places = [pa.ipc.open_file(file).schema.get_field_index(name) for name in schema.names]
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))
        states = pa.Table.from_batches([reader.get_batch(block.number)])
    first, last = np.searchsorted(instants_of(states), [low, high])
    return states.slice(int(first), int(last - first))
