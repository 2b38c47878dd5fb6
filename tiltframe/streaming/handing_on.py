"""Handing on: a window that closes is merged into that of the next level, so that a batch touches the finest alone.

So it is where nothing is asked of an open window (`Rules.handing_on`). Each level remembers up to which end its windows
are in those of the next one; what comes for these later goes there as well. Where the policy asks for more, every batch
climbs all levels, and all windows count as handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels.groups import group_by
from tiltframe.streaming.open_level import OpenLevel, Rules
from tiltframe.streaming.window_table import HIGHEST, WindowTable, parts_of, stacked
from windows import TimeWindow
from windows.timezone import Instants


def handed_on(levels: Sequence[OpenLevel], rules: Rules, until: int) -> Iterator[OpenLevel]:
    """Merge the windows of each level that end by a moment, and are not handed on yet, into those of the next."""
    parts: WindowTable | None = None
    for level, coarser in _with_next(levels):
        given, going = level, []
        if parts is not None:
            given = level.with_parts(parts, rules)
            going.append(parts.chosen(parts.ends <= level.handed))
        if coarser is not None and level.handed < until:
            given, closing = given.handing(until)
            going.append(closing)
        yield given
        parts = None if coarser is None or not any(map(len, going)) else parts_of(stacked(going), coarser)


def parts_by_level(panes: WindowTable, levels: Sequence[OpenLevel]) -> list[WindowTable]:
    """Say what panes bring to each level: to a coarser one, what the level below has handed on already."""
    found = [panes]
    for level, coarser in pairwise(levels):
        found.append(parts_of(found[-1].chosen(found[-1].ends <= level.handed), coarser.window))
    return found


def as_handed(levels: Sequence[OpenLevel], rules: Rules) -> tuple[OpenLevel, ...]:
    """Go on with levels that were perhaps held by another policy.

    Where this one hands nothing on, all windows are merged into those of the next level now. Where it does, the next
    level has what is held, and goes on to get what comes for it; later windows are handed on when they close.
    """
    if not rules.handing_on:
        return tuple(replace(level, handed=HIGHEST) for level in handed_on(levels, rules, HIGHEST))
    return tuple(
        replace(level, handed=int(level.held.ends.max(initial=rules.closed_by(level.watermark))))
        if level.handed == HIGHEST
        else level
        for level in levels
    )


def to_come(levels: Sequence[OpenLevel], keys: Sequence[NDArray[np.intp]]) -> list[int]:
    """Count for each level the open windows that it will be handed: so far only parts of them are held, below.

    Parameters
    ----------
    levels : of a stream
    keys : for each level the numbers of its windows' keys, equal ones alike on all levels
    """
    counts: list[int] = []
    parts: tuple[Instants, NDArray[np.intp]] | None = None
    for (level, coarser), numbers in zip(_with_next(levels), keys, strict=True):
        starts = level.held.starts
        if parts is not None:
            starts, numbers = np.append(starts, parts[0]), np.append(numbers, parts[1])
            _, one = group_by([pa.array(starts), pa.array(numbers)], len(starts))
            starts, numbers = starts[one], numbers[one]
        counts.append(len(starts) - len(level.held))
        parts = None
        if coarser is not None and level.handed < HIGHEST:
            here = level.window.ends(starts) > level.handed
            parts = coarser.starts(starts[here]), numbers[here]
    return counts


def _with_next(levels: Sequence[OpenLevel]) -> Iterator[tuple[OpenLevel, TimeWindow | None]]:
    """Give each level with the window of the next; None beyond the last."""
    return zip(levels, [*(level.window for level in levels[1:]), None], strict=False)
