"""Late policies: how long a closed window is kept for late events, and how later events are handled.

Lateness is decided per window: an event that is late for one window still counts in the windows that are kept. An event
is late only if none of its windows, on any level, is kept. `Buffer` is after Siddhi's ``@BufferSize`` and
``@IgnoreEventsOlderThanBuffer``.
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
    """How arriving events are handled: the times at which they count, which are dropped, and the newest window so far.

    Parameters
    ----------
    times : array of int64, shape (events,)
        Microseconds UTC. If an event counts in another window, it still has its own time for ``first`` and ``last``.
    dropped : array of bool, shape (events,)
    newest : int, optional
        The start of the newest finest window that has events, if the policy follows it.
    """

    times: Instants
    dropped: NDArray[np.bool_]
    newest: int | None


@dataclass(frozen=True, repr=False)
class LatePolicy(Policy):
    """The base of late policies: frozen dataclasses whose fields are the arguments and whose ``name`` begins the text.

    All methods have defaults: a closed window is not kept, and events count in the windows of their times.
    """

    name: ClassVar[str] = ""
    closes_by_events: ClassVar[bool] = False  # whether events close windows (`closed_until`), without a watermark

    @property
    def lateness_micros(self) -> int | None:
        """How long a window is kept after its close, in microseconds by the watermark; None for ever."""
        return 0

    def for_frame(self, frame: TiltFrame) -> LatePolicy:
        """Return the policy with defaults that depend on the frame filled in; unchanged unless overridden.

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
            If the frame does not fit; the message states what the policy needs.
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
            ``newest`` of the last `Arrival`.
        together : bool
            Whether all events arrive at once, in no order.

        Returns
        -------
        Arrival
        """
        return Arrival(times, np.zeros(len(times), np.bool_), newest)

    def closed_until(self, level: TimeWindow, newest: int) -> int:
        """Return the time up to which events have closed windows; called only if the policy ``closes_by_events``.

        Parameters
        ----------
        level : TimeWindow
            The finest level.
        newest : int
            ``newest`` of the last `Arrival`.

        Returns
        -------
        int, microseconds UTC
        """
        raise NotImplementedError(f"{self.name} closes windows by events, and does not say up to when")

    def newest_at(self, level: TimeWindow, closed_until: int) -> int | None:
        """Return the newest window that closes windows up to a time: the inverse of `closed_until`.

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
    """Keep every window for ever: a late event counts in the window of its time, which is emitted again.

    Memory grows with the number of all windows. A stream into a store counts late events correctly without this policy.

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
    """Keep closed windows for a limited time; drop and count later events.

    Parameters
    ----------
    lateness : duration, optional
        How long a closed window is kept, by the watermark: the allowed lateness of Flink and Beam. The default is the
        gap if the frame has sessions, and else 0s.

    Notes
    -----
    If the lateness is at least the gap, a row that would join a session that is no longer kept is late. If it is
    smaller, the row opens a session of its own that overlaps the earlier one, as in Flink.

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
    """Return the gap of the sessions of a frame, in microseconds; None if it has no sessions."""
    level = frame.levels[0]
    return int(level.length) if level.is_merging and math.isfinite(level.length) else None


@dataclass(frozen=True, repr=False)
class Buffer(LatePolicy):
    """Keep the newest finest window and a number of windows before it; older rows count in the oldest one.

    Windows close by events, not by a watermark: a finest window closes when it leaves the buffer. A coarser window
    closes when a later window of the level below closes.

    Parameters
    ----------
    windows : int
        The number of windows to keep before the newest; with 0, late events count in the newest window.
    older : str
        ``oldest``: an event older than the buffer counts in its oldest window. ``drop``: it is dropped and counted.

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
                f"a buffer holds windows that follow each other, and those of {finest.name} do not; take a finest "
                "level such as 1s, or another late policy"
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
        """Return the oldest window of the buffer for each start of a newest window."""
        unique, places = np.unique(newest, return_inverse=True)
        for _ in range(self.windows):
            unique = level.starts(unique - 1)
        return unique[places]
