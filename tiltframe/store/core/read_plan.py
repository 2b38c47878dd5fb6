"""Layers: from which parts a level is read, for a moment when coarser levels lag behind finer ones.

A commit is in the store once the finest level holds it; coarser levels follow, one after the other. So a level has
what it holds itself, and borrows the rest:

- a commit that it does not hold yet is read from the finest level, which keeps every commit apart until all coarser
  levels hold it;
- a range that has been replaced below, and not here yet, is read whole from the level before, and this level's own
  rows there are dropped;
- a new level that has not been filled yet is read from the level before.

Views are taken from fine to coarse. Whatever was merged, expired or replaced in a finer level by then, the coarser
ones held before, so a reader misses nothing and counts nothing twice, whoever writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tiltframe.store.core.backend import Part, Range, Snapshot
from tiltframe.store.core.ranges import EVER, common, minus, union
from tiltframe.store.core.writers import EXPIRED, MERGED, OWN
from windows import TimeWindow

REPLACED = f"{OWN}replaced"  # tiltframe:replaced FROM TO, microseconds UTC

PartRanges = list[tuple[Part, Range]]


@dataclass(frozen=True)
class ReadPlan:
    """What a level is made of, in some ranges.

    Parameters
    ----------
    own : pieces
        Of its own parts.
    borrowed : pieces
        Of finer levels, to be merged up.
    dropped : pieces
        Of its own parts, that borrowed ones stand for.
    txn_versions : writer -> number
        What the level will hold once it has taken in all that it borrows, everywhere.
    """

    own: PartRanges
    borrowed: PartRanges
    dropped: PartRanges
    txn_versions: dict[str, int]

    @property
    def part_ranges(self) -> PartRanges:
        """All that is to be read."""
        return self.own + self.borrowed


def read_plan(views: Sequence[Snapshot], levels: Sequence[TimeWindow], ranges: Sequence[Range]) -> ReadPlan:
    """Choose what the last of some levels, given from the finest on, is read from.

    Parameters
    ----------
    views, levels : of the same levels, from the finest to the one that is asked
    ranges : of window starts; of this level's whole windows
    """
    view = views[-1]
    if len(views) == 1:
        return ReadPlan(_part_ranges(view.parts, ranges), [], [], {})
    missing = [part for part in views[0].parts if not view.holds(part)]
    stale = [EVER] if view.unfilled else replaced_since([views[0], view], levels[-1])
    fresh, old = minus(ranges, stale), common(ranges, stale)
    borrowed = read_plan(views[:-1], levels[:-1], old).part_ranges if old else []
    own, dropped = _part_ranges(view.parts, fresh), _part_ranges(view.parts, old)
    borrowed += _part_ranges(missing, fresh)
    txn_versions: dict[str, int] = {}
    for part in missing:
        txn_versions[part.writer] = max(part.commit, txn_versions.get(part.writer, part.commit))
    return ReadPlan(own, borrowed, dropped, txn_versions)


def lost_level(views: Sequence[Snapshot]) -> str | None:
    """Name a level that has been lost: coarser ones hold something, or finer ones have merged what was in it."""
    if not (views[0].parts or views[0].txn_versions) and any(view.parts for view in views):
        return views[0].level
    merged = any(part.writer == MERGED for part in views[0].parts)
    for view in views[1:]:
        rebuilding = any(part.writer.startswith(REPLACED) and not view.holds(part) for part in views[0].parts)
        if merged and not view.parts and not view.txn_versions and not rebuilding and not view.unfilled:
            return view.level
    return None


def held_from(views: Sequence[Snapshot], levels: Sequence[TimeWindow]) -> int:
    """Return the time from which on the last of some levels, given from the finest on, holds windows.

    A new level can have whole windows only of what the one before it still holds.
    """
    if not views[-1].unfilled:
        return views[-1].txn_versions.get(EXPIRED, EVER[0])
    held = held_from(views[:-1], levels[:-1])
    if held == EVER[0]:
        return held
    begun = levels[-1].starts(np.array([held]))
    return held if begun[0] == held else int(levels[-1].ends(begun)[0])


def replaced_since(views: Sequence[Snapshot], level: TimeWindow) -> list[Range]:
    """Return the ranges that have been replaced in the finest level, and not yet in all of the views."""
    replaced = [part for part in views[0].parts if part.writer.startswith(REPLACED)]
    kept = set(lasting(views, replaced))
    return union(widened(replaced_range(part), level) for part in replaced if part not in kept)


def lasting(views: Sequence[Snapshot], parts: Sequence[Part]) -> list[Part]:
    """Choose the parts that every level holds: these may lose their names when they are merged, or expire.

    Finer levels count too: only what was in the finest level's view is known to come before whatever has been
    replaced there since.
    """
    return [part for part in parts if all(view.holds(part) for view in views)]


def replaced_by(span: Range) -> str:
    """Name the writer of what replaces a range."""
    return f"{REPLACED} {span[0]} {span[1]}"


def replaced_range(part: Part) -> Range:
    """Read which range a part has replaced."""
    low, high = part.writer.removeprefix(REPLACED).split()
    return int(low), int(high)


def widened(span: Range, level: TimeWindow) -> Range:
    """Widen a range to whole windows of a level.

    >>> from windows import window
    >>> widened((61_000_000, 62_000_000), window("1m"))
    (60000000, 120000000)
    """
    last = level.starts(np.array([span[1] - 1]))
    return int(level.starts(np.array([span[0]]))[0]), int(level.ends(last)[0])


def _part_ranges(parts: Iterable[Part], ranges: Sequence[Range]) -> PartRanges:
    """Cut parts to ranges."""
    found = ((part, part.within(span)) for part in parts for span in ranges)
    return [(part, piece) for part, piece in found if piece is not None]
