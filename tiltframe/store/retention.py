"""Retention: how long each level is kept; fine near, coarse far.

A level forgets a window only when the next one holds it, so nothing that was counted is lost: what a level does not
tell any more, a coarser one does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aggr.arguments import checked_mapping
from tiltframe.frame import TiltFrame
from tiltframe.store.manifest import Manifest
from tiltframe.store.ranges import FIRST
from windows import window


def checked_retention(retention: Mapping[str, str | None], frame: TiltFrame) -> dict[str, str]:
    """Check how long levels are to be kept, each at least as long as the one before; a month counts 30 days.

    Levels that are None, and those that are not named, are kept for ever. Raises ``ValueError``.
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


def horizon_of(manifest: Manifest, name: str, now: int) -> int:
    """Find the time before which a level's windows may go: never in the middle of a coarser window."""
    levels = manifest.frame.levels
    at = [level.name for level in levels].index(name)
    until = max(now - int(window(manifest.retention[name]).length), FIRST)  # there are no windows before
    return int(levels[min(at + 1, len(levels) - 1)].starts(np.array([until]))[0])
