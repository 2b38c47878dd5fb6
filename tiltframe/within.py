"""within: a range of time, as people write it."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def read_range(text: str, timezone: str) -> tuple[int, int]:
    """Read ``START,END``: start inclusive, end exclusive.

    Parameters
    ----------
    text : str
        Two moments: ISO 8601 dates or times, with an offset or in the frame's zone, or Unix milliseconds.
    timezone : str
        For moments without an offset.

    Returns
    -------
    (start, end) in microseconds UTC

    Raises
    ------
    ValueError
        If a moment cannot be read, or the end is not after the start.

    Examples
    --------
    >>> read_range("1970-01-01,1970-01-02T00:00Z", "UTC")
    (0, 86400000000)
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise ValueError(f"cannot read the range {text!r}; write START,END such as 2024-05-01,2024-05-02")
    start, end = (_moment(part, timezone) for part in parts)
    if end <= start:
        raise ValueError(f"the range {text!r} is empty: its end must come after its start")
    return start, end


def _moment(text: str, timezone: str) -> int:
    if text.lstrip("-").isdigit() and len(text) != len("20240501"):
        return int(text) * 1000
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"cannot read {text!r} as a time; write 2024-05-01, 2024-05-01T12:00, either with an offset such as "
            "+05:30 or Z, or Unix milliseconds"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(timezone))
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
