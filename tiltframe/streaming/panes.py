"""Panes: states of the finest windows, or of their parts, as they arrive, and what they say of their rows.

How many rows a state was made of is a measure more (`StreamRules.partial_frame`), which is read and left out again
before windows are held.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_type
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column, keyed
from tiltframe.frame import END, INSTANT, LEVEL, START
from tiltframe.level_chain import instants_of
from tiltframe.streaming.stream_rules import ROWS, StreamRules
from tiltframe.streaming.window_table import HIGHEST, WindowTable, new_windows, places
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants


def checked_panes(states: pa.Table, rules: StreamRules) -> pa.Table:
    """Check the columns of states that come from outside; raises ``ValueError``."""
    names = checked_type(states, pa.Table, "states").column_names
    wanted = [START, END, *rules.frame.keys, *(column.name for column in rules.partial_frame.states)]
    missing = [name for name in wanted if name not in names]
    if missing or LEVEL in names:
        why = f"they have no column {missing[0]!r}" if missing else f"they have a column {LEVEL!r}"
        raise ValueError(
            f"these are no states of the finest panes: {why}; make them with reduce_rows(rows, partial_frame)"
        )
    return states.select(wanted)


def to_window_table(states: pa.Table, rules: StreamRules) -> WindowTable:
    """Make windows of states, and mark each with the number of its rows."""
    frame = rules.partial_frame
    rows = frame.measures[ROWS].function.finish(states.column(frame.state_of(ROWS))).fill_null(0)
    return new_windows(states.select([START, END, *rules.columns]), new_rows=np.asarray(rows))


def mark_first_panes(table: WindowTable, level: TimeWindow, panes: pa.Table, rules: StreamRules) -> WindowTable:
    """Mark windows that close by events with the start of the earliest pane in them."""
    if not rules.late.closes_by_events or not len(table):
        return table
    starts = instants_of(panes)
    assigned = level.assign(starts)
    at, rows = [pa.array(np.concatenate([table.starts, assigned.starts]))], pa.array(assigned.rows)
    parts = [(table.states.column(name), panes.column(name).take(rows)) for name in rules.frame.keys]
    keys = [pa.chunked_array([key_column(column) for column in columns]) for columns in parts]
    groups, _ = group_by([*at, *map(key_column, keys)], len(table) + len(rows))
    firsts = np.full(groups.n, HIGHEST)
    np.minimum.at(firsts, groups.ids[len(table) :], starts[assigned.rows])
    return table.marked(first_pane=firsts[groups.ids[: len(table)]])


def rows_of_panes(lost: WindowTable, rows: pa.Table, times: Instants, rules: StreamRules) -> NDArray[np.bool_]:
    """Say which rows lie in lost panes alone."""
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
    """Find the latest end of the windows that each time lies in; of a time in no window, the earliest moment."""
    unique, back = np.unique(times, return_inverse=True)
    assigned, latest = window.assign(unique), np.full(len(unique), MIN_INSTANT)
    np.maximum.at(latest, assigned.rows, assigned.ends)
    return np.asarray(latest[back])


def earliest_ends(window: TimeWindow, times: Instants) -> Instants:
    """Find the earliest end of the windows that each time lies in; of a time in no window, no moment."""
    assigned, earliest = window.assign(times), np.full(len(times), MAX_INSTANT)
    np.minimum.at(earliest, assigned.rows, assigned.ends)
    return earliest
