"""Time zones by name: IANA names, and fixed offsets such as ``+05:30``."""

from __future__ import annotations

import datetime as dt
import re
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from aggr.arguments import is_name, nearest, shown

_OFFSET = re.compile(r"([+-])([01]?\d)(?::?([0-5]\d))?", re.ASCII)
_MAX_OFFSET_MINUTES = 18 * 60  # the largest offset from UTC in minutes, as in Java and therefore in Spark
_EXAMPLES = "use an IANA name such as 'Europe/Paris', or an offset such as '+05:30'"


def canonical_zone(name: str) -> str:
    """Return the canonical name of a zone: ``+05:30`` for ``+0530``, ``UTC`` for an offset of 0. IANA names are
    unchanged.

    Raises ``ValueError`` if the zone does not exist; the message suggests the nearest name.

    >>> canonical_zone("+0530"), canonical_zone("-3"), canonical_zone("+00:00"), canonical_zone("Europe/Paris")
    ('+05:30', '-03:00', 'UTC', 'Europe/Paris')
    """
    return _canonical(name) if isinstance(name, str) else _checked_name(name)


@lru_cache(maxsize=1024)
def _canonical(name: str) -> str:
    minutes = _offset_minutes(_checked_name(name))
    if minutes is not None:
        sign = "-" if minutes < 0 else "+"
        return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {shown(name)}; {_hint(name)}") from None
    return name


def _checked_name(name: str) -> str:
    """Return the name of a zone. Raise ``ValueError`` for a value that is not a text, and for a blank text."""
    if not is_name(name):
        raise ValueError(
            f"a time zone is an IANA name such as 'Europe/Paris', or an offset such as '+05:30'; got {shown(name)}"
        )
    return name


@cache
def zone_of(name: str) -> dt.tzinfo:
    """Return the ``tzinfo`` of a zone, for a name that `canonical_zone` accepts.

    >>> zone_of("+05:30").utcoffset(None)
    datetime.timedelta(seconds=19800)
    """
    minutes = _offset_minutes(name)
    return ZoneInfo(name) if minutes is None else dt.timezone(dt.timedelta(minutes=minutes))


def fixed_offset(name: str) -> int | None:
    """Return the offset of a zone in microseconds if the zone is an offset or UTC, otherwise None."""
    if name in ("UTC", "Etc/UTC"):
        return 0
    minutes = _offset_minutes(name)
    return None if minutes is None else minutes * 60_000_000


def _offset_minutes(name: str) -> int | None:
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    minutes = 60 * int(match[2]) + int(match[3] or 0)
    if minutes > _MAX_OFFSET_MINUTES:
        return None
    return -minutes if match[1] == "-" else minutes


def _hint(name: str) -> str:
    if re.fullmatch(r"\s*\d{1,2}:?\d\d", name, re.ASCII):
        return f"an offset needs a sign, such as '+{name.strip()}'; in a URL, write the plus as %2B"
    if re.fullmatch(r"[+-][\d:]+", name, re.ASCII):
        return "an offset is hours and minutes from -18:00 to +18:00, such as '+05:30'"
    return nearest(name, available_timezones(), _EXAMPLES)
