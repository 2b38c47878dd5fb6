"""Numbers in groups: the sum, the minimum and the maximum of each group, and the range of exponents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Flags, Ids, Whole, read_only
from aggr.arrow.sort_keys import HIGHEST, LOWEST
from aggr.compiling.jit import Int, compiled
from aggr.groups.groups import Groups, check_lengths

MIN_EXPONENT = -1074  # the exponent of the smallest positive double
_EXPONENT = 0x7FF
# The initial minimum of exponents, which is larger than every exponent. A group without nonzero numbers keeps it.
_NO_EXPONENT = 1 << 20


@compiled
def exponent_range(bits: Whole, ids: Ids, n: int) -> tuple[Whole, Whole]:
    """Return the lowest and the highest exponent of the nonzero doubles of each group, each of shape (n,).

    ``bits`` are the bits of the doubles, shape (parts, rows). A row has one double for each part. The number of a row
    is the sum of its doubles. ``ids`` contains the group of each row. If a group does not have nonzero doubles,
    the lowest exponent is greater than the highest.
    """
    low = np.full(n, _NO_EXPONENT)
    high = np.full(n, -_NO_EXPONENT)
    for part in range(bits.shape[0]):
        for i in range(bits.shape[1]):
            if bits[part, i] << 1:
                group = np.uint64(ids[i])
                exponent = max((bits[part, i] >> 52) & _EXPONENT, 1) - 1 + MIN_EXPONENT
                low[group] = min(low[group], exponent)
                high[group] = max(high[group], exponent)
    return low, high


@compiled
def biased_exponent_range(bits: Whole, offsets: Whole) -> tuple[Whole, Whole]:
    """Return the lowest and the highest exponent of the nonzero doubles of each group, each of shape (groups,).

    ``bits`` are the bits of doubles that are sorted by group, and ``offsets`` the offsets of the groups. The results
    are biased exponents, as stored in the bits of a double. A subnormal double counts as a double with the biased
    exponent 1. Both results are 1 for a group without nonzero doubles.
    """
    n = len(offsets) - 1
    low = np.empty(n, np.int64)
    high = np.empty(n, np.int64)
    for group in range(n):
        group_numbers = bits[offsets[group] : offsets[group + 1]]
        lowest: Int = np.int64(_EXPONENT)
        highest: Int = np.int64(1)
        for i in range(len(group_numbers)):
            biased = max((group_numbers[i] >> 52) & _EXPONENT, 1)
            lowest = min(lowest, biased if group_numbers[i] << 1 else np.int64(_EXPONENT))
            highest = max(highest, biased if group_numbers[i] << 1 else np.int64(1))
        low[group], high[group] = min(lowest, highest), highest
    return low, high


TOO_MANY_VALUES = "a count exceeds int64, whose maximum is 2^63 - 1; merge fewer states, or use smaller weights"

_SAFE_BOUND = 1 << 62
_INFINITY = np.int64(0x7FF << 52)  # the bits of infinity; without the sign bit, the bits of NaN are a larger integer


def sum_by_group(values: Whole, groups: Groups) -> Whole:
    """Return the sum of the int64 numbers of each group, shape (groups.n,).

    Raise ``OverflowError`` if a sum exceeds int64.
    """
    check_lengths(len(values), groups)
    total, bound = _add_by_group(values, groups.ids, groups.n)
    # If the bound of all magnitudes, times the number of values, is below `_SAFE_BOUND`, no sum can overflow.
    if (int(bound) + 1) * len(values) >= _SAFE_BOUND:
        # The same sums are computed approximately, as doubles, which do not overflow. An int64 sum that has overflowed
        # differs from its approximation by about 2^64 or more.
        approximate = np.bincount(groups.ids, values.astype(np.float64), minlength=groups.n)
        if (np.abs(approximate - total) > _SAFE_BOUND).any():
            raise OverflowError(TOO_MANY_VALUES)
    return total


@compiled
def _add_by_group(values: Whole, ids: Ids, n: int) -> tuple[Whole, Int]:
    """Return the sum of each group, shape (n,), and a bound: each value lies in ``[-bound - 1, bound]``.

    The sums may have overflowed. ``ids`` contains the group of each value.
    """
    total = np.zeros(n, np.int64)
    bound = 0
    for i in range(len(values)):
        value = values[i]
        total[np.uint64(ids[i])] += value
        bound |= value ^ (value >> 63)
    return total, bound


def find_extreme_rows(keys: Whole, groups: Groups, greatest: bool) -> Ids:
    """Return, for each group, the index of one row that has the smallest key of the group.

    If ``greatest`` is true, return the index of a row with the greatest key. ``keys`` has one key per row. The result
    has the shape (groups.n,), with -1 for a group without rows.
    """
    check_lengths(len(keys), groups)
    extremes = extreme_by_group(keys, groups, greatest)
    row_of_group = np.full(groups.n, -1, np.intp)
    rows = np.flatnonzero(keys == extremes[groups.ids])
    row_of_group[groups.ids[rows]] = rows
    return row_of_group


def extreme_by_group(keys: Whole, groups: Groups, greatest: bool) -> Whole:
    """Return the smallest key of each group, or the greatest key if ``greatest`` is true, shape (groups.n,).

    ``keys`` has one key per row. The result for a group without rows is undefined.
    """
    low, high, _ = _value_ranges(keys, groups.ids, groups.n, False)
    return high if greatest else low


class Extremes(NamedTuple):
    """The minimum and the maximum of each group, and a mask of empty groups, whose results are undefined."""

    low: NDArray[Any]
    high: NDArray[Any]
    empty: Flags


@compiled
def _value_ranges(numbers: Whole, ids: Ids, n: int, are_floats: bool) -> tuple[Whole, Whole, bool]:
    """Return the minimum and the maximum of each group, each of shape (n,), and whether any number is NaN.

    If a number is NaN, minima and maxima are undefined. For a group without rows, the minimum is greater than the
    maximum. If ``are_floats`` is true, ``numbers`` are the bits of doubles, and the results are integers that
    `_sortable_bits` converts to the bits of the minima and maxima.
    """
    group: Int
    low = np.full(n, HIGHEST)
    high = np.full(n, LOWEST)
    has_nan = False
    for i in range(len(numbers)):
        number = numbers[i]
        group = np.uint64(ids[i])
        if are_floats:
            has_nan |= (number & HIGHEST) > _INFINITY
            number = _sortable_bits(number)
        low[group], high[group] = min(low[group], number), max(high[group], number)
    return low, high, has_nan


@compiled
def _ranges_of_sorted(numbers: Whole, offsets: Whole, are_floats: bool) -> tuple[Whole, Whole, bool]:
    """Return the results of `_value_ranges` for numbers that are sorted by group.

    The numbers of a group are ``numbers[offsets[group]:offsets[group + 1]]``.
    """
    n = len(offsets) - 1
    greatest_magnitude = np.int64(0)
    low = np.empty(n, np.int64)
    high = np.empty(n, np.int64)
    for group in range(n):
        group_numbers = numbers[offsets[group] : offsets[group + 1]]
        lowest = HIGHEST
        highest = LOWEST
        if are_floats:
            for i in range(len(group_numbers)):
                greatest_magnitude = max(greatest_magnitude, group_numbers[i] & HIGHEST)
                lowest = min(lowest, _sortable_bits(group_numbers[i]))
                highest = max(highest, _sortable_bits(group_numbers[i]))
        else:
            for i in range(len(group_numbers)):
                lowest = min(lowest, group_numbers[i])
                highest = max(highest, group_numbers[i])
        low[group], high[group] = lowest, highest
    return low, high, bool(greatest_magnitude > _INFINITY)


@compiled
def _sortable_bits(bits: Int) -> Int:
    """Return an integer for the bits of a double. The integers have the order of the doubles, with -0.0 before 0.0.

    The function is its own inverse.
    """
    return bits ^ ((bits >> 63) & HIGHEST)


@compiled
def sort_by_group(values: NDArray[Any], ids: Ids, offsets: Whole) -> NDArray[Any]:
    """Return the values sorted by group, shape (rows,). Values of one group keep their order.

    ``ids`` has the group of each value. ``offsets`` has, for each group, the number of values in all earlier groups.
    """
    sorted_values = np.empty_like(values)
    next_position = offsets.copy()
    for i in range(len(ids)):
        group: Int = np.uint64(ids[i])
        sorted_values[np.uint64(next_position[group])] = values[i]
        next_position[group] += 1
    return sorted_values


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of 64-bit numbers with the groups of its rows. Arrays that are derived from it are computed once.

    The arrays are shared by all functions that read the column, so they are read-only.

    Parameters
    ----------
    array : array of float64 or int64, shape (rows,)
    groups : Groups
        The groups, with as many rows as ``array``.

    Raises
    ------
    ValueError
        If the lengths differ.

    Examples
    --------
    >>> numbers = Numbers(np.array([5.0, 2.0, 13.0]), Groups.of([1, 0, 1], 2))
    >>> numbers.sorted_by_group, numbers.extremes.low, numbers.min_max
    (array([ 2.,  5., 13.]), array([2., 5.]), (2.0, 13.0))
    """

    array: NDArray[Any]
    groups: Groups

    def __post_init__(self) -> None:
        check_lengths(len(self.array), self.groups)
        object.__setattr__(self, "array", read_only(self.array))

    @cached_property
    def bits(self) -> Whole:
        """The bits of each number, shape (rows,)."""
        return read_only(np.ascontiguousarray(self.array).view(np.int64))

    @cached_property
    def sorted_by_group(self) -> NDArray[Any]:
        """The numbers sorted by group and then by row, shape (rows,). The offsets of the groups are `Groups.offsets`.

        Loops over sorted numbers are faster: they keep the sum of a group in processor registers, and process several
        rows at a time.
        """
        groups = self.groups
        ordered = self.bits if groups.n == 1 else sort_by_group(self.bits, groups.ids, groups.offsets)
        return read_only(ordered.view(self.array.dtype))

    @cached_property
    def extremes(self) -> Extremes | None:
        """The minimum and maximum of each group, or None if any number is NaN."""
        are_floats = self.array.dtype == np.float64
        groups = self.groups
        if groups.prefers_group_loops:
            low, high, has_nan = _ranges_of_sorted(self.sorted_by_group.view(np.int64), groups.offsets, are_floats)
        else:
            low, high, has_nan = _value_ranges(self.bits, groups.ids, groups.n, are_floats)
        if has_nan:
            return None
        if not are_floats:
            return Extremes(read_only(low), read_only(high), read_only(low > high))
        # This is the operation of `_sortable_bits` for arrays. `_sortable_bits` itself converts one number at a time.
        minima, maxima = ((end ^ ((end >> 63) & HIGHEST)).view(np.float64) for end in (low, high))
        return Extremes(read_only(minima), read_only(maxima), read_only(low > high))

    @cached_property
    def min_max(self) -> tuple[float, float]:
        """The minimum and the maximum of all numbers.

        Both are NaN if any number is NaN. Without numbers, they are inf and -inf.
        """
        extremes = self.extremes
        if extremes is None or not len(self.array):
            return float(self.array.min(initial=np.inf)), float(self.array.max(initial=-np.inf))
        has_rows = ~extremes.empty
        return float(extremes.low[has_rows].min()), float(extremes.high[has_rows].max())

    @cached_property
    def exponents(self) -> tuple[Whole, Whole]:
        """The lowest and the highest exponent of the nonzero doubles of each group; see `exponent_range`."""
        return exponent_range(self.bits[np.newaxis], self.groups.ids, self.groups.n)

    @cached_property
    def sorted_exponents(self) -> tuple[Whole, Whole]:
        """The lowest and the highest exponent of the nonzero doubles of each group, each of shape (groups,).

        Unlike `exponents`, the results are biased exponents, as stored in the bits of a double. A subnormal double
        counts as a double with the biased exponent 1. Both results are 1 for a group without nonzero doubles.
        """
        return biased_exponent_range(self.sorted_by_group.view(np.int64), self.groups.offsets)
