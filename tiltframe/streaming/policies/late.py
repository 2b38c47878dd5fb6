"""Late policies: they determine how long a closed window is kept in memory for late events, and how events that
arrive even later are treated.

Lateness is determined separately for each window of an event: an event that is late for one of its windows still counts
in its other windows that are in memory. The event itself is late only if none of its windows, on any level, is in
memory. `Buffer` is modelled on Siddhi's ``@BufferSize`` and ``@IgnoreEventsOlderThanBuffer``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import checked_whole, shown
from aggr.duration import duration_text
from tiltframe.streaming.policies.policy import DURATION, Policy, micros
from windows import MIN_INSTANT, TimeWindow
from windows.timezone import Instants

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame

OLDER = ("oldest", "drop")


class Arrival(NamedTuple):
    """The result of `LatePolicy.arrive`: how each arriving event is treated, and the newest window so far.

    Parameters
    ----------
    times : array of int64, shape (events,)
        A time for each event, in microseconds UTC: the event counts in the windows that contain this time. This time
        may differ from the event's own time. The functions `aggr.first` and `aggr.last` use the event's own time.
    dropped : array of bool, shape (events,)
        Whether each event is dropped.
    newest : int, optional
        The start of the newest window that has received an event so far, in microseconds UTC. Only windows of the
        finest level count. None if the policy does not use this time.
    """

    times: Instants
    dropped: NDArray[np.bool_]
    newest: int | None


@dataclass(frozen=True, repr=False)
class LatePolicy(Policy):
    """The base class of late policies, which are frozen dataclasses. The text of a policy is its ``name`` with its
    fields as arguments.

    By default, closed windows are not kept, and an event counts in the windows that contain its time. A subclass
    overrides the methods that behave differently.
    """

    name: ClassVar[str] = ""
    # Whether windows are closed by events and not by a watermark. If true, the class must define `closed_until`.
    closes_by_events: ClassVar[bool] = False

    @property
    def lateness_micros(self) -> int | None:
        """The time for which a closed window is kept in memory, in microseconds, measured by the watermark. None if
        windows are kept for ever.
        """
        return 0

    def for_frame(self, frame: TiltFrame) -> LatePolicy:
        """Return the policy for a stream with this frame. Arguments that were not passed, and whose default depends on
        the frame, are set to their default.

        Parameters
        ----------
        frame : TiltFrame

        Returns
        -------
        LatePolicy
        """
        return self

    def check(self, frame: TiltFrame) -> None:
        """Raise an error if the policy cannot be used with the windows of a frame.

        Parameters
        ----------
        frame : TiltFrame

        Raises
        ------
        ValueError
            The message states the windows that the policy requires.
        """

    def arrive(self, level: TimeWindow, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        """For each arriving event, determine the windows in which the event counts, and whether it is dropped. The
        windows are those that contain the time in `Arrival.times`.

        Parameters
        ----------
        level : TimeWindow
            The window of the finest level.
        times : array of int64, shape (events,)
            Event times in the order of arrival, in microseconds UTC.
        newest : int, optional
            `Arrival.newest` of the previous call.
        together : bool
            Whether all events arrive at the same time, so that their order has no meaning.

        Returns
        -------
        Arrival
        """
        return Arrival(times, np.zeros(len(times), np.bool_), newest)

    def closed_until(self, level: TimeWindow, newest: int) -> int:
        """Return the time up to which events have closed windows: windows of the finest level that end at or before
        this time are closed. The method is called only if ``closes_by_events`` is true.

        Parameters
        ----------
        level : TimeWindow
            The window of the finest level.
        newest : int
            `Arrival.newest` of the previous call of `arrive`.

        Returns
        -------
        int, microseconds UTC
        """
        raise NotImplementedError(
            f"the policy {self.name} sets closes_by_events, but does not define the method closed_until; define it in "
            "the class of the policy"
        )

    def newest_at(self, level: TimeWindow, closed_until: int) -> int | None:
        """Return a value of ``newest`` for which the method `closed_until` returns the time ``closed_until``. This
        method is the inverse of `closed_until`.

        Parameters
        ----------
        level : TimeWindow
            The window of the finest level.
        closed_until : int
            A result of `closed_until`, in microseconds UTC.

        Returns
        -------
        int or None
            Microseconds UTC, or None if the policy does not use the newest window.
        """
        return None


@dataclass(frozen=True, repr=False)
class TrueWindow(LatePolicy):
    """Keep all windows in memory for ever. A late event counts in the window that contains its time, and this window is
    emitted again.

    The memory grows with the number of all windows since the start of the stream. A stream into a store does not need
    this policy, because the store adds late events to the windows of their times.

    Examples
    --------
    >>> TrueWindow()
    TrueWindow()
    """

    name: ClassVar[str] = "true_window"

    @property
    def lateness_micros(self) -> int | None:
        return None


@dataclass(frozen=True, repr=False)
class Drop(LatePolicy):
    """Keep closed windows in memory for a limited time. Events that arrive later are dropped and counted.

    Parameters
    ----------
    lateness : duration, optional
        The time for which a closed window is kept, measured by the watermark. Flink and Beam call it the allowed
        lateness. The default is the session gap if the frame has sessions, and 0s otherwise.

    Notes
    -----
    For sessions: if the lateness is at least the session gap, a row that belongs to a session which is no longer in
    memory is late. With a smaller lateness, such a row opens a new session that overlaps the earlier one, as in Flink.

    Examples
    --------
    >>> print(Drop("90s"))
    drop(lateness=90s)
    """

    lateness: str | None = field(default=None, metadata=DURATION)

    name: ClassVar[str] = "drop"

    @property
    def lateness_micros(self) -> int:
        return 0 if self.lateness is None else micros(self.lateness)

    def for_frame(self, frame: TiltFrame) -> Drop:
        if self.lateness is not None:
            return self
        gap = gap_of(frame)
        return Drop("0s" if gap is None else duration_text(gap))


def gap_of(frame: TiltFrame) -> int | None:
    """Return the gap of a frame's sessions in microseconds, or None if the frame has no sessions."""
    level = frame.levels[0]
    return int(level.length) if level.is_merging and math.isfinite(level.length) else None


@dataclass(frozen=True, repr=False)
class Buffer(LatePolicy):
    """Keep in memory the newest window of the finest level and a number of windows before it: the buffer. An older
    event counts in the oldest window of the buffer, or is dropped.

    Windows are closed by events, and not by a watermark: a window of the finest level closes when newer windows push it
    out of the buffer. When a finer window closes, all windows of the next coarser level that end at or before the start
    of the finer window close too. A coarser window therefore stays open longer than the finer windows in it.

    If a watermark is passed nevertheless, the watermark moves the buffer like an event of the same time. The watermark
    also closes windows of coarser levels that end before the buffer.

    Parameters
    ----------
    windows : int
        The number of windows to keep in addition to the newest one. With 0, the buffer consists of the newest window.
    older : str
        ``oldest``: an event from before the buffer counts in the oldest window of the buffer. ``drop``: such an event
        is dropped and counted.

    Examples
    --------
    >>> from tiltframe.streaming import read_late
    >>> read_late("buffer(3, older=drop)")
    Buffer(windows=3, older='drop')
    """

    windows: int = 0
    older: str = "oldest"

    name: ClassVar[str] = "buffer"
    closes_by_events: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_whole(self.windows, "windows", 0, 100_000)
        if not isinstance(self.older, str) or self.older not in OLDER:
            raise ValueError(f"the argument older must be one of {', '.join(OLDER)}; got {shown(self.older)}")

    def check(self, frame: TiltFrame) -> None:
        finest = frame.levels[0]
        if not finest.contiguous:
            raise ValueError(
                f"a buffer needs windows that follow each other, and windows of {finest.name} do not; use a "
                f"finest level such as 1s, or another late policy"
            )

    def arrive(self, level: TimeWindow, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        starts = level.starts(times)
        before = MIN_INSTANT if newest is None else newest
        so_far = np.full(len(times), before) if together else np.maximum(np.maximum.accumulate(starts), before)
        oldest = np.full(len(times), MIN_INSTANT) if together and newest is None else self._oldest(level, so_far)
        older = times < oldest
        moved, dropped = (older, np.zeros_like(older)) if self.older == "oldest" else (np.zeros_like(older), older)
        return Arrival(
            np.where(moved, oldest, times), dropped, int(starts.max(initial=before)) if len(times) else newest
        )

    def closed_until(self, level: TimeWindow, newest: int) -> int:
        return int(self._oldest(level, np.array([newest]))[0])

    def newest_at(self, level: TimeWindow, closed_until: int) -> int:
        start = level.starts(np.array([closed_until]))
        for _ in range(self.windows):
            start = level.ends(start)
        return int(start[0])

    def _oldest(self, level: TimeWindow, newest: Instants) -> Instants:
        """For each start of a newest window, return the start of the oldest window in the buffer: the window that is
        ``windows`` windows before the newest. All times are in microseconds UTC.
        """
        unique, places = np.unique(newest, return_inverse=True)
        for _ in range(self.windows):
            unique = level.starts(unique - 1)
        return unique[places]
