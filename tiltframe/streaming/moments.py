"""Convert a point in time that a caller passes to a stream to microseconds. An error is raised if the passed number is
probably in another unit, such as seconds.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from aggr.arguments import checked_whole, shown
from windows import MAX_INSTANT, MIN_INSTANT

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
# the beginning of the year 10000 in microseconds; a number that is at least as large is probably in nanoseconds
_YEAR_10000 = 253_402_300_800_000_000
# a watermark of at least this value means that no more events are expected
_END_OF_TIME = 2**61
# the beginning of the year 1971, in microseconds
_1971 = 31_536_000_000_000


def read_moment(moment: Any, name: str, lowest: int = MIN_INSTANT) -> int:
    """Convert a point in time to microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    moment : datetime with a zone, datetime64 in UTC, or int
        The point in time. An integer is in microseconds since 1970-01-01 UTC.
    name : str
        The name of the argument, for error messages.
    lowest : int
        The lowest value that is allowed for an integer, in microseconds.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the value has another type, is a datetime without a zone, or is an integer below ``lowest``. Integers that
        correspond to a time after the year 9999 are rejected too, except integers of at least 2^61: as a watermark,
        they mean that no more events are expected.

    Examples
    --------
    >>> read_moment(dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC), "watermark"), read_moment(5, "watermark")
    (3600000000, 5)
    """
    if isinstance(moment, dt.datetime):
        if moment.tzinfo is None:
            raise ValueError(
                f"{name} must be a time with a zone; got {shown(moment)}; use {name}.replace(tzinfo=datetime.UTC) "
                f"if it is in UTC"
            )
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(moment, np.datetime64) and not np.isnat(moment):
        return int(moment.astype("datetime64[us]").astype(np.int64))
    if isinstance(moment, bool) or not isinstance(moment, int | np.integer):
        raise ValueError(
            f"{name} must be a datetime with a zone, or whole microseconds since 1970-01-01 UTC; got {shown(moment)}"
        )
    micros = checked_whole(moment, name, lowest, MAX_INSTANT - 1)
    if _YEAR_10000 <= micros < _END_OF_TIME:
        raise ValueError(
            f"{name} must be in microseconds since 1970-01-01 UTC; {micros} lies beyond the year 9999, and "
            f"may be in nanoseconds; pass a datetime, or divide by 1000"
        )
    return micros


def check_unit(watermark: int, first_event: int | None) -> None:
    """Raise an error if a watermark lies in 1970 but all events are later, because the number is then probably in
    seconds or milliseconds.

    Parameters
    ----------
    watermark : int
        Microseconds UTC.
    first_event : int, optional
        The start of the earliest window in memory, in microseconds UTC.

    Raises
    ------
    ValueError
    """
    if first_event is None or not 10**8 < watermark < _1971 < first_event:
        return
    raise ValueError(
        f"in microseconds since 1970-01-01 UTC, the watermark {watermark} is a time in 1970, but no window of the "
        f"stream begins before {np.datetime64(first_event, 'us')}; the number may be in seconds or milliseconds; pass "
        "a datetime"
    )
