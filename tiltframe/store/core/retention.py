"""Retention: how long each level is kept; fine near, coarse far.

A level forgets a window only when the next one holds it, so nothing that was counted is lost: what a level does not
tell any more, a coarser one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from aggr.arguments import checked_mapping
from tiltframe.frame import TiltFrame
from tiltframe.store.core.backend import Backend, Conflict
from tiltframe.store.core.catching_up import catch_up
from tiltframe.store.core.generations import alter, commit_to
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.ranges import EVER, FIRST
from tiltframe.store.core.read_plan import lasting, replaced_since
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import view_levels
from tiltframe.store.core.writers import CHANGED, EXPIRED, expired_in
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
    durations: dict[str, str | None] = {}
    for given, duration in checked_mapping(retention, "retention", "level -> time, say {'10s': '1d'}").items():
        name = frame.level(given).name
        if name in durations:
            raise ValueError(f"the retention of {name} is given twice; give it once")
        durations[name] = duration
    kept = {name: window(duration).name for name, duration in durations.items() if duration is not None}
    for fine, coarse in zip(frame.levels, frame.levels[1:], strict=False):
        if coarse.name in kept and (
            fine.name not in kept or window(kept[fine.name]).length > window(kept[coarse.name]).length
        ):
            raise ValueError(
                f"{fine.name} would be kept {'for ' + kept[fine.name] if fine.name in kept else 'for ever'}, and "
                f"{coarse.name}, which is made of it, for {kept[coarse.name]} only; keep coarse levels at least as long"
            )
    return kept


def retain(backend: Backend, retention: Mapping[str, str]) -> Manifest:
    """Have a store keep its levels so long from now on; raises `Conflict` where its description is being changed."""
    return alter(backend, lambda now: replace(now, retention=retention))


def expire(backend: Backend, manifest: Manifest, now: int) -> dict[str, tuple[int, int]]:
    """Remove the windows of each level that are older than its retention; coarser levels catch up first.

    Parameters
    ----------
    now : int
        Microseconds UTC.

    Returns
    -------
    level name -> (the time before which it holds no windows, rows removed)
    """
    catch_up(backend, manifest)
    return {level: retry_on_conflict(partial(_expire, backend, manifest, level, now)) for level in manifest.retention}


def _expire(backend: Backend, manifest: Manifest, name: str, now: int) -> tuple[int, int]:
    levels = manifest.frame.levels
    views = view_levels(backend, manifest, None, [CHANGED, expired_in(name)])
    if replaced_since(views, levels[-1]) or any(view.unfilled for view in views):
        catch_up(backend, manifest)  # before windows go that coarser ones are to be derived from
        raise Conflict("coarser levels were still being derived")
    at = [level.name for level in levels].index(name)
    horizon = horizon_of(manifest, name, now)
    old = [part for part in lasting(views, views[at].parts) if part.least < horizon and part.rows]
    before = views[at].txn_versions.get(EXPIRED, EVER[0])
    if not old or horizon < before:
        return max(horizon, before), 0
    changed = {CHANGED: views[0].txn_versions.get(CHANGED, 0) + 1}
    if (
        at and views[0].txn_versions.get(expired_in(name), EVER[0]) < horizon
    ):  # first of all, no replacement may need them
        commit_to(backend, manifest, views[0], [], (), {expired_in(name): horizon, **changed})
        return _expire(backend, manifest, name, now)
    cut = [(part, (part.least, min(horizon, part.greatest + 1))) for part in old]
    gone = backend.read([piece for piece in cut if piece[0].greatest >= horizon], []).num_rows
    txn_versions = {EXPIRED: horizon} if horizon > before else {}
    commit_to(backend, manifest, views[at], [], cut, txn_versions if at else {**txn_versions, **changed})
    return horizon, gone + sum(part.rows for part in old if part.greatest < horizon)


def horizon_of(manifest: Manifest, name: str, now: int) -> int:
    """Find the time before which a level's windows may go: never in the middle of a coarser window."""
    levels = manifest.frame.levels
    at = [level.name for level in levels].index(name)
    until = max(now - int(window(manifest.retention[name]).length), FIRST)  # there are no windows before
    return int(levels[min(at + 1, len(levels) - 1)].starts(np.array([until]))[0])
