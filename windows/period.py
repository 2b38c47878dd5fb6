"""Periods: how windows of one size follow each other on a clock that is never put forward or back.

They are counted from 1970 on: `Period.index` finds the number of the window that a local time lies in, `Period.local`
the local time at which such a window begins. Fixed lengths and months are the two kinds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from aggr.duration import DAY, LENGTH, MONTHS, SHORTEST_MONTH
from windows.timezone import Instants

_MONDAY = 4 * DAY  # the first Monday of 1970


@dataclass(frozen=True)
class Period(ABC):
    """A number of units, and how long after the aligned starts windows begin: microseconds."""

    count: int
    unit: str
    offset: int

    units: ClassVar[dict[str, int]]  # from short to long

    @property
    def size(self) -> int:
        """The size in microseconds or in months."""
        return self.count * self.units[self.unit]

    @property
    @abstractmethod
    def length(self) -> float:
        """About how long a window is, in microseconds; a month counts as 30 days."""

    @property
    def shortest(self) -> int:
        """How long a window is at least, in microseconds."""
        return int(self.length)

    @abstractmethod
    def index(self, local: Instants) -> Instants:
        """Number the windows of local times."""

    @abstractmethod
    def local(self, index: Instants) -> Instants:
        """Find the local times at which windows of these numbers begin."""

    def edges(self, times: Instants, ahead: int, after: int) -> Instants:
        """Find where the windows of times begin on a clock ``ahead`` of UTC, or with ``after`` 1 the next ones."""
        return self.local(self.index(times + ahead) + after) - ahead

    def common(self, other: Period) -> Self | None:
        """Find the longest period that both are whole multiples of, and that begins wherever this one does."""
        return self._of(math.gcd(self.size, other.size)) if type(other) is type(self) else None

    def _of(self, size: int) -> Self:
        unit = [unit for unit, length in self.units.items() if size % length == 0][-1]
        return type(self)(size // self.units[unit], unit, self.offset)


@dataclass(frozen=True)
class Fixed(Period):
    """A length of time."""

    units: ClassVar = LENGTH

    @property
    def length(self) -> float:
        return float(self.size)

    @property
    def shift(self) -> int:
        """The local time at which the first window of 1970 begins; weeks begin on Mondays."""
        return self.offset + (_MONDAY if self.unit == "w" else 0)

    def index(self, local: Instants) -> Instants:
        return (local - self.shift) // self.size

    def local(self, index: Instants) -> Instants:
        return index * self.size + self.shift

    def edges(self, times: Instants, ahead: int, after: int) -> Instants:
        shift = self.shift - ahead  # in as few passes as it takes: there may be a million times
        edges: Instants = (times - shift if shift else times) // self.size
        edges *= self.size
        shift += self.size * after
        return edges + shift if shift else edges

    def _of(self, size: int) -> Fixed:
        weeks = self.unit == "w"  # made of weeks, or of what a day is made of
        if weeks and size % self.units["w"] == 0:
            return Fixed(size // self.units["w"], "w", self.offset)
        size = math.gcd(size, DAY) if weeks else size
        unit = [unit for unit in "smhd" if size % self.units[unit] == 0][-1]
        return Fixed(size // self.units[unit], unit, self.offset % size)


@dataclass(frozen=True)
class Months(Period):
    """A number of months."""

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

    def local(self, index: Instants) -> Instants:
        months = (index * self.size).astype("datetime64[M]")
        local: Instants = months.astype("datetime64[us]").astype(np.int64)
        return local + self.offset


def period(count: int, unit: str, offset: int = 0) -> Period:
    """Make a period of a number of units ``s m h d w mo q y``."""
    return (Months if unit in MONTHS else Fixed)(count, unit, offset)
