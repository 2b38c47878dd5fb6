"""Grouped numbers: sums, least and greatest of each group, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels.groups import Groups, check_lengths
from aggr.kernels.jit import Int, compiled
from aggr.kernels.sort_keys import HIGHEST, LOWEST

_SURE = 2.0**62
_INFINITY = np.int64(0x7FF << 52)  # as bits; those of NaN are greater


def add(values: NDArray[np.int64], groups: Groups) -> NDArray[np.int64]:
    """Add int64 per group, shape (groups.n,); a sum beyond int64 raises ``OverflowError``."""
    check_lengths(len(values), groups)
    total, reach = _add(values, groups.ids, groups.n)
    if reach >= _SURE:  # below, no sum can overflow; one that did is off by 2^64, and the doubles by far less
        near = np.bincount(groups.ids, values.astype(np.float64), minlength=groups.n)
        if (np.abs(near - total) > _SURE).any():
            raise OverflowError("a count grew beyond int64")
    return total


@compiled
def _add(values: NDArray[np.int64], ids: NDArray[np.intp], n: int) -> tuple[NDArray[np.int64], float]:
    """Add up each group, and the magnitudes of all values."""
    total, reach = np.zeros(n, np.int64), 0.0
    for i in range(len(values)):
        value = values[i]
        total[np.uint64(ids[i])] += value
        reach += abs(float(value))
    return total, reach


def pick(keys: NDArray[np.int64], groups: Groups, greatest: bool) -> NDArray[np.intp]:
    """Find per group a row with the least key, or the greatest; -1 where a group has no rows."""
    check_lengths(len(keys), groups)
    edge = extreme_of(keys, groups, greatest)
    best = np.full(groups.n, -1, np.intp)
    rows = np.flatnonzero(keys == edge[groups.ids])
    best[groups.ids[rows]] = rows
    return best


def extreme_of(keys: NDArray[np.int64], groups: Groups, greatest: bool) -> NDArray[np.int64]:
    """Find the least key of each group, or the greatest."""
    low, high, *_ = _ends(keys, groups.ids, groups.n, False)
    return high if greatest else low


@compiled
def _ends(
    numbers: NDArray[np.int64], ids: NDArray[np.intp], n: int, floats: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], bool]:
    """Find the least and the greatest of each group, which are empty, and whether there is a NaN among doubles.

    Doubles come and go as bits; where there is a NaN, the rest means nothing.
    """
    group: Int
    low, high, nan = np.full(n, HIGHEST), np.full(n, LOWEST), False
    for i in range(len(numbers)):
        number, group = numbers[i], np.uint64(ids[i])
        if floats:
            nan |= (number & HIGHEST) > _INFINITY
            number ^= (number >> 63) & HIGHEST  # the order of doubles, and -0.0 before 0.0
        if number < low[group]:  # rarely: nothing is written, and nobody waits for what was
            low[group] = number
        if number > high[group]:
            high[group] = number
    empty = low > high
    if floats:
        for group in range(n):
            low[group] ^= (low[group] >> 63) & HIGHEST
            high[group] ^= (high[group] >> 63) & HIGHEST
    return low, high, empty, nan


def ends_of_numbers(numbers: NDArray[Any], groups: Groups) -> tuple[pa.Array, pa.Array] | None:
    """Find the least and the greatest of each group of int64 or of doubles; None where there is a NaN among them."""
    check_lengths(len(numbers), groups)
    return groups.cached("ends", numbers, lambda: _find_ends(numbers, groups))


def _find_ends(numbers: NDArray[Any], groups: Groups) -> tuple[pa.Array, pa.Array] | None:
    *ends, empty, nan = _ends(numbers.view(np.int64), groups.ids, groups.n, numbers.dtype == np.float64)
    if nan:
        return None
    lows, highs = (end.view(numbers.dtype) for end in ends)
    if numbers.dtype == np.float64 and not empty.all():  # what `Groups.min_max` would go over all of them for
        span = float(lows[~empty].min()), float(highs[~empty].max())
        groups.cached("span", numbers, lambda: span)
    return pa.array(lows, mask=empty), pa.array(highs, mask=empty)


def span_of(numbers: NDArray[np.float64], groups: Groups) -> tuple[float, float]:
    """Find what `Groups.min_max` does, by way of the ends of each group, for whoever needs these as well."""
    ends_of_numbers(numbers, groups)
    return groups.min_max(numbers)
