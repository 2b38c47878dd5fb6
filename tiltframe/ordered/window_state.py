"""The state of a window. Each batch updates it, and it is carried to the next batch.

    carried              rows of the batch            carried to the next batch
    ├─────┤├──┤··········├──┤├───┤├─┤────▶ outputs    ├────────┤├────┤

A few aggregate states are carried per key. Each state covers the rows between two neighbouring positions at which a
later range may begin. In the next batch, these states are placed before the rows, so that no row is reduced twice and
no row has to be stored.
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
    """The state between batches: the window's `Carry`, and for each column of states one state per open start of each
    key. An open start is a position at which a later range may begin (see `Carry.open_starts`).
    """

    carry: Carry
    states: States

    def spread(self, places: Ints, keys: int, window: OrderedWindow, functions: Mapping[str, Function]) -> WindowState:
        """Renumber the keys to a total of ``keys``: key ``i`` becomes ``places[i]``, ascending; all other keys are
        new.
        """
        if len(places) == keys:
            return self
        start = window.start(keys)
        start.position[places] = self.carry.position
        counts = start.counts.copy()
        counts[places] = self.carry.counts
        has_state = np.zeros(keys, np.bool_)
        has_state[places] = True
        old = np.repeat(has_state, counts)
        marks = np.zeros(len(old), np.int64)
        marks[old] = self.carry.open_starts
        for name, column in start.numbers.items():
            if name in self.carry.numbers:  # missing in states that earlier releases saved
                column[places] = self.carry.numbers[name]
        groups = Groups.of(np.flatnonzero(old), len(old))
        states = {name: function.merge(self.states[name], groups) for name, function in functions.items()}
        return WindowState(Carry(start.position, counts, marks, start.numbers), states)


class Advanced(NamedTuple):
    """The result of a batch: its outputs, the aggregate state of each output, and the state of the window for the next
    batch.
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
) -> Advanced:
    """Process a batch of rows. The keys of the rows must be numbered like the keys of the state.

    ``reduce`` returns one state per group of the selected rows. ``choose`` returns a mask of the outputs that are
    requested, or None if all are. After the ``last`` batch, no state is carried over.
    """
    ranges, after = window.ranges(rows, state.carry)
    chosen = choose(ranges)
    if chosen is not None:
        ranges = Ranges(*(column[chosen] for column in ranges))
    axis = _Axis(rows, state.carry)
    first, until = axis.place(ranges.key, ranges.first), axis.place(ranges.key, ranges.last)
    begins, stops = (np.zeros(0, np.int64),) * 2 if last else axis.marks(after)
    is_cut = np.zeros(axis.units + 1, np.bool_)
    for places in (first, until, begins, stops, axis.edges()):
        is_cut[places] = True
    runs = _Runs(axis, is_cut)
    first, until, begins, stops = (runs.number[places] for places in (first, until, begins, stops))
    states, carried = {}, {}
    for name, function in functions.items():
        of_runs = runs.states(state.states[name], reduce(name, runs.row_used, runs.row_groups))
        states[name] = merge_runs(function, of_runs, first, until)
        if not last:
            carried[name] = _merge_disjoint(function, of_runs, begins, stops)
    return Advanced(ranges, states, None if last else WindowState(after, carried))


class _Axis:
    """A sequence of carried states and rows: for each key, first its carried states and then its rows."""

    def __init__(self, rows: Rows, carry: Carry) -> None:
        self.rows, self.carry = rows, carry
        units = carry.counts + rows.lengths
        self.base = np.cumsum(units) - units
        self.units = int(units.sum())
        self.carried_base = np.cumsum(carry.counts) - carry.counts

    def place(self, key: Ints, position: Ints) -> Ints:
        """Return the places in the sequence of positions of keys. A position is a row of the batch, or the start of a
        carried state.
        """
        carry, base = self.carry, self.base[key]
        in_batch = position >= carry.position[key]
        places: Ints = base + carry.counts[key] + position - carry.position[key]
        old = np.flatnonzero(~in_batch)
        if len(old):
            begin = self.carried_base[key[old]]
            mark = first_at_least(carry.open_starts, begin, begin + carry.counts[key[old]], position[old])
            places[old] = base[old] + mark - begin
        return places

    def marks(self, after: Carry) -> tuple[Ints, Ints]:
        """Return the ranges of places to carry to the next batch: each begins at a mark and ends at the next mark of
        its key, or at the end of the key.
        """
        key = np.repeat(np.arange(len(after.counts)), after.counts)
        begins = self.place(key, after.open_starts)
        stops = np.append(begins[1:], 0)
        final = np.cumsum(after.counts) - 1
        stops[final] = self.base + self.carry.counts + self.rows.lengths
        return begins, stops

    def edges(self) -> Ints:
        """Return the places at which carried states begin, and the places of the rows after them."""
        return np.append(np.flatnonzero(self.is_carried), self.base + self.carry.counts)

    @property
    def is_carried(self) -> Flags:
        """Return a mask of the places that contain carried states rather than rows."""
        flags = np.ones(self.units, np.bool_)
        flags[self.row_places] = False
        return flags

    @property
    def row_places(self) -> Ints:
        behind = np.repeat(self.base + self.carry.counts - self.rows.heads, self.rows.lengths)
        places: Ints = np.arange(len(self.rows.times)) + behind
        return places


class _Runs:
    """The ranges between the boundaries of outputs. Each range is a carried state, or contains rows that no output
    separates.
    """

    def __init__(self, axis: _Axis, is_cut: Flags) -> None:
        self.number = np.cumsum(is_cut) - 1
        begins = np.flatnonzero(is_cut)[:-1]
        carried = np.append(axis.is_carried, False)[begins]
        self.any_carried = bool(carried.any())
        place = axis.row_places
        run = self.number[place]
        self.row_used: Flags = (run >= 0) & (run < len(begins))
        of_rows = np.cumsum(~carried) - 1
        self.row_groups = Groups(of_rows[run[self.row_used]], int((~carried).sum()))
        carried_number = np.cumsum(np.append(axis.is_carried, False)) - 1
        total = int(axis.is_carried.sum())
        self.source = pa.array(np.where(carried, carried_number[begins], total + of_rows))

    def states(self, carried: pa.StructArray, of_rows: pa.StructArray) -> pa.StructArray:
        return pa.concat_arrays([carried, of_rows]).take(self.source) if self.any_carried else of_rows


def _merge_disjoint(function: Function, states: pa.StructArray, begins: Ints, stops: Ints) -> pa.StructArray:
    """Return the merged states of groups of ranges that do not overlap."""
    if not len(begins):
        return function.merge(states.slice(0, 0), Groups.of([], 0))
    run = np.arange(len(states))
    stretch = np.searchsorted(begins, run, side="right") - 1
    within = np.flatnonzero((stretch >= 0) & (run < stops[stretch]))
    chosen_states = states if len(within) == len(states) else states.take(pa.array(within))
    return function.merge(chosen_states, Groups.of(stretch[within], len(begins)))
