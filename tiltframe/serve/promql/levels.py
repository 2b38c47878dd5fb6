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

    Parameters
    ----------
    frame : TiltFrame
    step : int, optional
        Microseconds; None for one moment alone, which is given the finest windows.

    Returns
    -------
    TimeWindow
        A level; the finest if none fits.
    """
    fitting = [level for level in frame.levels if step is not None and _is_whole(step, level)]
    return fitting[-1] if fitting else frame.levels[0]


def range_level(frame: TiltFrame, moments: Instants, step: int | None, span: int, what: str) -> TimeWindow:
    """Choose the windows that ranges before moments are merged of: the coarsest that steps and ranges are made of.

    Parameters
    ----------
    frame : TiltFrame
    moments : array of int64
        Ascending, microseconds UTC.
    step : int, optional
        Microseconds; None for one moment alone, which is answered as freshly as by the finest windows.
    span : int
        The length of ranges, microseconds.
    what : str
        The part of the expression, for the error.

    Returns
    -------
    TimeWindow

    Raises
    ------
    Unanswerable
        If ranges are not whole numbers of the windows of any level.
    """
    newest = frame.levels[0].starts(moments)[-1]
    low, high = int(moments[0]) - span, int(moments[-1])
    for level in reversed(frame.levels):
        fits = _is_whole(span, level) and (step is None or _is_whole(step, level))
        fresh = step is not None or level.starts(moments)[-1] == newest
        if fits and fresh and _are_equally_long(level, low, high):
            return level
    finest = frame.levels[0]
    if _is_whole(span, finest) and _are_equally_long(finest, low, high):
        return finest
    names = ", ".join(level.name for level in frame.levels)
    raise Unanswerable(
        f"{what} is not made of equally long windows: {written(span)} is no multiple of a level ({names}), or the clock "
        f"of {frame.timezone} changes within; ask for a multiple"
    )


def _is_whole(duration: int, level: TimeWindow) -> bool:
    return level.resolution not in _MONTHS and duration % int(level.length) == 0


def _are_equally_long(level: TimeWindow, low: int, high: int) -> bool:
    starts = level.starts_between(low, high + 1)
    return bool((np.diff(starts) == level.length).all())
