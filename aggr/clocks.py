"""Clocks: the changes of the UTC offsets of time zones, and conversion between instants and local times.

The offsets come from Python's zoneinfo. Arrow's own conversion has no changes of the UTC offset after 2037.
"""

from __future__ import annotations

import calendar
import datetime as dt
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from aggr.arrays import Whole
from aggr.duration import DAY, SECOND
from aggr.time_zones import fixed_offset, zone_of

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# The first and the last year of event times. A window may begin a year before its event times and end a year after
# them, and Python's datetime has the years 1 to 9999.
_FIRST_YEAR = 2
_LAST_YEAR = 9998
# From this year on, the UTC offset of a zone changes by the same rule in all years. The database of time zones lists
# single changes only up to 2087.
_RULE_YEAR = 2100
# the first year in which changes are searched for; the database of time zones has no change before 1835
_FIRST_YEAR_OF_CHANGES = 1800
# the number of years after which the dates of the Gregorian calendar have the same weekdays again
_CYCLE = 400


@dataclass(frozen=True)
class Clock:
    """The UTC offsets of a time zone over a range of years.

    ``offsets[i]`` is the local time minus UTC, in microseconds. It applies from the instant ``since[i]`` to the instant
    ``since[i + 1]``, in microseconds UTC. ``since[0]`` is the beginning of the range.
    """

    since: Whole
    offsets: Whole

    def without_whole_shifts(self, size: int, window_offset: int = 0) -> Clock:
        """Return the clock without the changes of the UTC offset that do not affect windows of the length ``size``.

        A change by a multiple of ``size`` does not affect the windows: in UTC, windows begin at the same instants as
        without the change. If the clock shows an hour twice, the first and the second hour are in different windows.

        Exception: a change to a later local time is kept if no window ends at the instant of the change, because a
        window of a greater length may begin at this instant.

        Parameters
        ----------
        size : int
            The size of the windows in microseconds.
        window_offset : int
            In microseconds: windows begin when the clock shows ``window_offset`` plus a multiple of ``size``.
        """
        if len(self.since) == 1:
            return self
        offset_changes = np.diff(self.offsets)
        is_ignored = (offset_changes % size == 0) & (
            (offset_changes < 0) | ((self.since[1:] + self.offsets[:-1] - window_offset) % size == 0)
        )
        remaining_offsets = self.offsets[0] + np.cumsum(np.append(0, np.where(is_ignored, 0, offset_changes)))
        is_kept = np.append(True, ~is_ignored)
        return Clock(self.since[is_kept], remaining_offsets[is_kept])

    def local_times(self, times: Whole) -> Whole:
        """Return the local time that the clock shows at each instant. Local times and instants are in microseconds.

        For instants before the range of the clock, the first offset of the clock applies.
        """
        segment = np.searchsorted(self.since, times, side="right") - 1
        local_times: Whole = times + self.offsets[np.maximum(segment, 0)]
        return local_times

    def latest_local_time(self, times: Whole) -> Whole:
        """Return the greatest local time that the clock has shown up to each instant, in microseconds like the
        instants.
        """
        segment = np.searchsorted(self.since, times, side="right") - 1
        local_times: Whole = np.maximum(times + self.offsets[segment], self._local_end_before[segment] - 1)
        return local_times

    def first_instant_showing(self, local: Whole) -> Whole:
        """Return, for each local time, the first instant at which the clock shows this time or a later one. Local times
        and instants are in microseconds.
        """
        segment = np.searchsorted(self._local_end_before[1:], local, side="right")
        instants: Whole = np.maximum(local - self.offsets[segment], self.since[segment])
        return instants

    @property
    def _local_end_before(self) -> Whole:
        """For each range between two changes of the UTC offset, the greatest local time that the clock showed before
        the range, plus one microsecond.

        The value for the first range is earlier than all local times.
        """
        segment_ends = self.since[1:] + self.offsets[:-1]
        return np.maximum.accumulate(np.append(np.iinfo(np.int64).min // 2, segment_ends))


def check_years(low: int, high: int) -> None:
    """Raise ``ValueError`` if an instant lies outside of the years 2 to 9998. ``low`` and ``high`` are the first and
    the last instant, in microseconds UTC.
    """
    for at in (low, high):
        if not _BEGIN <= at < _END:
            raise ValueError(
                f"event times must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}; got the year {_year(at)}; "
                "leave out such rows, or check the unit of the times"
            )


def clock(name: str, low: int, high: int, margin: int = 0) -> Clock:
    """Return the clock of the time zone ``name`` from ``low - margin`` to ``high + margin``, in microseconds UTC.

    Raise ``ValueError`` if ``low`` or ``high`` lies outside of the years 2 to 9998. The margin may extend beyond these
    years.
    """
    check_years(low, high)
    fixed = _fixed_clock(name)
    if fixed is not None:
        return fixed
    first = _year(low - margin) - 1
    last = _year(high + margin) + 1
    return _clock(name, max(first, dt.MINYEAR), min(last, dt.MAXYEAR))


def clock_around(name: str, times: Whole) -> Clock:
    """Return the clock of the time zone ``name`` for ``times``, at least one instant or local time in microseconds.

    The clock covers at least two days before the first time and two days after the last time. The first offset of the
    clock also applies before the year 1, and its last offset after the year 9999.
    """
    low = min(max(int(times.min()), _BEGIN), _END - 1)
    high = min(max(int(times.max()), _BEGIN), _END - 1)
    return clock(name, low, high, margin=2 * DAY)


def _year(at: int) -> int:
    """Return the year of an instant in microseconds UTC."""
    return int(np.datetime64(at, "us").astype("datetime64[Y]").astype(np.int64)) + 1970


@lru_cache(maxsize=64)
def _fixed_clock(name: str) -> Clock | None:
    """Return the clock of a time zone over all years if the zone is an offset or UTC, otherwise None."""
    offset = fixed_offset(name)
    return None if offset is None else Clock(np.array([_start_of_year(dt.MINYEAR)]), np.array([offset], np.int64))


@lru_cache(maxsize=64)
def _clock(name: str, first: int, last: int) -> Clock:
    """Return the clock of a time zone from the year ``first`` to the year ``last``, inclusively."""
    start = _start_of_year(first)
    transitions = [t for year in range(first, last + 1) for t in _transitions(name, year)]
    offset = _offset(zone_of(name), start)
    since = [start, *(at for at, _ in transitions)]
    offsets = [offset, *(to for _, to in transitions)]
    return Clock(np.array(since, np.int64), np.array(offsets, np.int64))


def _transitions(name: str, year: int) -> list[tuple[int, int]]:
    """Return the changes of a time zone's UTC offset in a year: the instant and the new offset of each, in
    microseconds. From 2100 on, the changes are copied from another year with the same weekdays and leap years
    (`_calendar_of`), in which the rule of the zone gives the same dates.
    """
    if year < _FIRST_YEAR_OF_CHANGES:
        return []
    year_with_same_calendar = year if year < _RULE_YEAR else _year_by_calendar()[_calendar_of(year)]
    shift = _start_of_year(year) - _start_of_year(year_with_same_calendar)
    return [(at + shift, offset) for at, offset in _transitions_by_day(name, year_with_same_calendar)]


@lru_cache(maxsize=8192)
def _transitions_by_day(name: str, year: int) -> tuple[tuple[int, int], ...]:
    """Return the changes of a time zone's UTC offset in a year: the instant and the new offset of each, in
    microseconds.

    The offsets at the ends of each day are compared. If they differ, the instant is found by bisection, to the second.
    """
    info = zone_of(name)
    transitions = []
    start = _start_of_year(year)
    end = _start_of_year(year + 1) if year < dt.MAXYEAR else start + 365 * DAY
    before = _offset(info, start - SECOND)
    for day in range(start - SECOND, end - SECOND, DAY):
        after = _offset(info, min(day + DAY, end - SECOND))
        if after != before:
            low = day
            high = min(day + DAY, end - SECOND)
            while high - low > SECOND:
                middle = (low + high) // (2 * SECOND) * SECOND
                low, high = (low, middle) if _offset(info, middle) != before else (middle, high)
            transitions.append((high, after))
        before = after
    return tuple(transitions)


def _calendar_of(year: int) -> tuple[int, bool, bool, bool]:
    """Return the properties of a year on which the dates of a yearly rule depend: the weekday of January 1, from 0 for
    Monday, and whether the year before, the year itself and the year after are leap years.
    """
    leap = [calendar.isleap(neighbour_year) for neighbour_year in (year - 1, year, year + 1)]
    return dt.date(year, 1, 1).weekday(), leap[0], leap[1], leap[2]


@cache
def _year_by_calendar() -> dict[tuple[int, bool, bool, bool], int]:
    """Return a mapping from each possible result of `_calendar_of` to the earliest year from 2100 on that has this
    result.
    """
    return {_calendar_of(year): year for year in reversed(range(_RULE_YEAR, _RULE_YEAR + _CYCLE))}


def _start_of_year(year: int) -> int:
    """Return the first instant of a year in UTC, in microseconds."""
    return _micros(dt.datetime(year, 1, 1, tzinfo=dt.UTC))


def _offset(info: dt.tzinfo, at: int) -> int:
    """Return the UTC offset of a time zone at an instant. The offset and the instant are in microseconds."""
    at = min(max(at, _EARLIEST), _LATEST)
    offset = (_EPOCH + dt.timedelta(microseconds=at)).astimezone(info).utcoffset()
    assert offset is not None
    return offset // dt.timedelta(microseconds=1)


def _micros(moment: dt.datetime) -> int:
    """Return a datetime as microseconds since 1970-01-01 UTC."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


# the first and the last instant whose local time is within the range of datetime in every zone
_EARLIEST = _micros(dt.datetime(dt.MINYEAR, 1, 3, tzinfo=dt.UTC))
_LATEST = _micros(dt.datetime(dt.MAXYEAR, 12, 29, tzinfo=dt.UTC))
# the years in which event times may lie, as instants: ``[_BEGIN, _END)``
_BEGIN = _start_of_year(_FIRST_YEAR)
_END = _start_of_year(_LAST_YEAR + 1)
