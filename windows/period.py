"""Periods: windows of one size on a clock that never changes its UTC offset.

The windows are numbered; the window with the number 0 begins at or near the start of 1970. `Period.index` returns the
number of the window that contains a local time, and `Period.local_start` the local time at which a window begins. A
period is either a fixed length or a number of months.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from aggr.duration import DAY, LENGTH, MONTHS, SHORTEST_MONTH, longest_unit
from windows.timezone import Instants

_MONDAY = 4 * DAY  # the first Monday of 1970, in microseconds since 1970-01-01


@dataclass(frozen=True)
class Period(ABC):
    """Windows of ``count`` units. Each window begins ``offset`` microseconds after a multiple of the size."""

    count: int
    unit: str
    offset: int

    units: ClassVar[dict[str, int]]  # unit → length in microseconds (`Fixed`) or months (`Months`), from the shortest

    @property
    def size(self) -> int:
        """The size, in microseconds for `Fixed` and in months for `Months`."""
        return self.count * self.units[self.unit]

    @property
    @abstractmethod
    def length(self) -> float:
        """The approximate length of a window, in microseconds; a month counts as 30 days."""

    @property
    def shortest(self) -> int:
        """The minimum length of a window, in microseconds."""
        return int(self.length)

    @abstractmethod
    def index(self, local: Instants) -> Instants:
        """Return the number of the window that contains each local time. ``local`` is in microseconds."""

    @abstractmethod
    def local_start(self, index: Instants) -> Instants:
        """Return the local time at which each window begins, in microseconds. ``index`` has the numbers of the
        windows.
        """

    def edges(self, times: Instants, utc_offset: int, after: int) -> Instants:
        """Return the start of the window that contains each time, or the start of the following window if ``after`` is
        1.

        Times and starts are in microseconds UTC. The local time is ``utc_offset`` microseconds ahead of UTC.
        """
        return self.local_start(self.index(times + utc_offset) + after) - utc_offset

    def longest_common(self, other: Period) -> Self | None:
        """Return the longest period whose size divides the sizes of this period and of ``other``. Each instant at which
        a window of this period begins is also the start of a window of the returned period. Return None if only one of
        the two periods is in months.
        """
        return self._with_size(math.gcd(self.size, other.size)) if type(other) is type(self) else None

    def _with_size(self, size: int) -> Self:
        """Return a period with the same offset and another size, in the longest unit that divides the size."""
        unit = [unit for unit, length in self.units.items() if size % length == 0][-1]
        return type(self)(size // self.units[unit], unit, self.offset)


@dataclass(frozen=True)
class Fixed(Period):
    """Windows of a fixed length."""

    units: ClassVar = LENGTH

    @property
    def length(self) -> float:
        return float(self.size)

    @property
    def shift(self) -> int:
        """The local time at which the window with the number 0 begins, in microseconds since 1970-01-01. Windows of
        weeks begin on a Monday.
        """
        return self.offset + (_MONDAY if self.unit == "w" else 0)

    def index(self, local: Instants) -> Instants:
        return (local - self.shift) // self.size

    def local_start(self, index: Instants) -> Instants:
        return index * self.size + self.shift

    def edges(self, times: Instants, utc_offset: int, after: int) -> Instants:
        # The shift and the UTC offset are combined into one number first, so that only one subtraction processes all
        # elements of ``times``, which may be a million.
        shift = self.shift - utc_offset
        edges: Instants = (times - shift if shift else times) // self.size
        edges *= self.size
        shift += self.size * after
        return edges + shift if shift else edges

    def _with_size(self, size: int) -> Fixed:
        # Weeks begin on Mondays. The start of each week is also the start of a window of the new size only if the new
        # size is a number of weeks, or if a day is a multiple of the new size.
        is_weekly = self.unit == "w"
        if is_weekly and size % self.units["w"] == 0:
            return Fixed(size // self.units["w"], "w", self.offset)
        size = math.gcd(size, DAY) if is_weekly else size
        unit = longest_unit(size)
        return Fixed(size // self.units[unit], unit, self.offset % size)


@dataclass(frozen=True)
class Months(Period):
    """Windows of a number of months."""

    units: ClassVar = MONTHS

    @property
    def length(self) -> float:
        return self.size * 30.0 * DAY

    @property
    def shortest(self) -> int:
        return self.size * SHORTEST_MONTH

    def index(self, local: Instants) -> Instants:
        months = (local - self.offset).astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        return months // self.size

    def local_start(self, index: Instants) -> Instants:
        months = (index * self.size).astype("datetime64[M]")
        local: Instants = months.astype("datetime64[us]").astype(np.int64)
        return local + self.offset


def period(count: int, unit: str, offset: int = 0) -> Period:
    """Return windows of ``count`` units on a clock that never changes its UTC offset. The units are ``us ms s m h d w
    mo q y``.
    """
    return (Months if unit in MONTHS else Fixed)(count, unit, offset)
