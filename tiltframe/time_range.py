"""Ranges of time in queries (``within=``): two moments, a day, ``-24h``, or a pattern such as ``2018-01-** **:**:**``.

When clocks are changed, some local times occur twice and others are skipped. A local time that occurs twice is read as
the earlier instant; the later one can be written with an offset. A local time that is skipped is read as the instant of
the change. The package `windows` uses the same rule for the starts of windows. In Berlin on 2024-10-27, the hour from
02:00 occurs twice and has two windows; the pattern ``2024-10-27 02:**:**`` selects the first of them.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import time
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from aggr.arguments import shown
from aggr.clocks import clock
from aggr.duration import LENGTH, MONTHS, number_and_unit, read_duration
from aggr.iso8601 import read_time
from aggr.time_zones import zone_of
from tiltframe.ranges import EVER, Range, as_text
from windows import check_timezone, window

Moment: TypeAlias = "dt.datetime | dt.date | np.datetime64 | str | int | np.integer"
Within: TypeAlias = "str | dt.date | Sequence[Moment | None]"

_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST = dt.datetime(2, 1, 1)
_END = dt.datetime(9999, 1, 1)
_OFFSET = r"(?P<offset>[Zz]|[+-]\d\d:?[0-5]\d)?"
_PATTERN = re.compile(rf"(\d{{4}})-(\d\d|\*\*)-(\d\d|\*\*) (\d\d|\*\*):(\d\d|\*\*):(\d\d|\*\*)\s*{_OFFSET}", re.ASCII)
_PLAIN = re.compile(rf"(\d{{4}})(?:-(\d\d)(?:-(\d\d)(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d))?)?)?\s*{_OFFSET})?)?", re.ASCII)
_AGO = re.compile(r"-(\d{1,6})(us|ms|s|m|h|d|w|mo|q|y)", re.ASCII)
_UNITS = ("y", "mo", "d", "h", "m", "s")
_A_PATTERN = "'2024-05-** **:**:**' or '2024-05-01 12:00:** +05:30'"
_A_MOMENT = "2024-05-01, 2024-05-01T12:00, either with an offset such as +05:30 or Z, or Unix milliseconds"


def read_time_range(within: Within, timezone: str, now: int | None = None, open_ends: bool = False) -> Range:
    """Return the start (inclusive) and the end (exclusive) of a range of time, in microseconds UTC.

    ``within`` may have the following forms:

    - A complete year, month, day, hour, minute or second: ``2026``, ``2026-03``, ``2026-03-28``, ``2026-03-28 14``,
      ``2026-03-28 14:05 +01:00``, or a `datetime.date`.
    - The time until now: ``-24h`` is the last 24 hours. The units s, m, h, d (24 hours) and w have a fixed length. The
      units mo (months), q (quarters) and y (years) follow the calendar.
    - Two moments, as a tuple, a list or the text ``START,END``. A moment is a datetime (also of pandas or numpy); a
      date; ISO 8601 text, with an offset or in ``timezone``; a whole number of Unix milliseconds, also as text, but a
      text of eight digits is a date; ``now``; or a time before now, as in ``-24h,-1h``. With ``open_ends``, one of the
      two moments may be None or, in text, empty: ``2024-05-01,``. The result then has the value of `EVER` for this end.
    - A pattern of the form ``2018-01-02 03:04:05`` in which ``**`` replaces the last parts: ``2018-01-** **:**:**``. It
      may end with an offset, `` +05:30`` or `` Z``.

    Local times are in ``timezone``. ``now`` is in microseconds UTC, by default the current time. Raise ``ValueError``
    if the range cannot be read, is empty, or extends beyond the years 2 to 9998.

    >>> read_time_range("1970-01-01,1970-01-02T00:00Z", "UTC")
    (0, 86400000000)
    >>> start, end = read_time_range("2024-10-27 **:**:**", "Europe/Berlin")  # the clock goes back an hour
    >>> (end - start) // 3_600_000_000
    25
    """
    check_timezone(timezone)
    now = int(time.time() * 1e6) if now is None else now
    bounds = _bounds(within)
    if isinstance(bounds, str):
        return _read_pattern(_as_pattern(bounds), timezone)
    if not open_ends and any(moment is None for moment in bounds):
        raise ValueError(
            f"the range {shown(within)} has only one end, but both are required here; write START,END such as "
            "2024-05-01,2024-05-02"
        )
    start, end = (
        ever if moment is None else read_moment(moment, timezone, now)
        for moment, ever in zip(bounds, EVER, strict=True)
    )
    if end <= start:
        raise ValueError(f"the range {shown(within)} is empty: its end must come after its start")
    return start, end


def fill_open_ends(within: Range, bounds: Range) -> Range:
    """Return the range ``within``. An open start or end, which is a value of `EVER`, is replaced by the start or end of
    ``bounds``.
    """
    low, high = (end if at in EVER else at for at, end in zip(within, bounds, strict=True))
    return low, high


def checked_range_text(within: Within, timezone: str | None) -> Within:
    """Return a range as text that `read_time_range` reads as the same range. A local datetime with ``fold=1`` cannot be
    written as text; if an end is such a datetime, return a list of the two ends.

    Raise ``ValueError`` if the range cannot be read or is empty. Without a ``timezone``, it is not checked whether a
    range of two moments is empty.
    """
    bounds = _bounds(within)
    if timezone is not None or isinstance(bounds, str):
        read_time_range(within, timezone or "UTC", open_ends=True)
    if isinstance(bounds, str):
        return within.strip() if isinstance(within, str) else bounds
    text = ",".join("" if moment is None else moment_text(moment) for moment in bounds)  # checks the moments
    if isinstance(within, str):
        return within.strip()
    has_fold = any(getattr(end, "fold", 0) and getattr(end, "tzinfo", 0) is None for end in bounds)
    return bounds if has_fold else text


def moment_text(moment: object) -> str:
    """Return a moment as text that `read_moment` reads as the same moment. An instant is written with an offset, and a
    local time without an offset. Raise ``ValueError`` if the value is not a moment.

    >>> moment_text(1_714_521_600_000), moment_text(dt.date(2024, 5, 1))
    ('2024-05-01T00:00:00Z', '2024-05-01T00:00:00')
    """
    at = read_moment(moment, "UTC")
    if isinstance(moment, str):
        # A comma may precede the fraction of a second. It is replaced by a dot, because a comma separates the two ends
        # in the text of a range.
        return moment.strip().replace(",", ".")
    local = isinstance(moment, dt.date | np.datetime64) and getattr(moment, "tzinfo", None) is None
    return as_text(at).removesuffix("Z") if local else as_text(at)


def _bounds(within: Within) -> str | list[Moment | None]:
    """Return the two ends of a range. If the range is a pattern or a calendar unit, such as a day, return its text."""
    if isinstance(within, dt.date) and not isinstance(within, dt.datetime):
        within = within.isoformat()
    if isinstance(within, str) and _AGO.fullmatch(within.strip()):
        return [within.strip(), "now"]
    if isinstance(within, str) and "," not in within:
        return within.strip()
    bounds = [part.strip() or None for part in within.split(",")] if isinstance(within, str) else within
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or all(end is None for end in bounds):
        raise ValueError(
            f"cannot read the range {shown(within)}; write START,END such as 2024-05-01,2024-05-02, a pair "
            f"(start, end), or a day such as 2024-05-01, or a pattern such as {_A_PATTERN}"
        )
    return list(bounds)


def _as_pattern(text: str) -> str:
    """Return the pattern that means the same as the text of a calendar unit, such as a month. Other text is returned
    unchanged.

    >>> _as_pattern("2026-03"), _as_pattern("2026-03-28 14 +01:00")
    ('2026-03-** **:**:**', '2026-03-28 14:**:** +01:00')
    """
    match = _PLAIN.fullmatch(text)
    if match is None:
        return text
    year, month, day, hour, minute, second = (part or "**" for part in match.groups()[:6])
    return f"{year}-{month}-{day} {hour}:{minute}:{second} {match['offset'] or ''}".rstrip()


def _ago(count: int, unit: str, now: int, timezone: str) -> int:
    """Return the moment that is ``count`` units before ``now``, in microseconds UTC. Months, quarters and years are
    subtracted from the local date. If the resulting month is too short for the day, the result is on its last day. If
    the clock does not show the resulting time, or shows it twice, the result is the first instant at which it shows
    this time or a later one.
    """
    if unit in LENGTH:
        return now - count * LENGTH[unit]
    zone = zone_of(timezone)
    local = (_EPOCH + dt.timedelta(microseconds=now)).replace(tzinfo=dt.UTC).astimezone(zone)
    months = local.year * 12 + local.month - 1 - count * MONTHS[unit]
    if months < 24:
        raise ValueError("the moment is before the year 2")
    year, month = divmod(months, 12)
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    date = local.replace(year=year, month=month + 1, day=day, tzinfo=None)
    return _first_instant(_micros_since_epoch(date), timezone)


def _read_pattern(text: str, timezone: str) -> tuple[int, int]:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"cannot read the range {shown(text)}; write START,END such as 2024-05-01,2024-05-02, a day or month, a "
            "time ago such as -24h, or a pattern 'YYYY-MM-DD hh:mm:ss' with ** for each part that is left open, such "
            f"as {_A_PATTERN}"
        )
    parts = match.groups()[:6]
    count = parts.index("**") if "**" in parts else len(parts)
    if any(part != "**" for part in parts[count:]):
        raise ValueError(
            f"cannot read the range {text!r}: every part after ** must be ** too, as in '{match[1]}-01-** **:**:**'"
        )
    filled = [*parts[:count], *("01", "01", "01", "00", "00", "00")[count:]]
    try:
        start_time, _ = read_time("{}-{}-{}T{}:{}:{}".format(*filled) + (match["offset"] or ""))
    except ValueError as error:
        raise ValueError(f"cannot read the range {text!r}: {error}; correct the date or the time") from None
    offset = start_time.utcoffset()
    start_time = start_time.replace(tzinfo=None)
    if not _FIRST <= start_time < _END:
        raise _out_of_range(text)
    local = _micros_since_epoch(start_time)
    size = window(f"1{_UNITS[count - 1]}")
    local_end = int(size.ends(np.array([local]))[0])
    if offset is not None:
        return local - offset // _MICROSECOND, local_end - offset // _MICROSECOND
    start = _first_instant(local, timezone)
    if _first_instant(local_end, timezone) <= start:
        raise ValueError(
            f"the range {text!r} is empty, because the clock of {timezone} skips these local times; choose another "
            "range"
        )
    return start, int(window(size, timezone).ends(np.array([start]))[0])


def read_age(older_than: str) -> float:
    """Return the number of seconds of a duration such as ``7d``. It may be 0, unlike the length of a window. Raise
    ``ValueError`` if the text is not a duration.
    """
    parts = number_and_unit(older_than)
    is_zero = parts is not None and parts[0] == 0
    micros = read_duration(older_than, "duration") if is_zero else window(older_than).length
    return micros / 1e6


def moment_or_now(moment: object, timezone: str) -> int:
    """Return a moment in microseconds UTC, or the current time if ``moment`` is None. Raise ``ValueError`` as
    `read_moment` does.
    """
    return int(time.time() * 1e6) if moment is None else read_moment(moment, timezone)


def read_moment(moment: object, timezone: str, now: int | None = None) -> int:
    """Convert a moment, in one of the forms of `read_time_range`, to microseconds UTC. A text such as ``-24h`` is
    counted back from ``now``, which is in microseconds UTC and by default the current time. Raise ``ValueError`` for
    other values.
    """
    original = moment
    if isinstance(moment, str) and (match := re.fullmatch(rf"\s*(?:{_AGO.pattern}|now)\s*", moment, re.ASCII)):
        now = int(time.time() * 1e6) if now is None else now
        try:
            at = now if match[1] is None else _ago(int(match[1]), match[2], now, timezone)
        except (ValueError, OverflowError):
            raise _out_of_range(original) from None
        if not _micros_since_epoch(_FIRST) <= at <= _micros_since_epoch(_END):
            raise _out_of_range(original)
        return at
    if isinstance(moment, str):
        moment = moment.strip()
        if re.fullmatch(r"-?[0-9]{1,30}", moment) and not re.fullmatch(r"[0-9]{8}", moment):
            moment = int(moment)
        else:
            moment = _read_iso(moment)
    if isinstance(moment, np.datetime64) and not np.isnat(moment):
        moment = _from_numpy(moment)
    if isinstance(moment, int | np.integer) and not isinstance(moment, bool | np.timedelta64):
        micros = int(moment) * 1000
        if not _micros_since_epoch(_FIRST) <= micros <= _micros_since_epoch(_END):
            raise _out_of_range(original)
        return micros
    if not isinstance(moment, dt.date) or moment != moment:  # NaT is a date that is not equal to itself
        type_text = "" if original is None else f", of type {type(original).__name__},"
        raise ValueError(
            f"cannot use {shown(original)}{type_text} as a time; pass a datetime, a date, ISO 8601 "
            "text or a whole number of Unix milliseconds"
        )
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day)
    offset = moment.utcoffset()
    local = dt.datetime(*moment.timetuple()[:5], moment.second, moment.microsecond, fold=moment.fold)
    if not _FIRST <= local <= _END:
        raise _out_of_range(original)
    if offset is None and local.fold:  # fold=1 means the later of the two instants with this local time
        offset = local.replace(tzinfo=zone_of(timezone)).utcoffset()
    return (
        _first_instant(_micros_since_epoch(local), timezone)
        if offset is None
        else _micros_since_epoch(local) - offset // _MICROSECOND
    )


def _read_iso(text: str) -> dt.datetime:
    try:
        return read_time(text)[0]
    except ValueError:
        is_pattern = "*" in text
        hint = "a pattern is a complete range, and cannot be one end of a range" if is_pattern else f"write {_A_MOMENT}"
        raise ValueError(f"cannot read {shown(text)} as a time; {hint}") from None


def _from_numpy(moment: np.datetime64) -> dt.datetime:
    if not _FIRST.year <= int(moment.astype("datetime64[Y]").astype(np.int64)) + 1970 <= _END.year:
        raise _out_of_range(moment)
    micros: dt.datetime = moment.astype("datetime64[us]").item()
    return micros


def _first_instant(local: int, timezone: str) -> int:
    """Return the first instant at which the clocks of a zone show the local time ``local`` or a later one. ``local`` is
    in microseconds since 1970-01-01 00:00 local time, and the result in microseconds UTC.
    """
    around = min(local, _micros_since_epoch(_END) - 1)
    return int(clock(timezone, around, around).first_instant_showing(np.array([local]))[0])


def _micros_since_epoch(local: dt.datetime) -> int:
    return (local - _EPOCH) // _MICROSECOND


def _out_of_range(value: object) -> ValueError:
    return ValueError(f"cannot use {shown(value)} as a time: it must lie in the years {_FIRST.year} to {_END.year - 1}")
