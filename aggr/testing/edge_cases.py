"""Edge cases: values of each type on which aggregates often fail, for laws and tests."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow.normalize import is_number

_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1e16, -1e16, 2.0**53, 2.0**53 + 2, 1e308, -1e308, 1.7976931348623157e308,
    5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e300, 1e9 + 0.5, 1e9 + 0.25, math.pi,
]  # fmt: skip
_SPECIAL_FLOATS = [math.nan, math.inf, -math.inf]
_INTEGERS = [0, 1, -1, 2, 1000, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) + 1, 10**18]

# Accents as one and as two code points, letters of both cases, and characters whose order in UTF-16 differs from the
# order of code points.
_TEXTS = ["", " ", "a", "A", "ab", "ä", "a\u0308", "é", "e\u0301", "ß", "SS", "ｚ", "😀", "z" * 40, "Z" * 40, "0", "00"]
# a length that does not fit into one byte, and a length that does not fit into two bytes
_LONG_TEXT_LENGTHS = (300, 70_000)


def edge_cases(
    dtype: pa.DataType,
    size: int,
    seed: int = 0,
    *,
    least: float | None = None,
    most: float | None = None,
    special: bool = True,
) -> pa.Array:
    """Draw values of a type on which aggregates often fail.

    The values contain nulls, repeated values and the limits of the type. Floats also contain denormals, numbers that
    cancel each other, and large numbers with small differences.

    Parameters
    ----------
    dtype : type
        The type: an integer, a float, a decimal, string, bytes, boolean, date, time, duration, timestamp, or a list or
        a struct of such types.
    size, seed : int
        The same seed gives the same values.
    least : float, optional
        Leave out smaller numbers.
    most : float, optional
        Leave out numbers of a larger magnitude.
    special : bool
        Whether to include NaN and the infinities.

    Returns
    -------
    array of the type, with some nulls

    Examples
    --------
    >>> len(edge_cases(pa.float64(), 5))
    5
    """
    rng = np.random.default_rng(seed)
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        children = [
            edge_cases(f.type, size, seed * 31 + i, least=least, most=most, special=special)
            for i, f in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(children, fields=fields)
    if _is_list(dtype):
        lengths = rng.integers(0, 4, size)
        children = edge_cases(dtype.value_type, int(lengths.sum()), seed * 31, least=least, most=most, special=special)
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), children)
        return pa.array([None if rng.random() < 0.15 else values for values in lists.to_pylist()], dtype)
    values = [_draw(dtype, rng, special) for _ in range(size)]
    if (least is not None or most is not None) and is_number(dtype):
        low = -math.inf if least is None else least
        high = math.inf if most is None else most
        values = [None if v != v or v < low or abs(v) > high else v for v in values]
    null_probability = 0.15 if rng.random() < 0.9 else 1.0  # in some draws, all values are null
    return pa.array([None if rng.random() < null_probability else v for v in values], dtype)


def all_edge_cases(dtype: pa.DataType) -> pa.Array:
    """Return each edge case of a type once, without random draws: limits, zeros of both signs, NaN, infinities, texts
    that look alike, long texts.

    Parameters
    ----------
    dtype : type
        See `edge_cases`.

    Returns
    -------
    array of the type
        Without nulls. For types without a list of edge cases, some random values are returned.
    """
    if pa.types.is_struct(dtype):
        columns = [all_edge_cases(dtype.field(i).type) for i in range(dtype.num_fields)]
        size = max(map(len, columns))
        cycled_columns = [
            column.take(pa.array((np.arange(size) + i) % len(column))) for i, column in enumerate(columns)
        ]
        return pa.StructArray.from_arrays(cycled_columns, fields=list(dtype))
    if pa.types.is_floating(dtype):
        with np.errstate(over="ignore"):
            return pa.array(np.array(_FLOATS + _SPECIAL_FLOATS).astype(dtype.to_pandas_dtype()), dtype)
    if pa.types.is_integer(dtype):
        return pa.array([value for value in _INTEGERS if _limits(dtype)[0] <= value <= _limits(dtype)[1]], dtype)
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return pa.array([*_TEXTS, *("é" + "x" * length for length in _LONG_TEXT_LENGTHS)], dtype)
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return pa.array(
            [b"", b"\x00", b"a", b"a\x00", b"\xff", *(b"\x80" * length for length in _LONG_TEXT_LENGTHS)], dtype
        )
    return edge_cases(dtype, 20, 3).drop_null()


def ordinary_values(
    dtype: pa.DataType, size: int, seed: int = 0, *, max_integer: int | None = None, signed: bool = False
) -> pa.Array:
    """Draw ordinary values: without nulls, without the limits of the type, and distinct if possible.

    With such values, the result changes if a row is lost.

    Parameters
    ----------
    dtype : type
        See `edge_cases`.
    size, seed : int
        The same seed gives the same values.
    max_integer : int, optional
        If it is passed, the numbers are drawn from the integers from 1 to ``max_integer``, and may repeat.
    signed : bool
        Whether half of the numbers are negative, if the type has negative numbers.

    Returns
    -------
    array of the type, shape (size,)
        Numbers are distinct if the type has enough values. Values of other types are drawn at random.
    """
    rng = np.random.default_rng(seed)
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        children = [
            ordinary_values(f.type, size, seed * 31 + i, max_integer=max_integer, signed=signed)
            for i, f in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(children, fields=fields)
    if is_number(dtype):
        integers = rng.permutation(size) + 1 if max_integer is None else rng.integers(1, max_integer + 1, size)
        return _numbers(
            dtype, integers - (size // 2 if signed else 0), rng.random(size) / 2 if max_integer is None else None
        )
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return pa.array([f"text {value}" for value in rng.permutation(size)], dtype)
    if pa.types.is_timestamp(dtype):
        seconds = rng.permutation(size) + 1_700_000_000
        fractions = [_fraction_of_second(dtype, rng) for _ in range(size)]
        return pa.array(seconds * 1_000_000 + fractions).cast(pa.timestamp("us")).cast(dtype)
    values = edge_cases(dtype, 2 * size + 20, seed, special=False).drop_null()
    return values.take(pa.array(np.arange(size) % len(values))) if len(values) else pa.nulls(size, dtype)


def _numbers(dtype: pa.DataType, integers: np.ndarray[Any, Any], fractions: np.ndarray[Any, Any] | None) -> pa.Array:
    """Return integers as numbers of a type. Integers beyond the range of the type are clipped or wrapped.

    ``fractions`` are added to floats. Decimals are below 10^6, which is enough for all numbers that laws draw.
    """
    if pa.types.is_floating(dtype):
        return pa.array(integers.astype(float) if fractions is None else integers + fractions).cast(dtype)
    if pa.types.is_decimal(dtype):
        limit = 10 ** min(6, dtype.precision - dtype.scale)
        return pa.array([Decimal(math.fmod(value, limit)) for value in integers], dtype)
    low, high = (min(max(limit, -(2**62)), 2**62) for limit in _limits(dtype))
    return pa.array(np.clip(integers, low, high) if low < 0 else np.abs(integers) % (high + 1), dtype)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def _draw(dtype: pa.DataType, rng: np.random.Generator, special: bool) -> Any:
    if pa.types.is_floating(dtype):
        return _float(rng, special)
    if pa.types.is_integer(dtype):
        integer = _INTEGERS[int(rng.integers(len(_INTEGERS)))] if rng.random() < 0.4 else int(rng.integers(-50, 50))
        low, high = _limits(dtype)
        return min(max(integer, low), high)
    if pa.types.is_decimal(dtype):
        digits = int(rng.integers(1, dtype.precision + 1))
        integer = int("".join(map(str, rng.integers(0, 10, digits)))) * int(rng.choice([-1, 1]))
        return Decimal(integer).scaleb(-dtype.scale, Context(prec=50))
    if pa.types.is_boolean(dtype):
        return bool(rng.integers(2))
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return str(rng.choice(_TEXTS))
    if pa.types.is_fixed_size_binary(dtype):
        return rng.bytes(dtype.byte_width)
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return rng.bytes(int(rng.integers(0, 4)))
    days = int(rng.integers(-30_000, 60_000)) if rng.random() < 0.5 else int(rng.integers(0, 3))
    if pa.types.is_date(dtype):
        return dt.date(1970, 1, 1) + dt.timedelta(days=days)
    fraction = _fraction_of_second(dtype, rng)
    span = dt.timedelta(days=days, seconds=int(rng.integers(0, 9)), microseconds=fraction)
    if pa.types.is_duration(dtype):
        return span
    if pa.types.is_time(dtype):
        time_of_day = dt.timedelta(seconds=int(rng.integers(0, 86_400)), microseconds=fraction)
        return (dt.datetime(1970, 1, 1) + time_of_day).time()
    zone = dt.UTC if dtype.tz else None
    return dt.datetime(1970, 1, 1, tzinfo=zone) + span


def _fraction_of_second(dtype: pa.DataType, rng: np.random.Generator) -> int:
    """Return a part of a second in microseconds, which a time of the type can represent; half of them are 0."""
    step = {"s": 1_000_000, "ms": 1000}.get(dtype.unit, 1)
    return int(rng.integers(2)) * int(rng.integers(1_000_000)) // step * step


def _float(rng: np.random.Generator, special: bool) -> float:
    choice = rng.random()
    if special and choice < 0.03:
        return float(rng.choice(_SPECIAL_FLOATS))
    if choice < 0.3:
        return float(rng.choice(_FLOATS))
    if choice < 0.5:
        return math.ldexp(float(rng.uniform(-1, 1)), int(rng.integers(-1070, 1020)))
    if choice < 0.7:
        return 1e9 + float(rng.normal())
    return float(rng.integers(-5, 5)) / 4


def _limits(dtype: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the greatest number of an integer type."""
    if pa.types.is_unsigned_integer(dtype):
        return 0, 2**dtype.bit_width - 1
    return -(2 ** (dtype.bit_width - 1)), 2 ** (dtype.bit_width - 1) - 1
