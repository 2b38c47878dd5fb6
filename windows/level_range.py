"""Ranges of levels: ``1s ... 1y`` or ``sec ... year`` are the levels second, minute, hour, day, month and year."""

from __future__ import annotations

import re

from aggr.arguments import shown
from aggr.duration import UNITS, number_and_unit

_ASCENDING_UNITS = ("s", "m", "h", "d", "mo", "y")
_DOTS = re.compile(r"\.\.\.|…")


def is_level_range(text: object) -> bool:
    """Return whether a text contains the dots of a range of levels.

    >>> is_level_range("sec ... year"), is_level_range("1s")
    (True, False)
    """
    return isinstance(text, str) and _DOTS.search(text) is not None


def levels_between(text: str) -> list[str]:
    """Return the levels of a range as a list of sizes, from the finest to the coarsest, including both ends of the
    range.

    Raise ``ValueError`` unless each end is one second, one minute, one hour, one day, one month or one year, and the
    finer end comes first.

    >>> levels_between("sec ... day"), levels_between("1h...1y")
    (['1s', '1m', '1h', '1d'], ['1h', '1d', '1mo', '1y'])
    """
    positions = [_position(end) for end in _DOTS.split(text)]
    if len(positions) == 2 and None not in positions:
        first, last = (position for position in positions if position is not None)
        if first < last:
            return [f"1{unit}" for unit in _ASCENDING_UNITS[first : last + 1]]
    raise ValueError(
        f"cannot read {shown(text)} as a range of levels; write two different levels, the finer one first, each one of "
        "1s, 1m, 1h, 1d, 1mo and 1y, such as 'sec ... year', or list the levels: 10s,1m,1h"
    )


def _position(end: str) -> int | None:
    """Return the index of a size such as ``1s`` or ``sec`` in `_ASCENDING_UNITS`, or None if it is another size."""
    parts = number_and_unit(end)
    if parts is None or parts[0] != 1 or UNITS.get(parts[1]) not in _ASCENDING_UNITS:
        return None
    return _ASCENDING_UNITS.index(UNITS[parts[1]])
