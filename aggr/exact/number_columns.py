"""Number columns: the types that can be summed, the exact representation of their values by floats, and the conversion
of sums to results.

A state of sums stores one ``unit`` of its input: a value of the input's type, such as 1, 1.0, 0.01 for decimals of
scale 2, or one microsecond. The state's type therefore determines the type of the results, and a cast of the state to
another scale can be detected.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags, Floats, Whole
from aggr.arrow import compute as pc
from aggr.arrow.constant_column import is_constant, repeat_value
from aggr.exact.rounding import as_integers, quotient, whole_number
from aggr.exact.row_sums import sum_exactly
from aggr.exact.superaccumulator import Limbs
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers

EXACT_POWER = 22  # the exponent of the largest power of ten that a double represents exactly

# The flags of the special values NaN, inf and -inf. The flags of a group are combined by bitwise or.
NAN = 1
POSITIVE = 2
NEGATIVE = 4

_INT64 = np.iinfo(np.int64)
_WORD = np.uint64(0xFFFFFFFF)


def kept_type(dtype: pa.DataType) -> pa.DataType | None:
    """Return the type in which a state stores the unit of a column of numbers or timestamps. Return None for other
    types, and for decimals of 256 bits.
    """
    if pa.types.is_integer(dtype):
        return pa.int64()
    if pa.types.is_floating(dtype):
        return pa.float64()
    if pa.types.is_decimal(dtype) and not pa.types.is_decimal256(dtype):
        return pa.decimal128(dtype.precision, dtype.scale)
    return dtype if pa.types.is_timestamp(dtype) else None


def unit_of(dtype: pa.DataType, n: int) -> pa.Array:
    """Return a column of ``n`` rows with one unit, such as 0.01, of a type that `kept_type` returns."""
    return repeat_value(_one_unit(dtype), n)


@lru_cache(maxsize=64)
def _one_unit(dtype: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(dtype):
        return pa.array([Decimal((0, (1,), -dtype.scale))], dtype)
    return pa.array([1], pa.int64()).cast(dtype)


def scale_of(dtype: pa.DataType) -> int:
    """Return the number of decimal places of a type that `kept_type` returns."""
    return int(dtype.scale) if pa.types.is_decimal(dtype) else 0


def check_unit(units: pa.Array) -> None:
    """Raise ``ValueError`` if states were cast to another scale after they were reduced. ``units`` has their units."""
    expected = _one_unit(units.type)
    if is_constant(units, expected):
        return
    other_units = [unit for unit in pc.unique(units).drop_null() if unit != expected[0]]
    if other_units:
        raise ValueError(
            f"states that count in units of {other_units[0].as_py()} were cast to {units.type}; "
            "sum columns of one type, or cast the values before they are summed"
        )


def exact_float_parts(values: pa.Array) -> list[Floats]:
    """Split integers, decimals or timestamps into doubles that add up exactly to each value. Return one array of shape
    (rows,) per part.

    Decimals are counted in units of their last decimal place, and timestamps in their unit. No value may be null.
    """
    dtype = values.type
    if pa.types.is_decimal(dtype):
        return _decimal_parts(values)
    if pa.types.is_timestamp(dtype):
        values = values.view(pa.int64())
    integers = values.to_numpy()
    if integers.dtype == np.uint64:
        return [_scaled_floats(integers >> np.uint64(32), 32), _scaled_floats(integers & _WORD, 0)]
    return _integer_parts(integers.astype(np.int64, copy=False))


def special_flags(x: Floats) -> NDArray[np.int8]:
    """Return a flag for each double, shape (n,): `NAN`, `POSITIVE` for inf, `NEGATIVE` for -inf, and otherwise 0."""
    flags = np.isnan(x) * np.int8(NAN) + (x == np.inf) * np.int8(POSITIVE) + (x == -np.inf) * np.int8(NEGATIVE)
    special: NDArray[np.int8] = flags.astype(np.int8)
    return special


def as_floats(values: pa.Array) -> Floats:
    """Return numbers as the nearest doubles, shape (rows,). There must be no nulls.

    Arrow's cast cannot be used, because it would convert the decimal 0.3 to the double 0.30000000000000004."""
    floats: Floats
    if not pa.types.is_decimal(values.type):
        floats = values.to_numpy().astype(np.float64, copy=False)
        return floats
    parts = _decimal_parts(values)
    scale = values.type.scale
    if len(parts) == 1 and scale <= EXACT_POWER:  # dividend and divisor are exact, so only the division rounds
        floats = parts[0] / 10.0**scale
        return floats
    one_row_groups = Groups.each(len(values))
    return quotient(Limbs.of_arrow(sum_exactly([Numbers(part, one_row_groups) for part in parts])), scale=scale)


def whole_results(limbs: Limbs, present: Flags) -> pa.Array:
    """Return exact sums as int64, with null for groups without values.

    ``present`` is a mask of the groups with values. Raise ``OverflowError`` for a sum beyond int64.
    """
    low, _, is_in_range = as_integers(limbs, _INT64.min, _INT64.max)
    if not (is_in_range | ~present).all():
        total = whole_number(limbs, int(np.flatnonzero(~is_in_range & present)[0]))
        raise OverflowError(
            f"the sum {total} does not fit into int64; compute it with dtype='decimal' or dtype='float64'"
        )
    return pa.array(low.view(np.int64), mask=~present)


def decimal_results(limbs: Limbs, present: Flags, dtype: pa.Decimal128Type) -> pa.Array:
    """Return exact sums as decimals, with null for groups without values.

    ``present`` is a mask of the groups with values. ``dtype`` is the type of the input. The type of the result has ten
    more digits, but at most 38, as in Spark. Raise ``OverflowError`` for a sum that has too many digits.
    """
    wider = pa.decimal128(min(38, dtype.precision + 10), dtype.scale)
    largest = 10**wider.precision - 1
    low, high, is_in_range = as_integers(limbs, -largest, largest)
    if not (is_in_range | ~present).all():
        unscaled_total = whole_number(limbs, int(np.flatnonzero(~is_in_range & present)[0]))
        total = Decimal(unscaled_total).scaleb(-dtype.scale, Context(prec=80))
        more = "" if wider.precision == 38 else "dtype='decimal' or "
        raise OverflowError(f"the sum {total} does not fit into {wider}; compute it with {more}dtype='float64'")
    words = np.stack([low, high.view(np.uint64)], axis=1)
    mask = pa.array(present).buffers()[1] if len(present) else None
    return pa.Array.from_buffers(wider, len(low), [mask, pa.py_buffer(np.ascontiguousarray(words))])


def float_results(limbs: Limbs, special: NDArray[np.int8], present: Flags, scale: int = 0) -> pa.Array:
    """Return exact sums, divided by ``10^scale``, as the nearest doubles, with null for groups without values.

    ``special`` has the flags of each group: a group with special values gets NaN or an infinity. ``present`` is a mask
    of the groups with values.
    """
    return pa.array(with_special(quotient(limbs, scale=scale), special), mask=~present)


def with_special(results: Floats, special: NDArray[np.int8]) -> Floats:
    """Return results, one per group. The result of a group with special values is replaced by an infinity or NaN.

    ``special`` has the flags of each group. A group with infinities of both signs gets NaN.
    """
    if not special.any():
        return results
    infinite = np.where(special & POSITIVE, np.inf, -np.inf)
    is_nan = (special & NAN != 0) | (special & (POSITIVE | NEGATIVE) == POSITIVE | NEGATIVE)
    results = np.where(special != 0, infinite, results)
    return np.where(is_nan, np.nan, results)


def _integer_parts(integers: Whole) -> list[Floats]:
    if not len(integers) or (integers.max() < 2**53 and integers.min() > -(2**53)):
        return [integers.astype(np.float64)]
    return [_scaled_floats(integers >> 32, 32), _scaled_floats(integers.view(np.uint64) & _WORD, 0)]


def _decimal_parts(values: pa.Array) -> list[Floats]:
    """Split the unscaled integers of decimals into doubles that add up exactly to each integer. Return one array of
    shape (rows,) per part.
    """
    width = values.type.bit_width // 64  # the number of 64-bit words of a decimal, which are stored lowest first
    start = 8 * width * values.offset
    words = np.frombuffer(values.buffers()[1] or b"", np.int64, width * len(values), start).reshape(-1, width)
    low = words[:, 0]
    high = words[:, -1]
    if (words[:, 1:] == (low >> 63)[:, np.newaxis]).all():
        return _integer_parts(low)
    parts = [_scaled_floats(high >> 32, 64 * width - 32), _scaled_floats(high.view(np.uint64) & _WORD, 64 * width - 64)]
    for i in reversed(range(width - 1)):
        word = words[:, i].view(np.uint64)
        parts += [_scaled_floats(word >> np.uint64(32), 64 * i + 32), _scaled_floats(word & _WORD, 64 * i)]
    return parts


def _scaled_floats(integers: NDArray[Any], shift: int) -> Floats:
    return integers.astype(np.float64) * 2.0**shift
