"""Ugly values: the inputs on which aggregates break, by type, for laws and tests to draw from."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1e16, -1e16, 2.0**53, 2.0**53 + 2, 1e308, -1e308, 1.7976931348623157e308,
    5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e300, 1e9 + 0.5, 1e9 + 0.25, math.pi,
]  # fmt: skip
_SPECIAL = [math.nan, math.inf, -math.inf]
_INTEGERS = [0, 1, -1, 2, 1000, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) + 1, 10**18]


def edge_cases(
    dtype: pa.DataType, size: int, seed: int = 0, *, least: float | None = None, special: bool = True
) -> pa.Array:
    """Draw ``size`` values of a type: nulls, repeats, limits, cancellation, denormals, huge offsets, tiny spreads.

    Parameters
    ----------
    dtype : type
        An integer, a float, a decimal, string, bytes, boolean, date, timestamp, or a struct of these.
    size, seed : int
        The same seed gives the same values.
    least : float, optional
        Leave out numbers below it.
    special : bool
        Whether to draw NaN and the infinities.

    Returns
    -------
    array of the type, some of it null

    Examples
    --------
    >>> len(edge_cases(pa.float64(), 5))
    5
    """
    rng = np.random.default_rng(seed)
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        children = [edge_cases(f.type, size, seed * 31 + i, least=least, special=special) for i, f in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields)
    drawn = [_draw(dtype, rng, special) for _ in range(size)]
    if least is not None:
        drawn = [None if v is None or v != v or v < least else v for v in drawn]
    nulls = 0.15 if rng.random() < 0.9 else 1.0  # now and then nothing else
    return pa.array([None if rng.random() < nulls else v for v in drawn], dtype)


def _draw(dtype: pa.DataType, rng: np.random.Generator, special: bool) -> Any:
    if pa.types.is_floating(dtype):
        return _float(rng, special)
    if pa.types.is_integer(dtype):
        whole = _INTEGERS[int(rng.integers(len(_INTEGERS)))] if rng.random() < 0.4 else int(rng.integers(-50, 50))
        low, high = (0, 2**dtype.bit_width - 1) if str(dtype).startswith("u") else _signed(dtype.bit_width)
        return min(max(whole, low), high)
    if pa.types.is_decimal(dtype):
        digits = int(rng.integers(1, dtype.precision + 1))
        whole = int("".join(map(str, rng.integers(0, 10, digits)))) * int(rng.choice([-1, 1]))
        return Decimal(whole).scaleb(-dtype.scale, Context(prec=50))
    if pa.types.is_boolean(dtype):
        return bool(rng.integers(2))
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return str(rng.choice(["", "a", "A", "ab", "ä", "😀", "z" * 40, "0"]))
    if pa.types.is_binary(dtype):
        return rng.bytes(int(rng.integers(0, 4)))
    days = int(rng.integers(-30_000, 60_000)) if rng.random() < 0.5 else int(rng.integers(0, 3))
    if pa.types.is_date(dtype):
        return dt.date(1970, 1, 1) + dt.timedelta(days=days)
    zone = dt.UTC if dtype.tz else None
    return dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(days=days, seconds=int(rng.integers(0, 9)))


def _float(rng: np.random.Generator, special: bool) -> float:
    choice = rng.random()
    if special and choice < 0.03:
        return float(rng.choice(_SPECIAL))
    if choice < 0.3:
        return float(rng.choice(_FLOATS))
    if choice < 0.5:
        return math.ldexp(float(rng.uniform(-1, 1)), int(rng.integers(-1070, 1020)))
    if choice < 0.7:
        return 1e9 + float(rng.normal())
    return float(rng.integers(-5, 5)) / 4


def _signed(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
