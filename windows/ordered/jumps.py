"""Searches in the rows of all keys at once, for windows whose bounds depend on earlier rows."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Flags, Ints


def first_at_least(times: Ints, begin: Ints, end: Ints, limit: Ints) -> Ints:
    """For each ``i``, return the first row in ``[begin[i], end[i])`` whose time is at least ``limit[i]``, or ``end[i]``
    if there is no such row.

    Times must not decrease within each range.
    """
    low, high = begin.copy(), end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        late = times[np.minimum(middle, len(times) - 1)] >= limit
        open_ = low < high
        high = np.where(open_ & late, middle, high)
        low = np.where(open_ & ~late, middle + 1, low)
    return low


def next_true(flags: Flags, begin: Ints, end: Ints) -> Ints:
    """For each ``i``, return the first row in ``[begin[i], end[i])`` whose flag is true, or ``end[i]`` if there is no
    such row.
    """
    places = np.append(np.flatnonzero(flags), len(flags))
    next_place: Ints = np.minimum(places[np.searchsorted(places, np.minimum(begin, len(flags)))], end)
    return np.maximum(next_place, np.minimum(begin, end))


def visited(firsts: Ints, onward: Ints) -> Ints:
    """Return all positions that are reached from the positions ``firsts``, ascending. From the position ``p``, the next
    one is ``onward[p]``.

    ``onward[p]`` must be greater than ``p``; if it is beyond the array, there is no next position. In each pass, the
    length of the steps is doubled (pointer doubling), so that a million positions need about twenty passes.
    """
    n = len(onward)
    seen = np.zeros(n + 1, np.bool_)
    seen[np.minimum(firsts, n)] = True
    jump = np.append(np.minimum(onward, n), n)
    while (jump[:-1] < n).any():
        seen[jump[seen]] = True
        jump = jump[jump]
    return np.flatnonzero(seen[:n])
