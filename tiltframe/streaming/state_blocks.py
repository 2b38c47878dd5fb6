"""State blocks: the states of the windows of one level, divided into blocks of consecutive rows.

A block that was read from a saved stream is fetched and decoded when its states are first used, and a block that has
not changed is not encoded again. When states are saved, all states of the windows with the same start are in one block.
A batch therefore reads and writes only the blocks that have windows of its rows, or windows that it emits:

    windows of 10:00    block of 10:00    has no new rows, is not read
    windows of 10:01    block of 10:01    has new rows, is decoded, merged and encoded again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags
from tiltframe.streaming.stored import StoredTable
from windows.timezone import Instants

# The approximate minimum size of a block of states in memory, in bytes. If windows have fewer bytes, several windows
# are in one block, because each block has a fixed cost.
_MIN_BYTES = 1 << 20
# the maximum number of contiguous ranges of rows that are selected as slices, which are not copied
_FEW_RUNS = 4


@dataclass(frozen=True, eq=False)
class StateBlock:
    """The states of consecutive rows of a table of windows. ``source`` is a stored table if the states have not changed
    since they were saved, and otherwise the table of the states.
    """

    source: StoredTable | pa.Table
    schema: pa.Schema
    rows: int
    nbytes: int  # the size in bytes of the decoded states

    @classmethod
    def in_memory(cls, states: pa.Table) -> StateBlock:
        """Return a block of states that are not stored."""
        return cls(states, states.schema, states.num_rows, states.nbytes)

    @property
    def states(self) -> pa.Table:
        """The table of the states. Raises ``ValueError`` if the stored bytes are damaged."""
        return self.source.table if isinstance(self.source, StoredTable) else self.source

    @property
    def is_stored(self) -> bool:
        """Whether the states have not changed since they were saved."""
        return isinstance(self.source, StoredTable)

    def to_stored(self) -> StoredTable:
        """Return the states as a stored table. They are encoded, unless they have not changed since they were saved."""
        return self.source if isinstance(self.source, StoredTable) else StoredTable.encode(self.source)


def filter_rows(table: pa.Table, rows: Flags) -> pa.Table:
    """Return the rows of a table for which a mask is true. If the rows form few contiguous ranges, for example windows
    that begin at the same time, they are not copied.
    """
    edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
    if len(edges) > 2 * _FEW_RUNS:
        return table.filter(pa.array(rows))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return pa.concat_tables([table.slice(begin, end - begin) for begin, end in runs])


def offsets_of(blocks: Sequence[StateBlock]) -> NDArray[np.int64]:
    """Return the row at which each block begins, followed by the number of rows of all blocks."""
    return np.cumsum([0, *(block.rows for block in blocks)], dtype=np.int64)


def filter_blocks(blocks: Sequence[StateBlock], rows: Flags) -> Iterator[StateBlock]:
    """Yield blocks with the states for which a mask of the rows of all blocks is true. Blocks are decoded only if the
    mask is true for some of their rows, but not for all.
    """
    for block, (begin, end) in zip(blocks, pairwise(offsets_of(blocks).tolist()), strict=True):
        selected = rows[begin:end]
        if selected.all():
            yield block
        elif selected.any():
            yield StateBlock.in_memory(filter_rows(block.states, selected))


def mask_unchanged(blocks: Sequence[StateBlock], starts: Instants) -> Flags:
    """Return a mask of the rows whose blocks need not be encoded again: stored blocks of at least `_MIN_BYTES` bytes
    that have no window with the same start as a state which has changed.

    ``starts`` has the start of each window, in microseconds UTC.
    """
    is_stored = np.array([block.is_stored for block in blocks], np.bool_)
    is_large = np.array([block.nbytes >= _MIN_BYTES for block in blocks], np.bool_)
    rows = np.array([block.rows for block in blocks], np.int64)
    changed_starts = np.unique(starts[np.repeat(~is_stored, rows)])
    has_changed_start = np.isin(starts, changed_starts)
    changed_counts = np.add.reduceat(has_changed_start, offsets_of(blocks)[:-1], dtype=np.int64)
    return np.repeat(is_stored & is_large & (changed_counts == 0), rows)


def divide_states(states: pa.Table, starts: Instants) -> list[StateBlock]:
    """Divide states into blocks of about `_MIN_BYTES` bytes or more. All states of the windows with the same start are
    in one block. ``starts``, in ascending order, has the start of each window, in microseconds UTC.
    """
    rows_per_block = max(_MIN_BYTES * len(starts) // max(states.nbytes, 1), 1)
    block_numbers = np.searchsorted(starts, starts, side="left") // rows_per_block
    edges = np.flatnonzero(np.diff(block_numbers, prepend=-1, append=-1)).tolist()
    return [StateBlock.in_memory(states.slice(begin, end - begin)) for begin, end in pairwise(edges)]
