"""Functions for the rows of a batch, which are grouped by key. The functions compute the position of each row, the
previous or the last value of each key, and the results of `OrderedWindow.ranges`: the ranges and the carry.
"""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Carry, Ints, Ranges, Rows


def positions(rows: Rows, carry: Carry) -> Ints:
    """Return the position of each row: the number of earlier rows of its key, in this batch and all previous ones."""
    return np.arange(len(rows.times)) + np.repeat(carry.position - rows.heads, rows.lengths)


def non_overlapping(row: Ints, first: Ints, last: Ints, rows: Rows) -> Ranges:
    """Return the ranges that are not empty. The row ``row[i]`` triggers the range ``i``, which consists of the rows
    ``[first[i], last[i])`` of its key. ``row`` is ascending.
    """
    filled = np.flatnonzero(last > first)
    key = np.searchsorted(rows.heads + rows.lengths, row[filled], side="right")
    return Ranges(key, first[filled], last[filled], row[filled])


def next_carry(carry: Carry, rows: Rows, open_starts: Ints, **numbers: Ints) -> Carry:
    """Return the carry after a batch, for windows with one open range per key. ``open_starts`` has the position at
    which the open range of each key begins, and ``numbers`` the values of `Carry.numbers`.
    """
    ones = np.ones(len(open_starts), np.int64)
    return Carry(carry.position + rows.lengths, ones, open_starts, numbers)


def last_by_key(row: Ints, value: Ints, before: Ints, rows: Rows) -> Ints:
    """Return the last element of ``value`` for each key, or the key's element of ``before`` if the key has no element
    in ``value``. The element ``value[i]`` belongs to the row ``row[i]`` of the batch. ``row`` is ascending.
    """
    after_key = np.searchsorted(row, rows.heads + rows.lengths, side="left")
    has_values = after_key > np.searchsorted(row, rows.heads, side="left")
    last = before.copy()
    last[has_values] = value[after_key[has_values] - 1]
    return last


def previous(value: Ints, row: Ints, before: Ints, rows: Rows) -> Ints:
    """For each element of ``value``, return the previous element of the same key. For the first element of a key,
    return the key's element of ``before``. The element ``value[i]`` belongs to the row ``row[i]`` of the batch. ``row``
    is ascending.
    """
    key = np.searchsorted(rows.heads + rows.lengths, row, side="right")
    shifted = np.empty_like(value)
    shifted[1:] = value[:-1]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    shifted[heads] = before[key[heads]]
    return shifted
