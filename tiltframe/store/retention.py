"""Retention: how long each level is kept; fine near, coarse far.

A level forgets a window only when the next one holds it, so nothing that was counted is lost: what a level does not
tell any more, a coarser one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tiltframe.frame import TiltFrame
from tiltframe.store.compact import EVER, again, catch_up
from tiltframe.store.description import Description
from tiltframe.store.layers import lasting, replaced_since
from tiltframe.store.tables import CHANGED, EXPIRED, Conflict, Tables, expired_in
from windows import window


def checked_retention(retention: Mapping[str, str | None], frame: TiltFrame) -> dict[str, str]:
    """Check how long levels are to be kept: each at least as long as the one before.

    Parameters
    ----------
    retention : level -> duration
        Such as ``{"10s": "1d", "1h": None}``; None, and levels that are not named, are kept for ever. A month counts
        30 days.
    frame : TiltFrame

    Raises
    ------
    ValueError
        For a level that is not there, a duration that cannot be read, or a level kept longer than the next.
    """
    durations = {frame.level(name).name: duration for name, duration in retention.items()}
    kept = {name: window(duration).name for name, duration in durations.items() if duration is not None}
    for fine, coarse in zip(frame.levels, frame.levels[1:], strict=False):
        if coarse.name in kept and (
            fine.name not in kept or window(kept[fine.name]).sort_key > window(kept[coarse.name]).sort_key
        ):
            raise ValueError(
                f"{fine.name} would be kept {'for ' + kept[fine.name] if fine.name in kept else 'for ever'}, and "
                f"{coarse.name}, which is made of it, for {kept[coarse.name]} only; keep coarse levels at least as long"
            )
    return kept


def expire(tables: Tables, description: Description, now: int) -> dict[str, tuple[int, int]]:
    """Remove the windows of each level that are older than its retention; coarser levels catch up first.

    Parameters
    ----------
    now : int
        Microseconds UTC.

    Returns
    -------
    level name -> (the time before which it holds no windows, rows removed)
    """
    catch_up(tables, description)
    return {level: again(partial(_expire, tables, description, level, now)) for level in description.retention}


def _expire(tables: Tables, description: Description, name: str, now: int) -> tuple[int, int]:
    levels = description.frame.levels
    views = tables.view([level.name for level in levels], [CHANGED, expired_in(name)])
    if replaced_since(views, levels[-1]):
        catch_up(tables, description)  # before windows go that coarser ones are to be derived from
        raise Conflict("a replacement was still under way")
    at = [level.name for level in levels].index(name)
    horizon = horizon_of(description, name, now)
    old = [part for part in lasting(views, views[at].parts) if part.least < horizon and part.rows]
    before = views[at].covers.get(EXPIRED, EVER[0])
    if not old or horizon < before:
        return max(horizon, before), 0
    changed = {CHANGED: views[0].covers.get(CHANGED, 0) + 1}
    if at and views[0].covers.get(expired_in(name), EVER[0]) < horizon:  # first of all, no replacement may need them
        tables.commit(levels[0].name, [], (), {expired_in(name): horizon, **changed}, views[0])
        return _expire(tables, description, name, now)
    cut = [(part, (part.least, min(horizon, part.greatest + 1))) for part in old]
    gone = tables.read([piece for piece in cut if piece[0].greatest >= horizon], []).num_rows
    covers = {EXPIRED: horizon} if horizon > before else {}
    tables.commit(name, [], cut, covers if at else {**covers, **changed}, views[at])
    return horizon, gone + sum(part.rows for part in old if part.greatest < horizon)


def horizon_of(description: Description, name: str, now: int) -> int:
    """Find the time before which a level's windows may go: never in the middle of a coarser window."""
    levels = description.frame.levels
    at = [level.name for level in levels].index(name)
    until = now - int(window(description.retention[name]).sort_key)
    return int(levels[min(at + 1, len(levels) - 1)].starts(np.array([until]))[0])
