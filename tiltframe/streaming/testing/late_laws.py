"""The laws of late policies. Each law is a function that raises `LawBroken` if the policy breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import aggr
from aggr.testing.harness import require
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import START
from tiltframe.streaming.open_windows import OpenWindows
from tiltframe.streaming.policies import Arrival, LatePolicy, read_late
from tiltframe.streaming.testing.policy_laws import check_value
from windows.timezone import Instants

_SECOND = 1_000_000


@dataclass(frozen=True)
class LateCase:
    """The arguments of a law: a late policy, a frame, the rows of a stream, and a generator of random numbers."""

    policy: LatePolicy
    frame: TiltFrame
    rows: pa.Table
    rng: np.random.Generator

    @property
    def times(self) -> Instants:
        """The times of all events in microseconds UTC, as a read-only array."""
        times = instants_of(self.rows.select([self.frame.time]).rename_columns([START])).copy()
        times.setflags(write=False)
        return times

    def arrive(self, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        """Return the result of `LatePolicy.arrive` for the frame's finest level."""
        policy = self.policy.for_frame(self.frame)
        return policy.arrive(self.frame.levels[0], times, newest, together)

    def newest(self) -> list[int | None]:
        """Return values for the argument ``newest`` of `LatePolicy.arrive`: None and, if the policy uses the argument,
        the value that `arrive` returns for the first three events.
        """
        newest = self.arrive(self.times[:3], None).newest
        return [None] if newest is None else [None, newest]


def is_a_value(case: LateCase) -> None:
    """The policy is equal to its copy, and to the policy that is read from its text. Its lateness equals None or is at
    least 0.
    """
    check_value(case.policy, read_late)
    lateness = case.policy.lateness_micros
    require(
        lateness is None or (isinstance(lateness, int) and lateness >= 0),
        f"lateness_micros must be None or a whole number of at least 0; got {lateness!r}",
    )


def arrivals(case: LateCase) -> None:
    """For each event, `arrive` returns the time by which it is assigned to windows, and whether it is dropped. It also
    returns the start of the newest window, which is not less than the argument ``newest``.
    """
    for newest in case.newest():
        for together in (False, True):
            times, dropped, next_newest = case.arrive(case.times, newest, together)
            size = len(case.times)
            require(
                times.dtype == np.int64 and times.shape == (size,),
                f"times must be an int64 array of shape ({size},); got {times.dtype} of shape {times.shape}",
            )
            require(
                dropped.dtype == np.bool_ and dropped.shape == (size,),
                f"dropped must be a bool array of shape ({size},); got {dropped.dtype} of shape {dropped.shape}",
            )
            require(
                next_newest is None or isinstance(next_newest, int),
                f"newest must be a whole number or None; got {next_newest!r}",
            )
            if newest is not None and next_newest is not None:
                require(
                    next_newest >= newest, f"the start of the newest window decreases from {newest} to {next_newest}"
                )


def order_of_calls(case: LateCase) -> None:
    """The same arguments of `arrive` give the same result, even if the policy was called with events of another stream
    in between.
    """
    calls = [(newest, together) for newest in case.newest() for together in (False, True)]
    first = [_as_lists(case.arrive(case.times, *call)) for call in calls]
    for place in case.rng.permutation(len(calls)).tolist() * 2:
        case.arrive(case.times + 3600 * _SECOND, None)
        again = _as_lists(case.arrive(case.times, *calls[place]))
        require(again == first[place], "a second call with the same events returns another arrival")


def batches(case: LateCase) -> None:
    """A batch that is passed in two parts gives the same result as the undivided batch, if the call with the second
    part receives the ``newest`` that the first call returned.
    """
    for newest in case.newest():
        undivided = case.arrive(case.times, newest)
        cut = int(case.rng.integers(0, len(case.times) + 1))
        head = case.arrive(case.times[:cut], newest)
        tail = case.arrive(case.times[cut:], head.newest)
        parts = ([*head.times, *tail.times], [*head.dropped, *tail.dropped], tail.newest)
        require(_as_lists(undivided) == _as_lists(parts), "splitting a batch into two changes the result")


def together(case: LateCase) -> None:
    """The order of events that arrive at the same time does not change the result."""
    order = case.rng.permutation(len(case.times))
    for newest in case.newest():
        times, dropped, next_newest = case.arrive(case.times, newest, True)
        reordered = case.arrive(case.times[order], newest, True)
        require(
            _as_lists((times[order], dropped[order], next_newest)) == _as_lists(reordered),
            "the order of events within a batch changes the result",
        )


def closing(case: LateCase) -> None:
    """If the policy closes windows by events, `closed_until` does not decrease for later windows, and `newest_at` is
    its inverse.
    """
    policy = case.policy.for_frame(case.frame)
    if not policy.closes_by_events:
        return
    level = case.frame.levels[0]
    starts = np.unique(level.starts(case.times)).tolist()
    moments = [policy.closed_until(level, start) for start in starts]
    require(all(isinstance(moment, int) for moment in moments), "closed_until must return a whole number")
    require(moments == sorted(moments), "closed_until must not decrease for later windows")
    require(
        all(moment <= start for moment, start in zip(moments, starts, strict=True)),
        "closed_until must not close the newest window",
    )
    newest = [policy.newest_at(level, moment) for moment in moments]
    require(newest in (starts, [None] * len(starts)), "newest_at is not the inverse of closed_until")


def no_row_is_lost(case: LateCase) -> None:
    """Each row is counted exactly once, either in the windows of a stream or as late."""
    counting_frame = TiltFrame([case.frame.levels[0]], case.frame.time, {"n": aggr.count()}, case.frame.keys)
    windows = OpenWindows(counting_frame, "after_close", case.policy)
    row_counts: dict[object, int] = {}
    late = 0
    half = len(case.rows) // 2
    for part in (case.rows[:half], case.rows[half:]):
        late += windows.add_rows(part).num_rows
        _store_row_counts(row_counts, windows.results(windows.advance(None, 0)), counting_frame)
    _store_row_counts(row_counts, windows.results(windows.close()), counting_frame)
    require(
        late == windows.progress.late_rows, "the number of late rows differs from the number of rows without a window"
    )
    total = sum(row_counts.values())
    require(total + late == len(case.rows), f"of {len(case.rows)} rows {total} are in windows, and {late} are late")


LATE_LAWS: tuple[Callable[[LateCase], None], ...] = (
    is_a_value, arrivals, order_of_calls, batches, together, closing, no_row_is_lost,
)  # fmt: skip


def _store_row_counts(row_counts: dict[object, int], emitted: pa.Table, frame: TiltFrame) -> None:
    """Store the row count of each emitted window in ``row_counts``. A later emission of a window replaces an earlier
    one.
    """
    for row in emitted.to_pylist():
        row_counts[row[START], *(row[key] for key in frame.keys)] = row["n"]


def _as_lists(arrival: tuple[Any, Any, int | None]) -> tuple[list[int], list[bool], int | None]:
    """Return an arrival as lists, which can be compared with ``==``."""
    times, dropped, newest = arrival
    return [int(time) for time in times], [bool(flag) for flag in dropped], newest
