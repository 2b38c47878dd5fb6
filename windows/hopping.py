"""Hopping windows: of one size, beginning at every aligned start of a shorter one, so that they overlap.

Rows are kept per *pane*, the longest window that both size and hop are whole multiples of, and a hopping window
is made by merging its panes. It has as many in every place, ``size / pane`` in a row, and over a setting of the
clock it has what they have: 24 hours from midnight, hopping by the hour, end at 23:00 on the day that is 25 hours
long. Only where the clock goes back and a hop follows it (see `windows.aligned`), a window may have more: it lasts at
least until the next one begins. So every row lies in one window or in several.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from windows.aligned import LENGTH, MONTHS, Numbering, Window, window
from windows.zone import DAY, Instants

_MOST_PANES = 100_000


@dataclass(frozen=True)
class Hopping:
    """A size of window and a hop, in a time zone.

    Parameters
    ----------
    size : Window
        How long a window is.
    hop : Window
        A window begins at every start of these; no longer than the size, and in the same zone.

    Raises
    ------
    ValueError
        If size and hop do not go together.

    Examples
    --------
    >>> hours = hopping("1h", "25m")
    >>> hours.pane, hours.panes
    (Window('5m'), 12)
    """

    size: Window
    hop: Window

    def __post_init__(self) -> None:
        """Check that every window is a number of panes, and that no row falls between two."""
        size, hop = self.size, self.hop
        if size.timezone != hop.timezone:
            raise ValueError(f"size and hop must be of one time zone; got {size.timezone!r} and {hop.timezone!r}")
        if (size.unit in MONTHS) != (hop.unit in MONTHS):
            raise ValueError(
                f"windows of {size.name} cannot hop by {hop.name}: a month is no fixed number of days; give both in "
                "months, quarters and years, such as hopping(1y, 1mo), or both in weeks and shorter units, such as "
                "hopping(30d, 1d)"
            )
        if hop.sort_key > size.sort_key:
            raise ValueError(
                f"windows of {size.name} cannot hop by {hop.name}: rows between two windows would be lost; "
                "the hop must be no longer than the size"
            )
        if self.panes > _MOST_PANES:
            raise ValueError(
                f"windows of {size.name} that hop by {hop.name} are made of {self.panes:,} panes of {self.pane.name} "
                f"each, and at most {_MOST_PANES:,} are allowed; take a hop of which the size is fewer"
            )

    @property
    def name(self) -> str:
        """What `read_hopping` reads, ``hopping(1h, 10m)``."""
        return f"hopping({self.size.name}, {self.hop.name})"

    @property
    def timezone(self) -> str:
        """The zone of size and hop, an IANA name."""
        return self.hop.timezone

    @cached_property
    def pane(self) -> Window:
        """The longest window that both size and hop are whole multiples of, and that every hop begins with."""
        if self.hop.unit in MONTHS:
            length = math.gcd(*(w.count * MONTHS[w.unit] for w in (self.size, self.hop)))
            return _longest_unit(length, MONTHS, self.timezone)
        length = math.gcd(*(w.count * LENGTH[w.unit] for w in (self.size, self.hop)))
        weeks = self.hop.unit == "w"  # they begin on Mondays: made of weeks, or of what a day is made of
        if weeks and length % LENGTH["w"] == 0:
            return Window(length // LENGTH["w"], "w", self.timezone)
        length = math.gcd(length, DAY) if weeks else length
        return _longest_unit(length, {unit: LENGTH[unit] for unit in "smhd"}, self.timezone)

    @cached_property
    def panes(self) -> int:
        """How many panes make a window."""
        units = MONTHS if self.hop.unit in MONTHS else LENGTH
        return self.size.count * units[self.size.unit] // (self.pane.count * units[self.pane.unit])

    @property
    def sort_key(self) -> tuple[float, float]:
        """The lengths of size and hop in microseconds, months counted as 30 days; to compare by."""
        return self.size.sort_key, self.hop.sort_key

    def made_of(self, level: Window) -> bool:
        """Say whether every window is made of whole windows of a level."""
        return level.nests_in(self.pane)

    def starts_of(self, panes: Instants) -> tuple[NDArray[np.int64], Instants]:
        """Find the windows that have each pane.

        Parameters
        ----------
        panes : array of int64
            Starts of panes, microseconds UTC, in any order.

        Returns
        -------
        indices : array of int64
            Into ``panes``, in order: one entry for each window that a pane belongs to.
        starts : array of int64
            Where that window begins, microseconds UTC; ascending for each pane.

        Examples
        --------
        >>> indices, starts = hopping("1h", "30m").starts_of(np.array([0, 1_800_000_000]))
        >>> indices.tolist(), (starts // 60_000_000).tolist()
        ([0, 0, 1, 1], [-30, 0, 0, 30])
        """
        if not len(panes):
            return np.array([], np.int64), panes
        pane, hop = self._numberings(panes)
        last = hop.of(panes)
        first = np.minimum(hop.of(pane.starts(pane.of(panes) - self.panes + 1) - 1) + 1, last)
        times = last - first + 1
        indices = np.repeat(np.arange(len(panes)), times)
        place = np.arange(len(indices)) - np.repeat(np.cumsum(times) - times, times)
        return indices, hop.starts(np.repeat(first, times) + place)

    def ends(self, starts: Instants) -> Instants:
        """Find where the windows that begin at ``starts`` end, exclusive; microseconds UTC."""
        if not len(starts):
            return starts
        pane, hop = self._numberings(starts)
        ends: Instants = np.maximum(pane.starts(pane.of(starts) + self.panes), hop.starts(hop.of(starts) + 1))
        return ends

    def between(self, start: int, end: int) -> Instants:
        """List the windows that begin in ``[start, end)``, as `Window.between` does."""
        return self.hop.between(start, end)

    def first_from(self, at: int) -> int:
        """Find where the first window begins that does not begin before ``at``, microseconds UTC."""
        numbers = self.hop.numbering(at, at)
        return int(numbers.starts(numbers.of(np.array([at - 1])) + 1)[0])

    def _numberings(self, times: Instants) -> tuple[Numbering, Numbering]:
        """Number panes and hops, from a window before the times to one after them."""
        reach = int(self.size.sort_key)
        reach += reach // 50  # a year is longer than 360 days, and so are 12,000 windows of 1h where one takes two
        low, high = int(times.min()), int(times.max())
        return self.pane.numbering(low, high, reach), self.hop.numbering(low, high, reach)

    def __repr__(self) -> str:
        """Write it as short as it reads back."""
        zoned = "" if self.timezone == "UTC" else f", {self.timezone!r}"
        return f"Hopping({self.size.name!r}, {self.hop.name!r}{zoned})"


def hopping(size: str | Window, hop: str | Window, timezone: str = "UTC") -> Hopping:
    """Read hopping windows: a window of ``size`` begins at every aligned start of ``hop``.

    Parameters
    ----------
    size : str or Window
        As `window` reads it. As long as the hop makes windows that do not overlap, those of `window`.
    hop : str or Window
        No longer than the size; both in months, quarters and years, or both in weeks and shorter units.
    timezone : str
        An IANA name, for what is text; a `Window` has its own, and must have the same.

    Raises
    ------
    ValueError
        If size or hop cannot be read, or do not go together.

    Examples
    --------
    >>> hopping("1 week", "1d", "Europe/Paris")
    Hopping('1w', '1d', 'Europe/Paris')
    """
    read = (w if isinstance(w, Window) else window(w, timezone) for w in (size, hop))
    return Hopping(*read)


def read_hopping(text: str, timezone: str = "UTC") -> Hopping:
    """Read hopping windows by their name.

    Parameters
    ----------
    text : str
        ``hopping(SIZE, HOP)``.
    timezone : str
        An IANA name.

    Raises
    ------
    ValueError
        If it cannot be read, or size and hop do not go together.

    Examples
    --------
    >>> read_hopping("hopping(1 hour, 10m)").name
    'hopping(1h, 10m)'
    """
    match = re.fullmatch(r"\s*hopping\s*\(([^,()]*),([^,()]*)\)\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"cannot read {text!r} as hopping windows; write hopping(SIZE, HOP), such as hopping(1h, 10m)")
    return hopping(match[1], match[2], timezone)


def _longest_unit(length: int, units: dict[str, int], timezone: str) -> Window:
    """Write a length in the longest unit that divides it; ``units`` from short to long."""
    unit = [unit for unit, of_unit in units.items() if length % of_unit == 0][-1]
    return Window(length // units[unit], unit, timezone)
