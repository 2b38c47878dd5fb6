"""The laws of time windows.

>>> from windows import hopping, session
>>> check(session("30m"))
>>> check(hopping("1h", "10m", "Europe/Berlin"), rounds=3)

A broken law raises `LawBroken`, which names the law. Windows are compared as integers, without a tolerance.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import checked_type, checked_whole
from aggr.duration import DAY
from aggr.testing.harness import LawBroken, check_laws, require
from windows.contract import MAX_INSTANT, MIN_INSTANT, Merged, TimeWindow, edge_inside
from windows.kinds.tumbling import window as tumbling
from windows.read import read_window
from windows.registry import window_constructors
from windows.testing.times import EDGE_YEARS, times_near_year_edges, times_of
from windows.timezone import Instants

Oracle = Callable[[int], Sequence[tuple[int, int]]]
Source = Callable[[int, int], Instants]
_KEYS = 3
_LEVELS = ("10m", "1h", "1d", "1w", "1mo", "1q", "1y")
# approximately the years 1900 and 2200, in microseconds since 1970
_CENTURIES = -70 * 366 * DAY, 230 * 366 * DAY


@dataclass(frozen=True)
class Case:
    """The arguments of a law: a kind of window, an array of times and an array with the id of each time's key, a
    generator of random numbers, and an independent implementation of the windows, or None.
    """

    window: TimeWindow
    times: Instants
    keys: NDArray[np.int64]
    rng: np.random.Generator
    oracle: Oracle | None

    def intervals(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the key, the start and the end of each interval, as an array of shape (intervals, 3). ``rows``
        contains the indices of the times whose intervals are returned; by default, all are returned.
        """
        rows = np.arange(len(self.times)) if rows is None else rows
        assigned = self.window.assign(self.times[rows])
        return np.stack([self.keys[rows][assigned.rows], assigned.starts, assigned.ends], axis=1)

    def merge(self, intervals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Merge intervals, and return key, start and end of each window, as an array of shape (windows, 3)."""
        keys, *bounds = intervals.T
        merged = self.window.merge(keys, *bounds)
        require(len(merged.ids) == len(keys), "merge does not return a window number for every interval")
        require(set(merged.ids.tolist()) == set(range(len(merged.starts))), "windows are not numbered consecutively")
        window_keys = np.zeros(len(merged.starts), np.int64)
        window_keys[merged.ids] = keys
        require(bool((window_keys[merged.ids] == keys).all()), "merge puts intervals of two keys into one window")
        return np.stack([window_keys, merged.starts, merged.ends], axis=1)

    def parts(self, count: int) -> list[NDArray[np.int64]]:
        """Divide the times at random into ``count`` parts, and return the windows of each part as an array of shape
        (windows, 3).
        """
        order = self.rng.permutation(len(self.times))
        cuts = np.sort(self.rng.integers(0, len(order) + 1, count - 1))
        return [self.merge(self.intervals(rows)) for rows in np.split(order, cuts)]


def contains(case: Case) -> None:
    """Each time lies in every interval that the window assigns to it, and the assignments are in the order of the
    times.
    """
    assigned = case.window.assign(case.times)
    require(len({len(column) for column in assigned}) == 1, "rows, starts and ends have different lengths")
    require(bool((np.diff(assigned.rows) >= 0).all()), "rows do not ascend")
    require(all(column.dtype == np.int64 for column in assigned), "rows, starts and ends must be int64")
    at = case.times[assigned.rows]
    require(bool(((assigned.starts <= at) & (at < assigned.ends)).all()), "a time lies outside one of its intervals")


def by_time_alone(case: Case) -> None:
    """The intervals that `assign` returns for a time do not depend on the other times."""
    all_intervals = case.intervals()
    rows = case.window.assign(case.times).rows
    for row in case.rng.permutation(len(case.times))[:20]:
        _check_equal(case.intervals(np.array([row])), all_intervals[rows == row])


def process_zone(case: Case) -> None:
    """The intervals do not depend on the time zone of the process, which the environment variable ``TZ`` sets."""
    if not hasattr(time, "tzset"):  # the operating system Windows does not have `time.tzset`
        return
    expected = case.intervals()
    with _time_zone_of_process("Pacific/Apia"):
        _check_equal(case.intervals(), expected)


@contextmanager
def _time_zone_of_process(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def known_by_start(case: Case) -> None:
    """Two windows of a key that begin at the same instant also end at the same instant."""
    windows = case.merge(case.intervals())
    require(len(np.unique(windows[:, :2], axis=0)) == len(windows), "two windows of a key begin at the same instant")


def in_order(case: Case) -> None:
    """`merge` returns windows in the order of keys, and then of starts."""
    windows = case.merge(case.intervals())
    _check_equal(windows, windows[np.lexsort((windows[:, 1], windows[:, 0]))])


def naive(case: Case) -> None:
    """Merging gives the same windows as a loop over the intervals of each key."""
    intervals = case.intervals()
    expected = []
    for key in sorted(set(intervals[:, 0].tolist())):
        merged: list[list[int]] = []
        for start, end in sorted({(s, e) for k, s, e in intervals.tolist() if k == key}):
            if case.window.is_merging and merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        expected += [[key, start, end] for start, end in merged]
    _check_equal(case.merge(intervals), np.array(expected, np.int64).reshape(-1, 3))


def any_tree(case: Case) -> None:
    """The windows do not depend on how the times are divided into parts, or on the order in which parts are merged."""
    expected = case.merge(case.intervals())
    parts = case.parts(4)
    left = parts[0]
    for part in parts[1:]:
        left = case.merge(np.concatenate([left, part]))
    pairs = [case.merge(np.concatenate(parts[i : i + 2])) for i in (0, 2)]
    at_once = case.merge(np.concatenate(parts))
    in_pairs = case.merge(np.concatenate(pairs))
    for windows in (left, at_once, in_pairs, case.merge(expected)):
        _check_equal(windows, expected)


def isolation(case: Case) -> None:
    """The windows of a key do not depend on other keys."""
    windows = case.merge(case.intervals())
    for key in range(_KEYS):
        _check_equal(case.merge(case.intervals(np.flatnonzero(case.keys == key))), windows[windows[:, 0] == key])


def panes(case: Case) -> None:
    """A time lies in exactly one pane, and in the same windows as the start of its pane."""
    pane = case.window.pane
    assigned = pane.assign(case.times)
    require(pane.max_overlap == 1, "a time lies in several panes")
    if pane == case.window and case.window.is_merging:
        return
    assigned_times = case.times[assigned.rows]
    of_times = case.window.assign(assigned_times)
    of_panes = case.window.assign(assigned.starts)
    for of_time, of_pane in zip(of_times, of_panes, strict=True):
        _check_equal(of_time, of_pane)


def no_overlaps_or_gaps(case: Case) -> None:
    """Windows with a `max_overlap` of 1 do not overlap, contiguous windows have no gaps, and sessions of a key do not
    touch each other.
    """
    windows = case.merge(case.intervals())
    window = case.window
    same_key = windows[1:, 0] == windows[:-1, 0]
    apart = windows[1:, 1] - windows[:-1, 2]
    if window.max_overlap == 1:
        require(bool((apart[same_key] >= window.is_merging).all()), "windows of a key overlap, or touch unmerged")
    if window.contiguous:
        window_starts = windows[:, 1]
        window_ends = windows[:, 2]
        _check_equal(window.assign(window_ends).starts, window_ends)
        _check_equal(window.assign(window_ends - 1).starts, window_starts)
        require(len(window.assign(case.times).rows) == len(case.times), "a time lies in no window")


def queries(case: Case) -> None:
    """`starts`, `ends`, `starts_between` and `first_start_from` agree with `assign`."""
    window = case.window
    if window.is_merging or not len(case.times):
        return
    assigned = window.assign(case.times)
    _check_equal(window.ends(assigned.starts), assigned.ends)
    at = int(case.times[0])
    try:
        first = window.first_start_from(at)
        latest = int(window.starts(case.times[:1])[0])
    except ValueError:
        return  # the kind of window does not define the starts of windows without rows
    require(
        first >= at and latest <= at,
        "`first_start_from` returns a start before the time, or `starts` returns a start after it",
    )
    own = window.assign(case.times[:1]).starts
    require(
        not len(own) or latest == int(own.max()),
        "`starts` does not return the start of the last window that contains a time",
    )
    _check_equal(window.starts_between(latest, first + 1), np.unique([latest, first]))


def nests(case: Case) -> None:
    """If `nesting_problem` returns None for a coarser and a finer level, no coarser window begins or ends inside a
    finer window in the years 1900 to 2200. The windows are tested together with tumbling windows of ten minutes to a
    year, once as the coarser and once as the finer level.
    """
    problem = _edge_in_other_years(case.window)
    require(problem is None, problem or "")


@lru_cache(maxsize=64)
def _edge_in_other_years(window: TimeWindow) -> str | None:
    """Return a description of a start or end of a coarser window inside a finer window, or None if the law `nests`
    holds. `nesting_problem` itself tests only a few years; this function tests the years 1900 to 2200.
    """
    if window.is_merging:
        return None
    for level in (tumbling(size, window.timezone or "UTC") for size in _LEVELS):
        for coarse, fine in ((level, window), (window, level)):
            if coarse.nesting_problem(fine) is not None:
                continue
            step = max(int(min(coarse.length, 366 * DAY)), DAY) // 2
            try:
                where = edge_inside(coarse.pane, fine.pane, np.arange(*_CENTURIES, step))
            except ValueError:
                continue  # the kind of window does not cover every year that is tested
            if where is not None:
                return f"{coarse.name} is accepted as a multiple of {fine.name}, but {where}; define nesting_problem"
    return None


def lengths(case: Case) -> None:
    """The property `length`, by which levels are sorted, is at least half and at most twice the length of typical
    windows.
    """
    length = case.window.length
    assigned = case.window.assign(case.times)
    if case.window.is_merging or not len(assigned.starts):
        return
    require(length > 0, f"the length is {length}")
    longest = int((assigned.ends - assigned.starts).max())
    repeated_hours = 0 if case.window.timezone is None else DAY // 8  # a window is longer if the clock goes back in it
    limit = 2 * length + repeated_hours
    require(longest <= limit, f"a window of {longest} µs is longer than twice the length, {length:.0f} µs")
    if not math.isfinite(length):
        return
    nearby_times = np.unique(case.times[0] + np.arange(-8, 9) * max(int(length), 1))
    with suppress(ValueError):  # `assign` raises ValueError for years without windows
        assigned = case.window.assign(nearby_times)
        edges = np.unique(np.stack([assigned.starts, assigned.ends]), axis=1)
        typical = float(np.median(edges[1] - edges[0])) if edges.size else length
        is_close = length <= 2 * typical and typical <= 2 * length
        require(is_close, f"windows are {typical:.0f} µs long, and the length is {length:.0f} µs")


def untouched(case: Case) -> None:
    """`assign` and `merge` do not change their arguments, and a second call of `assign` returns the same intervals."""
    times = case.times.copy()
    first = case.window.assign(times)
    second = case.window.assign(times)
    require(np.array_equal(times, case.times), "the times changed while intervals were assigned")
    for column, repeated in zip(first, second, strict=True):
        _check_equal(repeated, column)
    keys = case.keys[first.rows]
    intervals = [keys.copy(), first.starts.copy(), first.ends.copy()]
    case.window.merge(*intervals)
    for now, before in zip(intervals, (keys, first.starts, first.ends), strict=True):
        require(np.array_equal(now, before), "the intervals changed while they were merged")


def windows_per_time(case: Case) -> None:
    """A time lies in at most `max_overlap` windows, and in exactly the windows that `numbered` returns."""
    window = case.window
    assigned = window.assign(case.times)
    greatest = int(np.bincount(assigned.rows, minlength=1).max())
    # If the clock repeats an hour, more windows contain the times in this hour.
    allowed = window.max_overlap if window.timezone is None or window.max_overlap == 1 else 2 * window.max_overlap
    require(greatest <= allowed, f"a time lies in {greatest} windows, and max_overlap is {window.max_overlap}")
    numbered = window.numbered(case.times) if len(case.times) else None
    if numbered is None:
        return
    for row, (first, last) in enumerate(zip(numbered.first.tolist(), numbered.last.tolist(), strict=True)):
        bounds = numbered.bounds(np.arange(first, last + 1))
        own = assigned.rows == row
        _check_equal(np.stack(bounds), np.stack([assigned.starts[own], assigned.ends[own]]))


def of_nothing(case: Case) -> None:
    """`assign` returns no intervals if no times are passed, and `merge` no windows if no intervals are passed."""
    empty = np.array([], np.int64)
    require(all(len(column) == 0 for column in case.window.assign(empty)), "assign returns intervals without times")
    merged: Merged = case.window.merge(empty, empty, empty)
    require(all(len(column) == 0 for column in merged), "merge returns windows without intervals")


def copies_and_names(case: Case) -> None:
    """A pickled copy is equal to the original, and windows with different fields have different names. If the kind is
    registered, `read_window` reads an equal window from the name of the window.
    """
    window = case.window
    require(isinstance(window.name, str) and window.name != "", "windows have no name")
    for variant in (window, *_changed_windows(window)):
        copies = [copy.deepcopy(variant)]
        with suppress(pickle.PicklingError, AttributeError):  # a class in a notebook cannot be pickled
            copies.append(pickle.loads(pickle.dumps(variant)))
        require(
            all(other == variant and hash(other) == hash(variant) for other in copies),
            f"a copy of {variant!r} is {copies[-1]!r}",
        )
        require(
            variant is window or variant.name != window.name,
            f"{variant!r} and {window!r} have the name {window.name!r}",
        )
        if window_constructors(TimeWindow, window.kind).get(window.kind) is type(window):
            restored = read_window(variant.name, variant.timezone or "UTC")
            require(restored == variant, f"the name {variant.name!r} of {variant!r} is read as {restored!r}")


def _changed_windows(window: TimeWindow) -> list[TimeWindow]:
    """Return one copy of ``window`` for each field that is a number or a boolean, in which only this field has a new
    value. Values that the class does not accept are left out.
    """
    windows: list[TimeWindow] = []
    if not is_dataclass(window):
        return windows
    for parameter in dataclass_fields(window):
        value = getattr(window, parameter.name)
        if not parameter.init or not isinstance(value, bool | int | float):
            continue
        with suppress(TypeError, ValueError):
            changed = not value if isinstance(value, bool) else value + 1
            windows.append(replace(window, **{parameter.name: changed}))
    return [other for other in windows if other != window]


def agrees(case: Case) -> None:
    """The intervals of each time equal those of the oracle, if an oracle was passed."""
    if case.oracle is None:
        return
    assigned = case.window.assign(case.times)
    for row, at in enumerate(case.times.tolist()):
        of_row = assigned.rows == row
        intervals = sorted(zip(assigned.starts[of_row].tolist(), assigned.ends[of_row].tolist(), strict=True))
        expected = sorted(
            (MIN_INSTANT if s is None else s, MAX_INSTANT if e is None else e) for s, e in case.oracle(at)
        )
        require(intervals == expected, f"the time {at} lies in {expected}; got {intervals}")


LAWS: tuple[Callable[[Case], None], ...] = (
    untouched, contains, by_time_alone, process_zone, known_by_start, in_order, naive, any_tree, isolation, panes,
    no_overlaps_or_gaps, queries, nests, lengths, windows_per_time, of_nothing, copies_and_names, agrees,
)  # fmt: skip


def check(
    window: TimeWindow, oracle: Oracle | None = None, source: Source | None = None, rounds: int = 20, seed: int = 0
) -> None:
    """Check a kind of window against all laws, with random times of a few keys.

    Parameters
    ----------
    window : TimeWindow
    oracle : time -> list of (start, end), optional
        An independent implementation: a function that returns the intervals that contain a time. All times are in
        microseconds UTC.
    source : (size, seed) -> array of int64, optional
        A function that returns times. By default, the times are results of `times_of`, and further times in the years
        from 1700 to 2400.
    rounds, seed : int
        The number of random sets of times, and the seed of the first set. The seed of each further set is greater by
        one.

    Raises
    ------
    LawBroken
        If the windows break a law; the message names the law and the reason.
    """
    checked_type(window, TimeWindow, "the kind of window", ", such as session('30m')")  # type: ignore[type-abstract]
    checked_whole(rounds, "rounds")
    checked_whole(seed, "seed")
    for round_number in range(rounds):
        size = (0, 1, 2, 7, 60)[round_number] if round_number < 5 else 40
        times = (source or (lambda size, seed: times_of(window, size, seed)))(size, seed + round_number)
        rng = np.random.default_rng([seed, round_number])
        keys = rng.integers(0, _KEYS, len(times))
        case = Case(window=window, times=times, keys=keys, rng=rng, oracle=oracle)
        check_laws(window.name, LAWS, partial(replace, case))
    if source is None:
        _check_edge_years(window, oracle, rounds, seed)


def _check_edge_years(window: TimeWindow, oracle: Oracle | None, rounds: int, seed: int) -> None:
    """Check all laws in years that are edge cases of the calendar: years at the end of a century, such as 1900, which
    has no leap day, and 2038, in which a signed 32-bit number of seconds overflows.
    """
    for round_number, year in enumerate(EDGE_YEARS[: max(rounds, 1)]):
        times = times_near_year_edges(window, year, 40, seed + round_number)
        try:
            window.assign(times)
        except ValueError:
            continue  # the kind has no windows in these years
        rng = np.random.default_rng([seed, year])
        keys = rng.integers(0, _KEYS, len(times))
        case = Case(window=window, times=times, keys=keys, rng=rng, oracle=oracle)
        check_laws(window.name, LAWS, partial(replace, case), f" (about the year {year})")


def _check_equal(actual: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
    """Raise `LawBroken` if two arrays differ."""
    if actual.shape != expected.shape or not (actual == expected).all():
        raise LawBroken(f"got {actual.tolist()[:8]}, and expected {expected.tolist()[:8]}")
