"""Late policies determine how long a closed window is kept for late events, and how events are treated after that.

Lateness is decided for each window: an event that is late for one of its windows still counts in its other windows if
these are kept. An event is late only if none of its windows, on any level, is kept. `Buffer` is modelled on Siddhi's
``@BufferSize`` and ``@IgnoreEventsOlderThanBuffer``.
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
    """The treatment of arriving events: the time at which each counts, which events are dropped, and the newest window
    so far.

    Parameters
    ----------
    times : array of int64, shape (events,)
        Microseconds UTC. An event that counts in another window still has its own time for ``first`` and ``last``.
    dropped : array of bool, shape (events,)
    newest : int, optional
        The start of the newest window of the finest level that has events, if the policy uses it.
    """

    times: Instants
    dropped: NDArray[np.bool_]
    newest: int | None


@dataclass(frozen=True, repr=False)
class LatePolicy(Policy):
    """The base class of late policies, which are frozen dataclasses. Their fields are the arguments, and ``name`` is
    the first word of their text.

    All methods have defaults: closed windows are not kept, and events count in the windows of their times.
    """

    name: ClassVar[str] = ""
    # whether events rather than a watermark close windows; if so, `closed_until` is called
    closes_by_events: ClassVar[bool] = False

    @property
    def lateness_micros(self) -> int | None:
        """The time for which a window is kept after it has closed, in microseconds measured by the watermark; None
        means for ever.
        """
        return 0

    def for_frame(self, frame: TiltFrame) -> LatePolicy:
        """Return the policy with values for arguments whose defaults depend on the frame. Without such arguments, the
        policy is returned unchanged.

        Parameters
        ----------
        frame : TiltFrame

        Returns
        -------
        LatePolicy
        """
        return self

    def check(self, frame: TiltFrame) -> None:
        """Raise an error if the policy does not fit the windows of a frame.

        Parameters
        ----------
        frame : TiltFrame

        Raises
        ------
        ValueError
            If the frame does not fit; the message states what the policy requires.
        """

    def arrive(self, level: TimeWindow, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        """Return the times at which arriving events count.

        Parameters
        ----------
        level : TimeWindow
            The finest level.
        times : array of int64, shape (events,)
            Event times in the order of arrival, microseconds UTC.
        newest : int, optional
            ``newest`` of the previous `Arrival`.
        together : bool
            Whether all events arrive at the same time, without an order.

        Returns
        -------
        Arrival
        """
        return Arrival(times, np.zeros(len(times), np.bool_), newest)

    def closed_until(self, level: TimeWindow, newest: int) -> int:
        """Return the time up to which events have closed windows. The method is called only if the policy
        ``closes_by_events``.

        Parameters
        ----------
        level : TimeWindow
            The finest level.
        newest : int
            ``newest`` of the previous `Arrival`.

        Returns
        -------
        int, microseconds UTC
        """
        raise NotImplementedError(f"{self.name} closes windows by events, and must define closed_until")

    def newest_at(self, level: TimeWindow, closed_until: int) -> int | None:
        """Return the newest window that closes windows up to a time. This is the inverse of `closed_until`.

        Parameters
        ----------
        level : TimeWindow
            The finest level.
        closed_until : int
            Microseconds UTC.

        Returns
        -------
        int, microseconds UTC, or None if the policy does not follow a newest window
        """
        return None


@dataclass(frozen=True, repr=False)
class TrueWindow(LatePolicy):
    """Keep all windows for ever: a late event counts in the window of its time, which is emitted again.

    Memory grows with the total number of windows. A stream into a store counts late events correctly without this
    policy.

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
    """Keep closed windows for a limited time. Later events are dropped and counted.

    Parameters
    ----------
    lateness : duration, optional
        The time for which a closed window is kept, measured by the watermark. Flink and Beam call it the allowed
        lateness. The default is the gap if the frame has sessions, otherwise 0s.

    Notes
    -----
    If the lateness is at least the gap, a row that would join a session that is no longer kept counts as late. If the
    lateness is smaller than the gap, such a row opens a new session that overlaps the earlier one, as in Flink.

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
    """Keep the newest window of the finest level and a number of windows before it. Older rows count in the oldest of
    these windows.

    Events close windows instead of a watermark: a window of the finest level closes when it leaves the buffer. A
    coarser window closes when a window of the level below that begins after it closes.

    A watermark moves the buffer like an event of its time. The watermark then also closes coarser windows that end
    before the buffer.

    Parameters
    ----------
    windows : int
        The number of windows to keep before the newest one. With 0, late events count in the newest window.
    older : str
        ``oldest``: an event that is older than the buffer counts in the oldest window of the buffer. ``drop``: such an
        event is dropped and counted.

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
            raise ValueError(f"older must be one of {', '.join(OLDER)}; got {shown(self.older)}")

    def check(self, frame: TiltFrame) -> None:
        finest = frame.levels[0]
        if not finest.contiguous:
            raise ValueError(
                f"a buffer needs windows that follow each other, and windows of {finest.name} do not; use a "
                f"finest level such as 1s, or another late policy"
            )

    def arrive(self, level: TimeWindow, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        starts, before = level.starts(times), MIN_INSTANT if newest is None else newest
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
        """For each start of a newest window, return the start of the oldest window that is still in the buffer,
        `windows` windows earlier.
        """
        unique, places = np.unique(newest, return_inverse=True)
        for _ in range(self.windows):
            unique = level.starts(unique - 1)
        return unique[places]
