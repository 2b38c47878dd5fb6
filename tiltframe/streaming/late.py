"""Late policies: how long a closed window is kept for late events, and what becomes of those that come later still.

Lateness is decided per window: an event that is late for one window still counts in those that are kept. An event is
late only when none of its windows, on any level, is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import checked_whole, shown
from tiltframe.streaming.policy_text import DURATION, Policy, checked_duration, micros, read_policy
from windows import MIN_INSTANT, TimeWindow
from windows.timezone import Instants


@dataclass(frozen=True, repr=False)
class LatePolicy(Policy):
    """What all late policies share: how long closed windows are kept."""

    name: ClassVar[str] = ""

    @property
    def kept_us(self) -> int | None:
        """How long after its close a window is kept, in microseconds by the watermark; None for ever."""
        return 0


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
    def kept_us(self) -> int | None:
        """For ever."""
        return None


@dataclass(frozen=True, repr=False)
class Drop(LatePolicy):
    """Keep closed windows for a while; drop and count the events that come after that.

    Parameters
    ----------
    lateness : duration
        How long a closed window is kept, by the watermark: the allowed lateness of Flink and Beam.

    Examples
    --------
    >>> print(Drop("90s"))
    drop(lateness=90s)
    """

    lateness: str = field(default="0s", metadata=DURATION)

    name: ClassVar[str] = "drop"

    def __post_init__(self) -> None:
        """Check the lateness."""
        object.__setattr__(self, "lateness", checked_duration(self.lateness, "lateness"))

    @property
    def kept_us(self) -> int:
        """The allowed lateness in microseconds."""
        return micros(self.lateness)


OLDER = ("oldest", "drop")


@dataclass(frozen=True, repr=False)
class Buffer(LatePolicy):
    """Hold the newest window of the finest level and so many before it; what is older goes to the oldest of them.

    Windows follow the events, not a watermark: a finest window closes when it leaves the buffer, and a coarser one when
    a window of the level below closes that lies behind it. After Siddhi's ``@BufferSize`` and
    ``@IgnoreEventsOlderThanBuffer``.

    Parameters
    ----------
    windows : int
        How many windows are held before the newest; with 0, late events go to the newest window.
    older : str
        ``oldest``: an event older than the buffer counts in its oldest window. ``drop``: it is dropped and counted.

    Examples
    --------
    >>> read_late("buffer(3, older=drop)")
    Buffer(windows=3, older='drop')
    """

    windows: int = 0
    older: str = "oldest"

    name: ClassVar[str] = "buffer"

    def __post_init__(self) -> None:
        """Check both arguments."""
        checked_whole(self.windows, "windows", 0, 100_000)
        if not isinstance(self.older, str) or self.older not in OLDER:
            raise ValueError(f"older must be one of {', '.join(OLDER)}; got {shown(self.older)}")

    def oldest(self, level: TimeWindow, newest: Instants) -> Instants:
        """Find the oldest window of the buffer for each start of a newest window.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        newest : array of int64
            Microseconds UTC.

        Returns
        -------
        array of int64, microseconds UTC
        """
        unique, places = np.unique(newest, return_inverse=True)
        for _ in range(self.windows):
            unique = level.starts(unique - 1)
        return unique[places]

    def newest(self, level: TimeWindow, oldest: int) -> int:
        """Find the start of the newest window while the oldest one of the buffer is that of a moment.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        oldest : int
            Microseconds UTC.

        Returns
        -------
        int, microseconds UTC
        """
        start = level.starts(np.array([oldest]))
        for _ in range(self.windows):
            start = level.ends(start)
        return int(start[0])

    def reached(self, level: TimeWindow, times: Instants, newest: int | None) -> Instants:
        """Find the start of the oldest window of the buffer as each event arrives, the event itself included.

        Parameters
        ----------
        level : TimeWindow
            The finest.
        times : array of int64
            Event times in the order of arrival, microseconds UTC.
        newest : int, optional
            The start of the newest window of the events before.

        Returns
        -------
        array of int64, microseconds UTC
        """
        starts = level.starts(times)
        return self.oldest(level, np.maximum(np.maximum.accumulate(starts), MIN_INSTANT if newest is None else newest))


_FAMILY: dict[str, type[LatePolicy]] = {kind.name: kind for kind in (TrueWindow, Drop, Buffer)}


def read_late(text: str | LatePolicy) -> LatePolicy:
    """Read a late policy from text, or take it as it is.

    Parameters
    ----------
    text : str
        ``true_window``, ``drop(LATENESS)`` or ``buffer(WINDOWS, older=oldest)``.

    Returns
    -------
    LatePolicy

    Raises
    ------
    ValueError
        If it cannot be read.

    Examples
    --------
    >>> read_late("drop(5m)")
    Drop(lateness='5m')
    """
    return text if isinstance(text, LatePolicy) else read_policy(text, _FAMILY, "late policy", "drop(1h)")


def moved(times: Instants, oldest: Instants) -> tuple[Instants, NDArray[np.bool_]]:
    """Move the times before the oldest window of a buffer to its start, and say which were."""
    older = times < oldest
    return np.where(older, oldest, times), older
