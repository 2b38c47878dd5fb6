"""Resolution: the finest windows that give at most so many points, as a plot of a range asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tiltframe.frame import TiltFrame, window_in
from tiltframe.store.core.backend import Backend, Range
from tiltframe.store.core.ranges import EVER
from tiltframe.store.core.writers import EXPIRED
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
    views = backend.view([level.name for level in frame.levels])
    parts = [part for view in views for part in view.parts if part.rows]
    if span is None and not parts:
        return frame.levels[0]
    low, high = span or (min(part.least for part in parts), max(part.greatest for part in parts) + 1)
    held = {view.level: view.txn_versions.get(EXPIRED, EVER[0]) for view in views}
    able = [level for level in frame.levels if held[level.name] <= low or level == frame.levels[-1]]
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
