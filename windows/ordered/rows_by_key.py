"""Rows by key: their positions, the ranges and the carries made of them, what came before each and last of each key."""

from __future__ import annotations

import numpy as np

from windows.ordered.contract import Carry, Ints, Ranges, Rows


def positions(rows: Rows, carry: Carry) -> Ints:
    """Find the position of each row: how many rows of its key come before it, in all batches."""
    return np.arange(len(rows.times)) + np.repeat(carry.position - rows.heads, rows.lengths)


def non_overlapping(row: Ints, first: Ints, last: Ints, rows: Rows) -> Ranges:
    """Make outputs of ranges, without empty ones, by the ascending rows that bring them about."""
    some = np.flatnonzero(last > first)
    key = np.searchsorted(rows.heads + rows.lengths, row[some], side="right")
    return Ranges(key, first[some], last[some], row[some])


def next_carry(carry: Carry, rows: Rows, open_starts: Ints, **numbers: Ints) -> Carry:
    """Make the carry after a batch, of a window that has one range open for each key, from ``open_starts`` on."""
    ones = np.ones(len(open_starts), np.int64)
    return Carry(carry.position + rows.lengths, ones, open_starts, numbers)


def last_by_key(row: Ints, value: Ints, before: Ints, rows: Rows) -> Ints:
    """Find each key's last of some values, of ascending rows; ``before`` of a key without any."""
    ends = np.searchsorted(row, rows.heads + rows.lengths, side="left")
    some = ends > np.searchsorted(row, rows.heads, side="left")
    last = before.copy()
    last[some] = value[ends[some] - 1]
    return last


def previous(value: Ints, row: Ints, before: Ints, rows: Rows) -> Ints:
    """Find for each of some values, of ascending rows, the one before it in its key; ``before`` for a key's first."""
    key = np.searchsorted(rows.heads + rows.lengths, row, side="right")
    shifted = np.empty_like(value)
    shifted[1:] = value[:-1]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    shifted[heads] = before[key[heads]]
    return shifted
