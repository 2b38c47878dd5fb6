"""Multiples: whole numbers and decimals as exact multiples of a unit, even if doubles cannot represent them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags
from aggr.exact.number_columns import scale_of

_MAX_EXACT = 2**53  # doubles represent all whole numbers up to this number exactly


def has_exact_units_in_doubles(values: pa.Array, unit: Fraction) -> bool:
    """Return whether the number of units in each value can be computed exactly with doubles.

    For floats, the result is True. For other types, the result is True if the unscaled integer of each value, and the
    number of units in each value, are at most 2^53 in magnitude.
    """
    if pa.types.is_floating(values.type) or not len(values):
        return True
    integers = unscaled_integers(values)
    largest = max(int(integers.max()), -int(integers.min()))
    return largest <= _MAX_EXACT and largest <= _MAX_EXACT * unit * 10 ** scale_of(values.type)


def unscaled_integers(values: pa.Array) -> NDArray[Any]:
    """Return whole numbers, or decimals without their decimal point, as integers, shape (rows,).

    The array has the type int64, or contains Python integers if a value exceeds int64.

    >>> from decimal import Decimal
    >>> unscaled_integers(pa.array([Decimal("0.30"), Decimal("1.00")]))
    array([ 30, 100])
    """
    if not pa.types.is_decimal(values.type):
        integers = values.to_numpy()
        exceeds_int64 = integers.dtype == np.uint64 and len(integers) > 0 and integers.max() >= 2**63
        converted_integers: NDArray[Any] = integers.astype(object if exceeds_int64 else np.int64)
        return converted_integers
    width = values.type.bit_width // 64
    start = 8 * width * values.offset
    words = np.frombuffer(values.buffers()[1] or b"", np.int64, width * len(values), start).reshape(-1, width)
    low = words[:, 0]
    high = words[:, -1]
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
    numbers = unscaled_integers(values)
    ratio = 1 / (unit * 10 ** scale_of(values.type))
    numerator = ratio.numerator
    denominator = ratio.denominator
    if not len(numbers):
        return numbers, np.zeros(0, np.bool_)
    largest = max(abs(int(numbers.max())), abs(int(numbers.min())))
    if largest * numerator >= 2**63 or denominator >= 2**62:
        numbers = numbers.astype(object)
    scaled = numbers * numerator
    counts = scaled // denominator
    remainders = scaled % denominator
    is_rounded_up = (2 * remainders > denominator) | ((2 * remainders == denominator) & (counts % 2 == 1))
    return counts + is_rounded_up.astype(np.int64), (remainders != 0).astype(np.bool_)
