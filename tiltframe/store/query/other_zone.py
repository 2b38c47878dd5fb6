"""Windows of another zone than the store's: made of a level's windows if each of theirs begins with one of the level's.

1d in Europe/Berlin, of hours in UTC        1d in Asia/Kathmandu (UTC+5:45), of quarters of an hour in UTC
"""

from __future__ import annotations

import numpy as np

from tiltframe.store.ranges import Range, as_text
from windows import TimeWindow
from windows.timezone import Instants, clock

_DAY = 86_400_000_000
_YEARS = (0, 2_145_916_800_000_000)  # 1970 to 2037, where a query names no range


def is_made_of(target: TimeWindow, level: TimeWindow, within: Range | None) -> bool:
    """Say whether the windows of a query are made of whole windows of a level.

    Parameters
    ----------
    target : TimeWindow
        What results are per.
    level : TimeWindow
        Of the store.
    within : range, optional
        Of the query, microseconds UTC: clocks were set otherwise at other times.

    Returns
    -------
    bool
    """
    pane = target.pane
    if None in (pane.timezone, level.timezone) or pane.timezone == level.timezone:
        return target.is_made_of(level)
    if target.is_merging or not (pane.contiguous and level.contiguous) or level.length > pane.length:
        return False
    return all(
        bool((level.starts(starts) == starts).all())
        for starts in (pane.starts_between(low, high) for low, high in _looked_at(pane, within or _YEARS))
        if len(starts)
    )


def _looked_at(pane: TimeWindow, within: Range) -> list[Range]:
    """Choose where windows are looked at: days and longer ones everywhere, others around each change of the clock."""
    low, high = within[0] - int(pane.length), within[1] + int(pane.length)
    if pane.length >= _DAY:
        return [(low, high)]
    assert pane.timezone is not None
    changes = clock(pane.timezone, low, high).since
    return [
        (low, low + _DAY),
        *((int(at) - _DAY, int(at) + _DAY) for at in changes[(changes > low) & (changes < high)]),
    ]


def check_parts(starts: Instants, level: TimeWindow, target: TimeWindow) -> None:
    """Raise ``ValueError`` unless the windows of a level that were read each lie in one of another zone's windows."""
    pane = target.pane
    if pane.timezone == level.timezone or not len(starts):
        return
    known = np.unique(starts)
    across = known[pane.starts(known) != pane.starts(level.ends(known) - 1)]
    if len(across):
        raise ValueError(
            f"the window of {level.name} from {as_text(int(across[0]))} on lies in two of {target.name} in "
            f"{pane.timezone}, whose clock was set otherwise then; ask of a later range, or in {level.timezone}"
        )
