"""Resolution: the finest windows that give at most so many points, as a plot of a range asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tiltframe.frame import TiltFrame, window_in
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.ranges import Range
from tiltframe.store.recorded import held_from, snapshot_of
from windows import TimeWindow

_COARSER = ("1h", "1d", "1w", "1mo", "1q", "1y")  # than any level, as a calendar has them


def finest_within(backend: Backend, frame: TiltFrame, span: Range | None, points: int) -> TimeWindow:
    """Choose the finest windows of which a range has at most so many.

    Parameters
    ----------
    backend : Backend
    frame : TiltFrame
        Of the store.
    span : range, optional
        Of starts; where the store holds windows unless given.
    points : int
        At most so many windows, whatever the keys.

    Returns
    -------
    window
        A level that still holds the range from its start on; where the coarsest level has too many, an hour, day,
        week, month, quarter or year that it makes.

    Raises
    ------
    ValueError
        Where even years are too many.
    """
    snapshot = snapshot_of(backend)
    parts = snapshot.parts
    if span is None and not parts:
        return frame.levels[0]
    low, high = span or (min(part.first_start for part in parts), max(part.last_start for part in parts) + 1)
    able = [level for level in frame.levels if held_from(snapshot, level.name) <= low or level == frame.levels[-1]]
    for target in (*able, *_made_of(frame)):
        if _count(target, low, high, points) <= points:
            return target
    raise ValueError(f"even per year the range has more than {points:,} windows; ask for more, or for a shorter range")


def _made_of(frame: TiltFrame) -> Iterator[TimeWindow]:
    coarsest = frame.levels[-1]
    for name in _COARSER:
        window = window_in(name, frame.timezone)
        if window.length > coarsest.length and window.is_made_of(coarsest):
            yield window


def _count(window: TimeWindow, low: int, high: int, points: int) -> int:
    """Count the windows that start in a range; roughly, where they are far too many to be listed."""
    if (high - low) / window.length > 2 * points + 2:
        return 2 * points + 1
    return len(np.asarray(window.starts_between(low, high)))
