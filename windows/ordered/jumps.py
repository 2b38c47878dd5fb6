"""Cut the rows of all keys into ranges by pointer doubling, if the position of each cut depends on the previous cut."""

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
    """Return all positions on the paths that begin at the positions ``firsts``. The position after ``place`` on a path
    is ``onward[place]``.

    The next position must be greater than the previous one; a position beyond the array ends the path. Jumps of 1, 2, 4
    … steps are applied to all visited positions. A million positions need about twenty passes over the array.
    """
    n = len(onward)
    seen = np.zeros(n + 1, np.bool_)
    seen[np.minimum(firsts, n)] = True
    jump = np.append(np.minimum(onward, n), n)
    while (jump[:-1] < n).any():
        seen[jump[seen]] = True
        jump = jump[jump]
    return np.flatnonzero(seen[:n])
