"""Multiples: whole numbers and decimals as exact multiples of a unit, also if doubles cannot represent them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags
from aggr.exact.number_columns import scale_of

_EXACT = 2**53  # all smaller whole numbers are exact as doubles


def has_exact_doubles(values: pa.Array, unit: Fraction) -> bool:
    """Return whether the number of units in each value can be computed from doubles.

    For floats, the result is True. For other types, the unscaled integer of each value and its number of units must be
    at most 2^53.
    """
    if pa.types.is_floating(values.type) or not len(values):
        return True
    integers = unscaled(values)
    largest = max(int(integers.max()), -int(integers.min()))
    return largest <= _EXACT and largest <= _EXACT * unit * 10 ** scale_of(values.type)


def unscaled(values: pa.Array) -> NDArray[Any]:
    """Return whole numbers, or decimals without their decimal point, as integers, shape (rows,).

    The array has the type int64, or contains Python integers if a value exceeds int64.

    >>> from decimal import Decimal
    >>> unscaled(pa.array([Decimal("0.30"), Decimal("1.00")]))
    array([ 30, 100])
    """
    if not pa.types.is_decimal(values.type):
        integers = values.to_numpy()
        is_beyond = integers.dtype == np.uint64 and len(integers) > 0 and integers.max() >= 2**63
        counts: NDArray[Any] = integers.astype(object if is_beyond else np.int64)
        return counts
    width = values.type.bit_width // 64
    start = 8 * width * values.offset
    words = np.frombuffer(values.buffers()[1] or b"", np.int64, width * len(values), start).reshape(-1, width)
    low, high = words[:, 0], words[:, -1]
    if (words[:, 1:] == (low >> 63)[:, np.newaxis]).all():
        small: NDArray[Any] = low
        return small
    total = high.astype(object)
    for i in reversed(range(width - 1)):
        total = total * 2**64 + words[:, i].view(np.uint64).astype(object)
    return total


def multiples_of(values: pa.Array, unit: Fraction) -> tuple[NDArray[Any], Flags]:
    """Return the number of units in each value, and a mask of the values that are not whole multiples of the unit.

    Numbers of units are rounded to whole numbers, halves to even. Both results have the shape (rows,).

    >>> from decimal import Decimal
    >>> multiples_of(pa.array([Decimal("0.30"), Decimal("0.75")]), Fraction(1, 2))
    (array([1, 2]), array([ True,  True]))
    """
    numbers, ratio = unscaled(values), 1 / (unit * 10 ** scale_of(values.type))
    top, bottom = ratio.numerator, ratio.denominator
    if not len(numbers):
        return numbers, np.zeros(0, np.bool_)
    largest = max(abs(int(numbers.max())), abs(int(numbers.min())))
    if largest * top >= 2**63 or bottom >= 2**62:
        numbers = numbers.astype(object)
    scaled = numbers * top
    counts, remainders = scaled // bottom, scaled % bottom
    up = (2 * remainders > bottom) | ((2 * remainders == bottom) & (counts % 2 == 1))
    return counts + up.astype(np.int64), (remainders != 0).astype(np.bool_)
