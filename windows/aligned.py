"""Aligned windows: half-open ``[start, end)``, a pure function of the time, in any time zone.

A window starts at the first instant at which the zone's clock reaches a multiple of its size: an hour, a
midnight, the first of a month. Two cases need saying, both at settings of the clock:

- Windows that the setting is a whole multiple of (an hour where the clock goes back an hour) stay as long as
  they are: the repeated hour is a window of its own.
- All others follow the clock: the day on which the clock goes back is 25 hours long, the 6 hours from midnight
  are 7.

So the windows of one size never overlap, leave no gap, and every coarse window is made of whole finer ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from windows.zone import DAY, SECOND, Clock, Instants, clock, zone

_NAMES = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
    "mo": ("mo", "mon", "month", "months"),
    "q": ("q", "quarter", "quarters"),
    "y": ("y", "yr", "year", "years"),
}
_UNITS = {alias: unit for unit, aliases in _NAMES.items() for alias in aliases}
LENGTH = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
_MONDAY = 4 * DAY  # the first Monday of 1970
_MOST = 10_000_000


@dataclass(frozen=True)
class Window:
    """A size of window in a time zone.

    Parameters
    ----------
    count : int
        How many units long, at least 1.
    unit : str
        ``s m h d w mo q y``: second, minute, hour, day, week (from Monday), month, quarter, year.
    timezone : str
        An IANA name.

    Examples
    --------
    >>> window("10m"), window("1 month", "Europe/Paris")
    (Window('10m'), Window('1mo', 'Europe/Paris'))
    """

    count: int
    unit: str
    timezone: str = "UTC"

    @property
    def name(self) -> str:
        """The short name, ``10m``."""
        return f"{self.count}{self.unit}"

    def starts(self, times: Instants) -> Instants:
        """Find the start of the window that each time falls into.

        Parameters
        ----------
        times : array of int64
            Microseconds since 1970-01-01 UTC.

        Returns
        -------
        array of int64, microseconds UTC, of the same shape
        """
        if not len(times):
            return times
        hand = self._clock(times)
        if len(hand.since) == 1:  # the clock is never set: plain arithmetic
            starts: Instants = self._local(self._index(times + hand.offsets[0])) - hand.offsets[0]
            return starts
        return hand.first(self._local(self._index(hand.reached(times))))

    def ends(self, starts: Instants) -> Instants:
        """Find where the windows that begin at ``starts`` end, exclusive; microseconds UTC."""
        if not len(starts):
            return starts
        hand = self._clock(starts)
        return hand.first(self._local(self._index(hand.reached(starts)) + 1))

    def between(self, start: int, end: int) -> Instants:
        """List the windows that begin in ``[start, end)``, microseconds UTC, by their starts in order.

        Raises
        ------
        ValueError
            If they are more than ten million.

        Examples
        --------
        >>> window("6h").between(1, 86_400_000_000) // 3_600_000_000
        array([ 6, 12, 18])
        """
        if end <= start:
            return np.array([], np.int64)
        numbers = self.numbering(start, end - 1)
        first, last = numbers.of(np.array([start - 1, end - 1])).tolist()
        if last - first > _MOST:
            raise ValueError(
                f"{last - first:,} windows of {self.name} begin in the range, and at most {_MOST:,} can be listed; "
                "take a shorter range or longer windows"
            )
        return numbers.starts(np.arange(first + 1, last + 1))

    def numbering(self, low: int, high: int, margin: int = 0) -> Numbering:
        """Number the windows around the instants ``low`` … ``high``, and a margin on either side, in order."""
        hand = self._clock(np.array([low, high]), margin)
        before, after = (self._index(hand.reached(hand.since[1:] - early)) for early in (1, 0))
        skipped = np.maximum(after - before - 1, 0)
        leaps = skipped > 0
        return Numbering(self, hand, hand.since[1:][leaps], np.append(0, np.cumsum(skipped[leaps])))

    def nests_in(self, coarser: Window) -> bool:
        """Say whether every window of a coarser size is made of whole windows of this one."""
        if self.timezone != coarser.timezone:
            return False
        if coarser.unit in MONTHS:
            months = coarser.count * MONTHS[coarser.unit]
            if self.unit in MONTHS:
                return months % (self.count * MONTHS[self.unit]) == 0
            return self.unit != "w" and DAY % self._length == 0
        if self.unit in MONTHS:
            return False
        if (self.unit == "w") == (coarser.unit == "w"):
            return coarser._length % self._length == 0
        return coarser.unit == "w" and DAY % self._length == 0

    @property
    def _length(self) -> int:
        return self.count * LENGTH[self.unit]

    @property
    def sort_key(self) -> float:
        """The length in microseconds, months counted as 30 days; to compare sizes by."""
        return self.count * (LENGTH[self.unit] if self.unit in LENGTH else MONTHS[self.unit] * 30.0 * DAY)

    def _clock(self, times: Instants, margin: int = 0) -> Clock:
        margin += 2 * int(self.sort_key) + 3 * DAY
        hand = clock(self.timezone, int(times.min()), int(times.max()), margin)
        return hand.elapsed(self._length) if self.unit in LENGTH and self._length < DAY else hand

    def _index(self, local: Instants) -> Instants:
        """Count the windows that a clock which is never set has shown by a local time."""
        if self.unit in MONTHS:
            months = local.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
            index: Instants = months // (self.count * MONTHS[self.unit])
            return index
        return (local - self._shift) // self._length

    def _local(self, index: Instants) -> Instants:
        """Find the local time at which such a window begins."""
        if self.unit in MONTHS:
            months = (index * (self.count * MONTHS[self.unit])).astype("datetime64[M]")
            local: Instants = months.astype("datetime64[us]").astype(np.int64)
            return local
        return index * self._length + self._shift

    @property
    def _shift(self) -> int:
        return _MONDAY if self.unit == "w" else 0

    def __repr__(self) -> str:
        """Write it as short as it reads back."""
        return f"Window({self.name!r}{'' if self.timezone == 'UTC' else f', {self.timezone!r}'})"


@dataclass(frozen=True)
class Numbering:
    """The windows of one size numbered in order, one after the other, over a span of years.

    Numbers of two numberings have nothing to do with each other.
    """

    size: Window
    hand: Clock
    leaps: Instants  # where the clock jumps over whole windows, which are none and have no number
    skipped: Instants  # how many it has jumped over, before and after each leap

    def of(self, times: Instants) -> Instants:
        """Find the number of the window that each time falls into."""
        index = self.size._index(self.hand.reached(times))
        numbers: Instants = index - self.skipped[np.searchsorted(self.leaps, times, side="right")]
        return numbers

    def starts(self, numbers: Instants) -> Instants:
        """Find where the windows of these numbers begin, microseconds UTC."""
        segment = np.searchsorted(self.of(self.leaps), numbers, side="right")
        return self.hand.first(self.size._local(numbers + self.skipped[segment]))


def window(size: str | Window, timezone: str = "UTC") -> Window:
    """Read a size of window: ``10s``, ``1m``, ``6h``, ``1d``, ``1w``, ``1mo``, ``1q``, ``1y``, ``1 hour``, ``day``.

    Parameters
    ----------
    size : str
        A whole number from 1, or nothing for 1, and a unit. ``m`` is a minute, ``mo`` a month.
    timezone : str
        An IANA name.

    Raises
    ------
    ValueError
        If the size cannot be read or the zone is unknown.

    Examples
    --------
    >>> window("2 hours").name
    '2h'
    """
    zone(timezone)
    if isinstance(size, Window):
        return Window(size.count, size.unit, timezone)
    match = re.fullmatch(r"\s*(\d*)\s*([a-z]+)\s*", size) if isinstance(size, str) else None
    if match is None or match[2] not in _UNITS or (match[1] and not 1 <= int(match[1]) <= 100_000):
        raise ValueError(
            f"cannot read {size!r} as a window; write a whole number and one of s, m, h, d, w, mo, q, y, "
            "such as '10s', '1h' or '1mo'"
        )
    return Window(int(match[1] or 1), _UNITS[match[2]], timezone)
