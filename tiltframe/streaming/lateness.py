"""Decide which rows and panes of a batch are late, because a store already has them, or because their windows on all
levels have been removed from memory. In a level of sessions, an old row is not late if it joins a session in memory.

The decisions depend on the rules of the stream, on the watermarks of its levels, and on the sessions in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column
from tiltframe.ranges import LATEST_TIME
from tiltframe.streaming.open_level import OpenLevel
from tiltframe.streaming.session_lateness import find_accepted_rows, mask_touching_sessions
from tiltframe.streaming.stream_rules import StreamRules, latest_ends
from tiltframe.streaming.window_table import LOWEST, WindowTable
from windows import Intervals, TimeWindow
from windows.timezone import Instants


def are_committed(times: Instants, committed: int | None, finest: TimeWindow) -> Flags:
    """Return a mask of the rows that are already in a store: their windows of the finest level end at or before the
    time ``committed``. ``times`` are the times of the rows. All times are in microseconds UTC.
    """
    if committed is None or not len(times) or times.min() >= committed:
        return np.zeros(len(times), np.bool_)
    return finest.ends(finest.starts(times)) <= committed


def closing_time(watermark: int | None, rules: StreamRules) -> int:
    """Return the watermark that levels receive, in microseconds UTC: ``watermark``, or the lowest int64 if
    ``watermark`` equals None.

    If the late policy closes windows by events (`Buffer`), a watermark has the effect of an event with the same time.
    Levels then receive the time up to which this event closes windows (`LatePolicy.closed_until`).
    """
    if watermark is None:
        return LOWEST
    # `start_of_window` does not support times from `LATEST_TIME` on, such as the watermark of `OpenWindows.close`.
    if not rules.late.closes_by_events or watermark >= LATEST_TIME:
        return watermark
    finest = rules.frame.levels[0]
    return rules.late.closed_until(finest, start_of_window(watermark, finest))


def start_of_window(time: int, window: TimeWindow) -> int:
    """Return the start of the window that contains a time. Both are in microseconds UTC."""
    return int(window.starts(np.array([time]))[0])


def may_be_late(assigned: Intervals, watermark: int, rules: StreamRules) -> Flags:
    """Return a mask of the rows that are old enough to be late for a level of sessions. These rows are late unless they
    join a session in memory. ``assigned`` has one interval per row, from the time of the row to one session gap later.
    """
    return rules.are_expired(assigned.starts if rules.remembers_sessions else assigned.ends, watermark)


def accepted_session_rows(
    level: OpenLevel, keys: Mapping[str, pa.Array], starts: Instants, end_times: Instants, rules: StreamRules
) -> Flags:
    """Return a mask of the rows that are accepted for ``level``, a level of sessions. The other rows are late.

    Rows are processed in the order of their arrival, because an accepted row extends its session, and later rows may
    join the extended session. ``keys`` are the columns of keys. ``starts`` and ``end_times`` are the bounds of the
    session that each row would form alone, in microseconds UTC: from the time of the row to one session gap later.
    """
    windows = level.windows
    key_columns = {name: pa.chunked_array([key_column(windows.index.column(name)), keys[name]]) for name in keys}
    ids = group_by([key_column(column) for column in key_columns.values()], len(windows) + len(starts))[0].ids
    window_keys = ids[: len(windows)]
    row_keys = ids[len(windows) :]
    accepted_alone = ~rules.are_expired(end_times, level.watermark)
    is_too_old = ~accepted_alone
    sessions = (window_keys, windows.starts, windows.ends)
    accepted_alone[is_too_old] = mask_touching_sessions(
        sessions, row_keys[is_too_old], starts[is_too_old], end_times[is_too_old]
    )
    accepted = np.ones(len(starts), np.bool_)
    if rules.remembers_sessions:
        accepted = ~level.late_session_rows(keys, starts, rules)
    accepted[accepted] = find_accepted_rows(
        accepted_alone[accepted], row_keys[accepted], starts[accepted], int(level.window.length)
    )
    return accepted


def late_panes(panes: WindowTable, levels: Iterable[OpenLevel], rules: StreamRules) -> tuple[Flags, Flags]:
    """Return two masks of panes. Panes in the first mask are dropped as late, because their windows on all levels have
    been removed from memory. For panes in the second mask, only windows on finer levels have been removed, so that
    their rows count only on coarser levels.
    """
    lost = np.ones(len(panes), np.bool_)
    lost_on_finest = None
    for level in levels:
        if level.watermark == LOWEST or rules.late.lateness_micros is None:
            return np.zeros(len(panes), np.bool_), np.zeros(len(panes), np.bool_)
        if level.window.is_merging:
            lost = lost & level.late_windows(panes, rules)
        else:
            lost = lost & rules.are_expired(latest_ends(level.window, panes.starts), level.watermark)
        if lost_on_finest is None:
            lost_on_finest = lost
        if not lost.any():
            break
    return lost, lost if lost_on_finest is None else lost_on_finest & ~lost
