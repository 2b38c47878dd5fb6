"""Stream rules: decisions that follow from the frame and the policies of a stream, for example which windows a
watermark closes.

Rows are reduced to panes when they arrive. Panes are the windows of the finest level or, if these overlap, shorter
windows that divide them. In addition to the states of the frame's measures, a pane has the number of its rows
(`StreamRules.partial_frame`). In a `WindowTable`, this number is stored under the name ``new_rows``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import aggr
from aggr import Measure
from aggr.arguments import checked_type
from aggr.arrays import Flags
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array
from aggr.duration import duration_text
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column, keyed
from aggr.tables.result_names import check_having_names
from aggr.tables.state_plan import find_state_column, plan_state_columns
from tiltframe.caller_warnings import warn_caller
from tiltframe.event_time import INSTANT
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import END, LEVEL, PARTIAL, REASON, REVISION, START
from tiltframe.results import results_of
from tiltframe.streaming.policies import EmitPolicy, HeldWindows, LatePolicy
from tiltframe.streaming.policies.late import gap_of
from tiltframe.streaming.window_table import HIGHEST, LOWEST, WindowTable, find_windows, new_windows
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants

CHANGE = "change"
# On Spark, the states of late rows that were dropped can be emitted. Their column `reason` has this value.
DROPPED = "dropped"
ROWS = "__rows"  # the name of the measure that counts the rows of a state
# the maximum number of pairs of a pane and a window that are computed at a time; each pair takes 24 bytes
_ASSIGNED_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class StreamRules:
    """The frame and the policies of a stream. ``added`` has the names of the columns of states that some windows in
    memory lack, because the measures were added after the stream was saved.
    """

    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    added: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``ValueError`` if a policy cannot be used with the frame, or if a key or measure has the name of a
        column that the policy emits.
        """
        self.late.check(self.frame)
        self.emit.check(self.frame)
        if self.frame.never_closes and self.emit.delay_micros:
            raise ValueError(
                f"delay={self.emit.delay} keeps windows open after their end, but windows of the level 'all' have "
                "no end; leave out delay="
            )
        more = {name.lower() for name in self.emitted_columns.keys() - {REASON, REVISION, PARTIAL}}
        clashes = [name for name in (*self.frame.keys, *self.frame.results) if name.lower() in more]
        if clashes:
            raise ValueError(
                f"the name {clashes[0]!r} is a column of the emitted rows; choose another name for the key or measure"
            )
        added = (name for name in self.emitted_columns if name != CHANGE)
        columns = [LEVEL, START, END, *self.frame.keys, *self.frame.expressions, *added]
        check_having_names(self.emit.having, columns, dict(self.frame.measures))

    def warn_about_sessions(self) -> None:
        """Warn if a late row can open a session that overlaps an emitted one, or if an open session may be emitted and
        later be united with another. A program that adds the results of sessions would then count rows twice.
        """
        gap = gap_of(self.frame)
        lateness = self.late.lateness_micros
        if gap is None:
            return
        length = duration_text(gap)
        if lateness is not None and lateness < gap:
            warn_caller(
                f"the lateness {duration_text(lateness) if lateness else '0s'} is shorter than the gap {length} of "
                "sessions: a late row may open a session that overlaps an emitted session; use "
                f"late='drop({length})' or a longer lateness, or leave out late",
            )
        if self.emit.emits_open and self.emit.mode != "changelog":
            warn_caller(
                f"{self.emit} emits sessions that are still open; if two of them unite later, their union is emitted "
                "too, and a consumer that adds the values of sessions counts rows twice; use mode=changelog, which "
                "retracts both of them first",
            )

    @cached_property
    def emitted_columns(self) -> Mapping[str, pa.DataType]:
        """The names and types of the columns that follow the keys and states in emitted rows."""
        common = {REASON: pa.string(), REVISION: pa.int64(), PARTIAL: pa.bool_()}
        return {**self.emit.columns, **common, **({CHANGE: pa.int8()} if self.emit.mode == "changelog" else {})}

    @cached_property
    def memory_frame(self) -> TiltFrame:
        """The frame whose states are in memory: the stream's frame, with further measures that the emit policy needs.

        The names of the policy's measures contain their function and the name of the policy. In saved windows, the
        measures of another policy therefore have other names.
        """
        return _with_more_measures(
            self.frame, {self._name_of(measure): measure for measure in self.emit.measures(self.frame).values()}
        )

    @cached_property
    def partial_frame(self) -> TiltFrame:
        """The frame that reduces arriving rows: `memory_frame` with a measure that counts rows."""
        return _with_more_measures(self.memory_frame, {ROWS: aggr.count()})

    def _name_of(self, measure: Measure) -> str:
        return f"{measure!r} of {self.emit.name}"

    @property
    def columns(self) -> list[str]:
        """The names of the columns of keys and states in the tables that a stream keeps in memory."""
        return [*self.frame.keys, *self.memory_frame.state_functions]

    @cached_property
    def cascades(self) -> bool:
        """Whether a window is merged into the next coarser level when it closes, and not when its rows arrive.

        This is the case if the emit policy does not emit open windows, only the watermark closes windows, and the
        windows of each level follow each other without gaps or overlaps. A batch is then merged only into the finest
        level.
        """
        only_closed = not self.emit.emits_open and self.emit.timeout is None
        return only_closed and not self.late.closes_by_events and all(level.contiguous for level in self.frame.levels)

    @property
    def remembers_emissions(self) -> bool:
        """Whether the last emission of each window is stored. A changelog needs it to retract this emission, and a
        policy that emits only changed results needs it for the comparison.
        """
        return self.emit.mode == "changelog" or self.emit.changed == "result"

    @cached_property
    def remembers_sessions(self) -> bool:
        """Whether the bounds of sessions are stored after the sessions are removed from memory, so that a late row does
        not open a session that overlaps a removed one.

        This is the case if the allowed lateness is at least the session gap. With a smaller lateness, a row that is not
        late could also touch a removed session, so the stored bounds would not show which rows are late.
        """
        gap = gap_of(self.frame)
        lateness = self.late.lateness_micros
        return gap is not None and lateness is not None and lateness >= gap

    def last_expired_end(self, watermark: int) -> int:
        """Return the latest end of windows that are removed from memory because their retention is over, in
        microseconds UTC. If windows are never removed, return the lowest int64.
        """
        lateness = self.late.lateness_micros
        if lateness is None or watermark == LOWEST:
            return LOWEST
        return watermark - self.emit.delay_micros - lateness

    def last_deleted_session_end(self, watermark: int) -> int:
        """Return the latest end of sessions whose stored bounds are deleted, in microseconds UTC: two session gaps
        before `last_expired_end`.
        """
        until = self.last_expired_end(watermark)
        return until - 2 * (gap_of(self.frame) or 0) if until > LOWEST else LOWEST

    def last_closed_end(self, watermark: int) -> int:
        """Return the latest end of windows that a watermark closes: the watermark minus the policy's delay, in
        microseconds UTC. Without a watermark, return the lowest int64.
        """
        return watermark - self.emit.delay_micros if watermark > LOWEST else LOWEST

    def are_closed(self, end_times: Instants, watermark: int) -> Flags:
        """Return a mask of the windows that the watermark closes. All times are in microseconds UTC."""
        return end_times <= self.last_closed_end(watermark)

    def are_expired(self, end_times: Instants, watermark: int) -> Flags:
        """Return a mask of the windows that are removed from memory because their retention is over at the watermark:
        those that end at or before `last_expired_end`. All times are in microseconds UTC.
        """
        until = self.last_expired_end(watermark)
        return end_times <= until if until > LOWEST else np.zeros(len(end_times), np.bool_)

    def held_windows(self, table: WindowTable) -> HeldWindows:
        """Return windows as `HeldWindows`, the form in which the methods of policies receive them."""
        needed = self.emit.measures(self.frame)

        def result(name: str) -> pa.Array:
            measure = needed[name]
            column = self.memory_frame.state_of(self._name_of(measure))
            # The column of the policy's measure does not exist if the stream was restarted with another policy, and no
            # rows have arrived since.
            if column not in table.schema.names:
                return pa.nulls(len(table))
            states = one_array(table.states_with_unknown(self.added).column(column))
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
        """Return the results of a table of states. The table must have the column ``level``. Columns that the policy
        has added are preserved.
        """
        results = results_of(states, self.frame)
        for name in self.emitted_columns:
            if name in states.column_names:
                results = results.append_column(states.schema.field(name), states.column(name))
        return results


def _with_more_measures(frame: TiltFrame, more: Mapping[str, Measure]) -> TiltFrame:
    """Return a frame with further measures. If a further measure can be computed from an existing column of states, it
    uses this column; otherwise a column is added. Existing columns are not changed.
    """
    if not more:
        return frame
    existing = {name: find_state_column(frame.states, measure) for name, measure in more.items()}
    columns = [
        replace(column, serves=(*column.serves, *(name for name, used in existing.items() if used is column)))
        for column in frame.states
    ]
    added = plan_state_columns({name: measure for name, measure in more.items() if existing[name] is None})
    return frame.with_results({**frame.results, **more}).keeping((*columns, *added))


def checked_panes(states: pa.Table, rules: StreamRules) -> pa.Table:
    """Check the argument ``states`` of `OpenWindows.add`, and return those of its columns that the method needs. Raise
    ``ValueError`` if a column is missing, or if there is a column ``level``.
    """
    names = checked_type(states, pa.Table, "states").column_names
    required = [START, END, *rules.frame.keys, *(column.name for column in rules.partial_frame.states)]
    missing = [name for name in required if name not in names]
    if missing:
        raise ValueError(
            f"the states have no column {missing[0]!r}, which the stream needs; compute them with "
            "reduce_rows(rows, partial_frame)"
        )
    if LEVEL in names:
        raise ValueError(
            f"the states have a column {LEVEL!r}, so they are not states of panes; compute them with "
            "reduce_rows(rows, partial_frame)"
        )
    return states.select(required)


def to_window_table(states: pa.Table, rules: StreamRules) -> WindowTable:
    """Return the windows for a table of states of `StreamRules.partial_frame`. The number of rows of each window, which
    is a state in ``states``, is stored under the name ``new_rows``.
    """
    frame = rules.partial_frame
    rows = frame.measures[ROWS].function.finish(states.column(frame.state_of(ROWS))).fill_null(0)
    return new_windows(states.select([START, END, *rules.columns]), new_rows=np.asarray(rows))


def mark_first_panes(table: WindowTable, level: TimeWindow, panes: pa.Table, rules: StreamRules) -> WindowTable:
    """Return ``table`` with ``first_pane`` set to the start of each window's earliest pane in the table ``panes``, or
    to the largest int64 for a window without panes. Only windows that are closed by events need this value. If the
    watermark closes windows, the table is returned unchanged.
    """
    if not rules.late.closes_by_events or not len(table):
        return table
    firsts = np.full(len(table), HIGHEST)
    size = max(_ASSIGNED_AT_ONCE // level.max_overlap, 1)
    for begin in range(0, panes.num_rows, size):
        piece = panes.slice(begin, size)
        firsts = np.minimum(firsts, _first_panes(table, level, panes=piece, rules=rules))
    return table.with_marks(first_pane=firsts)


def _first_panes(table: WindowTable, level: TimeWindow, *, panes: pa.Table, rules: StreamRules) -> Instants:
    """Return the start of the earliest of ``panes`` in each window of ``table``, in microseconds UTC. For a window
    without panes, return the largest int64.
    """
    pane_starts = instants_of(panes)
    assigned = level.assign(pane_starts)
    at = [pa.array(np.concatenate([table.starts, assigned.starts]))]
    rows = pa.array(assigned.rows)
    parts = [(table.states.column(name), panes.column(name).take(rows)) for name in rules.frame.keys]
    keys = [pa.chunked_array([key_column(column) for column in columns]) for columns in parts]
    groups, _ = group_by([*at, *map(key_column, keys)], len(table) + len(rows))
    firsts = np.full(groups.n, HIGHEST)
    np.minimum.at(firsts, groups.ids[len(table) :], pane_starts[assigned.rows])
    return np.asarray(firsts[groups.ids[: len(table)]])


def rows_only_in_panes(lost: WindowTable, rows: pa.Table, times: Instants, rules: StreamRules) -> NDArray[np.bool_]:
    """Return a mask of the rows whose panes are all in the table ``lost``. ``times`` are the times of the rows in
    microseconds UTC.
    """
    frame = rules.frame
    _, places_of, all_keys = keyed(rows, frame.keyed_by, {frame.time}, frame.timezone)
    assigned = frame.panes.assign(times if places_of is None else times[places_of])
    owners = assigned.rows if places_of is None else places_of[assigned.rows]
    keys = {name: key.take(pa.array(assigned.rows)) for name, key in all_keys.items()}
    bounds = {START: pa.array(assigned.starts).cast(INSTANT), END: pa.array(assigned.ends).cast(INSTANT)}
    matches = find_windows(WindowTable(pa.table(bounds | keys), {}), lost, frame.panes, frame.keys)
    late = np.zeros(len(times), np.bool_)
    late[owners] = True
    late[owners[matches < 0]] = False
    return late


def latest_ends(window: TimeWindow, times: Instants) -> Instants:
    """For each time, return the latest end of the windows that contain it, in microseconds UTC. For a time without a
    window, return `windows.MIN_INSTANT`.
    """
    if not len(times):
        return times
    unique, inverse = np.unique(times, return_inverse=True)
    numbered = window.numbered(unique)
    if numbered is not None:
        return numbered.bounds(numbered.last)[1][inverse]
    assigned = window.assign(unique)
    latest = np.full(len(unique), MIN_INSTANT)
    np.maximum.at(latest, assigned.rows, assigned.ends)
    return np.asarray(latest[inverse])


def earliest_ends(window: TimeWindow, times: Instants) -> Instants:
    """For each time, return the earliest end of the windows that contain it, in microseconds UTC. For a time without a
    window, return `windows.MAX_INSTANT`.
    """
    numbered = window.numbered(times) if len(times) else None
    if numbered is not None:
        return numbered.bounds(numbered.first)[1]
    assigned = window.assign(times)
    earliest = np.full(len(times), MAX_INSTANT)
    np.minimum.at(earliest, assigned.rows, assigned.ends)
    return earliest
