"""States of ranges of rows: evaluate any mergeable function over overlapping ranges, without reducing a row twice.

Rows are reduced once, to one state per *run*. A run is a sequence of rows in which no range begins or ends. A range
consists of consecutive runs, and overlapping ranges share the merges of their runs:

    ranges         ├───────────┤        Each range contains or touches a boundary. The left part of a range ends a
                     ├───────────┤      segment, and the right part begins the next segment. Segments are scanned once
                         ├─────────┤    backwards and once forwards. At most one merge then gives the state of a range
    boundary       ············┆····    of any length.

Disjoint ranges need no scan. Ranges with the same start and growing lengths need only one forward scan. Other ranges
need about five merges per run, independent of their lengths. The method is the aggregation of a queue with two stacks,
adapted to whole arrays.

Source: Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time" (2017);
Blelloch, "Prefix sums and their applications" (1990).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.compiling.jit import compiled
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import checked, mark_as_checked

Indices = NDArray[np.int64]


def merge_runs(function: Function, states: pa.StructArray, first: Indices, last: Indices) -> pa.StructArray:
    """Merge the runs of each range.

    Parameters
    ----------
    function : Function
        Any function, including sketches and user-defined functions.
    states : column of states, shape (runs,)
        States, one per run, in order.
    first, last : arrays of int64, shape (ranges,)
        Range ``i`` consists of the runs ``[first[i], last[i])``: ``last[i]`` is the index after its last run. Both
        arrays ascend.

    Returns
    -------
    column of states, shape (ranges,)
        The state of a range without runs is that of an empty group.

    Guarantee
    ---------
    The states have the same bits as if each range were merged separately. The number of merges grows with the numbers
    of runs and ranges, not with the lengths of ranges.

    Examples
    --------
    >>> from aggr import Sum
    >>> states = Sum().reduce(pa.array([5, 2, 13, 4]), Groups.each(4))
    >>> ranges = merge_runs(Sum(), states, np.array([0, 0, 0, 1]), np.array([1, 2, 3, 4]))
    >>> Sum().finish(ranges).to_pylist()
    [5, 7, 20, 19]
    """
    if not len(first):
        return states.slice(0, 0)
    if (last - first <= 1).all():
        nonempty = np.flatnonzero(last > first)
        return function.merge(states.take(pa.array(first[nonempty])), Groups.of(nonempty, len(first)))
    if _have_common_starts(first, last):
        nonempty_ranges = np.flatnonzero(last > first)
        scanned = scan(function, states, _segments_by_start(first, last, len(states)))
        if len(nonempty_ranges) == len(first):
            return scanned if _is_one_range_per_run(last, len(states)) else scanned.take(pa.array(last - 1))
        range_states = scanned.take(pa.array(last[nonempty_ranges] - 1))
        return function.merge(mark_as_checked(range_states), Groups.of(nonempty_ranges, len(first))).states
    boundaries = _choose_boundaries(first, last)
    segments = np.searchsorted(boundaries, np.arange(len(states)), side="right")
    backward_scan = _scan_backwards(function, states, segments, begin=int(first.min()), end=int(boundaries[-1]))
    forward_scan = _scan_forwards(function, states, segments, int(boundaries[0]))
    # Each range is divided at the first boundary after its start. ``left_ranges`` are the ranges with a part before the
    # boundary, and ``right_ranges`` those with a part after it.
    dividing_boundaries = np.append(boundaries, len(states))[np.searchsorted(boundaries, first, side="right")]
    left_ranges = np.flatnonzero(first < np.minimum(dividing_boundaries, last))
    right_ranges = np.flatnonzero(last > dividing_boundaries)
    left_parts = backward_scan.take(pa.array(first[left_ranges] - first.min()))
    right_parts = forward_scan.take(pa.array(last[right_ranges] - 1 - boundaries[0]))
    parts = mark_as_checked(pa.concat_arrays([left_parts, right_parts]))
    return function.merge(parts, Groups.of(np.concatenate([left_ranges, right_ranges]), len(first))).states


def _have_common_starts(starts: Indices, stops: Indices) -> bool:
    """Return whether overlapping ranges always begin at the same run.

    A range then contains all earlier ranges with which it overlaps.
    """
    return bool(((starts[1:] == starts[:-1]) | (starts[1:] >= stops[:-1])).all())


def _segments_by_start(starts: Indices, stops: Indices, n: int) -> Indices:
    """Return the segment of each of ``n`` runs. A segment begins at each run at which a range begins."""
    is_first_run = np.zeros(n, np.int64)
    is_first_run[starts[stops > starts]] = 1
    return np.cumsum(is_first_run)


def _is_one_range_per_run(stops: Indices, n: int) -> bool:
    """Return whether there are ``n`` ranges, and range ``i`` ends with run ``i``."""
    return len(stops) == n and bool((stops == np.arange(1, n + 1)).all())


@compiled
def _choose_boundaries(starts: Indices, stops: Indices) -> Indices:
    """Return boundaries between runs, ascending. A boundary is the number of the run that follows it.

    Each range that is not empty contains or touches at least one boundary. At most one boundary lies inside a range.
    """
    boundaries = np.empty(len(starts), np.int64)
    count = 0
    boundary = np.int64(-1)
    for i in range(len(starts)):
        if stops[i] > starts[i] and starts[i] >= boundary:
            boundary = stops[i]
            boundaries[count] = boundary
            count += 1
    return boundaries[:count].copy()


def _scan_forwards(function: Function, states: pa.StructArray, segments: Indices, begin: int) -> pa.StructArray:
    """Return the states from the index ``begin`` on, each merged with the earlier states of its segment. States before
    the index ``begin`` are ignored.
    """
    return scan(function, states.slice(begin), segments[begin:])


def _scan_backwards(
    function: Function, states: pa.StructArray, segments: Indices, begin: int, end: int
) -> pa.StructArray:
    """Return the states with indices in ``[begin, end)``, each merged with the later states of its segment. States from
    the index ``end`` on are ignored.
    """
    backward_order = pa.array(np.arange(end - 1, begin - 1, -1))
    merged = scan(function, states.take(backward_order), -segments[begin:end][::-1])
    return merged.take(pa.array(np.arange(end - begin - 1, -1, -1)))


def scan(function: Function, states: pa.StructArray, segments: Indices) -> pa.StructArray:
    """Return each state merged with all states before it in its segment.

    Parameters
    ----------
    function : Function
    states : column of states, shape (n,)
    segments : array of int64, shape (n,)
        The segment of each state, in ascending order.

    Returns
    -------
    column of states, shape (n,)

    Guarantee
    ---------
    The states have the same bits as if merged one by one. At most ``2·n`` merges of two states are needed.
    """
    levels = _levels(segments)
    if not levels:
        return states
    states = checked(function, states).states
    state = function.own_state
    if not state.merges_by_field:
        return _scan_by_levels(
            states, levels, lambda pairs, groups: function.merge(mark_as_checked(pairs), groups).states
        )
    # each field is scanned separately, so that the name, the version and the parameters are not copied at every level
    fields = state.fields
    return state.pack(
        {name: _scan_by_levels(states.field(name), levels, f.merge) for name, f in fields.items()}, len(states)
    )


class _Level(NamedTuple):
    """One level of the plan of a scan: the pairs of states to merge, and the origin of the result for each state.

    In each segment, the states 0 and 1, 2 and 3, … are pairs. A last state without a partner is a pair by itself.
    ``pairs`` contains the pair of each state, and ``segment_first_states`` the first state of each segment.

    ``first_states_of_later_pairs`` contains the first state of each pair, except for the first pair of a segment. Each
    such state is merged with the result of the previous pair. ``previous_pairs`` contains the index of this pair.
    ``merge_groups`` contains the groups for these merges.

    ``source`` contains the index of each state's result in an array of three parts: the results of the pairs, of
    ``first_states_of_later_pairs`` and of ``segment_first_states``.
    """

    pairs: Groups
    first_states_of_later_pairs: Indices
    previous_pairs: Indices
    merge_groups: Groups
    segment_first_states: Indices
    source: Indices


def _levels(segments: Indices) -> list[_Level]:
    """Return the levels of a scan: pairs of adjacent states, pairs of pairs, and so on.

    After the last level, each segment is a single state.
    """
    levels: list[_Level] = []
    while True:
        n = len(segments)
        first_states = np.flatnonzero(np.diff(segments, prepend=segments[:1] - 1)) if n else np.zeros(0, np.int64)
        if len(first_states) == n:
            return levels
        lengths = np.diff(first_states, append=n)
        position = np.arange(n) - np.repeat(first_states, lengths)
        # for each segment, the number of pairs in earlier segments
        earlier_pairs = np.cumsum((lengths + 1) // 2) - (lengths + 1) // 2
        pair = np.repeat(earlier_pairs, lengths) + position // 2
        pair_count = int(pair[-1]) + 1
        first_states_of_later_pairs = np.flatnonzero((position % 2 == 0) & (position > 0))
        segment_first_states = np.flatnonzero(position == 0)
        source = pair.copy()  # the second state of a pair has the same result as the pair
        later_pair_count = len(first_states_of_later_pairs)
        source[first_states_of_later_pairs] = pair_count + np.arange(later_pair_count)
        source[segment_first_states] = pair_count + later_pair_count + np.arange(len(segment_first_states))
        merge_groups = Groups(np.tile(np.arange(later_pair_count), 2), later_pair_count)
        levels.append(
            _Level(
                pairs=Groups(pair, pair_count),
                first_states_of_later_pairs=first_states_of_later_pairs,
                previous_pairs=pair[first_states_of_later_pairs] - 1,
                merge_groups=merge_groups,
                segment_first_states=segment_first_states,
                source=source,
            )
        )
        segments = np.repeat(segments[first_states], (lengths + 1) // 2)


def _scan_by_levels(column: pa.Array, levels: list[_Level], merge: Callable[[pa.Array, Groups], pa.Array]) -> pa.Array:
    """Return the scan of a column by the plan ``levels``.

    The merged pairs are scanned first. The result for a pair is also the result for the second state of the pair. The
    result for the first state of a pair is this state, merged with the result for the previous pair.
    """
    if not levels:
        return column
    level = levels[0]
    scanned = _scan_by_levels(merge(column, level.pairs), levels[1:], merge)
    merge_inputs = pa.concat_arrays(
        [scanned.take(pa.array(level.previous_pairs)), column.take(pa.array(level.first_states_of_later_pairs))]
    )
    parts = [scanned, merge(merge_inputs, level.merge_groups), column.take(pa.array(level.segment_first_states))]
    return pa.concat_arrays(parts).take(pa.array(level.source))
