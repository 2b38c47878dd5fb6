"""The levels of a frame: windows from fine to coarse. Each window consists of whole windows of the level before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from aggr.arguments import checked_list, shown
from windows import TimeWindow, as_window, read_windows
from windows.level_range import is_level_range

_EXAMPLES_OF_SIZES = "window sizes, such as ['10s', '1m', '1h']"


def read_levels(levels: Sequence[str | TimeWindow], timezone: str) -> tuple[TimeWindow, ...]:
    """Return levels as window objects in the time zone ``timezone``. ``levels`` is a list of window objects and texts,
    or a single text such as ``sec ... year``. Raise ``ValueError`` if there are no levels, or if a window object is in
    another time zone.
    """
    if isinstance(levels, str) and is_level_range(levels):
        levels = read_windows(levels, timezone)
    windows = tuple(window_in(level, timezone) for level in checked_list(levels, "levels", _EXAMPLES_OF_SIZES))
    if not windows:
        raise ValueError(f"levels must be a list of {_EXAMPLES_OF_SIZES}; got {shown(levels)}")
    return windows


def window_in(window: str | TimeWindow, timezone: str) -> TimeWindow:
    """Return the window that a text describes, in the time zone ``timezone``. A window object is returned unchanged.
    Raise ``ValueError`` if a window object is in another time zone.
    """
    window = as_window(window, timezone)
    if window.timezone not in (None, timezone):
        raise ValueError(
            f"windows of {window.name} use the time zone {window.timezone}, but the frame uses "
            f"{timezone}; create them with timezone={timezone!r}, or pass their name as text"
        )
    return window


def check_nesting(levels: Sequence[TimeWindow]) -> None:
    """Raise ``ValueError`` if two levels have the same size, or a level does not consist of whole windows of the level
    before.
    """
    for fine, coarse in pairwise(levels):
        if fine.sort_key == coarse.sort_key and fine.is_made_of(coarse) and coarse.is_made_of(fine):
            raise ValueError(f"the levels {fine.name} and {coarse.name} have the same size; name only one of them")
        longer = f"{fine.name} is longer" if fine.length > coarse.length else None
        problem = coarse.nesting_problem(fine) or longer
        if problem:
            raise ValueError(
                f"{coarse.name} does not consist of whole windows of {fine.name}: "
                f"{problem}; list levels from fine to coarse, each a multiple of the previous one"
            )


def find_level(levels: Sequence[TimeWindow], name: str | TimeWindow) -> TimeWindow:
    """Return the level with a name, or with an equal name such as ``60s`` for ``1m``. Raise ``ValueError`` if there is
    no such level; the message lists the levels.
    """
    levels_by_name = {level.name: level for level in levels}
    if isinstance(name, str) and name in levels_by_name:
        return levels_by_name[name]
    with suppress(ValueError):  # A text that is not a window raises the error below, which lists the levels.
        name_of_level = as_window(name).name
        if name_of_level in levels_by_name:
            return levels_by_name[name_of_level]
    raise ValueError(f"the frame has no level {shown(name)}; it has {', '.join(levels_by_name)}")
