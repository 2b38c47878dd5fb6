"""Windows in another time zone than the store's. Such windows can be merged from a level if each of the windows begins
at the start of a window of the level.

    days in Europe/Berlin                 can be merged from hours in UTC
    days in Asia/Kathmandu (UTC+5:45)     can be merged from quarters of an hour in UTC, but not from hours
"""

from __future__ import annotations

import numpy as np

from aggr.clocks import clock
from tiltframe.ranges import EVER, Range, as_text
from windows import TimeWindow
from windows.contract import check_nested
from windows.timezone import Instants

_DAY = 86_400_000_000
_YEAR = 366 * _DAY
_DEFAULT_RANGE = (0, 2_145_916_800_000_000)  # the years 1970 to 2037, for queries without a range


def is_made_of(target: TimeWindow, level: TimeWindow, within: Range) -> bool:
    """Return whether each window of ``target`` in the range ``within`` consists of complete windows of ``level``. For
    different time zones this may depend on the range, because the UTC offsets of zones have changed.
    """
    pane = target.pane
    if None in (pane.timezone, level.timezone) or pane.timezone == level.timezone:
        return target.is_made_of(level)
    if target.is_merging or not (pane.contiguous and level.contiguous) or level.length > pane.length:
        return False
    return all(
        bool((level.starts(starts) == starts).all())
        for starts in (pane.starts_between(low, high) for low, high in _ranges_to_compare(pane, level, within))
        if len(starts)
    )


def _ranges_to_compare(pane: TimeWindow, level: TimeWindow, within: Range) -> list[Range]:
    """Return the ranges of time in which `is_made_of` compares the starts of windows. For days and longer windows, this
    is the complete range. For shorter windows, the ranges are the first day, and the days before and after each change
    of the UTC offset, because the starts of windows follow the same pattern between two changes.
    """
    low = min(_DEFAULT_RANGE[0], within[1] - _YEAR) if within[0] == EVER[0] else within[0]
    high = max(_DEFAULT_RANGE[1], within[0] + _YEAR) if within[1] == EVER[1] else within[1]
    low = low - int(pane.length)
    high = high + int(pane.length)
    if pane.length >= _DAY:
        return [(low, high)]
    zones = [zone for zone in (pane.timezone, level.timezone) if zone is not None]
    changes = np.concatenate([clock(zone, low, high).since for zone in zones])
    changes_in_range = changes[(changes > low) & (changes < high)].tolist()
    return [(low, low + _DAY), *((at - _DAY, at + _DAY) for at in changes_in_range)]


def check_windows_nest(starts: Instants, level: TimeWindow, target: TimeWindow) -> None:
    """Raise ``ValueError`` if a window of ``level`` that was read does not lie in a single window of ``target``.
    ``starts`` are the starts of the windows that were read, in microseconds UTC.

    Nothing is checked if ``level`` and ``target`` have the same time zone, and the windows of both follow the same
    rules in all years. In this case, the plan of the query has already compared the windows.
    """
    pane = target.pane
    is_already_checked = pane.timezone == level.timezone and pane.same_in_all_years and level.same_in_all_years
    if is_already_checked or not len(starts):
        return
    window_starts = np.unique(starts)
    if None in (pane.timezone, level.timezone) or pane.timezone == level.timezone:
        check_nested(pane, pane.assign(window_starts), window_starts, level.ends(window_starts))
        return
    split_starts = window_starts[pane.starts(window_starts) != pane.starts(level.ends(window_starts) - 1)]
    if len(split_starts):
        raise ValueError(
            f"the window of {level.name} that starts at {as_text(int(split_starts[0]))} overlaps two windows of "
            f"{target.name} in {pane.timezone}, whose UTC offset was different at that time; use a later range, or the "
            f"time zone {level.timezone}"
        )
