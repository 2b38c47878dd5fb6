"""Searches in the rows of all keys at once, for windows whose bounds depend on earlier rows."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Flags, Ints


def first_at_least(times: Ints, begin: Ints, end: Ints, limit: Ints) -> Ints:
    """For each ``i``, return the first row in ``[begin[i], end[i])`` whose time is at least ``limit[i]``, or ``end[i]``
    if there is no such row.

    Times must not decrease within each range.
    """
    low = begin.copy()
    high = end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        is_late = times[np.minimum(middle, len(times) - 1)] >= limit
        is_open = low < high
        high = np.where(is_open & is_late, middle, high)
        low = np.where(is_open & ~is_late, middle + 1, low)
    return low


def next_true(flags: Flags, begin: Ints, end: Ints) -> Ints:
    """For each ``i``, return the first row in ``[begin[i], end[i])`` whose flag is true, or ``end[i]`` if there is no
    such row.
    """
    true_rows = np.append(np.flatnonzero(flags), len(flags))
    next_rows: Ints = np.minimum(true_rows[np.searchsorted(true_rows, np.minimum(begin, len(flags)))], end)
    return np.maximum(next_rows, np.minimum(begin, end))


def reachable_rows(first_rows: Ints, next_rows: Ints) -> Ints:
    """Return all rows of a batch that are reached from the rows ``first_rows``, ascending. The row
    ``next_rows[i]`` is reached from the row ``i``.

    ``next_rows[i]`` must be greater than ``i``. If ``next_rows[i]`` is beyond the array, no row is reached from ``i``.
    In each pass, the length of the steps is doubled (pointer doubling), so that a million rows need about twenty
    passes.
    """
    n = len(next_rows)
    is_reached = np.zeros(n + 1, np.bool_)
    is_reached[np.minimum(first_rows, n)] = True
    target = np.append(np.minimum(next_rows, n), n)
    while (target[:-1] < n).any():
        is_reached[target[is_reached]] = True
        target = target[target]
    return np.flatnonzero(is_reached[:n])
