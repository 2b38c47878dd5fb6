"""Windows broken on purpose: ``check(window)`` detects each by the expected law."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest

import windows
from windows import Intervals, Numbered, TimeWindow, hopping, window
from windows.testing import LawBroken, check

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


@dataclass(frozen=True)
class Hours(TimeWindow):
    """Hours of UTC, which the others spoil."""

    kind = "broken_hours"
    contiguous = True
    same_in_all_years = True
    length = float(HOUR)

    def assign(self, times):
        starts = times // HOUR * HOUR
        return Intervals(np.arange(len(times)), starts, starts + HOUR)


class LengthInSeconds(Hours):
    """The length is in seconds instead of microseconds."""

    length = 3600.0


class LengthOfDay(Hours):
    """The length is that of a day."""

    length = float(DAY)


class Until2038(Hours):
    """Seconds have 32 bits, so that windows end in January 2038."""

    def assign(self, times):
        starts = (times // 1_000_000).astype(np.int32).astype(np.int64) // 3600 * HOUR
        return Intervals(np.arange(len(times)), starts, starts + HOUR)


class TruncatesBefore1970(Hours):
    """Times before 1970 are truncated toward zero."""

    def assign(self, times):
        starts = np.trunc(times / HOUR).astype(np.int64) * HOUR
        return Intervals(np.arange(len(times)), starts, starts + HOUR)


class LosesMicroseconds(Hours):
    """Times pass through doubles of seconds, which have no microseconds in far years."""

    def assign(self, times):
        starts = np.floor((times.astype(np.float32) / 1e6) / 3600).astype(np.int64) * HOUR
        return Intervals(np.arange(len(times)), starts, starts + HOUR)


class SortsTimes(Hours):
    """Times are sorted in place."""

    def assign(self, times):
        assigned = super().assign(times)
        times.sort()
        return assigned


class ChangesStarts(Hours):
    """A merge writes into the starts that it is given."""

    def merge(self, keys, starts, ends):
        merged = super().merge(keys, starts.copy(), ends)
        starts[:] = 0
        return merged


class ListsTooFew(Hours):
    """The list of windows lacks the first one of a range."""

    def starts_between(self, start, end):
        return super().starts_between(start, end)[1:]


class FirstIsLate(Hours):
    """The first window from a moment is the one after it."""

    def first_start_from(self, at):
        return super().first_start_from(at) + HOUR


@dataclass(frozen=True)
class Sized(Hours):
    """Hours, several of them together."""

    hours: int = 2

    @property
    def length(self):
        return float(self.hours * HOUR)

    def assign(self, times):
        size = self.hours * HOUR
        starts = times // size * size
        return Intervals(np.arange(len(times)), starts, starts + size)


class NameWithoutSize(Sized):
    """The name lacks a field."""

    kind = "name_without_size"

    @property
    def name(self):
        return self.kind


class CopyLosesSize(Sized):
    """A copy has the default size."""

    kind = "copy_loses_size"

    def __reduce__(self):
        return type(self), ()


class LevelsAbove(Sized):
    """Any finer windows are accepted, those that cross the edges as well."""

    kind = "levels_above"

    def nesting_problem(self, finer):
        return None


@dataclass(frozen=True)
class SaysOne(TimeWindow):
    """Windows of an hour that begin every ten minutes, of which a time is said to lie in one."""

    kind = "says_one"
    length = float(HOUR)

    def assign(self, times):
        return hopping("1h", "10m").assign(times)

    @property
    def pane(self):
        return window("10m")


@dataclass(frozen=True)
class NumbersTooMany(SaysOne):
    """The numbers of windows include one that has ended."""

    kind = "numbers_too_many"
    max_overlap = 6

    def numbered(self, times):
        last = times // (10 * MINUTE)
        return Numbered(last - 6, last, lambda n: (n * 10 * MINUTE, n * 10 * MINUTE + HOUR))


MARCH_2100 = int(np.datetime64("2100-03-01", "us").astype(np.int64))


@dataclass(frozen=True)
class JulianMonths(TimeWindow):
    """Months of a calendar with a leap day in 2100."""

    kind = "julian_months"
    length = 30.0 * DAY

    def assign(self, times):
        leap_day = (times >= MARCH_2100) & (times < MARCH_2100 + DAY)
        rows, starts, ends = window("1mo").assign(np.where(leap_day, MARCH_2100 - 1, times))
        move = {MARCH_2100: MARCH_2100 + DAY}
        starts, ends = (
            np.array([move.get(edge, edge) for edge in edges.tolist()], np.int64) for edges in (starts, ends)
        )
        return Intervals(rows, starts, ends)


class DaysOfProcess(Hours):
    """Days in the time zone of the process."""

    length = float(DAY)
    same_in_all_years = False

    def assign(self, times):
        years_known = 10**9  # seconds about 1970 whose offsets the system has
        seconds = np.clip(times // 1_000_000, 0, years_known).tolist()
        offsets = np.array([time.localtime(second).tm_gmtoff for second in seconds], np.int64) * 1_000_000
        starts = (times + offsets) // DAY * DAY - offsets
        return Intervals(np.arange(len(times)), starts, starts + DAY)


class CachesByLength(Hours):
    """Windows are remembered by the number of times, and not by the times."""

    def assign(self, times):
        if len(times) not in _REMEMBERED:
            _REMEMBERED[len(times)] = super().assign(times)
        return _REMEMBERED[len(times)]


_REMEMBERED: dict[int, Intervals] = {}


class ThroughNanoseconds(Hours):
    """Times pass through nanoseconds, which have 64 bits until 2262."""

    def assign(self, times):
        starts = times * 1000 // (1000 * HOUR) * HOUR
        return Intervals(np.arange(len(times)), starts, starts + HOUR)


LAW_BY_WINDOW = {
    DaysOfProcess(): "process_zone",
    CachesByLength(): "contains|no_overlaps_or_gaps",
    ThroughNanoseconds(): "nests|contains",
    LengthInSeconds(): "lengths",
    LengthOfDay(): "lengths",
    Until2038(): "nests|contains",
    TruncatesBefore1970(): "contains",
    LosesMicroseconds(): "nests|contains",
    SortsTimes(): "untouched|no_overlaps_or_gaps",
    ChangesStarts(): "untouched",
    ListsTooFew(): "queries",
    FirstIsLate(): "queries",
    NameWithoutSize(): "copies_and_names",
    CopyLosesSize(3): "copies_and_names",
    LevelsAbove(5): "nests",
    SaysOne(): "no_overlaps_or_gaps|windows_per_time",
    NumbersTooMany(): "windows_per_time",
    JulianMonths(): "nests",
}


@pytest.mark.parametrize("broken", LAW_BY_WINDOW, ids=lambda broken: type(broken).__name__)
def test_each_is_caught_by_default(broken):
    with pytest.raises(LawBroken, match=rf"breaks the law '({LAW_BY_WINDOW[broken]})'"):
        check(broken)


@pytest.mark.parametrize("sound", [Hours(), Sized(4)], ids=repr)
def test_the_sound_windows_that_they_spoil_pass(sound):
    check(sound)


@dataclass(frozen=True)
class Tagged(Hours):
    """The name lacks a text."""

    kind = "tagged"
    tag: str = "a"

    @property
    def name(self):
        return self.kind


@pytest.mark.long
def test_the_name_of_a_registered_kind_must_be_read_as_the_same_windows():
    windows.register(Tagged)
    try:
        check(Tagged(), rounds=4)
        with pytest.raises(LawBroken, match=r"the name .tagged. of .* is read as"):
            check(Tagged("b"), rounds=4)
    finally:
        windows.unregister(Tagged)
