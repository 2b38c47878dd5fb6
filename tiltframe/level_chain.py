"""The chain of levels: the states of each level are merged into those of the next one.

10s states ── merge ──▶ 1m ── merge ──▶ 10m ── merge ──▶ 1h
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.state_checks import made_here
from tiltframe.event_time import INSTANT
from tiltframe.frame import TiltFrame
from tiltframe.instants import as_instants, instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, START
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow


def climb(
    finest: pa.Table, frame: TiltFrame, coarser: Sequence[pa.Table] = ()
) -> Iterator[tuple[TimeWindow, pa.Table]]:
    """Merge states of the finest panes into the windows of all levels; yield each level with its states, finest first.

    ``finest`` has the merged states of panes, as `merge_panes` returns them. ``coarser`` has states that `climb_within`
    has already merged into windows of levels above the finest. Their rows must not be in the states of finer levels as
    well. States have the columns window_start, window_end, keys and states, and are sorted by window and keys.
    """
    below, panes = finest, frame.panes
    for level, others in zip_longest(frame.levels, [None, *coarser]):
        if level.pane != panes:
            if others is not None and others.num_rows:
                below = pa.concat_tables([below, others.select(below.column_names)])
            below, panes = merge_level(made_here(below), frame, level.pane), level.pane
        yield level, below if level == panes else merge_level(made_here(below), frame, level)


def climb_within(
    finest: pa.Table, frame: TiltFrame, start: int, end: int
) -> tuple[list[tuple[TimeWindow, pa.Table]], list[pa.Table]]:
    """Merge states of the finest panes into the windows between ``start`` and ``end``.

    ``finest`` must contain all rows between ``start`` and ``end``.

    Return two lists, ``whole`` and ``left``. If the levels of the frame are disjoint, ``whole`` has each level, finest
    first, with the states of its windows between ``start`` and ``end``, except the states in ``left``. ``left`` has,
    for each level, the states that must still be merged with other states. For the finest level, these include the
    states of windows outside the range. For every level, they include the states that belong to a coarser window
    outside the range. Pass ``left`` to `climb` to merge them.

    >>> import aggr, pyarrow as pa
    >>> from tiltframe import TiltFrame
    >>> from tiltframe.merged_windows import merge_panes
    >>> from tiltframe.reducing import reduce_rows
    >>> frame = TiltFrame(["1s", "10s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> rows = pa.table({"ts": [1000, 9000, 10000, 20000, 21000, 30000, 61000]})
    >>> finest = merge_panes(reduce_rows(rows, frame), frame)
    >>> whole, left = climb_within(finest, frame, 9_500_000, 60_000_000)
    >>> [(level.name, states.num_rows) for level, states in whole], [states.num_rows for states in left]
    ([('1s', 4), ('10s', 0), ('1m', 0)], [3, 3, 0])
    """
    whole, left = [], []
    states, apart = _parted(finest, frame.levels[0], start, end)
    for level, coarser in zip_longest(frame.levels, frame.levels[1:]):
        if coarser is None:
            whole.append((level, states))
            left.append(apart)
            break
        states, more = _parted(states, coarser, start, end)
        whole.append((level, states))
        left.append(pa.concat_tables([apart, more]))
        states = merge_level(made_here(states), frame, coarser)
        apart = states.slice(0, 0)
    return whole, left


def _parted(states: pa.Table, level: TimeWindow, start: int, end: int) -> tuple[pa.Table, pa.Table]:
    """Split states into those whose window of a level lies between ``start`` and ``end``, and all others.

    A state that lies in no window of the level counts as inside.
    """
    found = level.assign(instants_of(states))
    within = np.ones(states.num_rows, np.bool_)
    within[found.rows] = (found.starts >= start) & (found.ends <= end)
    rows = np.flatnonzero(within)
    if len(rows) and len(rows) == rows[-1] + 1 - rows[0]:  # Windows are sorted, so slices suffice, which need no copy.
        first, last = int(rows[0]), int(rows[-1]) + 1
        return states.slice(first, len(rows)), pa.concat_tables([states.slice(0, first), states.slice(last)])
    return states.filter(pa.array(within)), states.filter(pa.array(~within))


def joined(levels: Iterable[tuple[TimeWindow, pa.Table]], frame: TiltFrame) -> pa.Table:
    """Return one table of the states of all levels: level, window_start, window_end, keys, states."""
    return pa.concat_tables([labelled(states, frame, level) for level, states in levels])


def labelled(states: pa.Table, frame: TiltFrame, level: TimeWindow) -> pa.Table:
    """Add the name of the level to states. Start and end are null for a window over all time."""
    for name in (START, END):
        at = instants_of(states, name)
        if not len(at) or (at.min() > MIN_INSTANT and at.max() < MAX_INSTANT):
            continue
        known = pc.if_else(pa.array((at > MIN_INSTANT) & (at < MAX_INSTANT)), as_instants(at), pa.scalar(None, INSTANT))
        states = states.set_column(states.column_names.index(name), name, known)
    return states.add_column(0, frame.level_field, pa.repeat(pa.scalar(level.name), states.num_rows))
