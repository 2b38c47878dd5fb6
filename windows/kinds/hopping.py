"""Hopping windows: overlapping windows of one size. A window begins at the start of every hop; the hop is the distance
between the starts of windows.

Rows are first reduced to *panes*. A pane is the longest window that divides both the size and the hop. The state of a
hopping window is merged from ``size / pane`` consecutive panes, also if the clock changes within the window: on a day
of 25 hours, a window of 24 hours from midnight with a hop of an hour ends at 23:00. There is one exception. A window
never ends before the next one begins, so that every row lies in a window. If the clock goes back and the hop follows
the clock (see `tumbling`), a window may therefore have more panes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from aggr.arguments import checked_type
from aggr.duration import duration_text, offset_shown
from windows.contract import MAX_LISTED_WINDOWS, Intervals, Numbered, TimeWindow
from windows.kinds.tumbling import Tumbling, WindowNumbering, window
from windows.timezone import Instants, check_timezone, checked_instants

_MAX_PANES = 100_000  # the maximum number of panes per window; a larger number is probably a mistake


@dataclass(frozen=True)
class Hopping(TimeWindow):
    """Overlapping windows of one size. A window begins at the start of every hop, on the clock of a time zone.

    Parameters
    ----------
    size : Tumbling
        The length of a window, without offset.
    hop : Tumbling
        The distance between the starts of windows. It is at most the size, and has the same time zone.

    Raises
    ------
    ValueError
        If size and hop cannot be combined.

    Examples
    --------
    >>> hours = hopping("1h", "25m")
    >>> hours.pane, hours.panes
    (Tumbling('5m'), 12)
    """

    size: Tumbling
    hop: Tumbling

    same_in_all_years: ClassVar[bool] = True

    def __post_init__(self) -> None:
        size = checked_type(self.size, Tumbling, "the size of hopping windows", ", such as window('1h')")
        hop = checked_type(self.hop, Tumbling, "the hop of hopping windows", ", such as window('10m')")
        if size.timezone != hop.timezone:
            raise ValueError(f"size and hop must be of one time zone; got {size.timezone!r} and {hop.timezone!r}")
        if hop.period.longest_common(size.period) is None:
            raise ValueError(
                f"windows of {size.name} cannot hop by {hop.name}: a month does not have a fixed number of "
                "days; write both in months, quarters and years, such as hopping(1y, 1mo), or both in weeks and "
                "shorter "
                "units, such as hopping(30d, 1d)"
            )
        if size.offset:
            raise ValueError(
                f"the size {size.name} cannot have an offset; the hop says where windows begin, so pass "
                "offset= to hopping"
            )
        if hop.length > size.length:
            raise ValueError(
                f"windows of {size.name} cannot hop by {hop.name}: rows between two windows would be lost; "
                "the hop must be no longer than the size"
            )
        if self.panes > _MAX_PANES:
            raise ValueError(
                f"windows of {size.name} that hop by {hop.name} are made of {self.panes:,} panes of {self.pane.name} "
                f"each, and at most {_MAX_PANES:,} are allowed; use a longer hop or a shorter size"
            )

    @property
    def name(self) -> str:
        offset = f", offset={duration_text(self.hop.offset)}" if self.hop.offset else ""
        return f"hopping({self.size.name}, {self.hop.count}{self.hop.unit}{offset})"

    @property
    def timezone(self) -> str:
        return self.hop.timezone

    @cached_property
    def pane(self) -> Tumbling:
        period = self.hop.period.longest_common(self.size.period)
        assert period is not None  # `__post_init__` has checked that the size and the hop have a common period
        return Tumbling(period.count, period.unit, self.timezone, period.offset)

    @cached_property
    def panes(self) -> int:
        """The number of panes of a window."""
        return self.size.period.size // self.pane.period.size

    @property
    def length(self) -> float:
        return self.size.length

    @property
    def sort_key(self) -> tuple[float, float]:
        return self.size.length, self.hop.length

    @property
    def max_overlap(self) -> int:
        return math.ceil(self.size.length / self.hop.length)

    @property
    def resolution(self) -> str:
        return self.hop.resolution

    def assign(self, times: Instants) -> Intervals:
        """Return the windows that contain each time. The windows of each time are in ascending order.

        >>> rows, starts, ends = hopping("1h", "30m").assign(np.array([0, 1_800_000_000]))
        >>> rows.tolist(), (starts // 60_000_000).tolist(), (ends // 60_000_000).tolist()
        ([0, 0, 1, 1], [-30, 0, 0, 30], [30, 60, 60, 90])
        """
        if not len(checked_instants(times, "times")):
            return Intervals(np.array([], np.int64), times, times)
        first, last, bounds = self.numbered(times)
        count = last - first + 1
        total = int(count.sum())
        if total > MAX_LISTED_WINDOWS:
            raise ValueError(
                f"{len(times):,} times lie in {total:,} windows of {self.name}, and at most {MAX_LISTED_WINDOWS:,} can "
                "be listed; pass fewer times, or use a longer hop"
            )
        rows = np.repeat(np.arange(len(times)), count)
        numbers = np.repeat(first, count) + np.arange(total) - np.repeat(np.cumsum(count) - count, count)
        low = int(first.min())
        high = int(last.max())
        if high - low >= 2 * total:
            return Intervals(rows, *bounds(numbers))
        all_starts, all_ends = bounds(np.arange(low, high + 1))
        return Intervals(rows, all_starts[numbers - low], all_ends[numbers - low])

    def numbered(self, times: Instants) -> Numbered:
        pane, hop = self._number_panes_and_hops(times)
        last = hop.number_of(times)
        first = np.minimum(hop.number_of(pane.starts(pane.number_of(times) - self.panes + 1) - 1) + 1, last)

        def bounds(numbers: Instants) -> tuple[Instants, Instants]:
            starts = hop.starts(numbers)
            return starts, _window_ends(starts, pane=pane, hop=hop, panes=self.panes)

        return Numbered(first, last, bounds)

    def starts(self, times: Instants) -> Instants:
        return self.hop.starts(times)

    def ends(self, starts: Instants) -> Instants:
        if not len(checked_instants(starts, "starts")):
            return starts
        pane, hop = self._number_panes_and_hops(starts)
        return _window_ends(starts, pane=pane, hop=hop, panes=self.panes)

    def starts_between(self, start: int, end: int) -> Instants:
        return self.hop.starts_between(start, end)

    def first_start_from(self, at: int) -> int:
        return self.hop.first_start_from(at)

    def _number_panes_and_hops(self, times: Instants) -> tuple[WindowNumbering, WindowNumbering]:
        """Return two objects: one numbers the panes near ``times``, and the other numbers the hops."""
        margin = int(self.size.length)
        # The margin is 2 % longer than `length`, because `length` counts a month as 30 days, and a year is up to 1.7 %
        # longer than 12 months of 30 days.
        margin += margin // 50
        low = int(times.min())
        high = int(times.max())
        return self.pane.numbering(low, high, margin), self.hop.numbering(low, high, margin)

    def __repr__(self) -> str:
        zone_text = "" if self.timezone == "UTC" else f", {self.timezone!r}"
        sizes = f"{self.size.name!r}, {f'{self.hop.count}{self.hop.unit}'!r}"
        return f"Hopping({sizes}{zone_text}{offset_shown(self.hop.offset)})"


def hopping(size: str | Tumbling, hop: str | Tumbling, timezone: str = "UTC", offset: str | None = None) -> Hopping:
    """Return hopping windows: windows of ``size`` that begin at every start of ``hop``.

    Parameters
    ----------
    size : str or Tumbling
        The length of a window, such as ``1h`` or the result of `window`. If it equals the hop, windows do not overlap.
    hop : str or Tumbling
        The distance between the starts of windows, at most the size. Size and hop must both be in months, quarters and
        years, or both in weeks and shorter units.
    timezone : str
        An IANA name, used if size or hop is text. If one of them is a `Tumbling`, its zone must be the same.
    offset : str, optional
        The time from each start of ``hop`` on the zone's clock to the start of a window; shorter than the hop.

    Returns
    -------
    Hopping

    Raises
    ------
    ValueError
        If size, hop or offset cannot be read, or cannot be combined.

    Examples
    --------
    >>> hopping("1 week", "1d", "Europe/Paris")
    Hopping('1w', '1d', 'Europe/Paris')
    """
    check_timezone(timezone)
    tumbling_windows = [w if isinstance(w, Tumbling) else window(w, timezone) for w in (size, hop)]
    return Hopping(
        tumbling_windows[0],
        tumbling_windows[1] if offset is None else window(tumbling_windows[1], tumbling_windows[1].timezone, offset),
    )


def _window_ends(starts: Instants, *, pane: WindowNumbering, hop: WindowNumbering, panes: int) -> Instants:
    """Return the ends of windows in microseconds UTC. A window ends after ``panes`` panes, but not before the next
    window begins.
    """
    return np.maximum(pane.starts(pane.number_of(starts) + panes), hop.starts(hop.number_of(starts) + 1))
