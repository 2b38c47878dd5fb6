"""Rows by key: positions, ranges and carries of rows, and the previous and the last value of each key."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Carry, Ints, Ranges, Rows


def positions(rows: Rows, carry: Carry) -> Ints:
    """Return the position of each row: the number of previous rows of its key, in all batches."""
    return np.arange(len(rows.times)) + np.repeat(carry.position - rows.heads, rows.lengths)


def non_overlapping(row: Ints, first: Ints, last: Ints, rows: Rows) -> Ranges:
    """Return the outputs for ranges, without empty ranges. ``row`` contains the rows that trigger the outputs,
    ascending.
    """
    filled = np.flatnonzero(last > first)
    key = np.searchsorted(rows.heads + rows.lengths, row[filled], side="right")
    return Ranges(key, first[filled], last[filled], row[filled])


def next_carry(carry: Carry, rows: Rows, open_starts: Ints, **numbers: Ints) -> Carry:
    """Return the carry after a batch if each key has one open range, which begins at ``open_starts``."""
    ones = np.ones(len(open_starts), np.int64)
    return Carry(carry.position + rows.lengths, ones, open_starts, numbers)


def last_by_key(row: Ints, value: Ints, before: Ints, rows: Rows) -> Ints:
    """Return the last value of each key, or ``before`` for keys without values. ``row`` must ascend."""
    after_key = np.searchsorted(row, rows.heads + rows.lengths, side="left")
    has_values = after_key > np.searchsorted(row, rows.heads, side="left")
    last = before.copy()
    last[has_values] = value[after_key[has_values] - 1]
    return last


def previous(value: Ints, row: Ints, before: Ints, rows: Rows) -> Ints:
    """For each value, return the previous value of the key, or ``before`` for the first one. ``row`` must ascend."""
    key = np.searchsorted(rows.heads + rows.lengths, row, side="right")
    shifted = np.empty_like(value)
    shifted[1:] = value[:-1]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    shifted[heads] = before[key[heads]]
    return shifted
