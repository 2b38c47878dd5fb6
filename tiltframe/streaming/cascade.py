"""The cascade of levels: a window that closes is merged into that of the next level; a batch touches the finest alone.

This is done only if the policy never emits an open window (`StreamRules.cascades`). Each level remembers up to which
end its windows are in those of the next one; what comes for these later goes there as well. If the policy asks for
more, every batch climbs all levels, and all windows count as cascaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.groups.groups import group_by
from tiltframe.streaming.open_level import OpenLevel
from tiltframe.streaming.stream_rules import StreamRules
from tiltframe.streaming.window_table import HIGHEST, WindowTable, as_parts_of, concat
from windows import TimeWindow
from windows.timezone import Instants


def cascade(levels: Sequence[OpenLevel], rules: StreamRules, until: int) -> Iterator[OpenLevel]:
    """Merge windows that end by a moment into those of the next level, unless they are in them already."""
    parts: WindowTable | None = None
    for level, coarser in _with_next(levels):
        taken, going = level, []
        if parts is not None:
            taken = level.with_parts(parts, rules)
            going.append(parts.filter(parts.ends <= level.cascaded_until))
        if coarser is not None and level.cascaded_until < until:
            taken, closing = taken.cascading(until)
            going.append(closing)
        yield taken
        parts = None if coarser is None or not any(map(len, going)) else as_parts_of(concat(going), coarser)


def parts_by_level(panes: WindowTable, levels: Sequence[OpenLevel]) -> list[WindowTable]:
    """Say what panes bring to each level: to a coarser one, what the level below has cascaded already."""
    parts = [panes]
    for level, coarser in pairwise(levels):
        parts.append(as_parts_of(parts[-1].filter(parts[-1].ends <= level.cascaded_until), coarser.window))
    return parts


def adopt(levels: Sequence[OpenLevel], rules: StreamRules) -> tuple[OpenLevel, ...]:
    """Go on with levels that were perhaps held by another policy.

    If this one does not cascade, all windows are merged into those of the next level now. If it does, the next level
    has what is held, and goes on to get what comes for it; later windows are merged into it when they close.
    """
    if not rules.cascades:
        return tuple(replace(level, cascaded_until=HIGHEST) for level in cascade(levels, rules, HIGHEST))
    return tuple(
        replace(level, cascaded_until=int(level.held.ends.max(initial=rules.closed_by(level.watermark))))
        if level.cascaded_until == HIGHEST
        else level
        for level in levels
    )


def pending_counts(levels: Sequence[OpenLevel], keys: Sequence[NDArray[np.intp]]) -> list[int]:
    """Count for each level the open windows that are still to come: so far only parts of them are held, below.

    ``keys`` are for each level the numbers of its windows' keys, equal ones alike on all levels.
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
        if coarser is not None and level.cascaded_until < HIGHEST:
            here = level.window.ends(starts) > level.cascaded_until
            parts = coarser.starts(starts[here]), numbers[here]
    return counts


def _with_next(levels: Sequence[OpenLevel]) -> Iterator[tuple[OpenLevel, TimeWindow | None]]:
    """Give each level with the window of the next; None beyond the last."""
    return zip(levels, [*(level.window for level in levels[1:]), None], strict=False)
