"""Units of time: their names and lengths, and durations as text."""

from __future__ import annotations

import re

from aggr.arguments import shown

SECOND = 1_000_000  # in microseconds, like the other lengths in this module
DAY = 86_400 * SECOND

_NAMES = {
    "us": ("us", "usec", "microsecond", "microseconds"),
    "ms": ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
    "mo": ("mo", "mon", "month", "months"),
    "q": ("q", "quarter", "quarters"),
    "y": ("y", "yr", "year", "years"),
}
UNITS = {alias: unit for unit, aliases in _NAMES.items() for alias in aliases}
LENGTH = {"us": 1, "ms": 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
SHORTEST_MONTH = 28 * DAY
# The longest duration that is accepted from text, in microseconds. A longer one is taken for a typing error.
LONGEST = 1000 * 366 * DAY


def number_and_unit(text: object) -> tuple[int, str] | None:
    """Return the whole number and the unit in a text such as ``10 minutes``. The number is 1 if it is missing.

    Return None if the text does not consist of an optional number and a unit.
    """
    match = re.fullmatch(r"\s*([0-9]{0,18})\s*([a-z]+)\s*", text, re.ASCII) if isinstance(text, str) else None
    return None if match is None else (int(match[1] or 1), match[2])


def read_duration(text: str, what: str) -> int:
    """Return a fixed duration in microseconds. ``what`` names the value in error messages.

    Raises ``ValueError`` if the text cannot be parsed, is in months or longer units, or exceeds a thousand years.

    >>> read_duration("1 minute", "gap")
    60000000
    """
    parts = number_and_unit(text)
    if parts is not None and UNITS.get(parts[1]) in MONTHS:
        raise ValueError(
            f"the {what} {shown(text)} has no fixed length; write it in weeks or shorter units, such as '30m'"
        )
    unit = None if parts is None else LENGTH.get(UNITS.get(parts[1], ""))
    if parts is None or unit is None:
        raise ValueError(
            f"cannot read the {what} {shown(text)}; write a whole number and one of us, ms, s, m, h, d, w, "
            "such as '30m'"
        )
    if parts[0] * unit > LONGEST:
        raise ValueError(f"the {what} {shown(text)} is too long; it must be at most 1000 years")
    return parts[0] * unit


def read_length(text: str, what: str) -> int:
    """Return a fixed duration of at least one microsecond, in microseconds.

    Raises ``ValueError`` for the same reasons as `read_duration`, and for a duration of 0.

    >>> read_length("1h", "unit")
    3600000000
    """
    length = read_duration(text, what)
    if length < 1:
        raise ValueError(f"the {what} {shown(text)} is zero; write a duration of at least 1us, such as '30m'")
    return length


def duration_text(length: int) -> str:
    """Return a duration in microseconds as text, in the longest unit, up to a day, that divides it.

    >>> duration_text(5_400_000_000)
    '90m'
    """
    unit = longest_unit(length)
    return f"{length // LENGTH[unit]}{unit}"


def longest_unit(length: int) -> str:
    """Return the longest unit, up to a day, that divides a length in microseconds.

    >>> longest_unit(5_400_000_000), longest_unit(250_000)
    ('m', 'ms')
    """
    return [unit for unit, unit_length in LENGTH.items() if unit != "w" and length % unit_length == 0][-1]


def offset_shown(offset: int) -> str:
    """Return an offset in microseconds as the text of an argument, such as ``, offset='6h'``, or an empty text for
    0.
    """
    return f", offset={duration_text(offset)!r}" if offset else ""
