"""Panes: what comes to open windows, states of the finest windows or their parts, and what they say of their rows.

Policies need to know how many rows a state was made of, and, where keys expire, when these were. Rows are therefore
reduced by a frame with a few measures more, which are read and left out again before windows are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import aggr
from aggr.arguments import checked_type
from aggr.kernels.groups import group_by
from aggr.state_checks import made_here
from aggr.states.keys import key_column, keyed
from tiltframe.event_time import event_times
from tiltframe.frame import END, INSTANT, LEVEL, START, TiltFrame
from tiltframe.level_chain import instants_of, merge_panes
from tiltframe.streaming.emit import AfterKeyExpire
from tiltframe.streaming.late import Buffer, moved
from tiltframe.streaming.open_level import Rules
from tiltframe.streaming.window_table import LOWEST, WindowTable, fresh, places
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants

ROWS, EARLIEST, LATEST, SEEN = "__rows", "__earliest", "__latest", "__seen"  # what policies need to know of rows
UNKNOWN = {"earliest": np.iinfo(np.int64).max, "latest": LOWEST, "seen": LOWEST}
_SPAN_ENDS = {EARLIEST: aggr.first, LATEST: aggr.last}
_HIDDEN = (ROWS, EARLIEST, LATEST, SEEN)


@dataclass(frozen=True)
class Panes:
    """How states of panes are read under the rules of a stream."""

    rules: Rules

    @cached_property
    def partial_frame(self) -> TiltFrame:
        """The frame that rows are reduced by: the given one, and what the policies need to know of rows."""
        emit = self.rules.emit
        hidden = {ROWS: aggr.count()}
        if isinstance(emit, AfterKeyExpire):
            of = emit.span_of
            hidden |= {name: make(of or self.rules.frame.time, by=of) for name, make in _SPAN_ENDS.items()}
            hidden |= {SEEN: aggr.last(self.rules.frame.time)}
        return self.rules.frame.with_measures(hidden)

    def checked(self, states: pa.Table) -> pa.Table:
        """Check what `add` is given, by its columns."""
        there = checked_type(states, pa.Table, "states").column_names
        wanted = [START, END, *self.rules.frame.keys, *(column.name for column in self.partial_frame.states)]
        missing = [name for name in wanted if name not in there]
        if missing or LEVEL in there:
            said = f"they have no column {missing[0]!r}" if missing else f"they have a column {LEVEL!r}"
            raise ValueError(
                f"these are no states of the finest panes: {said}; make them with reduce_rows(rows, partial_frame)"
            )
        return states.select(wanted)

    def told(self, states: pa.Table) -> WindowTable:
        """Tell what policies need to know of rows from the states that say it."""
        read = {name: self._read(states, name) for name in self.partial_frame.measures if name in _HIDDEN}
        marks = {"pending": np.asarray(read.pop(ROWS).fill_null(0))}
        for name, mark in ((EARLIEST, "earliest"), (LATEST, "latest"), (SEEN, "seen")):
            if name in read:
                given, of = read[name], self.rules.emit.span_of if name != SEEN else None  # type: ignore[attr-defined]
                marks[mark] = np.full(len(given), UNKNOWN[mark])
                marks[mark][given.is_valid().to_numpy(zero_copy_only=False)] = event_times(
                    given.drop_null(), of or self.rules.frame.time
                )
        return fresh(states.select([START, END, *self.rules.frame.keys, *self.rules.functions]), **marks)

    def _read(self, states: pa.Table, name: str) -> pa.Array:
        measure = self.partial_frame.measures[name]
        return measure.function.finish(states.column(self.partial_frame.state_of(name)))

    def with_firsts(self, table: WindowTable, level: TimeWindow, panes: pa.Table) -> WindowTable:
        """Mark windows of a buffer's coarser levels by the start of the earliest pane in them."""
        if not isinstance(self.rules.late, Buffer) or not len(table):
            return table
        starts = instants_of(panes)
        found = level.assign(starts)
        at, rows = [pa.array(np.concatenate([table.starts, found.starts]))], pa.array(found.rows)
        parts = [(table.states.column(name), panes.column(name).take(rows)) for name in self.rules.frame.keys]
        keys = [pa.chunked_array([key_column(column) for column in columns]) for columns in parts]
        groups, _ = group_by([*at, *map(key_column, keys)], len(table) + len(rows))
        firsts = np.full(groups.n, UNKNOWN["earliest"])
        np.minimum.at(firsts, groups.ids[len(table) :], starts[found.rows])
        return table.marked(earliest=firsts[groups.ids[: len(table)]])

    def buffered(self, panes: pa.Table, newest: int | None) -> tuple[pa.Table, int, WindowTable]:
        """Move panes older than the buffer into its oldest window, and count their rows; or drop them."""
        level, starts, none = self.rules.frame.levels[0], instants_of(panes), self.told(panes.slice(0, 0))
        if not isinstance(self.rules.late, Buffer) or newest is None:
            return panes, 0, none
        oldest = self.rules.late.oldest(level, np.full(len(starts), newest))
        at, older = moved(starts, oldest)
        out = self.told(panes.filter(pa.array(older))) if older.any() else none
        if self.rules.late.older == "drop":
            return panes.filter(pa.array(~older)), 0, out
        for name, micros in ((START, at), (END, level.ends(at))):
            panes = panes.set_column(panes.column_names.index(name), name, pa.array(micros).cast(INSTANT))
        return (merge_panes(made_here(panes), self.partial_frame) if older.any() else panes), out.rows, none

    def lie_in(self, lost: WindowTable, rows: pa.Table, times: Instants) -> NDArray[np.bool_]:
        """Say which rows lie in lost panes alone."""
        frame = self.rules.frame
        _, places_of, all_keys = keyed(rows, frame.keyed_by, {frame.time}, frame.timezone)
        found = self.rules.frame.panes.assign(times if places_of is None else times[places_of])
        owners = found.rows if places_of is None else places_of[found.rows]
        keys = {name: key.take(pa.array(found.rows)) for name, key in all_keys.items()}
        bounds = {START: pa.array(found.starts).cast(INSTANT), END: pa.array(found.ends).cast(INSTANT)}
        placed = places(WindowTable(pa.table(bounds | keys), {}), lost, self.rules.frame.panes, self.rules.frame.keys)
        late = np.zeros(len(times), np.bool_)
        late[owners] = True
        late[owners[placed < 0]] = False
        return late


def latest_ends(window: TimeWindow, times: Instants) -> Instants:
    """Find the latest end of the windows that each time lies in; of a time in no window, the earliest moment."""
    unique, back = np.unique(times, return_inverse=True)
    found, latest = window.assign(unique), np.full(len(unique), MIN_INSTANT)
    np.maximum.at(latest, found.rows, found.ends)
    ends: Instants = latest[back]
    return ends


def earliest_ends(window: TimeWindow, times: Instants) -> Instants:
    """Find the earliest end of the windows that each time lies in; of a time in no window, no moment."""
    found, earliest = window.assign(times), np.full(len(times), MAX_INSTANT)
    np.minimum.at(earliest, found.rows, found.ends)
    return earliest
