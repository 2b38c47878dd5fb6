"""The interface of a time window: assign times to intervals, and merge the intervals of each key into windows.

    times ── assign ──▶ intervals [start, end) ── merge, by key ──▶ windows

`assign` depends only on the time. `merge` combines equal intervals by default; sessions also combine intervals that
overlap or touch. Both operations process columns: one call for all rows and keys.

Times are microseconds since 1970-01-01 UTC. The two operations are those of Beam's ``WindowFn``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import checked_type, checked_whole, shown
from aggr.call_text import write_call
from aggr.clocks import clock
from aggr.duration import DAY
from windows.timezone import Instants, checked_instants

# The start and the end of a window over all time. They lie outside of all supported years. Their magnitude is so small
# that adding a duration to them does not exceed int64.
MIN_INSTANT = -(2**62)
MAX_INSTANT = 2**62
# The maximum number of windows in a list. A list of this length takes 80 MB for starts, and 240 MB for intervals.
MAX_LISTED_WINDOWS = 10_000_000
# `_PROBE_CENTER` is the start of 2024 in microseconds UTC: nesting is tested in windows around this instant. `_DECADE`
# is ten years in microseconds.
_PROBE_CENTER = 19_723 * DAY
_DECADE = 3_652 * DAY


class Intervals(NamedTuple):
    """The result of `TimeWindow.assign`: the time with the index ``rows[i]`` lies in the interval ``[starts[i],
    ends[i])``. Starts and ends are in microseconds UTC.
    """

    rows: NDArray[np.int64]
    starts: Instants
    ends: Instants


class Merged(NamedTuple):
    """The result of `TimeWindow.merge`: the interval with the index ``i`` is part of the window with the index
    ``ids[i]``. Starts and ends are those of the windows, in microseconds UTC.
    """

    ids: NDArray[np.int64]
    starts: Instants
    ends: Instants


class Numbered(NamedTuple):
    """The result of `TimeWindow.numbered`: overlapping windows, numbered in the order of their starts.

    The time with the index ``i`` lies in the windows with the numbers ``first[i]`` to ``last[i]``, and in no others.
    ``bounds`` is a function that returns the starts and ends of windows by their numbers, in microseconds UTC. No
    window ends earlier than a window with a smaller number.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    bounds: Callable[[NDArray[np.int64]], tuple[Instants, Instants]]


class TimeWindow(ABC):
    """A kind of window whose intervals depend only on the time of a row.

    An implementation is a frozen dataclass with a `kind` and the method `assign`; other methods have defaults. Its
    windows must obey the laws of `windows.testing`. For example, windows with equal starts must have equal ends,
    because the start identifies a window. `starts`, `starts_between`, `first_start_from` and `ends` raise
    ``ValueError`` if the starts or ends of windows depend on the rows.
    """

    # the first word of a window's text, such as ``hopping`` in ``hopping(1h, 10m)``
    kind: ClassVar[str] = ""
    # whether `merge` combines intervals that are not equal
    is_merging: ClassVar[bool] = False
    # whether windows follow each other without gaps and overlaps, which a store requires
    contiguous: ClassVar[bool] = False
    # whether the windows of all years follow one rule, so that it is enough to test nesting in some years
    same_in_all_years: ClassVar[bool] = False
    # the version of the definition, which must be increased if windows with the same text get other starts or ends
    version: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The unique text of the window: `kind`, and the fields that differ from their defaults, without the zone."""
        text_fields = [field for field in fields(self) if field.name != "timezone"]  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in text_fields}
        non_default_values = {
            field.name: values[field.name] for field in text_fields if values[field.name] != field.default
        }
        return write_call(self.kind or type(self).__name__, non_default_values)

    @abstractmethod
    def assign(self, times: Instants) -> Intervals:
        """Return the intervals that contain each time.

        Parameters
        ----------
        times : array of int64, shape (rows,)
            Microseconds UTC, in any order.

        Returns
        -------
        rows : array of int64, shape (intervals,)
            Ascending indices into ``times``. A time in several intervals occurs several times, and a time outside all
            intervals does not occur.
        starts, ends : arrays of int64, shape (intervals,)
            Microseconds UTC, with ``starts <= times[rows] < ends``.

        Raises
        ------
        ValueError
            If ``times`` is not an array of int64, or contains a time outside the years 2 to 9998.
        """

    def numbered(self, times: Instants) -> Numbered | None:
        """Return the numbers of the windows that contain each time. Kinds of overlapping windows may define this
        method, so that states are merged into their windows faster.

        Parameters
        ----------
        times : array of int64, shape (rows,)
            Microseconds UTC, in any order, at least one.

        Returns
        -------
        Numbered or None
            None if the kind of window does not number its windows. Each state is then merged separately into each
            window that contains it. If windows are numbered, the cost of merging does not depend on the number of
            windows that contain a time.
        """
        return None

    def merge(self, keys: NDArray[np.integer], starts: Instants, ends: Instants) -> Merged:
        """Merge the intervals of each key into windows. This default merges equal intervals.

        Parameters
        ----------
        keys : array of integers, shape (intervals,)
            The integer id of each interval's key.
        starts, ends : arrays of int64, shape (intervals,)
            Intervals from `assign`, or windows from an earlier call, in microseconds UTC.

        Returns
        -------
        ids : array of int64, shape (intervals,)
            The index of each interval's window. Windows are in the order of keys, and then of starts.
        starts, ends : arrays of int64, shape (windows,)
            The bounds of the windows, in microseconds UTC.

        Raises
        ------
        ValueError
            If the arrays have other types, or their lengths differ.

        Guarantee
        ---------
        The windows must not depend on the order in which intervals are merged, or on how they are split into calls.
        """
        check_intervals(keys, starts, ends)
        order = np.lexsort((ends, starts, keys))
        differs = np.any([np.diff(column[order]) != 0 for column in (keys, starts, ends)], axis=0)
        return number_windows(order, np.append(True, differs)[: len(order)], starts, ends)

    @property
    def timezone(self) -> str | None:
        """The IANA zone whose clock the windows follow; None if they do not follow a clock."""
        return None

    @property
    def length(self) -> float:
        """The approximate length of a window, in microseconds; a month counts as 30 days."""
        return math.inf

    @property
    def sort_key(self) -> tuple[float, float]:
        """The key by which levels are sorted: the length of a window, and the distance between the starts of windows,
        in microseconds.
        """
        return self.length, self.length

    @property
    def pane(self) -> TimeWindow:
        """The shorter windows to which rows are reduced first; each window consists of one or more panes. All times in
        a pane lie in the same windows.
        """
        return self

    @property
    def max_overlap(self) -> int:
        """The maximum number of windows that contain the same time. Near changes of the UTC offset, there may be
        more.
        """
        return 1

    @property
    def disjoint(self) -> bool:
        """Whether no time lies in two windows, and `merge` combines only equal intervals."""
        return self.max_overlap == 1 and not self.is_merging

    @property
    def resolution(self) -> str:
        """The longest of the units ``us ms s m h d w mo q y`` for which every window begins at a multiple of the
        unit.
        """
        return "s"

    def is_made_of(self, finer: TimeWindow) -> bool:
        """Return whether every window consists of complete windows of ``finer``.

        If windows overlap, their panes are compared instead. Panes are the shorter windows to which rows are reduced
        first.

        Parameters
        ----------
        finer : TimeWindow

        Returns
        -------
        bool

        Raises
        ------
        ValueError
            If ``finer`` is not a `TimeWindow`.
        """
        return self.nesting_problem(finer) is None

    def nesting_problem(self, finer: TimeWindow) -> str | None:
        """Return the reason why windows do not consist of complete windows of ``finer``, or None if they do.

        If windows overlap, their panes are compared instead, as in `is_made_of`.

        Parameters
        ----------
        finer : TimeWindow

        Returns
        -------
        str or None
            The reason, for an error message.

        Raises
        ------
        ValueError
            If ``finer`` is not a `TimeWindow`.
        """
        checked_type(finer, TimeWindow, "the finer kind of window", ", such as window('1m')")  # type: ignore[type-abstract]
        pane = self.pane
        fine = finer.pane
        if fine == pane:
            return None
        if fine.is_merging or self.is_merging:
            return f"{(finer if fine.is_merging else self).name} depends on the rows, and must be the only level"
        if None not in (pane.timezone, fine.timezone) and pane.timezone != fine.timezone:
            return f"{finer.name} is aligned in {fine.timezone} and {self.name} in {pane.timezone}"
        problem = f"{fine.name} is longer" if fine.length > pane.length else _edge_inside_finer(pane, fine)
        return problem and (problem if pane == self else f"its panes have the size {pane.name}, and {problem}")

    def starts(self, times: Instants) -> Instants:
        """Return the start of the latest window that begins at or before each time.

        Parameters
        ----------
        times : array of int64, shape (rows,)
            Microseconds UTC, in any order.

        Returns
        -------
        array of int64, shape (rows,)
            Microseconds UTC.

        Raises
        ------
        ValueError
            If the starts of windows depend on the rows.
        """
        if not self.contiguous:
            raise self._error_without_clock()
        return self.assign(times).starts

    def ends(self, starts: Instants) -> Instants:
        """Return the end of each window, for windows that are identified by their starts.

        Parameters
        ----------
        starts : array of int64, shape (windows,)
            The starts of the windows, microseconds UTC, in any order.

        Returns
        -------
        array of int64, shape (windows,)
            The first instant after each window, in microseconds UTC.

        Raises
        ------
        ValueError
            If the ends of windows do not follow from their starts.
        """
        assigned = self.assign(checked_instants(starts, "starts"))
        is_own_window = assigned.starts == starts[assigned.rows]
        if self.is_merging or int(is_own_window.sum()) != len(starts):
            raise self._error_without_clock()
        window_ends: Instants = assigned.ends[is_own_window]
        return window_ends

    def starts_between(self, start: int, end: int) -> Instants:
        """Return the starts of the windows that begin in a range of time.

        Parameters
        ----------
        start, end : int
            The range ``[start, end)``, microseconds UTC.

        Returns
        -------
        array of int64, shape (windows,)
            The starts of these windows, ascending, in microseconds UTC.

        Raises
        ------
        ValueError
            If the starts of windows depend on the rows, or more than ten million windows begin in the range.

        Examples
        --------
        >>> from windows import window
        >>> window("6h").starts_between(1, 86_400_000_000) // 3_600_000_000
        array([ 6, 12, 18])
        """
        if checked_whole(end, "end", -(2**63)) <= checked_whole(start, "start", -(2**63)):
            return np.array([], np.int64)
        if not self.contiguous:
            raise self._error_without_clock()
        self.starts(np.array([start, end - 1], np.int64))  # this call raises ValueError for years without windows
        step = max(int(min(self.length, end - start)), 1)
        if (count := (end - start) // step) > MAX_LISTED_WINDOWS:
            raise ValueError(
                f"{count:,} windows of {self.name} begin in the range, and at most {MAX_LISTED_WINDOWS:,} can be "
                "listed; use a shorter range or longer windows"
            )
        starts = self.starts(np.append(np.arange(start, end, step), end - 1))
        while True:
            starts = np.sort(starts)
            starts = starts[np.append(True, starts[1:] != starts[:-1])]
            next_starts = self.ends(starts)[:-1]
            # ``starts`` was computed from times at a distance of ``step``, so it does not contain the start of a window
            # that lies completely between two consecutive times. The end of the window before such a window is not the
            # next element of ``starts``.
            missing_starts = next_starts[next_starts != starts[1:]]
            if not len(missing_starts):
                listed: Instants = starts[starts >= start]
                return listed
            starts = np.append(starts, missing_starts)

    def first_start_from(self, at: int) -> int:
        """Return the start of the first window that begins at or after an instant.

        Parameters
        ----------
        at : int
            Microseconds UTC.

        Returns
        -------
        int
            The start of the window, in microseconds UTC.

        Raises
        ------
        ValueError
            If the starts of windows depend on the rows.
        """
        before = self.starts(np.array([checked_whole(at, "at", -(2**63)) - 1], np.int64))
        return int(self.ends(before)[0])

    def _error_without_clock(self) -> ValueError:
        """Return the error for a kind of window whose starts and ends depend on the rows."""
        return ValueError(
            f"the starts and ends of windows of {self.name} do not follow from a clock; "
            "use windows of a fixed size, such as 1h"
        )


@lru_cache(maxsize=1024)
def _edge_inside_finer(coarse: TimeWindow, fine: TimeWindow) -> str | None:
    """Return a description of a start or end of a coarser window that lies inside a finer window, or None if there is
    no such instant at the times of `_probes`.
    """
    return edge_inside(coarse, fine, _probes(coarse, fine))


def edge_inside(coarse: TimeWindow, fine: TimeWindow, times: Instants) -> str | None:
    """Return a description of a start or end of a coarser window that lies inside a finer window, or None if there is
    no such instant. Only coarser windows that contain one of ``times`` are examined.

    Parameters
    ----------
    coarse, fine : TimeWindow
    times : array of int64, shape (times,)
        Microseconds UTC.

    Returns
    -------
    str or None
    """
    assigned = coarse.assign(times)
    edges = np.unique(np.concatenate([assigned.starts, assigned.ends]))
    edges = edges[(edges > MIN_INSTANT) & (edges < MAX_INSTANT)]
    rows, starts, _ = fine.assign(edges)
    crossing = np.flatnonzero(starts < edges[rows])
    if not len(crossing):
        return None
    edge, start = (np.datetime64(int(at[crossing[0]]), "us") for at in (edges[rows], starts))
    at, since = (np.datetime_as_string(instant, unit="auto") for instant in (edge, start))
    return f"windows of {coarse.name} have an edge at {at} UTC, inside the window of {fine.name} that begins at {since}"


def _probes(coarse: TimeWindow, fine: TimeWindow) -> Instants:
    """Return the times at which nesting is tested, in microseconds UTC.

    They lie in consecutive windows around the start of 2024, and around the last four changes of the UTC offset before
    2024.
    """
    step = np.arange(-24, 24) * max(int(min(coarse.length, _DECADE)) // 2, 1)
    zone = coarse.timezone or fine.timezone
    changes = (
        clock(zone, _PROBE_CENTER - _DECADE // 2, _PROBE_CENTER).since[1:][-4:] if zone else np.array([], np.int64)
    )
    times_near_changes = (changes[:, None] + step[20:29]).ravel()
    times: Instants = np.clip(np.concatenate([_PROBE_CENTER + step, times_near_changes]), 0, 2 * _PROBE_CENTER)
    return times


def check_nested(level: TimeWindow, assigned: Intervals, fine_starts: Instants, fine_ends: Instants) -> None:
    """Raise an error unless each finer window lies completely in one window of a level.

    Parameters
    ----------
    level : TimeWindow
    assigned : Intervals
        The result of ``level.assign(fine_starts)``.
    fine_starts, fine_ends : arrays of int64, shape (windows,)
        The finer windows, microseconds UTC.

    Raises
    ------
    ValueError
        If a finer window lies in a window of the level only in part.
    """
    crossing_rows = assigned.rows[fine_ends[assigned.rows] > assigned.ends]
    if not len(crossing_rows):
        is_unassigned = np.ones(len(fine_starts), np.bool_)
        is_unassigned[assigned.rows] = False
        if is_unassigned.any():
            at = np.flatnonzero(is_unassigned)
            crossing_rows = at[level.assign(fine_ends[at] - 1).rows]
    if not len(crossing_rows):
        return
    start, end = (
        np.datetime_as_string(np.datetime64(int(column[crossing_rows[0]]), "us"), "auto")
        for column in (fine_starts, fine_ends)
    )
    raise ValueError(
        f"the window from {start} to {end} UTC crosses an edge of the windows of {level.name}, so it does not "
        f"lie in a single window; leave out the level {level.name}, or use finer windows that do not cross these edges"
    )


def number_windows(
    order: NDArray[np.int64], is_first: NDArray[np.bool_], interval_starts: Instants, interval_ends: Instants
) -> Merged:
    """Return the windows into which sorted intervals are combined. The windows are numbered in the order of the
    intervals.

    Parameters
    ----------
    order : array of int64, shape (intervals,)
        The indices of the intervals, sorted by key and start.
    is_first : array of bool, shape (intervals,)
        Whether the interval ``order[i]`` begins a window.
    interval_starts, interval_ends : arrays of int64, shape (intervals,)
        Microseconds UTC, in the order of the arguments of `TimeWindow.merge`.

    Returns
    -------
    Merged
        The index of each interval's window, and the start and end of each window. The end of a window is the greatest
        end of its intervals.
    """
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(is_first) - 1
    begins = np.flatnonzero(is_first)
    window_ends = np.maximum.reduceat(interval_ends[order], begins) if len(begins) else interval_ends
    return Merged(ids, interval_starts[order[begins]], window_ends)


def check_intervals(keys: object, starts: object, ends: object) -> None:
    """Raise an error unless the arguments of `TimeWindow.merge` have the required types and shapes.

    Parameters
    ----------
    keys : array of integers, shape (intervals,)
    starts, ends : arrays of int64, shape (intervals,)

    Raises
    ------
    ValueError
        If an argument has another type, or the lengths differ.
    """
    lengths = [len(checked_instants(column, what)) for column, what in ((starts, "starts"), (ends, "ends"))]
    if not isinstance(keys, np.ndarray) or keys.dtype.kind not in "iu" or keys.ndim != 1:
        type_text = f"an array of {keys.dtype}" if isinstance(keys, np.ndarray) else shown(keys)
        raise ValueError(f"keys must be an array of integers with the id of each interval's key; got {type_text}")
    if set(lengths) != {len(keys)}:
        raise ValueError(
            f"keys, starts and ends must have the same length; got {len(keys)} keys, {lengths[0]} starts and "
            f"{lengths[1]} ends"
        )
