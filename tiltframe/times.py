"""Event times: any column that can be one, as microseconds since 1970-01-01 UTC."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr.plain import plain


def event_times(column: pa.Array | pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    """Read event times.

    Parameters
    ----------
    column : array of timestamps, dates, strings or integers
        Timestamps without a zone are UTC; strings are ISO 8601, UTC unless they carry an offset; integers are
        Unix milliseconds. Finer fractions than a microsecond are cut off.
    name : str
        Of the column, for messages.

    Returns
    -------
    array of int64, microseconds UTC

    Raises
    ------
    ValueError
        If a time is missing or cannot be read.
    TypeError
        If the column cannot hold times.

    Examples
    --------
    >>> event_times(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01"]), "ts")
    array([      0, 1000000])
    """
    times = plain(column)
    if times.null_count:
        raise ValueError(
            f"{times.null_count} of {len(times)} rows have no event time in {name!r}, and belong to no window; "
            "leave them out, or give them a time"
        )
    kind = times.type
    try:
        if pa.types.is_string(kind):
            times = _read_text(times)
        elif pa.types.is_integer(kind):
            times = pc.multiply_checked(times.cast(pa.int64()), 1000)
        elif pa.types.is_timestamp(kind):
            times = times.cast(pa.timestamp("us", kind.tz), safe=False)
        elif pa.types.is_date(kind):
            times = times.cast(pa.timestamp("us"))
        elif not pa.types.is_null(kind):
            raise TypeError(
                f"the time column {name!r} has type {kind}; it must hold timestamps, dates, ISO 8601 text or whole "
                "numbers of Unix milliseconds"
            )
    except pa.ArrowInvalid as error:
        raise ValueError(f"cannot read the time column {name!r}: {str(error).splitlines()[0]}") from None
    micros: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return micros


def _read_text(times: pa.Array) -> pa.Array:
    """Read ISO 8601, each text with an offset or without."""
    times = pc.replace_substring_regex(times, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(times, r"T?\d\d:\d\d.*([zZ]|[+-]\d\d:?\d\d)$")
    local = pc.if_else(zoned, None, times).cast(pa.timestamp("us"))
    moment = pc.if_else(zoned, times, None).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(moment.cast(pa.timestamp("us")), local)
