"""Stream rules: the frame and the policies of all levels of a stream, and how they apply to panes.

Panes are the windows to which rows are reduced when they arrive: windows of the finest level, or, if these overlap, the
shorter windows of which they consist. A pane has an additional measure, the number of rows of its state
(`StreamRules.partial_frame`). This measure is removed before windows are stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import aggr
from aggr import Function, Measure
from aggr.arguments import checked_type
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array
from aggr.duration import duration_text
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column, keyed
from aggr.tables.result_names import check_having_names
from aggr.tables.state_plan import holder, plan
from tiltframe.event_time import INSTANT
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import END, LEVEL, PARTIAL, REASON, REVISION, START
from tiltframe.results import results_of
from tiltframe.streaming.policies import EmitPolicy, HeldWindows, LatePolicy
from tiltframe.streaming.policies.late import gap_of
from tiltframe.streaming.window_table import HIGHEST, LOWEST, WindowTable, new_windows, places
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants

CHANGE = "change"
DROPPED = "dropped"  # the reason for an error about rows without a window
ROWS = "__rows"  # the name of the measure that counts the rows of a state
Mask = NDArray[np.bool_]
_ASSIGNED_AT_ONCE = 1_000_000  # the maximum number of intervals at a time: 24 MB


@dataclass(frozen=True)
class StreamRules:
    """The frame and the policies of all levels, and the columns of states that were added to saved windows."""

    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    added: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``ValueError`` if a policy does not fit the frame's levels."""
        self.late.check(self.frame)
        self.emit.check(self.frame)
        if self.frame.never_closes and self.emit.delay_micros:
            raise ValueError(
                f"delay={self.emit.delay} keeps windows open after their end, but windows of the level all have no "
                "end; leave out delay="
            )
        more = {name.lower() for name in self.emitted.keys() - {REASON, REVISION, PARTIAL}}
        clashes = [name for name in (*self.frame.keys, *self.frame.results) if name.lower() in more]
        if clashes:
            raise ValueError(
                f"the name {clashes[0]!r} is a column of the emitted rows; choose another name for the key or measure"
            )
        added = (name for name in self.emitted if name != CHANGE)
        columns = [LEVEL, START, END, *self.frame.keys, *self.frame.expressions, *added]
        check_having_names(self.emit.having, columns, dict(self.frame.measures))

    def warn(self) -> None:
        """Warn about sessions whose rows a consumer of the results may count twice."""
        gap, lateness = gap_of(self.frame), self.late.lateness_micros
        if gap is None:
            return
        length = duration_text(gap)
        if lateness is not None and lateness < gap:
            warnings.warn(
                f"the lateness {duration_text(lateness) if lateness else '0s'} is shorter than the gap {length} of "
                "sessions: a late row may open a session that overlaps an emitted session; use "
                f"late='drop({length})' or more, or leave it out",
                stacklevel=4,
            )
        if self.emit.emits_open and self.emit.mode != "changelog":
            warnings.warn(
                f"{self.emit} emits sessions that are still open, and those that unite later stay next to their union: "
                "a consumer that adds their values counts rows twice; use mode=changelog, which retracts them",
                stacklevel=4,
            )

    @cached_property
    def emitted(self) -> Mapping[str, pa.DataType]:
        """The columns of emitted rows that follow keys and states, with their types."""
        same = {REASON: pa.string(), REVISION: pa.int64(), PARTIAL: pa.bool_()}
        return {**self.emit.columns, **same, **({CHANGE: pa.int8()} if self.emit.mode == "changelog" else {})}

    @cached_property
    def held_frame(self) -> TiltFrame:
        """The frame of the states in memory, with the measures of the stream's frame and those that the policy needs.

        The policy's measures are named after their function and the policy, because saved windows may have those of
        another policy.
        """
        return _with_more(
            self.frame, {self._name_of(measure): measure for measure in self.emit.measures(self.frame).values()}
        )

    @cached_property
    def partial_frame(self) -> TiltFrame:
        """The frame that reduces rows: `held_frame` plus the number of rows."""
        return _with_more(self.held_frame, {ROWS: aggr.count()})

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The functions that merge the columns of states in memory."""
        return {column.name: column.measure.function for column in self.held_frame.states}

    def _name_of(self, measure: Measure) -> str:
        return f"{measure!r} of {self.emit.name}"

    @property
    def columns(self) -> list[str]:
        """The columns of keys and states in memory."""
        return [*self.frame.keys, *self.functions]

    @cached_property
    def cascades(self) -> bool:
        """Whether windows are merged into the next level when they close, rather than when rows arrive.

        This is the case if the policy does not use open windows. A batch is then merged only into the finest level.
        """
        closing = not self.emit.emits_open and self.emit.timeout is None
        return closing and not self.late.closes_by_events and all(level.contiguous for level in self.frame.levels)

    @property
    def remembers_emissions(self) -> bool:
        """Whether the last emission of each window is kept, in order to retract it or to compare results with it."""
        return self.emit.mode == "changelog" or self.emit.changed == "result"

    @cached_property
    def remembers_sessions(self) -> bool:
        """Whether the bounds of sessions that are no longer kept are remembered, so that late rows do not open
        overlapping sessions.

        A late row can be distinguished from a row that is on time only if the allowed lateness is at least the gap.
        """
        gap, lateness = gap_of(self.frame), self.late.lateness_micros
        return gap is not None and lateness is not None and lateness >= gap

    def gone_until(self, watermark: int) -> int:
        """Return a time: windows that end at or before it are no longer kept."""
        lateness = self.late.lateness_micros
        if lateness is None or watermark == LOWEST:
            return LOWEST
        return watermark - self.emit.delay_micros - lateness

    def remembered_since(self, watermark: int) -> int:
        """Return the time since which sessions that are no longer kept are remembered: two gaps earlier."""
        until = self.gone_until(watermark)
        return until - 2 * (gap_of(self.frame) or 0) if until > LOWEST else LOWEST

    def closed_by(self, watermark: int) -> int:
        """Return a time: windows that end at or before it are closed by the watermark."""
        return watermark - self.emit.delay_micros if watermark > LOWEST else LOWEST

    def closed(self, end_times: Instants, watermark: int) -> Mask:
        """Return a mask of the windows that the watermark closes."""
        return end_times <= self.closed_by(watermark)

    def expired(self, end_times: Instants, watermark: int) -> Mask:
        """Return a mask of the windows that are no longer kept."""
        until = self.gone_until(watermark)
        return end_times <= until if until > LOWEST else np.zeros(len(end_times), np.bool_)

    def shown(self, table: WindowTable) -> HeldWindows:
        """Return windows in the form in which policies receive them."""
        needed = self.emit.measures(self.frame)

        def result(name: str) -> pa.Array:
            measure = needed[name]
            column = self.held_frame.state_of(self._name_of(measure))
            if column not in table.schema.names:  # No rows have arrived since the policy was changed.
                return pa.nulls(len(table))
            states = one_array(table.known_states(self.added).column(column))
            results = measure.function.finish(states)
            return pc.if_else(states.is_null(), pa.scalar(None, results.type), results)

        return HeldWindows(
            table.starts,
            table.ends,
            new_rows=table.marks["new_rows"],
            last_arrival=table.marks["last_arrival"],
            result=result,
        )

    def results(self, states: pa.Table) -> pa.Table:
        """Return the results of states that have a level, with all columns that are not states."""
        results = results_of(states, self.frame)
        for name in self.emitted:
            if name in states.column_names:
                results = results.append_column(states.schema.field(name), states.column(name))
        return results


def _with_more(frame: TiltFrame, more: Mapping[str, Measure]) -> TiltFrame:
    """Add measures to a frame without changing its columns of states. A column is added only if a measure cannot be
    computed from an existing one.
    """
    if not more:
        return frame
    serving = {name: holder(frame.states, measure) for name, measure in more.items()}
    columns = [
        replace(column, serves=(*column.serves, *(name for name, by in serving.items() if by is column)))
        for column in frame.states
    ]
    own = plan({name: measure for name, measure in more.items() if serving[name] is None})
    return frame.with_results({**frame.results, **more}).keeping((*columns, *own))


def checked_panes(states: pa.Table, rules: StreamRules) -> pa.Table:
    """Check the columns of states that were reduced elsewhere, and return the states; raise ``ValueError`` if they do
    not fit.
    """
    names = checked_type(states, pa.Table, "states").column_names
    required = [START, END, *rules.frame.keys, *(column.name for column in rules.partial_frame.states)]
    missing = [name for name in required if name not in names]
    if missing or LEVEL in names:
        why = f"they have no column {missing[0]!r}" if missing else f"they have a column {LEVEL!r}"
        raise ValueError(
            f"states must be those of the finest panes: {why}; compute them with reduce_rows(rows, partial_frame)"
        )
    return states.select(required)


def to_window_table(states: pa.Table, rules: StreamRules) -> WindowTable:
    """Return a table of windows with their states. Also store the number of rows of each window."""
    frame = rules.partial_frame
    rows = frame.measures[ROWS].function.finish(states.column(frame.state_of(ROWS))).fill_null(0)
    return new_windows(states.select([START, END, *rules.columns]), new_rows=np.asarray(rows))


def mark_first_panes(table: WindowTable, level: TimeWindow, panes: pa.Table, rules: StreamRules) -> WindowTable:
    """For windows that events close, mark each with the start of its earliest pane."""
    if not rules.late.closes_by_events or not len(table):
        return table
    firsts = np.full(len(table), HIGHEST)
    size = max(_ASSIGNED_AT_ONCE // level.max_overlap, 1)
    for begin in range(0, panes.num_rows, size):
        piece = panes.slice(begin, size)
        firsts = np.minimum(firsts, _first_panes(table, level, panes=piece, rules=rules))
    return table.marked(first_pane=firsts)


def _first_panes(table: WindowTable, level: TimeWindow, *, panes: pa.Table, rules: StreamRules) -> Instants:
    """Return the start of the earliest pane in each window, or the largest possible number for a window without
    panes.
    """
    pane_starts = instants_of(panes)
    assigned = level.assign(pane_starts)
    at, rows = [pa.array(np.concatenate([table.starts, assigned.starts]))], pa.array(assigned.rows)
    parts = [(table.states.column(name), panes.column(name).take(rows)) for name in rules.frame.keys]
    keys = [pa.chunked_array([key_column(column) for column in columns]) for columns in parts]
    groups, _ = group_by([*at, *map(key_column, keys)], len(table) + len(rows))
    firsts = np.full(groups.n, HIGHEST)
    np.minimum.at(firsts, groups.ids[len(table) :], pane_starts[assigned.rows])
    return np.asarray(firsts[groups.ids[: len(table)]])


def rows_of_panes(lost: WindowTable, rows: pa.Table, times: Instants, rules: StreamRules) -> NDArray[np.bool_]:
    """Return a mask of the rows that lie only in lost panes."""
    frame = rules.frame
    _, places_of, all_keys = keyed(rows, frame.keyed_by, {frame.time}, frame.timezone)
    assigned = frame.panes.assign(times if places_of is None else times[places_of])
    owners = assigned.rows if places_of is None else places_of[assigned.rows]
    keys = {name: key.take(pa.array(assigned.rows)) for name, key in all_keys.items()}
    bounds = {START: pa.array(assigned.starts).cast(INSTANT), END: pa.array(assigned.ends).cast(INSTANT)}
    placed = places(WindowTable(pa.table(bounds | keys), {}), lost, frame.panes, frame.keys)
    late = np.zeros(len(times), np.bool_)
    late[owners] = True
    late[owners[placed < 0]] = False
    return late


def latest_ends(window: TimeWindow, times: Instants) -> Instants:
    """Return the latest end of the windows that contain each time, or the earliest possible moment for a time without a
    window.
    """
    if not len(times):
        return times
    unique, back = np.unique(times, return_inverse=True)
    numbered = window.numbered(unique)
    if numbered is not None:
        return numbered.bounds(numbered.last)[1][back]
    assigned, latest = window.assign(unique), np.full(len(unique), MIN_INSTANT)
    np.maximum.at(latest, assigned.rows, assigned.ends)
    return np.asarray(latest[back])


def earliest_ends(window: TimeWindow, times: Instants) -> Instants:
    """Return the earliest end of the windows that contain each time, or the latest possible moment for a time without a
    window.
    """
    numbered = window.numbered(times) if len(times) else None
    if numbered is not None:
        return numbered.bounds(numbered.first)[1]
    assigned, earliest = window.assign(times), np.full(len(times), MAX_INSTANT)
    np.minimum.at(earliest, assigned.rows, assigned.ends)
    return earliest
