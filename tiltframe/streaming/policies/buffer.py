"""Buffer: the newest windows are held, whatever the watermark, and older events go to the oldest of them.

After Siddhi's ``@BufferSize`` and ``@IgnoreEventsOlderThanBuffer``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from aggr.arguments import checked_whole, shown
from tiltframe.streaming.policies.late import Arrival, LatePolicy
from windows import MIN_INSTANT, TimeWindow
from windows.timezone import Instants

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame

OLDER = ("oldest", "drop")


@dataclass(frozen=True, repr=False)
class Buffer(LatePolicy):
    """Hold the newest window of the finest level and so many before it; what is older goes to the oldest of them.

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
