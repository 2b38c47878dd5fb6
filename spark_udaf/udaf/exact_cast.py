"""exact_cast: cast results to doubles without rounding, for columns whose type is unknown until their rows are read."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

# Every integer with this number of decimal digits fits into int64.
_DIGITS_OF_INT64 = 18

# Doubles represent every integer up to this limit exactly.
_MAX_EXACT_WHOLE = 2**53


def exact_cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return ``values`` with doubles in the place of other numbers, also inside lists and structs.

    Parameters
    ----------
    values : array
    target : the type of ``values`` with doubles in place of other numbers

    Raises
    ------
    ValueError
        If a double does not represent a value exactly: a whole number beyond 2^53, or digits of a decimal.

    Examples
    --------
    >>> exact_cast(pa.array([Decimal("0.50"), None]), pa.float64()).to_pylist()
    [0.5, None]
    >>> exact_cast(pa.array([Decimal("0.10")]), pa.float64())
    Traceback (most recent call last):
    ValueError: a double cannot represent 0.10 exactly
    """
    dtype = values.type
    if dtype == target:
        return values
    if pa.types.is_struct(dtype):
        parts = [exact_cast(part, field.type) for part, field in zip(values.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=values.is_null())
    if pa.types.is_list(dtype):
        lengths = values.value_lengths().fill_null(0).to_numpy()
        offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
        elements = exact_cast(values.flatten(), target.value_type)
        return pa.ListArray.from_arrays(offsets, elements, target, mask=values.is_null())
    if pa.types.is_decimal(dtype) and pa.types.is_floating(target):
        return _doubles_of_decimals(values)
    if pa.types.is_integer(dtype) and pa.types.is_floating(target):
        return _doubles_of_whole_numbers(values)
    return values.cast(target)


def _doubles_of_whole_numbers(values: pa.Array) -> pa.Array:
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero((numbers > _MAX_EXACT_WHOLE) | (numbers < -_MAX_EXACT_WHOLE)):
        if int(float(numbers[row])) != int(numbers[row]):
            raise ValueError(f"a double cannot represent {numbers[row]} exactly")
    return pa.array(numbers.astype(np.float64), mask=is_null)


def _doubles_of_decimals(decimals: pa.Array) -> pa.Array:
    """Return decimals as doubles. Raise ``ValueError`` if this would change a value.

    The decimal n / 10^s equals a double if 5^s divides n and the quotient has at most 53 bits.
    """
    dtype = decimals.type
    is_null = decimals.is_null().to_numpy(zero_copy_only=False)
    scale = dtype.scale
    if dtype.precision > _DIGITS_OF_INT64 or scale < 0:
        return pa.array([None if value is None else _double(value) for value in decimals.to_pylist()], pa.float64())
    filled = decimals.cast(pa.decimal128(dtype.precision, scale)).fill_null(Decimal(0).scaleb(-scale))
    # Arrow stores a decimal as an integer of 128 bits: two halves of 64 bits, the low half first. Decimals of at most
    # 18 digits fit into the low half.
    halves = np.frombuffer(filled.buffers()[1], np.int64).reshape(-1, 2)
    unscaled = halves[filled.offset : filled.offset + len(filled), 0]
    quotients, remainders = np.divmod(unscaled, 5**scale)
    # A double may represent even a quotient beyond 2^53 exactly. If it does not, `_double` raises an error.
    may_be_inexact = (remainders != 0) | (np.abs(quotients) > _MAX_EXACT_WHOLE)
    for row in np.flatnonzero(may_be_inexact):
        _double(decimals[int(row)].as_py())
    return pa.array(np.ldexp(quotients.astype(np.float64), -scale), mask=is_null)


def _double(value: Decimal) -> float:
    double = float(value)
    if Decimal(double) != value:
        raise ValueError(f"a double cannot represent {value} exactly")
    return double
