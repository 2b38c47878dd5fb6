"""How far event times may be ahead of the clock: one row of a wrong clock would make all later rows late."""

from __future__ import annotations

import numpy as np

from tiltframe.streaming.policies import micros
from windows.timezone import Instants

NONE = "none"


def read_ahead(text: str | None) -> int | None:
    """Read how far rows may be ahead: a duration such as ``1h``, in microseconds, or ``none`` for any time.

    >>> read_ahead("90s"), read_ahead("none"), read_ahead(None)
    (90000000, None, None)
    """
    if text is None or text == NONE:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise ValueError(f"cannot read ahead: {error}; give a duration such as 1h, or none") from None


def first_ahead(times: Instants, now: int, ahead: int | None) -> int | None:
    """Return the first time that is further ahead of the clock than allowed; None if none is. In microseconds."""
    if ahead is None or not len(times) or int(times.max()) <= now + ahead:
        return None
    return int(times[np.argmax(times > now + ahead)])
