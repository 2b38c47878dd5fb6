"""Process batches of rows of an ordered window, and keep the state between two batches.

    states of earlier rows   rows of the batch         states for the next batch
    ├─────┤├──┤··············├──┤├───┤├─┤────▶ results   ├────────┤├────┤

A range consists of consecutive rows of a key, and a result is computed for each range. Between two batches, a few
states per key are kept, but no rows. The positions at which a later range may begin (`Carry.open_starts`) divide the
earlier rows, and each kept state is the state of the rows between two neighbouring positions. In the next batch, the
kept states take the place of the earlier rows. Therefore each row is reduced only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Function
from aggr.groups.groups import Groups
from aggr.tables.ranges import merge_runs
from windows.ordered import Carry, OrderedWindow, Ranges, Rows
from windows.ordered.jumps import first_at_least

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
States = Mapping[str, pa.StructArray]
Reduce = Callable[[str, Flags, Groups], pa.StructArray]
Choose = Callable[[Ranges], Flags | None]


class WindowState(NamedTuple):
    """The state of a window between two batches: its `Carry`, and the states of earlier rows that later ranges may
    need.

    The elements of `Carry.open_starts` are positions of rows. For each column of states, there is one state per
    element. It is the state of the rows of the key from this position up to the next position, exclusively. The last
    state of a key is the state of the rows up to the last row of the key.
    """

    carry: Carry
    states: States

    def with_keys(
        self, new_key_ids: Ints, keys: int, window: OrderedWindow, functions: Mapping[str, Function]
    ) -> WindowState:
        """Return the state for ``keys`` keys, which include all keys of this state. Additional keys have the initial
        state. ``new_key_ids`` has the new id of each key of this state, in ascending order.
        """
        if len(new_key_ids) == keys:
            return self
        start = window.start(keys)
        start.position[new_key_ids] = self.carry.position
        counts = start.counts.copy()
        counts[new_key_ids] = self.carry.counts
        has_state = np.zeros(keys, np.bool_)
        has_state[new_key_ids] = True
        is_stored = np.repeat(has_state, counts)
        marks = np.zeros(len(is_stored), np.int64)
        marks[is_stored] = self.carry.open_starts
        for name, column in start.numbers.items():
            if name in self.carry.numbers:  # A state that an earlier release saved may lack some columns.
                column[new_key_ids] = self.carry.numbers[name]
        groups = Groups.of(np.flatnonzero(is_stored), len(is_stored))
        states = {name: function.merge(self.states[name], groups) for name, function in functions.items()}
        return WindowState(Carry(start.position, counts, marks, start.numbers), states)


class BatchResult(NamedTuple):
    """The result of `advance`.

    ``ranges`` are the ranges of rows for which the batch triggers results, and ``states`` has one state per range for
    each column of states. ``state`` is the state of the window for the next batch, or None after the last batch.
    """

    ranges: Ranges
    states: States
    state: WindowState | None


def advance(
    window: OrderedWindow,
    functions: Mapping[str, Function],
    rows: Rows,
    state: WindowState,
    reduce: Reduce,
    choose: Choose,
    last: bool = False,
) -> BatchResult:
    """Process a batch of rows of an ordered window, and return its `BatchResult`.

    Parameters
    ----------
    window : OrderedWindow
    functions : name -> function
        The function of each column of states.
    rows : Rows
        Rows, and ticks if there are any. Their keys have the same ids as in ``state``.
    state : WindowState
        The state after the previous batch.
    reduce : function of (name, mask, groups)
        A function that returns the states of the column ``name``, one per group. The mask selects rows, and ``groups``
        has the group of each selected row.
    choose : function of (ranges)
        A function that returns a mask of the ranges for which results are needed, or None if all are needed.
    last : bool
        Whether this is the last batch. If true, the state for a further batch is not computed.
    """
    ranges, next_carry = window.ranges(rows, state.carry)
    chosen = choose(ranges)
    if chosen is not None:
        ranges = Ranges(*(column[chosen] for column in ranges))
    sequence = _StatesAndRows(rows, state.carry)
    first = sequence.index_of(ranges.key, ranges.first)
    until = sequence.index_of(ranges.key, ranges.last)
    begins, stops = (np.zeros(0, np.int64),) * 2 if last else sequence.ranges_to_keep(next_carry)
    is_cut = np.zeros(sequence.length + 1, np.bool_)
    for places in (first, until, begins, stops, sequence.state_edges()):
        is_cut[places] = True
    segments = _Segments(sequence, is_cut)
    first, until, begins, stops = (segments.number[places] for places in (first, until, begins, stops))
    states = {}
    carried = {}
    for name, function in functions.items():
        segment_states = segments.states(state.states[name], reduce(name, segments.row_used, segments.row_groups))
        states[name] = merge_runs(function, segment_states, first, until)
        if not last:
            carried[name] = _merge_disjoint(function, segment_states, begins, stops)
    return BatchResult(ranges, states, None if last else WindowState(next_carry, carried))


class _StatesAndRows:
    """A sequence that contains, for each key, the states of its earlier rows, followed by its rows in the batch. Keys
    are in the order of their ids.

    The elements of this sequence have the indices from 0 to ``length`` - 1. ``first_index`` has the index of each key's
    first element. ``first_state`` has the index of each key's first state among all states of earlier rows.
    """

    def __init__(self, rows: Rows, carry: Carry) -> None:
        self.rows = rows
        self.carry = carry
        units = carry.counts + rows.lengths
        self.first_index = np.cumsum(units) - units
        self.length = int(units.sum())
        self.first_state = np.cumsum(carry.counts) - carry.counts

    def index_of(self, key: Ints, position: Ints) -> Ints:
        """For each i, return the index in the sequence for the position ``position[i]`` of the key ``key[i]``.

        A position is the number of a row within its key, counted over all batches. For a row of the batch, the result
        is the index of the row. For the first row of a state, it is the index of the state. For the position after the
        last row of the key, it is the index after the key's last element. Other positions are not allowed.
        """
        carry = self.carry
        base = self.first_index[key]
        in_batch = position >= carry.position[key]
        places: Ints = base + carry.counts[key] + position - carry.position[key]
        earlier = np.flatnonzero(~in_batch)
        if len(earlier):
            begin = self.first_state[key[earlier]]
            mark = first_at_least(carry.open_starts, begin, begin + carry.counts[key[earlier]], position[earlier])
            places[earlier] = base[earlier] + mark - begin
        return places

    def ranges_to_keep(self, next_carry: Carry) -> tuple[Ints, Ints]:
        """Return the ranges of the sequence that are merged into states for the next batch, as two arrays: the first
        index of each range, and the index after its last element.

        ``next_carry`` is the carry for the next batch. There is one range for each element of its ``open_starts``. A
        range ends where the next range of its key begins, and the last range of a key ends at the end of the key.
        """
        key = np.repeat(np.arange(len(next_carry.counts)), next_carry.counts)
        begins = self.index_of(key, next_carry.open_starts)
        stops = np.append(begins[1:], 0)
        final = np.cumsum(next_carry.counts) - 1
        stops[final] = self.first_index + self.carry.counts + self.rows.lengths
        return begins, stops

    def state_edges(self) -> Ints:
        """Return an array of indices at which segments begin or end. The array contains the index of each state of
        earlier rows and, for each key, the index after the key's last state.
        """
        return np.append(np.flatnonzero(self.is_state), self.first_index + self.carry.counts)

    @property
    def is_state(self) -> Flags:
        """A mask of the sequence that is true for states of earlier rows and false for rows of the batch."""
        flags = np.ones(self.length, np.bool_)
        flags[self.row_indices] = False
        return flags

    @property
    def row_indices(self) -> Ints:
        """For each row of the batch, its index in the sequence of states and rows."""
        behind = np.repeat(self.first_index + self.carry.counts - self.rows.heads, self.rows.lengths)
        places: Ints = np.arange(len(self.rows.times)) + behind
        return places


class _Segments:
    """The elements of a `_StatesAndRows`, divided at the bounds of all ranges. A segment is either one state of earlier
    rows, or consists of consecutive rows, which are reduced to one state.

    ``is_cut`` is a mask of the indices of the sequence at which a segment begins. ``number`` has the number of the
    segment for each index of the sequence. ``row_used`` is a mask of the rows that are in a segment. ``row_groups``
    groups these rows by their segments.
    """

    def __init__(self, sequence: _StatesAndRows, is_cut: Flags) -> None:
        self.number = np.cumsum(is_cut) - 1
        begins = np.flatnonzero(is_cut)[:-1]
        carried = np.append(sequence.is_state, False)[begins]
        self.any_carried = bool(carried.any())
        place = sequence.row_indices
        run = self.number[place]
        self.row_used: Flags = (run >= 0) & (run < len(begins))
        row_segment_numbers = np.cumsum(~carried) - 1
        self.row_groups = Groups(row_segment_numbers[run[self.row_used]], int((~carried).sum()))
        carried_number = np.cumsum(np.append(sequence.is_state, False)) - 1
        total = int(sequence.is_state.sum())
        self.source = pa.array(np.where(carried, carried_number[begins], total + row_segment_numbers))

    def states(self, carried: pa.StructArray, row_states: pa.StructArray) -> pa.StructArray:
        """Return the state of each segment, in the order of the sequence. ``carried`` has the states of earlier rows,
        and ``row_states`` the states of the segments that consist of rows.
        """
        return pa.concat_arrays([carried, row_states]).take(self.source) if self.any_carried else row_states


def _merge_disjoint(function: Function, states: pa.StructArray, begins: Ints, stops: Ints) -> pa.StructArray:
    """Return one state per range of segments, for ranges that do not overlap. Range i has the segments from
    ``begins[i]`` to ``stops[i]``, exclusively, whose states are merged.
    """
    if not len(begins):
        return function.merge(states.slice(0, 0), Groups.of([], 0))
    run = np.arange(len(states))
    stretch = np.searchsorted(begins, run, side="right") - 1
    within = np.flatnonzero((stretch >= 0) & (run < stops[stretch]))
    chosen_states = states if len(within) == len(states) else states.take(pa.array(within))
    return function.merge(chosen_states, Groups.of(stretch[within], len(begins)))
