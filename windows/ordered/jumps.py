"""Cuts that depend on the cut before: found for all keys at once, by jumps that double."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Flags, Ints


def first_at_least(times: Ints, begin: Ints, end: Ints, wanted: Ints) -> Ints:
    """Find for each ``i`` the first row in ``[begin[i], end[i])`` whose time is at least ``wanted[i]``; else the end.

    Times never go back within such a stretch.
    """
    low, high = begin.copy(), end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        late = times[np.minimum(middle, len(times) - 1)] >= wanted
        open_ = low < high
        high = np.where(open_ & late, middle, high)
        low = np.where(open_ & ~late, middle + 1, low)
    return low


def next_true(flags: Flags, begin: Ints, end: Ints) -> Ints:
    """Find for each ``i`` the first row in ``[begin[i], end[i])`` that is true; else the end."""
    places = np.append(np.flatnonzero(flags), len(flags))
    next_place: Ints = np.minimum(places[np.searchsorted(places, np.minimum(begin, len(flags)))], end)
    return np.maximum(next_place, np.minimum(begin, end))


def visited(firsts: Ints, onward: Ints) -> Ints:
    """Find the places that are visited from some, each leading to ``onward[place]``, a later one or beyond the last.

    Jumps of 1, 2, 4 … steps are taken from all that is visited: some twenty whole-array passes for a million places.
    """
    n = len(onward)
    seen = np.zeros(n + 1, np.bool_)
    seen[np.minimum(firsts, n)] = True
    jump = np.append(np.minimum(onward, n), n)
    while (jump[:-1] < n).any():
        seen[jump[seen]] = True
        jump = jump[jump]
    return np.flatnonzero(seen[:n])
