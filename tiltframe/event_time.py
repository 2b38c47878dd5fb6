"""Event times: any column that can be one, as microseconds since 1970-01-01 UTC."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize, one_array
from aggr.iso8601 import read_times

INSTANT = pa.timestamp("us", "UTC")
_DAY = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}
_FORMS = (
    "write ISO 8601 such as 2024-05-01, 2024-05-01T10:00:00.5 or 20240501T100000, with an offset such as Z, +01, "
    "+0530 or +05:30, or without one in UTC; hours go from 00 to 23"
)


def event_times(column: pa.Array | pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    """Read event times: microseconds UTC.

    Timestamps without a zone are UTC; strings are ISO 8601, UTC unless they carry an offset: extended or basic,
    ``2024-05-01 10:00``, ``20240501T100000,5Z``, ``2024-05-01T10:00:00.123 +0530``; integers are Unix milliseconds.
    What is finer than a microsecond is rounded down, also before 1970. Raises ``ValueError`` for a time that is missing
    or cannot be read, ``TypeError`` for a column that cannot hold times.

    >>> event_times(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01"]), "ts")
    array([      0, 1000000])
    """
    times = one_array(column) if pa.types.is_timestamp(column.type) else normalize(column)
    if times.null_count:
        raise ValueError(
            f"{times.null_count} of {len(times)} rows have no event time in {name!r}, and belong to no window; "
            "leave them out, or give them a time"
        )
    dtype = times.type
    try:
        if pa.types.is_string(dtype):
            return _int64(_read_text(times))
        elif pa.types.is_integer(dtype):
            return _int64(pc.multiply_checked(times.cast(pa.int64()), 1000))
        elif pa.types.is_timestamp(dtype):
            return _floor(times, dtype.unit)
        elif pa.types.is_date(dtype):
            return _int64(pc.multiply_checked(times.cast(pa.int32()).cast(pa.int64()), _DAY))
        elif not pa.types.is_null(dtype):
            raise TypeError(
                f"the time column {name!r} has type {shown(dtype)}; it must hold timestamps, dates, ISO 8601 text "
                "or whole numbers of Unix milliseconds"
            )
    except ValueError as error:
        raise ValueError(f"cannot read the time column {name!r}: {str(error).splitlines()[0]}") from None
    return np.empty(0, np.int64)


def _floor(times: pa.Array, unit: str) -> NDArray[np.int64]:
    """Give timestamps of any unit in microseconds; nanoseconds are rounded down."""
    if unit == "us":
        return _int64(times)
    if unit != "ns":
        return _int64(pc.multiply_checked(times.cast(pa.int64()), _MICROS[unit]))
    floor: NDArray[np.int64] = np.floor_divide(_int64(times), 1000)
    return floor


def _int64(times: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return numbers


def _read_text(texts: pa.Array) -> pa.Array:
    """Read ISO 8601, each text with an offset or without; raises ``ValueError`` naming the first that is none."""
    for dtype in (INSTANT, pa.timestamp("us")):  # the fast ways, if all texts are alike
        with suppress(pa.ArrowInvalid):
            texts[:1].cast(dtype)  # Arrow notices at the end only
            return texts.cast(dtype)
    times = read_times(texts)
    if times.null_count:
        first = pc.index(times.is_null(), True).as_py()
        raise ValueError(f"{texts[first].as_py()!r} is no time that is read; {_FORMS}")
    return times
