"""Levels: which windows an expression is read from, by its steps and its range."""

from __future__ import annotations

import numpy as np

from tiltframe.frame import TiltFrame
from tiltframe.serve.promql.errors import Unanswerable
from tiltframe.serve.promql.parse import written
from windows import TimeWindow
from windows.timezone import Instants

_MONTHS = ("mo", "q", "y")


def newest_level(frame: TiltFrame, step: int | None) -> TimeWindow:
    """Choose the windows of which each moment is given the newest: the coarsest that steps are whole multiples of.

    The finest if none fits, and for one moment alone, which has no step.
    """
    return next((level for level in reversed(frame.levels) if step and _is_whole(step, level)), frame.levels[0])


def range_level(frame: TiltFrame, moments: Instants, step: int | None, span: int, text: str) -> TimeWindow:
    """Choose the windows that ranges before moments are merged of: the coarsest that steps and ranges are made of.

    One moment alone is answered as freshly as by the finest windows. Raises `Unanswerable` if no level's windows make
    up the ranges.
    """
    finest = frame.levels[0]

    def fits(level: TimeWindow) -> bool:
        fresh = step is not None or level.starts(moments)[-1] == finest.starts(moments)[-1]
        return fresh and (step is None or _is_whole(step, level))

    for level in (*filter(fits, reversed(frame.levels)), finest):
        if _is_whole(span, level):
            first = level.starts(moments[:1] - span)[0]
            starts = level.starts_between(int(first), int(moments[-1]) + 1)
            if (np.diff(starts) == level.length).all():
                return level
    names = ", ".join(level.name for level in frame.levels)
    raise Unanswerable(
        f"{text} is not made of equally long windows: {written(span)} is no multiple of a level ({names}), or the "
        f"clock of {frame.timezone} changes within; ask for a multiple"
    )


def _is_whole(duration: int, level: TimeWindow) -> bool:
    return level.resolution not in _MONTHS and duration % int(level.length) == 0
