"""Merged windows: merge states that have the same pane and key, and merge the states of finer windows into the windows
of a level.

If the windows of a level overlap, rows are reduced to states of panes, which do not overlap. The length of a pane is
the greatest one that divides both the size and the hop of the windows. The state of a window is merged from the states
of its panes. If the windows of a level do not overlap, each window is one pane.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from aggr.groups.groups import Groups, group_by
from aggr.state_checks import CheckedStates, arrow_of, checked_like
from aggr.tables.by_key import key_column, merge_by
from aggr.tables.ranges import merge_runs
from tiltframe.frame import TiltFrame
from tiltframe.instants import as_instants, instants_of, take_rows
from tiltframe.names import END, START
from tiltframe.overlapping_windows import ranges_of_panes
from windows import TimeWindow
from windows.contract import Numbered, check_nested
from windows.timezone import Instants


def merge_panes(states: pa.Table | CheckedStates, frame: TiltFrame, max_ratio: float = 1.0) -> pa.Table:
    """Merge states of panes of the finest level, and return one row per pane and key. ``states`` has the columns of a
    table from `reduce_rows`. Several of its rows may have the same pane and key.

    If ``max_ratio`` is below 1, and the merged table would have more than ``max_ratio`` times as many rows as
    ``states``, ``states`` is returned unmerged.
    """
    table = arrow_of(states)
    keys = frame_keys(table, frame)
    starts, end_times = windows_of_intervals(frame.panes, instants_of(table, START), instants_of(table, END), keys)
    return merge_states(states, keys, frame, starts=starts, ends=end_times, max_ratio=max_ratio)


def merge_level(
    states: pa.Table | CheckedStates,
    frame: TiltFrame,
    level: TimeWindow,
    *,
    nulls_are_unknown: bool = False,
) -> pa.Table:
    """Merge states of finer windows into the windows of ``level`` that contain them, and return one row per window and
    key.

    ``nulls_are_unknown`` decides the meaning of null states. If it is true, as for the states of a store, a null state
    is unknown, and a merge with it is null. Otherwise a null state stands for no rows. States that were already checked
    are not checked again. Raise ``ValueError`` if a finer window lies only partly in a window of the level.
    """
    table = arrow_of(states)
    starts = instants_of(table, START)
    numbered = level.numbered(starts) if len(starts) and not nulls_are_unknown else None
    if numbered is not None:
        return merge_overlapping(states, frame, numbered)
    assigned = level.assign(starts)
    if END in table.column_names and not table.column(END).null_count:
        check_nested(level, assigned, starts, instants_of(table, END))
    table = take_rows(table, assigned.rows)
    keys = frame_keys(table, frame)
    checked = checked_like(states, table)
    return merge_states(
        checked, keys, frame, starts=assigned.starts, ends=assigned.ends, nulls_are_unknown=nulls_are_unknown
    )


def merge_overlapping(states: pa.Table | CheckedStates, frame: TiltFrame, numbered: Numbered) -> pa.Table:
    """Merge states of panes into the overlapping windows that ``numbered`` describes, and return one row per window and
    key.

    The panes of each key are sorted by time, so that each window consists of consecutive panes. The memory that is
    needed grows with the number of panes plus the number of windows. It does not depend on the number of windows that
    contain a pane.
    """
    table = arrow_of(states)
    starts = instants_of(table, START)
    keys = frame_keys(table, frame)
    groups, _ = group_by(list(keys.values()), table.num_rows)
    order = np.lexsort((starts, groups.ids))
    ranges = ranges_of_panes(groups.ids[order], numbered.first[order], numbered.last[order])
    window_starts, window_ends = numbered.bounds(ranges.numbers)
    by_start = np.lexsort((ranges.keys, window_starts))
    one_of_each = pa.array(order[ranges.first[by_start]])
    columns = {START: as_instants(window_starts[by_start])}
    columns |= {END: as_instants(window_ends[by_start])}
    columns |= {name: table.column(name).take(one_of_each) for name in frame.keys}
    panes = pa.array(order)
    places = pa.array(by_start)
    for state in frame.states:
        function = state.measure.function
        # A null state stands for no rows. A merge in which each state is a separate group replaces null states by the
        # state of no rows, which is not null.
        merged_alone = function.merge(states.column(state.name), Groups.each(table.num_rows))
        merged = merge_runs(function, arrow_of(merged_alone).take(panes), ranges.first, ranges.last)
        columns[state.name] = merged.take(places)
    return pa.table(columns).select(frame.states_columns[1:])


def merge_states(
    states: pa.Table | CheckedStates,
    keys: dict[str, pa.Array],
    frame: TiltFrame,
    starts: Instants,
    ends: Instants,
    max_ratio: float = 1.0,
    nulls_are_unknown: bool = False,
) -> pa.Table:
    """Merge the states that have equal keys and equal starts of windows, and return a table with one row per key and
    start. States with the same key and start must have the same end. ``starts`` and ``ends`` are in microseconds UTC,
    one per state. `merge_panes` describes ``max_ratio``, and `merge_level` describes ``nulls_are_unknown``.
    """
    keys = {START: as_instants(starts)} | keys
    carried = {END: as_instants(ends)}
    merged = merge_by(
        states, keys, frame.state_functions, max_ratio=max_ratio, carried=carried, unknown=nulls_are_unknown
    )
    return merged if merged is arrow_of(states) else merged.select(frame.states_columns[1:])


def windows_of_intervals(
    window: TimeWindow, starts: Instants, ends: Instants, keys: Mapping[str, pa.Array]
) -> tuple[Instants, Instants]:
    """For each interval from ``starts`` to ``ends``, return the start and the end of the window that contains the
    interval, as two arrays in microseconds UTC. ``keys`` has the key of each interval.

    A session, or a window of a similar kind, may consist of several intervals of the same key. For all other kinds of
    windows, each interval is already a window, and ``starts`` and ``ends`` are returned unchanged.
    """
    if not window.is_merging:
        return starts, ends
    groups, _ = group_by(list(keys.values()), len(starts))
    merged = window.merge(groups.ids, starts, ends)
    return merged.starts[merged.ids], merged.ends[merged.ids]


def frame_keys(table: pa.Table, frame: TiltFrame) -> dict[str, pa.Array]:
    """Return the columns of a table that contain the keys of a frame, by name."""
    return {name: key_column(table.column(name)) for name in frame.keys}
