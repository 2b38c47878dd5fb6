"""The limit of event times ahead of the clock. Without it, one row with a wrong time would make all later rows late."""

from __future__ import annotations

import time as clock

import numpy as np

from tiltframe.streaming.policies import micros
from windows.timezone import Instants

NONE = "none"


def read_ahead(text: str | None) -> int | None:
    """Parse the maximum time that rows may be ahead: a duration such as ``1h`` becomes microseconds, ``none`` becomes
    None (no limit).

    >>> read_ahead("90s"), read_ahead("none"), read_ahead(None)
    (90000000, None, None)
    """
    if text is None or text == NONE:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise ValueError(f"cannot read ahead: {error}; pass a duration such as 1h, or none") from None


def first_ahead(times: Instants, now: int, ahead: int | None) -> int | None:
    """Return the first time that is further ahead of the clock than allowed, or None. All times are in microseconds."""
    if ahead is None or not len(times) or int(times.max()) <= now + ahead:
        return None
    return int(times[np.argmax(times > now + ahead)])


def check_ahead(times: Instants, column: str, ahead: str | None) -> None:
    """Raise ``ValueError`` if a time is further ahead of the machine's clock than allowed."""
    at = first_ahead(times, clock.time_ns() // 1000, read_ahead(ahead))
    if at is not None:
        raise ValueError(
            f"the time {np.datetime64(at, 'us')} UTC in the column {column!r} is ahead of the clock by more than "
            f"ahead={ahead!r}, so the watermark would advance too far and make later rows late; leave out such rows, "
            "or pass ahead='none'"
        )
