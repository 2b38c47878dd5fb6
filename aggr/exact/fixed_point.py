"""Exact sums of numbers of similar magnitude, computed with fixed-point integers of 96 bits, group by group.

    x = ± m · 2^e, with m below 2^53        if e is from low to low + 43 in a group, then m · 2^(e - low) is below 2^96

Each number of the group is the integer ± m · 2^(e - low), in units of 2^low. An integer has three digits of 32 bits.
The digits of the numbers of a group, or of their squares, are added in a few processor registers, several rows at a
time. Nothing is rounded. The results are equal to those of `row_sums`. This module supports only groups in which no
number is more than about 2^43 times another number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.compiling.jit import Int, compiled
from aggr.exact.superaccumulator import origins, to_arrow
from aggr.groups.numbers import MIN_EXPONENT, Numbers

# The maximum difference of exponents within a group. A mantissa has 53 bits, so that a shift by at most 43 bits gives
# an integer of at most 96 bits.
MAX_EXPONENT_DIFFERENCE = 43
_MANTISSA = (1 << 52) - 1
_EXPONENT = 0x7FF
_WORD = (1 << 32) - 1
_HIDDEN_BIT_POSITION = np.uint64(52)
_UWORD = np.uint64(_WORD)
_UBITS = np.uint64(32)
_SHIFT_1 = np.uint64(1)
_SHIFT_63 = np.uint64(63)
# the number of digits of a sum and of a sum of squares, before carries are propagated
_SUM_DIGITS = 3
_SQUARES_DIGITS = 6


def sum_fixed_point(numbers: Numbers, of_squares: bool) -> pa.StructArray | None:
    """Return the exact sum per group of finite floats, or of their squares, for at most 2^24 rows.

    The result is a column of `aggr.exact.superaccumulator.EXACT_TYPE`, or None if the magnitudes in a group differ too
    much, or if there are too few rows.

    >>> from aggr import Groups
    >>> sum_fixed_point(Numbers(np.array([0.5, 3.0] * 20), Groups.single(40)), of_squares=False).to_pylist()
    [{'exponent': 0, 'limbs': [70]}]
    """
    if not numbers.groups.prefers_group_loops:
        return None
    low, high = numbers.sorted_exponents
    if (high - low > MAX_EXPONENT_DIFFERENCE).any():
        return None
    level = (1 + of_squares) * (low - 1 + MIN_EXPONENT) >> 5
    origin = origins(level, level + (_SQUARES_DIGITS if of_squares else _SUM_DIGITS))
    add = _add_squares if of_squares else _add
    bits = numbers.sorted_by_group.view(np.int64)
    offsets = numbers.groups.offsets
    return to_arrow(add(bits, offsets, low, level, origin), origin, level)


@compiled
def _add(bits: Whole, offsets: Whole, low: Whole, level: Whole, origin: Whole) -> Whole:
    """Add the numbers of each group; return the digits of all sums, before carries are propagated.

    ``bits`` has the numbers as the bits of doubles, sorted by group. The numbers of a group are ``bits[offsets[group] :
    offsets[group + 1]]``. ``low`` has the lowest exponent of each group, as the biased exponent of a double, at least
    1. A digit of level n counts multiples of 2^(32·n). ``level`` has the lowest level of each group, and
    ``origin[group] + n`` is the position of the group's digit of level n (see `origins`).
    """
    digits = np.zeros(origin[-1], np.int64)
    for group in range(len(low)):
        group_bits = bits[offsets[group] : offsets[group + 1]]
        lowest = low[group]
        first = np.int64(0)
        second = np.int64(0)
        third = np.int64(0)
        for i in range(len(group_bits)):
            lower, upper = _to_fixed_point(group_bits[i], lowest)
            sign = group_bits[i] >> 63
            first += (np.int64(lower & _UWORD) ^ sign) - sign
            second += (np.int64(lower >> _UBITS) ^ sign) - sign
            third += (np.int64(upper) ^ sign) - sign
        _add_sum((first, second, third), lowest - 1 + MIN_EXPONENT, digits, origin[group] + level[group])
    return digits


@compiled
def _add_squares(bits: Whole, offsets: Whole, low: Whole, level: Whole, origin: Whole) -> Whole:
    """Add the squares of the numbers of each group; return the digits of all sums, before carries are propagated. The
    parameters are those of `_add`.
    """
    digits = np.zeros(origin[-1], np.int64)
    for group in range(len(low)):
        group_bits = bits[offsets[group] : offsets[group + 1]]
        lowest = low[group]
        digit_0 = np.uint64(0)
        digit_1 = np.uint64(0)
        digit_2 = np.uint64(0)
        digit_3 = np.uint64(0)
        digit_4 = np.uint64(0)
        digit_5 = np.uint64(0)
        for i in range(len(group_bits)):
            lower, c = _to_fixed_point(group_bits[i], lowest)
            a = lower & _UWORD
            b = lower >> _UBITS
            # (a + 2^32·b + 2^64·c)², digit by digit; each mixed product occurs twice
            aa = a * a
            ab = a * b
            ac = a * c
            bb = b * b
            bc = b * c
            cc = c * c
            digit_0 += aa & _UWORD
            digit_1 += (aa >> _UBITS) + ((ab & _UWORD) << _SHIFT_1)
            digit_2 += ((ab >> _UBITS) << _SHIFT_1) + ((ac & _UWORD) << _SHIFT_1) + (bb & _UWORD)
            digit_3 += ((ac >> _UBITS) << _SHIFT_1) + (bb >> _UBITS) + ((bc & _UWORD) << _SHIFT_1)
            digit_4 += ((bc >> _UBITS) << _SHIFT_1) + (cc & _UWORD)
            digit_5 += cc >> _UBITS
        sums = (
            np.int64(digit_0),
            np.int64(digit_1),
            np.int64(digit_2),
            np.int64(digit_3),
            np.int64(digit_4),
            np.int64(digit_5),
        )
        _add_sum(sums, 2 * (lowest - 1 + MIN_EXPONENT), digits, origin[group] + level[group])
    return digits


@compiled
def _to_fixed_point(bits: Int, lowest: Int) -> tuple[Int, Int]:
    """Return the magnitude of a double as an integer of 96 bits: the lower 64 bits, and the upper 32 bits.

    ``bits`` are the bits of the double. The integer counts units of the last bit of a double with the exponent
    ``lowest``, which is the lowest exponent of the group.
    """
    biased = (bits >> 52) & _EXPONENT
    mantissa = np.uint64(bits & _MANTISSA) | (np.uint64(biased != 0) << _HIDDEN_BIT_POSITION)
    shift = np.uint64(max(biased - lowest, 0))
    return mantissa << shift, (mantissa >> _SHIFT_1) >> (_SHIFT_63 - shift)


@compiled
def _add_sum(sums: tuple[Int, ...], exponent: Int, digits: Whole, position: Int) -> None:
    """Add a number, shifted left by ``exponent mod 32`` bits, to ``digits`` from position ``position`` on.

    The number is passed as ``sums``: its digits before carries are propagated, the lowest first. Each digit is below
    2^60 in magnitude.
    """
    carry = np.int64(0)
    shift = exponent & 31
    for total in sums:
        carry += total
        shifted = (carry & _WORD) << shift
        digits[position] += shifted & _WORD
        digits[position + 1] += shifted >> 32
        carry >>= 32
        position += 1
    digits[position] += carry << shift
