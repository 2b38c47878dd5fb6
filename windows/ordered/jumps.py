"""Chains of cuts, in which each cut depends on the previous one, computed for all keys at once by pointer doubling."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Flags, Ints


def first_at_least(times: Ints, begin: Ints, end: Ints, limit: Ints) -> Ints:
    """Return for each ``i`` the first row in ``[begin[i], end[i])`` whose time is at least ``limit[i]``, or ``end[i]``.

    Times must be non-decreasing within each range.
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
    """Return for each ``i`` the first row in ``[begin[i], end[i])`` that is true, or ``end[i]``."""
    places = np.append(np.flatnonzero(flags), len(flags))
    next_place: Ints = np.minimum(places[np.searchsorted(places, np.minimum(begin, len(flags)))], end)
    return np.maximum(next_place, np.minimum(begin, end))


def visited(firsts: Ints, onward: Ints) -> Ints:
    """Return the places on the paths that begin at ``firsts``. The place after ``place`` is ``onward[place]``.

    The next place must be greater, or beyond the last place. Jumps of 1, 2, 4 … steps are applied to all visited
    places. For a million places, this takes about twenty passes over the array.
    """
    n = len(onward)
    seen = np.zeros(n + 1, np.bool_)
    seen[np.minimum(firsts, n)] = True
    jump = np.append(np.minimum(onward, n), n)
    while (jump[:-1] < n).any():
        seen[jump[seen]] = True
        jump = jump[jump]
    return np.flatnonzero(seen[:n])
