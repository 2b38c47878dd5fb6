"""The window and the key of each state. Functions such as `time_weighted_avg` use them to find the previous and the
next window of the same key, and also read points of both windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggr.arrays import Flags, Ids, Whole
from aggr.groups.groups import Groups

Instants = Whole


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The windows and keys of states. The windows of a key must not overlap, and the event times of a state must lie in
    its window.

    Starts, ends and ``longest`` are in microseconds. If two consecutive points of a key are at most ``longest`` apart,
    the time between them counts, even if they lie in different windows. Each window then counts the part of this time
    that lies in the window.
    """

    keys: Groups
    starts: Instants
    ends: Instants
    longest: int

    def filter(self, states: Flags) -> Neighbours:
        """Return the windows and keys of the states for which a mask is true."""
        return Neighbours(self.keys.filter(states), self.starts[states], self.ends[states], self.longest)

    def spans(self, times: Instants, lengths: Instants) -> tuple[Ids, Instants, Instants]:
        """Return the order of all points by key and time, and the range of points of each state in this order.

        ``times`` has the times of all points, state after state, and ``lengths`` the number of points of each state.
        The results are three arrays: the indices of the points in this order, the first position of each state's range,
        and the position after the end of the range. The range contains the points from which the result is computed:
        the state's own points, and the previous and the next point of its key if they are at most ``longest`` away.
        """
        keys = np.repeat(self.keys.ids, lengths)
        order = np.lexsort((times, keys))
        keys = keys[order]
        times = times[order]
        start, end = (_points_before(keys, times, self.keys.ids, edges) for edges in (self.starts, self.ends))
        # whether a point has the key of the previous point, and is at most ``longest`` after it
        continues_series = np.zeros(len(times) + 1, np.bool_)
        continues_series[1:-1] = (keys[1:] == keys[:-1]) & (np.diff(times) <= self.longest)
        point_keys = np.append(keys, -1)
        has_previous, has_next = (continues_series[edge] & (point_keys[edge] == self.keys.ids) for edge in (start, end))
        return order, start - has_previous, end + has_next


def _points_before(keys: Ids, times: Instants, edge_keys: Ids, edges: Instants) -> Instants:
    """Return the number of points that come before each edge of a window in the order of key and time, shape (edges,).

    ``keys`` and ``times`` contain the key and the time of each point, ``edge_keys`` and ``edges`` the key and the time
    of each edge.
    """
    kind = np.repeat([0, 1], [len(edges), len(times)])  # an edge comes before a point with the same time
    order = np.lexsort((kind, np.append(edges, times), np.append(edge_keys, keys)))
    points = kind[order]
    counts = np.empty(len(order), np.int64)
    counts[order] = np.cumsum(points)
    return counts[: len(edges)]
