"""Grouped numbers: sums, least and greatest of each group, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.kernels.groups import Groups, check_lengths
from aggr.kernels.jit import Int, compiled
from aggr.kernels.sort_keys import HIGHEST, LOWEST

_SURE = 1 << 62
_INFINITY = np.int64(0x7FF << 52)  # as bits; those of NaN are greater


def add(values: NDArray[np.int64], groups: Groups) -> NDArray[np.int64]:
    """Add int64 per group, shape (groups.n,); a sum beyond int64 raises ``OverflowError``."""
    check_lengths(len(values), groups)
    total, sizes = _add(values, groups.ids, groups.n)
    if (int(sizes) + 1) * len(values) >= _SURE:  # below, no sum can overflow; one that did is off by 2^64
        near = np.bincount(groups.ids, values.astype(np.float64), minlength=groups.n)  # and doubles by far less
        if (np.abs(near - total) > _SURE).any():
            raise OverflowError("a count grew beyond int64")
    return total


@compiled
def _add(values: NDArray[np.int64], ids: NDArray[np.intp], n: int) -> tuple[NDArray[np.int64], Int]:
    """Sum each group; return also the bitwise OR of all magnitudes, which bounds them."""
    total, sizes = np.zeros(n, np.int64), 0
    for i in range(len(values)):
        value = values[i]
        total[np.uint64(ids[i])] += value
        sizes |= value ^ (value >> 63)
    return total, sizes


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
    low, high, _ = _ends(keys, groups.ids, groups.n, False)
    return high if greatest else low


class Ends(NamedTuple):
    """The least and the greatest number of each group, and which groups are empty: there they mean nothing."""

    low: NDArray[Any]
    high: NDArray[Any]
    empty: NDArray[np.bool_]


@compiled
def _ends(
    numbers: NDArray[np.int64], ids: NDArray[np.intp], n: int, floats: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Find the least and the greatest of each group, and whether there is a NaN, in which case they mean nothing.

    Of a group without rows the least is greater. Doubles come as bits, and go in the order of `_ordered`.
    """
    group: Int
    low, high, nan = np.full(n, HIGHEST), np.full(n, LOWEST), False
    for i in range(len(numbers)):
        number, group = numbers[i], np.uint64(ids[i])
        if floats:
            nan |= (number & HIGHEST) > _INFINITY
            number = _ordered(number)
        low[group], high[group] = min(low[group], number), max(high[group], number)
    return low, high, nan


@compiled
def _ends_in_order(
    numbers: NDArray[np.int64], until: NDArray[np.int64], floats: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Do what `_ends` does for numbers in the order of their groups."""
    n, size = len(until) - 1, np.int64(0)
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    for group in range(n):
        mine = numbers[until[group] : until[group + 1]]
        least, most = HIGHEST, LOWEST
        if floats:
            for i in range(len(mine)):
                size = max(size, mine[i] & HIGHEST)
                least, most = min(least, _ordered(mine[i])), max(most, _ordered(mine[i]))
        else:
            for i in range(len(mine)):
                least, most = min(least, mine[i]), max(most, mine[i])
        low[group], high[group] = least, most
    return low, high, bool(size > _INFINITY)


@compiled
def _ordered(bits: Int) -> Int:
    """Give doubles as whole numbers in the order of doubles, -0.0 before 0.0; and back."""
    return bits ^ ((bits >> 63) & HIGHEST)


def ends_of_numbers(numbers: NDArray[Any], groups: Groups) -> Ends | None:
    """Find the least and the greatest of each group of int64 or of doubles; None where there is a NaN among them."""
    check_lengths(len(numbers), groups)
    return groups.cached("ends", numbers, lambda: _find_ends(numbers, groups))


def _find_ends(numbers: NDArray[Any], groups: Groups) -> Ends | None:
    floats = numbers.dtype == np.float64
    if groups.many_rows:
        low, high, nan = _ends_in_order(groups.in_order(numbers).view(np.int64), groups.until(), floats)
    else:
        low, high, nan = _ends(numbers.view(np.int64), groups.ids, groups.n, floats)
    if nan:
        return None
    empty = low > high
    if not floats:
        return Ends(low, high, empty)
    least, most = ((end ^ ((end >> 63) & HIGHEST)).view(np.float64) for end in (low, high))  # as `_ordered`
    if len(numbers):  # what `Groups.min_max` would go over all of them for
        span = float(least[~empty].min()), float(most[~empty].max())
        groups.cached("span", numbers, lambda: span)
    return Ends(least, most, empty)


def span_of(numbers: NDArray[np.float64], groups: Groups) -> tuple[float, float]:
    """Find what `Groups.min_max` does, by way of the ends of each group, for whoever needs these as well."""
    ends_of_numbers(numbers, groups)
    return groups.min_max(numbers)
