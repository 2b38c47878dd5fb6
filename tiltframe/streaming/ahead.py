"""Detect rows whose times are in the future.

The watermark follows the latest event time. A row with a wrong time far in the future would therefore move the
watermark there, and all later rows would be late.
"""

from __future__ import annotations

import time as clock

import numpy as np

from tiltframe.parameter_names import parameter_text
from tiltframe.streaming.policies import micros
from windows.timezone import Instants

NONE = "none"


def read_ahead(text: str | None) -> int | None:
    """Return the argument ``ahead`` in microseconds. The time of a row may be later than the clock by at most this
    duration. Return None for the text ``none`` and for None, which mean that there is no limit.

    >>> read_ahead("90s"), read_ahead("none"), read_ahead(None)
    (90000000, None, None)
    """
    if text is None or text == NONE:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise ValueError(f"{parameter_text('ahead')} must be a duration such as 1h, or none: {error}") from None


def first_ahead(times: Instants, now: int, ahead: int | None) -> int | None:
    """Return the first element of ``times`` that is later than ``now + ahead``. Without such an element, or without a
    limit (``ahead`` None), return None. All times are in microseconds.
    """
    if ahead is None or not len(times) or int(times.max()) <= now + ahead:
        return None
    return int(times[np.argmax(times > now + ahead)])


def check_ahead(times: Instants, column: str, ahead: str | None) -> None:
    """Raise ``ValueError`` if a time is later than the machine's clock by more than ``ahead``.

    ``times`` are in microseconds UTC. ``ahead`` is a duration such as ``1h``, or ``none`` or None for no limit.
    ``column`` is the name of the column of times in the error message.
    """
    at = first_ahead(times, clock.time_ns() // 1000, read_ahead(ahead))
    if at is not None:
        raise ValueError(
            f"the time {np.datetime64(at, 'us')} UTC in the column {column!r} is ahead of the clock by more than "
            f"ahead={ahead!r}, so the watermark would advance too far and make later rows late; leave out such rows, "
            "or pass ahead='none'"
        )
