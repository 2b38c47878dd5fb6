"""Late policies: how long a closed window is kept for late events, and how later events are handled.

Lateness is decided per window: an event that is late for one window still counts in those that are kept. An event is
late only when none of its windows, on any level, is left. `Buffer` is after Siddhi's ``@BufferSize`` and
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
    """How events arrive: the times at which they count, which of them are dropped, and the newest window by now.

    Parameters
    ----------
    times : array of int64, shape (events,)
        Microseconds UTC. An event that counts in another window than its own keeps its time for ``first`` and ``last``.
    dropped : array of bool, shape (events,)
    newest : int, optional
        The start of the newest window of the finest level that events have come for, if the policy follows it.
    """

    times: Instants
    dropped: NDArray[np.bool_]
    newest: int | None


@dataclass(frozen=True, repr=False)
class LatePolicy(Policy):
    """What a late policy is: a frozen dataclass, whose fields are its arguments and whose ``name`` begins its text.

    Everything has a default: a closed window is not kept, and events count in the windows of their times.
    """

    name: ClassVar[str] = ""
    closes_by_events: ClassVar[bool] = False  # windows close as events come (`closed_until`), without a watermark

    @property
    def lateness_micros(self) -> int | None:
        """How long after its close a window is kept, in microseconds by the watermark; None for ever."""
        return 0

    def for_frame(self, frame: TiltFrame) -> LatePolicy:
        """Return the policy with what it leaves to the frame; itself unless overridden.

        Parameters
        ----------
        frame : TiltFrame

        Returns
        -------
        LatePolicy
        """
        return self

    def check(self, frame: TiltFrame) -> None:
        """Refuse a frame whose windows cannot be kept so.

        Parameters
        ----------
        frame : TiltFrame

        Raises
        ------
        ValueError
            The message says what the policy needs.
        """

    def arrive(self, level: TimeWindow, times: Instants, newest: int | None, together: bool = False) -> Arrival:
        """Say in which windows events count, as they arrive.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        times : array of int64, shape (events,)
            Event times in the order of arrival, microseconds UTC.
        newest : int, optional
            What the last `Arrival` said.
        together : bool
            Whether all of them arrive at once, and none of them is before another.

        Returns
        -------
        Arrival
        """
        return Arrival(times, np.zeros(len(times), np.bool_), newest)

    def closed_until(self, level: TimeWindow, newest: int) -> int:
        """Find the moment up to which windows are closed by events; asked only if the policy ``closes_by_events``.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        newest : int
            What the last `Arrival` said.

        Returns
        -------
        int, microseconds UTC
        """
        raise NotImplementedError(f"{self.name} closes windows by events, and does not say up to when")

    def newest_at(self, level: TimeWindow, closed_until: int) -> int | None:
        """Find the newest window that closes windows up to a moment: the reverse of `closed_until`.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        closed_until : int
            Microseconds UTC.

        Returns
        -------
        int, microseconds UTC, or None if the policy follows no newest window
        """
        return None


@dataclass(frozen=True, repr=False)
class TrueWindow(LatePolicy):
    """Keep every window for ever: a late event counts where it belongs, and its windows are emitted again.

    State grows with all windows that ever were; into a store late events go to their true windows without that.

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
    """Keep closed windows for a while; drop and count the events that come after that.

    Parameters
    ----------
    lateness : duration, optional
        How long a closed window is kept, by the watermark: the allowed lateness of Flink and Beam. Unless given, the
        gap of a frame with sessions, and 0s of others.

    Notes
    -----
    With a lateness of at least the gap, a row that would join a session which is no longer kept is late. With a smaller
    one it opens a session of its own that overlaps the other, as in Flink.

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
    """Keep the newest window of the finest level and a number of windows before it; older rows go to the oldest window.

    Windows follow the events, not a watermark: a finest window closes when it leaves the buffer, and a coarser one when
    a window of the level below closes that lies behind it.

    Parameters
    ----------
    windows : int
        How many windows are held before the newest; with 0, late events go to the newest window.
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
        """Find the oldest window of the buffer for each start of a newest window."""
        unique, places = np.unique(newest, return_inverse=True)
        for _ in range(self.windows):
            unique = level.starts(unique - 1)
        return unique[places]
