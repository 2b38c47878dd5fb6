"""Resolution: the finest windows that give at most a certain number of points, for plotting a range."""

from __future__ import annotations

import numpy as np

from tiltframe.frame import TiltFrame
from tiltframe.ranges import EVER, Range
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.log.records import available_from
from tiltframe.store.query.other_zone import is_made_of
from tiltframe.time_range import closed
from windows import TimeWindow, read_window

_COARSER = ("1h", "1d", "1w", "1mo", "1q", "1y")  # calendar windows to use if all levels are too fine


def finest_within(snapshot: Snapshot, frame: TiltFrame, within: Range, points: int, timezone: str) -> TimeWindow:
    """Return the finest windows in a zone such that at most ``points`` windows start in a range.

    They have the size of a level. They are merged from a level that has not removed windows from the start of the
    range. If the coarsest level has too many windows, they are hours, days, weeks, months, quarters or years. An open
    end is replaced by the first or last window of the store. Raise ``ValueError`` if there are too many even with
    years.
    """
    if not snapshot.parts and set(EVER) & set(within):
        return read_window(frame.levels[0].name, timezone)
    bounds = [at for part in snapshot.parts for at in part.range] or list(within)
    low, high = closed(within, (min(bounds), max(bounds)))
    high = max(low, high)
    is_held = [available_from(snapshot, level.name) <= low for level in frame.levels]
    coarsest = frame.levels[-1].length
    names = [level.name for level in frame.levels] + [n for n in _COARSER if read_window(n).length > coarsest]
    windows = [read_window(name, timezone) for name in names]
    able = [[is_made_of(window, level, (low, high)) for level in frame.levels] for window in windows]
    sources = [max((i for i, makes in enumerate(row) if makes), default=None) for row in able]
    last = max((i for i in sources if i is not None), default=None)
    for window, source in zip(windows, sources, strict=True):
        usable = source is not None and (is_held[source] or source == last)
        if usable and _count(window, low, high, points) <= points:
            return window
    raise ValueError(
        f"the range has more than {points:,} windows even with one window per year; increase points, or use a shorter "
        "range"
    )


def _count(window: TimeWindow, low: int, high: int, points: int) -> int:
    """Return the number of windows that start in a range. It is an estimate if there are far too many to list."""
    if (high - low) / window.length > 2 * points + 2:
        return 2 * points + 1
    return len(np.asarray(window.starts_between(low, high)))
