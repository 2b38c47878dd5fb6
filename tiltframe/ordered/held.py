"""One window over a batch: the states of its outputs, and what is held for the next batch.

    held                 rows of the batch            held for the next batch
    ├─────┤├──┤··········├──┤├───┤├─┤────▶ outputs    ├────────┤├────┤

What is held of a key are states: one for the rows from each position at which a later range may begin to the next such
position. They come before the batch's rows, so that no row is ever reduced twice, and none is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Function
from aggr.kernels.groups import Groups
from aggr.states.ranges import merge_runs
from windows.ordered import Carry, OrderedWindow, Ranges, Rows
from windows.ordered.jumps import first_at_least

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
States = Mapping[str, pa.StructArray]
Reduce = Callable[[str, Flags, Groups], pa.StructArray]
Choose = Callable[[Ranges], Flags | None]


class Held(NamedTuple):
    """What is held of every key: the window's carry, and for each column a state for each of its marks."""

    carry: Carry
    states: States

    def spread(self, places: Ints, keys: int, window: OrderedWindow, functions: Mapping[str, Function]) -> Held:
        """Renumber the keys: key ``i`` becomes ``places[i]``, ascending, of ``keys``; the others begin."""
        if len(places) == keys:
            return self
        start = window.start(keys)
        start.position[places] = self.carry.position
        counts = start.counts.copy()
        counts[places] = self.carry.counts
        known = np.zeros(keys, np.bool_)
        known[places] = True
        old = np.repeat(known, counts)
        marks = np.zeros(len(old), np.int64)
        marks[old] = self.carry.marks
        for name, column in start.numbers.items():
            column[places] = self.carry.numbers[name]
        rows = np.flatnonzero(old)
        states = {
            name: function.merge(self.states[name], Groups.of(rows, len(old))) for name, function in functions.items()
        }
        return Held(Carry(start.position, counts, marks, start.numbers), states)


class Advanced(NamedTuple):
    """What a batch brings about: outputs, the states of each, and what is held for the next batch."""

    ranges: Ranges
    states: States
    held: Held | None


def advance(
    window: OrderedWindow,
    functions: Mapping[str, Function],
    rows: Rows,
    held: Held,
    reduce: Reduce,
    choose: Choose,
    last: bool = False,
) -> Advanced:
    """Bring a window forward by a batch of rows.

    Parameters
    ----------
    window : OrderedWindow
    functions : name -> function of each column of states
    rows : Rows
    held : Held
        Of as many keys.
    reduce : name, which rows, their groups -> one state per group
    choose : outputs -> those that are wanted, None for all
    last : bool
        Whether no batch follows, so that nothing need be held.
    """
    ranges, after = window.ranges(rows, held.carry)
    chosen = choose(ranges)
    if chosen is not None:
        ranges = Ranges(*(column[chosen] for column in ranges))
    axis = _Axis(rows, held.carry)
    first, until = axis.place(ranges.key, ranges.first), axis.place(ranges.key, ranges.last)
    begins, ends = (np.zeros(0, np.int64),) * 2 if last else axis.marks(after)
    is_cut = np.zeros(axis.units + 1, np.bool_)
    for places in (first, until, begins, ends, axis.edges()):
        is_cut[places] = True
    runs = _Runs(axis, is_cut)
    first, until, begins, ends = (runs.number[places] for places in (first, until, begins, ends))
    states, kept = {}, {}
    for name, function in functions.items():
        of_runs = runs.states(held.states[name], reduce(name, runs.row_used, runs.row_groups))
        states[name] = merge_runs(function, of_runs, first, until)
        if not last:
            kept[name] = _merge_disjoint(function, of_runs, begins, ends)
    return Advanced(ranges, states, None if last else Held(after, kept))


class _Axis:
    """Held states and rows in one line: of each key what is held of it, then its rows."""

    def __init__(self, rows: Rows, carry: Carry) -> None:
        self.rows, self.carry = rows, carry
        units = carry.counts + rows.lengths
        self.base = np.cumsum(units) - units
        self.units = int(units.sum())
        self.held_base = np.cumsum(carry.counts) - carry.counts

    def place(self, key: Ints, position: Ints) -> Ints:
        """Find positions of keys in the line: rows of the batch, or held states that begin there."""
        carry, base = self.carry, self.base[key]
        in_batch = position >= carry.position[key]
        places: Ints = base + carry.counts[key] + position - carry.position[key]
        old = np.flatnonzero(~in_batch)
        if len(old):
            begin = self.held_base[key[old]]
            mark = first_at_least(carry.marks, begin, begin + carry.counts[key[old]], position[old])
            places[old] = base[old] + mark - begin
        return places

    def marks(self, after: Carry) -> tuple[Ints, Ints]:
        """Find the stretches to be held: from each mark to the next one of its key, or to the key's end."""
        key = np.repeat(np.arange(len(after.counts)), after.counts)
        begins = self.place(key, after.marks)
        ends = np.append(begins[1:], 0)
        final = np.cumsum(after.counts) - 1
        ends[final] = self.base + self.carry.counts + self.rows.lengths
        return begins, ends

    def edges(self) -> Ints:
        """List where held states begin, and where the rows behind them do."""
        return np.append(np.flatnonzero(self.held), self.base + self.carry.counts)

    @property
    def held(self) -> Flags:
        """Tell which places are held states, not rows."""
        flags = np.ones(self.units, np.bool_)
        flags[self.row_places] = False
        return flags

    @property
    def row_places(self) -> Ints:
        """Find the place of each row."""
        behind = np.repeat(self.base + self.carry.counts - self.rows.heads, self.rows.lengths)
        places: Ints = np.arange(len(self.rows.times)) + behind
        return places


class _Runs:
    """The stretches between cuts: each a held state, or rows that no range cuts."""

    def __init__(self, axis: _Axis, is_cut: Flags) -> None:
        self.number = np.cumsum(is_cut) - 1
        begins = np.flatnonzero(is_cut)[:-1]
        held = np.append(axis.held, False)[begins]
        self.any_held = bool(held.any())
        place = axis.row_places
        run = self.number[place]
        self.row_used: Flags = (run >= 0) & (run < len(begins))
        of_rows = np.cumsum(~held) - 1
        self.row_groups = Groups(of_rows[run[self.row_used]], int((~held).sum()))
        held_number = np.cumsum(np.append(axis.held, False)) - 1
        total = int(axis.held.sum())
        self.source = pa.array(np.where(held, held_number[begins], total + of_rows))

    def states(self, held: pa.StructArray, of_rows: pa.StructArray) -> pa.StructArray:
        """Put the states of held runs and of rows in order."""
        return pa.concat_arrays([held, of_rows]).take(self.source) if self.any_held else of_rows


def _merge_disjoint(function: Function, states: pa.StructArray, begins: Ints, ends: Ints) -> pa.StructArray:
    """Merge stretches of runs that do not overlap."""
    if not len(begins):
        return function.merge(states.slice(0, 0), Groups.of([], 0))
    run = np.arange(len(states))
    stretch = np.searchsorted(begins, run, side="right") - 1
    within = np.flatnonzero((stretch >= 0) & (run < ends[stretch]))
    taken = states if len(within) == len(states) else states.take(pa.array(within))
    return function.merge(taken, Groups.of(stretch[within], len(begins)))
