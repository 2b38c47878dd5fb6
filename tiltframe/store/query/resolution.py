"""Resolution: choose the windows for a plot. These are the finest windows such that their number in the range does not
exceed a maximum.
"""

from __future__ import annotations

import numpy as np

from tiltframe.frame import TiltFrame
from tiltframe.ranges import EVER, Range
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.log.records import available_from
from tiltframe.store.query.other_zone import is_made_of
from tiltframe.time_range import fill_open_ends
from windows import TimeWindow, read_window

_COARSER = ("1h", "1d", "1w", "1mo", "1q", "1y")  # windows to try if all levels have too many windows for a plot


def finest_windows(snapshot: Snapshot, frame: TiltFrame, within: Range, points: int, timezone: str) -> TimeWindow:
    """Return the finest windows in ``timezone`` such that at most ``points`` windows start in the range ``within``.

    The windows have the size of a level. If even the coarsest level has more than ``points`` windows, the windows are
    hours, days, weeks, months, quarters or years. Each size is merged from the coarsest level whose windows fit into
    windows of this size. If windows of that level have expired in the range, the size is skipped, unless all sizes are
    merged from that level or finer levels. Open ends of the range are replaced by the start of the store's first window
    and the end of its last window. Raise ``ValueError`` if there are more than ``points`` years.
    """
    if not snapshot.parts and set(EVER) & set(within):
        return read_window(frame.levels[0].name, timezone)
    bounds = [at for part in snapshot.parts for at in part.range] or list(within)
    low, high = fill_open_ends(within, (min(bounds), max(bounds)))
    high = max(low, high)
    is_complete = [available_from(snapshot, level.name) <= low for level in frame.levels]
    coarsest = frame.levels[-1].length
    names = [level.name for level in frame.levels] + [n for n in _COARSER if read_window(n).length > coarsest]
    windows = [read_window(name, timezone) for name in names]
    is_possible = [[is_made_of(window, level, (low, high)) for level in frame.levels] for window in windows]
    sources = [max((i for i, is_source in enumerate(row) if is_source), default=None) for row in is_possible]
    coarsest_source = max((i for i in sources if i is not None), default=None)
    for window, source in zip(windows, sources, strict=True):
        is_usable = source is not None and (is_complete[source] or source == coarsest_source)
        if is_usable and _count(window, low, high, is_open=within[0] == EVER[0], points=points) <= points:
            return window
    raise ValueError(
        f"the range has more than {points:,} windows even with one window per year; increase points, or use a shorter "
        "range"
    )


def _count(window: TimeWindow, low: int, high: int, *, is_open: bool, points: int) -> int:
    """Return the number of windows that start at or after ``low`` and before ``high``. If the range has no start
    (``is_open``), the window that contains ``low`` is counted too. If the number is far above ``points``, it is not
    counted, to save time, and another number above ``points`` is returned.
    """
    if (high - low) / window.length > 2 * points + 2:
        return 2 * points + 1
    first = int(window.starts(np.array([low], np.int64))[0]) if is_open else low
    return len(np.asarray(window.starts_between(first, high)))
