"""Exact sums of rows, of their squares and of products. Nothing is rounded.

A sum is a row of digits in base 2^32, as in `superaccumulator`. The digit of level n counts multiples of 2^(32·n), and
levels are negative for fractions. A double is added to the digits of three adjacent levels:

    x = ± m · 2^e, with m below 2^53        e = 32 · level + shift, with shift from 0 to 31

    x = ± (m · 2^shift) · 2^(32 · level)        m · 2^shift has at most 84 bits, which are three digits of 32 bits

For a product of two doubles, m is the product of two integers and has at most 106 bits. Then m · 2^shift has at most
137 bits, and is added to the digits of five adjacent levels.

Source: Neal, "Fast exact summation using small and large superaccumulators" (2015).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr.arrays import Floats, Ids, Whole
from aggr.compiling.jit import compiled
from aggr.exact.double_double import two_product
from aggr.exact.fixed_point import sum_fixed_point
from aggr.exact.superaccumulator import BITS, merge_exactly, origins, to_arrow
from aggr.groups.groups import Groups
from aggr.groups.numbers import MIN_EXPONENT, Numbers, exponent_range

_MANTISSA = (1 << 52) - 1
_HIDDEN_BIT = 1 << 52
_WORD = (1 << 32) - 1
_NONE = 1 << 20  # stands for the lowest exponent of a group without rows; it is larger than every exponent

# The maximum number of rows per pass for powers and products of numbers with up to four parts. A number is the sum of
# its parts, which are doubles. The product of three or four numbers with four parts is the sum of up to 1,024 products
# of two doubles. Every product of two doubles adds less than 2^32 to a digit. A digit of the sum over 2^20 rows is
# therefore below 2^62, as `to_arrow` requires.
_ROWS_OF_PARTS = 1 << 20
_UWORD = np.uint64(_WORD)
_UBITS = np.uint64(32)
_PLACE_1, _PLACE_2, _PLACE_3, _PLACE_4 = (np.uint64(place) for place in (1, 2, 3, 4))


def sum_exactly(parts: Sequence[Numbers]) -> pa.StructArray:
    """Return the exact sum of finite floats per group.

    Parameters
    ----------
    parts : Numbers of float64, of the same groups
        The number of a row is the sum of its parts. Floats have one part, and an int64 has two. There may be at most
        2^24 rows; `aggr.function.Function.reduce` splits longer inputs.

    Returns
    -------
    column of `aggr.exact.superaccumulator.EXACT_TYPE`, shape (groups.n,)

    Examples
    --------
    >>> sum_exactly([Numbers(np.array([1e16, 1.0, -1e16]), Groups.single(3))]).to_pylist()
    [{'exponent': 0, 'limbs': [1]}]
    """
    sums = sum_fixed_point(parts[0], of_squares=False) if len(parts) == 1 else None
    if sums is not None:
        return sums
    low, high = _exponents(parts)
    low = low >> 5
    high = (high >> 5) + 2
    origin = origins(low, high)
    return to_arrow(_add(_bits(parts), parts[0].groups.ids, origin), origin, low)


def sum_squares(parts: Sequence[Numbers]) -> pa.StructArray:
    """Return the exact sum of the squares of finite numbers per group, as a column of the type that `sum_exactly`
    returns. The number of a row is the sum of its parts.
    """
    sums = sum_fixed_point(parts[0], of_squares=True) if len(parts) == 1 else None
    if sums is not None:
        return sums
    low, high = _exponents(parts)
    bits = _bits(parts)
    lowest_limb = 2 * low >> 5
    origin = origins(lowest_limb, (2 * high >> 5) + 4)
    limbs = _add_products(bits, bits, True, np.zeros(0, np.int64), parts[0].groups.ids, origin)
    return to_arrow(limbs, origin, lowest_limb)


def sum_products(left: Sequence[Numbers], right: Sequence[Numbers], powers: Whole | None = None) -> pa.StructArray:
    """Return the exact sum per group of the products of two finite numbers in each row.

    The two numbers of a row are the sum of its parts in ``left``, and the sum of its parts in ``right``. If ``powers``
    is passed, it has one exponent per row, and the product of a row is multiplied by ``2^power``.

    >>> x, y = (Numbers(np.array(column), Groups.single(3)) for column in ([1e200, 3.0, -1e200], [1e200, 5.0, 1e200]))
    >>> sum_products([x], [y]).to_pylist()
    [{'exponent': 0, 'limbs': [15]}]
    """
    groups = left[0].groups
    left_low, left_high = _exponents(left)
    right_low, right_high = _exponents(right)
    low = left_low + right_low
    high = left_high + right_high
    shifts = np.zeros(0, np.int64)
    if powers is not None:
        shifts = powers
        lowest_power, highest_power = _power_range(powers, groups.ids, groups.n)
        low = low + lowest_power
        high = high + highest_power
    low = low >> 5
    high = (high >> 5) + 4
    origin = origins(low, high)
    return to_arrow(_add_products(_bits(left), _bits(right), False, shifts, groups.ids, origin), origin, low)


def sum_powers(parts: Sequence[Numbers], degree: int) -> pa.StructArray:
    """Return the exact sum per group of the powers of finite numbers. ``degree`` is the exponent, 3 or 4. The number of
    a row is the sum of its parts.

    A square is the exact sum of two doubles, unless it over- or underflows. To prevent overflow and underflow, the
    parts of a row are first divided by a power of two near the largest part. `sum_products` then multiplies the result
    of the row by this power of two, raised to ``degree``.

    >>> sum_powers([Numbers(np.array([1e100, 3.0, -1e100]), Groups.single(3))], 3).to_pylist()
    [{'exponent': 0, 'limbs': [27]}]
    """
    if degree not in (3, 4):
        raise ValueError(f"degree must be 3 or 4; got {degree}")
    arrays = [part.array for part in parts]
    groups = parts[0].groups
    # Rows are added in several passes, so that no digit exceeds int64.
    if len(parts) > 2 and len(groups) > _ROWS_OF_PARTS:
        slices = [slice(start, start + _ROWS_OF_PARTS) for start in range(0, len(groups), _ROWS_OF_PARTS)]
        sums = [sum_powers([Numbers(a[rows], groups.slice(rows)) for a in arrays], degree) for rows in slices]
        return merge_exactly(pa.concat_arrays(sums), Groups.of(np.tile(np.arange(groups.n), len(sums)), groups.n))
    exponents = np.frexp(np.max(np.abs(arrays), axis=0))[1].astype(np.int64)
    scaled = [np.ldexp(array, -exponents) for array in arrays]
    squares: list[Floats] = []
    for i, part in enumerate(scaled):
        for j, other_part in enumerate(scaled[i:], i):
            squares += two_product(part, other_part if i == j else 2.0 * other_part)
    left, right = ([Numbers(a, groups) for a in factors] for factors in (squares, scaled if degree == 3 else squares))
    return sum_products(left, right, degree * exponents)


def sum_monomials(factors: Sequence[Sequence[Numbers]]) -> pa.StructArray:
    """Return the exact sum per group of the products of three or four finite numbers in each row.

    Each number is the sum of its parts. As in `sum_powers`, each number of a row is first divided by a power of two
    near the number, so that the product of two parts is the exact sum of two doubles.

    >>> x, y = ([Numbers(np.array(column), Groups.single(2))] for column in ([1e200, 3.0], [1e-200, 5.0]))
    >>> sum_monomials([x, x, x]).equals(sum_powers(x, 3)), sum_monomials([x, y, y]).to_pylist()[0]["limbs"][-1]
    (True, 75)
    """
    if len(factors) not in (3, 4):
        raise ValueError(f"a product must have 3 or 4 factors; got {len(factors)}")
    groups = factors[0][0].groups
    size = max(len(parts) for parts in factors)
    most_rows = _ROWS_OF_PARTS if size <= 4 else _ROWS_OF_PARTS >> 4
    if size > 1 and len(groups) > most_rows:  # Rows are added in several passes, so that no digit exceeds int64.
        slices = [slice(start, start + most_rows) for start in range(0, len(groups), most_rows)]
        sums = [
            sum_monomials([[Numbers(p.array[rows], groups.slice(rows)) for p in parts] for parts in factors])
            for rows in slices
        ]
        return merge_exactly(pa.concat_arrays(sums), Groups.of(np.tile(np.arange(groups.n), len(sums)), groups.n))
    powers = np.zeros(len(groups), np.int64)
    scaled: list[list[Floats]] = []
    for parts in factors:
        arrays = [part.array for part in parts]
        exponents = np.frexp(np.max(np.abs(arrays), axis=0))[1].astype(np.int64)
        scaled.append([np.ldexp(array, -exponents) for array in arrays])
        powers += exponents
    left = _products(scaled[0], scaled[1])
    right = scaled[2] if len(factors) == 3 else _products(scaled[2], scaled[3])
    return sum_products([Numbers(a, groups) for a in left], [Numbers(a, groups) for a in right], powers)


def _products(left: Sequence[Floats], right: Sequence[Floats]) -> list[Floats]:
    """Return arrays of doubles that add up exactly to the product of two numbers in each row.

    The two numbers of a row are the sum of its parts in ``left``, and the sum of its parts in ``right``.
    """
    return [part for x in left for y in right for part in two_product(x, y)]


def _bits(parts: Sequence[Numbers]) -> Whole:
    """Return the bits of the parts as int64, shape (parts, rows)."""
    return parts[0].bits[np.newaxis] if len(parts) == 1 else np.stack([part.bits for part in parts])


def _exponents(parts: Sequence[Numbers]) -> tuple[Whole, Whole]:
    if len(parts) == 1:
        return parts[0].exponents
    return exponent_range(_bits(parts), parts[0].groups.ids, parts[0].groups.n)


@compiled
def _power_range(powers: Whole, ids: Ids, n: int) -> tuple[Whole, Whole]:
    lowest = np.full(n, _NONE)
    highest = np.full(n, -_NONE)
    for i in range(len(powers)):
        group = np.uint64(ids[i])
        lowest[group] = min(lowest[group], powers[i])
        highest[group] = max(highest[group], powers[i])
    return lowest, highest


@compiled
def _add(bits: Whole, ids: Ids, origin: Whole) -> Whole:
    """Add the numbers of each group; return the digits of all sums, before carries are propagated. ``bits`` has the
    bits of doubles, shape (parts, rows), and ``origin`` is described in `origins`.
    """
    digits = np.zeros(origin[-1], np.int64)
    for part in range(bits.shape[0]):
        for i in range(bits.shape[1]):
            number = bits[part, i]
            biased_exponent = (number >> 52) & 0x7FF
            mantissa = (number & _MANTISSA) | (_HIDDEN_BIT if biased_exponent else 0)
            if mantissa:
                exponent = max(biased_exponent, 1) - 1 + MIN_EXPONENT
                shift = exponent & 31
                sign = (number >> 63) | 1
                upper_bits = mantissa >> (BITS - shift)
                position = np.uint64(origin[np.uint64(ids[i])] + (exponent >> 5))
                digits[position] += sign * ((mantissa << shift) & _WORD)
                digits[position + _PLACE_1] += sign * (upper_bits & _WORD)
                digits[position + _PLACE_2] += sign * (upper_bits >> BITS)
    return digits


@compiled
def _add_products(left: Whole, right: Whole, is_square: bool, powers: Whole, ids: Ids, origin: Whole) -> Whole:
    """Add the products of each group; return the digits of all sums, before carries are propagated.

    ``left`` and ``right`` have the bits of the factors, shape (parts, rows). If ``is_square`` is true, ``left`` and
    ``right`` are the same numbers, and each product of two different parts is added twice: (a + b)² = a² + 2ab + b².
    If ``powers`` is not empty, it has one exponent per row, and the product of a row is multiplied by ``2^power``.
    ``ids`` has the group of each row, and ``origin`` is described in `origins`.
    """
    digits = np.zeros(origin[-1], np.int64)
    for left_part in range(left.shape[0]):
        for right_part in range(left_part if is_square else 0, right.shape[0]):
            for i in range(left.shape[1]):
                x = left[left_part, i]
                y = right[right_part, i]
                x_biased = (x >> 52) & 0x7FF
                y_biased = (y >> 52) & 0x7FF
                a = np.uint64((x & _MANTISSA) | (_HIDDEN_BIT if x_biased else 0))
                b = np.uint64((y & _MANTISSA) | (_HIDDEN_BIT if y_biased else 0))
                if a == 0 or b == 0:
                    continue
                exponent = (
                    max(x_biased, 1) + max(y_biased, 1) - 2 + 2 * MIN_EXPONENT + (powers[i] if len(powers) else 0)
                )
                shift = np.uint64(exponent & 31)
                factor = ((x ^ y) >> 63 | 1) * (2 if is_square and right_part > left_part else 1)
                # The product of the integers a and b, which have at most 53 bits, is computed digit by digit.
                a_low = a & _UWORD
                a_high = a >> _UBITS
                b_low = b & _UWORD
                b_high = b >> _UBITS
                lowest = a_low * b_low
                middle = a_low * b_high + a_high * b_low
                highest = a_high * b_high
                first = lowest & _UWORD
                carry = (lowest >> _UBITS) + (middle & _UWORD)
                second = carry & _UWORD
                carry = (carry >> _UBITS) + (middle >> _UBITS) + (highest & _UWORD)
                third = carry & _UWORD
                fourth = (carry >> _UBITS) + (highest >> _UBITS)
                # The product is shifted left by ``shift`` bits. Its digits are added from its lowest level on.
                position = np.uint64(origin[np.uint64(ids[i])] + (exponent >> 5))
                total = first << shift
                digits[position] += factor * np.int64(total & _UWORD)
                total = (total >> _UBITS) + (second << shift)
                digits[position + _PLACE_1] += factor * np.int64(total & _UWORD)
                total = (total >> _UBITS) + (third << shift)
                digits[position + _PLACE_2] += factor * np.int64(total & _UWORD)
                total = (total >> _UBITS) + (fourth << shift)
                digits[position + _PLACE_3] += factor * np.int64(total & _UWORD)
                digits[position + _PLACE_4] += factor * np.int64(total >> _UBITS)
    return digits
