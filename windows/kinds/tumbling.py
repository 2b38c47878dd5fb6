"""Tumbling windows: windows of one size that follow each other without gaps, aligned to the clock of a time zone.

The start of a window on the zone's clock is a multiple of the size, such as a full hour, a midnight or the first of a
month, plus the offset. The window begins at the first instant at which the clock shows this time or a later one. If the
clock changes, there are two cases:

- If the clock changes by a whole multiple of the size, windows keep their length. If the clock goes back an hour, the
  repeated hour is a separate window of ``1h``.
- Otherwise windows follow the clock: a day on which the clock goes back has 25 hours, and the window of 6 hours from
  midnight has 7.

Windows never overlap and have no gaps, and a coarser window consists of complete finer windows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from aggr.arguments import checked_whole, is_whole, shown
from aggr.clocks import Clock, clock
from aggr.duration import (
    DAY,
    LENGTH,
    MONTHS,
    UNITS,
    duration_text,
    longest_unit,
    number_and_unit,
    offset_shown,
    read_duration,
)
from windows.contract import MAX_LISTED_WINDOWS, Intervals, TimeWindow
from windows.period import Period, period
from windows.timezone import Instants, check_timezone, checked_instants

# the maximum length in microseconds: 9,000 years of 360 days, which is shorter than the range of event times (the years
# 2 to 9998)
_MAX_LENGTH = 9000 * 360.0 * DAY
_MAX_COUNT = 100_000  # the maximum number of units in the text of a size; a greater number is probably a mistake


@dataclass(frozen=True)
class Tumbling(TimeWindow):
    """Windows of one size that follow each other, aligned to the clock of a time zone.

    Parameters
    ----------
    count : int
        The length in units, at least 1.
    unit : str
        ``us ms s m h d w mo q y``: microsecond, millisecond, second, minute, hour, day, week (from Monday), month,
        quarter, year.
    timezone : str
        An IANA name.
    offset : int
        The time from each multiple of the size on the zone's clock to the start of a window, in microseconds; at least
        0, and less than the size.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> window("10m"), window("1 month", "Europe/Paris"), window("1d", offset="6h")
    (Tumbling('10m'), Tumbling('1mo', 'Europe/Paris'), Tumbling('1d', offset='6h'))
    """

    count: int
    unit: str
    timezone: str = "UTC"
    offset: int = 0

    contiguous: ClassVar[bool] = True
    same_in_all_years: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", checked_whole(self.count, "the count of a window", 1, MAX_LISTED_WINDOWS))
        if not isinstance(self.unit, str) or self.unit not in (*LENGTH, *MONTHS):
            raise ValueError(
                f"the unit of a window must be one of {', '.join((*LENGTH, *MONTHS))}; got {shown(self.unit)}"
            )
        object.__setattr__(self, "timezone", check_timezone(self.timezone))
        if self.length > _MAX_LENGTH:
            raise ValueError(f"the size of a window must be at most 9,000 years; got {self.count}{self.unit}")
        self._check_offset()

    def _check_offset(self) -> None:
        """Raise ``ValueError`` unless the offset is at least 0 and shorter than a window. Here, a month counts as 28
        days.
        """
        shortest = self.period.shortest
        if not is_whole(self.offset) or not 0 <= self.offset < shortest:
            month_hint = f", less than {duration_text(shortest)} (28 days per month, as in February)"
            fits_int64 = is_whole(self.offset) and abs(int(self.offset)) < 2**63
            offset_text = duration_text(int(self.offset)) if fits_int64 else shown(self.offset)
            raise ValueError(
                f"the offset of windows of {self.count}{self.unit} must be at least 0 and shorter than the windows"
                f"{month_hint if shortest < self.length else ''}; got {offset_text}"
            )
        object.__setattr__(self, "offset", int(self.offset))

    @cached_property
    def period(self) -> Period:
        """The `Period` with the same count, unit and offset. It describes these windows on a clock whose UTC offset
        never changes.
        """
        return period(self.count, self.unit, self.offset)

    @property
    def name(self) -> str:
        size = f"{self.count}{self.unit}"
        return f"tumbling({size}, offset={duration_text(self.offset)})" if self.offset else size

    @property
    def length(self) -> float:
        return self.period.length

    @property
    def resolution(self) -> str:
        if not self.offset:
            return self.unit
        if self.unit not in LENGTH:
            return longest_unit(self.offset)
        return longest_unit(math.gcd(self.offset, self.period.size))

    def assign(self, times: Instants) -> Intervals:
        count = len(checked_instants(times, "times"))
        return Intervals(np.arange(count), self._edges(times, 0), self._edges(times, 1))

    def starts(self, times: Instants) -> Instants:
        return self._edges(checked_instants(times, "times"), 0)

    def ends(self, starts: Instants) -> Instants:
        return self._edges(checked_instants(starts, "starts"), 1)

    def _edges(self, times: Instants, after: int) -> Instants:
        """Return the start of the window that contains each time, or the start of the following window if ``after`` is
        1. All times are in microseconds UTC.
        """
        if not len(times):
            return times
        zone = self._clock(times)
        if len(zone.since) == 1:  # All times have the same UTC offset.
            return self.period.edges(times, int(zone.offsets[0]), after)
        index = self.period.index(zone.latest_local_time(times)) + after
        first = int(index.min())
        last = int(index.max())
        if last - first > len(index):
            return zone.first_instant_showing(self.period.local_start(index))
        return zone.first_instant_showing(self.period.local_start(np.arange(first, last + 1)))[index - first]

    def numbering(self, low: int, high: int, margin: int = 0) -> WindowNumbering:
        """Return consecutive numbers for the windows around a range of time.

        Parameters
        ----------
        low, high : int
            The range ``[low, high]``, microseconds UTC.
        margin : int
            The time in microseconds by which the range is extended on both sides.

        Returns
        -------
        WindowNumbering

        Raises
        ------
        ValueError
            If the range has instants before the year 2 or after the year 9998.
        """
        zone = self._clock(np.array([low, high]), margin)
        before, after = (self.period.index(zone.latest_local_time(zone.since[1:] - early)) for early in (1, 0))
        skipped_per_change = np.maximum(after - before - 1, 0)
        has_gap = skipped_per_change > 0
        gaps = zone.since[1:][has_gap]
        return WindowNumbering(self.period, zone, gaps, np.append(0, np.cumsum(skipped_per_change[has_gap])))

    def _clock(self, times: Instants, margin: int = 0) -> Clock:
        """Return the zone's clock from the first of ``times`` to the last, extended on both sides by ``margin``
        microseconds and the length of at least two windows. Changes of the UTC offset that do not affect the windows
        are left out.
        """
        margin += 2 * int(self.length) + 3 * DAY
        zone = clock(self.timezone, int(times.min()), int(times.max()), margin)
        if len(zone.since) == 1:  # The UTC offset does not change.
            return zone
        size = self.period.shortest
        return zone.without_whole_shifts(size, self.offset) if size < DAY else zone

    def __repr__(self) -> str:
        zone_text = "" if self.timezone == "UTC" else f", {self.timezone!r}"
        return f"Tumbling({f'{self.count}{self.unit}'!r}{zone_text}{offset_shown(self.offset)})"


@dataclass(frozen=True)
class WindowNumbering:
    """Consecutive numbers of the windows of one size near a range of time.

    Numbers from different objects cannot be compared. ``gaps`` contains the instants at which the clock jumps over
    complete windows. Such windows do not have numbers. ``skipped[i]`` is the number of windows over which the clock
    jumps at the first ``i`` gaps.
    """

    period: Period
    zone: Clock
    gaps: Instants
    skipped: Instants

    def number_of(self, times: Instants) -> Instants:
        """Return the number of the window that contains each time. ``times`` are in microseconds UTC."""
        index = self.period.index(self.zone.latest_local_time(times))
        return index - self.skipped[np.searchsorted(self.gaps, times, side="right")]

    def starts(self, numbers: Instants) -> Instants:
        """Return the start of each window in microseconds UTC. ``numbers`` has the numbers of the windows."""
        segment = np.searchsorted(self.number_of(self.gaps), numbers, side="right")
        return self.zone.first_instant_showing(self.period.local_start(numbers + self.skipped[segment]))


def window(size: str | Tumbling, timezone: str = "UTC", offset: str | None = None) -> Tumbling:
    """Return tumbling windows of a size such as ``500ms``, ``10s``, ``1m``, ``6h``, ``1d``, ``1w``, ``1mo``, ``1q``,
    ``1y``.

    Parameters
    ----------
    size : str
        An integer of at least 1 and a unit, as a letter or a word (``1 hour``). The number 1 may be omitted. ``m`` is a
        minute, ``mo`` a month.
    timezone : str
        An IANA name.
    offset : str, optional
        The time from each multiple of the size on the zone's clock to the start of a window; shorter than the size.
        Windows of ``1d`` with the offset ``6h`` begin at six o'clock.

    Returns
    -------
    Tumbling

    Raises
    ------
    ValueError
        If size or offset cannot be read, or the zone is unknown.

    Examples
    --------
    >>> window("2 hours").name, window("1d", offset="6h").name
    ('2h', 'tumbling(1d, offset=6h)')
    """
    check_timezone(timezone)
    shift = 0 if offset is None else read_duration(offset, "offset")
    if isinstance(size, Tumbling):
        return Tumbling(size.count, size.unit, timezone, size.offset if offset is None else shift)
    if isinstance(size, str):
        return _read_size(size, timezone, shift)
    raise _unreadable_size_error(size)


@lru_cache(maxsize=256)  # cached, because queries read the texts of their windows several times
def _read_size(size: str, timezone: str, shift: int) -> Tumbling:
    """Return the windows of a size such as ``10s``, with an offset of ``shift`` microseconds."""
    parts = number_and_unit(size)
    if parts is None or parts[1] not in UNITS or not 1 <= parts[0] <= _MAX_COUNT:
        raise _unreadable_size_error(size)
    return Tumbling(parts[0], UNITS[parts[1]], timezone, shift)


def _unreadable_size_error(size: object) -> ValueError:
    """Return the error for a value that is not the size of a window."""
    whole_size = _in_whole_units(size)
    hint = "" if whole_size is None else f"; {shown(size)} is {whole_size}"
    return ValueError(
        f"cannot read {shown(size)} as a window; write a whole number and one of us, ms, s, m, h, d, w, mo, q, y, "
        f"such as '10s', '500ms', '1h' or '1mo'{hint}"
    )


def _in_whole_units(size: object) -> str | None:
    """Return a size that has a fraction, such as ``1.5 s``, as a whole number of a smaller unit: ``'1500ms'``. Return
    None for all other values, and if there is no such unit.
    """
    if not isinstance(size, str):
        return None
    match = re.fullmatch(r"\s*([0-9]{1,6})\.([0-9]{1,6})\s*([a-z]+)\s*", size, re.ASCII)
    length = None if match is None else LENGTH.get(UNITS.get(match[3], ""))
    if match is None or length is None:
        return None
    scaled = int(match[1] + match[2]) * length
    micros, remainder = divmod(scaled, 10 ** len(match[2]))
    return repr(duration_text(micros)) if micros and not remainder else None
