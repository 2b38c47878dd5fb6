"""Session windows: a session contains rows of a key that follow each other within a gap.

A row at ``t`` has the interval ``[t, t + gap)``, and intervals of a key that overlap or touch form one session. Two
rows exactly one gap apart are in one session, as in Spark's ``session_window`` and in Flink. The sessions do not depend
on the order in which intervals are merged, even if a late row connects two sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import is_whole, shown
from aggr.duration import LONGEST, duration_text, read_duration
from windows.contract import Intervals, Merged, TimeWindow, check_intervals, number_windows
from windows.timezone import Instants, checked_times

# A key and a time can be combined into one int64 if the number of keys, multiplied by the range of times in
# microseconds, is below this limit.
_MAX_COMBINED = 2**62


@dataclass(frozen=True)
class Session(TimeWindow):
    """Sessions of rows that follow each other within a gap.

    Parameters
    ----------
    gap : int
        The maximum time between two consecutive rows of a session, in microseconds; at least 1. A session ends one gap
        after its last row.

    Raises
    ------
    ValueError
        If the gap is not a whole number of at least 1, or exceeds a thousand years.

    Examples
    --------
    >>> minute = 60_000_000
    >>> sessions = session("30m")
    >>> rows, starts, ends = sessions.assign(np.array([0, 50, 20, 120]) * minute)
    >>> ids, starts, ends = sessions.merge(np.zeros(4, int), starts, ends)
    >>> ids, starts // minute, ends // minute
    (array([0, 0, 0, 1]), array([  0, 120]), array([ 80, 150]))
    """

    gap: int

    is_merging: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_whole(self.gap) or not 1 <= self.gap <= LONGEST:
            raise ValueError(
                "the gap of a session must be at least one microsecond, and at most 1000 years; "
                f"got {shown(self.gap)}: write session('30m')"
            )
        object.__setattr__(self, "gap", int(self.gap))

    @property
    def name(self) -> str:
        return f"session({duration_text(self.gap)})"

    @property
    def length(self) -> float:
        return float(self.gap)

    def assign(self, times: Instants) -> Intervals:
        return Intervals(np.arange(len(checked_times(times))), times, times + self.gap)

    def merge(self, keys: NDArray[np.integer], starts: Instants, ends: Instants) -> Merged:
        check_intervals(keys, starts, ends)
        order = np.lexsort((starts, keys))
        keys = keys[order]
        begins = starts[order]
        same_key = keys[1:] == keys[:-1]
        is_apart = ~same_key | (begins[1:] > _running_max_ends(same_key, ends[order])[:-1])
        return number_windows(order, np.append(True, is_apart)[: len(order)], starts, ends)

    def __repr__(self) -> str:
        return f"Session({duration_text(self.gap)!r})"


def session(gap: str) -> Session:
    """Return sessions of rows that follow each other within a gap.

    Parameters
    ----------
    gap : str
        The maximum time between two consecutive rows: an integer and a unit from ``us`` to weeks, such as ``30m``.

    Returns
    -------
    Session

    Raises
    ------
    ValueError
        If the gap cannot be read, is 0, or is in months or longer units, which have no fixed length.

    Examples
    --------
    >>> session("90 seconds").name
    'session(90s)'
    """
    return Session(read_duration(gap, "gap"))


def _running_max_ends(same_key: NDArray[np.bool_], interval_ends: Instants) -> Instants:
    """For each interval, return the greatest end among this interval and the earlier intervals of its key. The
    intervals are sorted by key. ``same_key`` has one element for each interval except the first: whether the interval
    has the same key as the previous interval.
    """
    if (same_key <= (np.diff(interval_ends) >= 0)).all():
        return interval_ends
    key = np.cumsum(np.append(False, ~same_key))
    low = int(interval_ends.min())
    width = int(interval_ends.max()) - low + 1
    if width * (int(key[-1]) + 1) < _MAX_COMBINED:
        greatest_combined = np.maximum.accumulate(key * width + (interval_ends - low))
        greatest_ends: Instants = greatest_combined - key * width + low
        return greatest_ends
    # A key and an end do not fit into one int64 here, but a key and the rank of the end do.
    values, rank = np.unique(interval_ends, return_inverse=True)
    greatest_combined = np.maximum.accumulate(key * len(values) + rank)
    greatest_ends = values[greatest_combined - key * len(values)]
    return greatest_ends
