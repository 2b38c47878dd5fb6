"""The chain of levels: the states of each level are merged into the windows of the next level.

10s states ── merge ──▶ 1m ── merge ──▶ 10m ── merge ──▶ 1h
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.constant_column import repeat_value
from aggr.state_checks import mark_as_checked
from tiltframe.event_time import INSTANT
from tiltframe.frame import TiltFrame
from tiltframe.instants import as_instants, instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, START
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow


def climb(
    finest: pa.Table, frame: TiltFrame, coarser: Sequence[pa.Table] = ()
) -> Iterator[tuple[TimeWindow, pa.Table]]:
    """Merge the states of panes of the finest level into the windows of all levels. Yield pairs of a level and a table
    of its states, with the finest level first.

    All tables have the columns window_start, window_end, keys and states, and are sorted by window and keys.

    Parameters
    ----------
    finest : table
        One state per pane and key, as `merge_panes` returns them. A pane is a part of a window; see
        `tiltframe.merged_windows`.
    frame : TiltFrame
    coarser : tables, one for each level above the finest
        States that `climb_within` has already merged into windows of the level. The states from ``finest`` are merged
        with them. Therefore a row must not be counted both in ``finest`` and in ``coarser``.
    """
    below = finest
    panes = frame.panes
    for level, states_of_level in zip_longest(frame.levels, [None, *coarser]):
        if level.pane != panes:
            if states_of_level is not None and states_of_level.num_rows:
                below = pa.concat_tables([below, states_of_level.select(below.column_names)])
            below = merge_level(mark_as_checked(below), frame, level.pane)
            panes = level.pane
        yield level, below if level == panes else merge_level(mark_as_checked(below), frame, level)


def climb_within(
    finest: pa.Table, frame: TiltFrame, start: int, end: int
) -> tuple[list[tuple[TimeWindow, pa.Table]], list[pa.Table]]:
    """Merge the states of panes of the finest level into those windows of all levels that lie in a range of time.

    Parameters
    ----------
    finest : table
        One state per pane and key. It must contain all rows in the range.
    frame : TiltFrame
        The windows of each level must be disjoint.
    start, end : int
        The range, in microseconds UTC.

    Returns
    -------
    complete : list of (level, table)
        For each level, finest first, a table with the states of complete windows. A window is included if the range
        contains the complete window of the next level to which it belongs. For the coarsest level, the range must
        contain the window itself.
    left : list of tables
        For each level, finest first, the states of the windows in the range that are not in ``complete``, because the
        window of the next level extends beyond the range. The table of the finest level also has the windows outside
        the range. The states must still be merged with those of other ranges: ``climb(left[0], frame, left[1:])``.

    Examples
    --------
    >>> import aggr, pyarrow as pa
    >>> from tiltframe import TiltFrame
    >>> from tiltframe.merged_windows import merge_panes
    >>> from tiltframe.reducing import reduce_rows
    >>> frame = TiltFrame(["1s", "10s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> rows = pa.table({"ts": [1000, 9000, 10000, 20000, 21000, 30000, 61000]})
    >>> finest = merge_panes(reduce_rows(rows, frame), frame)
    >>> complete, left = climb_within(finest, frame, 9_500_000, 60_000_000)
    >>> [(level.name, states.num_rows) for level, states in complete], [states.num_rows for states in left]
    ([('1s', 4), ('10s', 0), ('1m', 0)], [3, 3, 0])
    """
    complete = []
    left = []
    states, left_at_level = _split_by_range(finest, frame.levels[0], start, end)
    for level, coarser in zip_longest(frame.levels, frame.levels[1:]):
        if coarser is None:
            complete.append((level, states))
            left.append(left_at_level)
            break
        states, more = _split_by_range(states, coarser, start, end)
        complete.append((level, states))
        left.append(pa.concat_tables([left_at_level, more]))
        states = merge_level(mark_as_checked(states), frame, coarser)
        left_at_level = states.slice(0, 0)
    return complete, left


def _split_by_range(states: pa.Table, level: TimeWindow, start: int, end: int) -> tuple[pa.Table, pa.Table]:
    """Split states into two tables. The second table has the states in windows of ``level`` that extend beyond the
    range from ``start`` to ``end``, in microseconds UTC. The first table has all other states.
    """
    assigned = level.assign(instants_of(states))
    within = np.ones(states.num_rows, np.bool_)
    within[assigned.rows] = (assigned.starts >= start) & (assigned.ends <= end)
    rows = np.flatnonzero(within)
    # If the rows of the first table are consecutive, they are selected by a slice, which does not copy the states.
    if len(rows) and len(rows) == rows[-1] + 1 - rows[0]:
        first = int(rows[0])
        last = int(rows[-1]) + 1
        return states.slice(first, len(rows)), pa.concat_tables([states.slice(0, first), states.slice(last)])
    return states.filter(pa.array(within)), states.filter(pa.array(~within))


def join_levels(levels: Iterable[tuple[TimeWindow, pa.Table]], frame: TiltFrame) -> pa.Table:
    """Return one table with the states of all levels. Its columns are level, window_start, window_end, the keys and the
    states.
    """
    return pa.concat_tables([with_level_column(states, frame, level) for level, states in levels])


def with_level_column(states: pa.Table, frame: TiltFrame, level: TimeWindow) -> pa.Table:
    """Return a table of states with the column ``level`` in addition. If a window covers all time, its start and end
    become null.
    """
    for name in (START, END):
        at = instants_of(states, name)
        if not len(at) or (at.min() > MIN_INSTANT and at.max() < MAX_INSTANT):
            continue
        bounds = pc.if_else(
            pa.array((at > MIN_INSTANT) & (at < MAX_INSTANT)), as_instants(at), pa.scalar(None, INSTANT)
        )
        states = states.set_column(states.column_names.index(name), name, bounds)
    return states.add_column(0, frame.level_field, repeat_value(pa.array([level.name]), states.num_rows))
