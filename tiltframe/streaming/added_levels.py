"""Add coarser levels to a saved stream.

A window of an added level that begins at or after the watermark of the saved stream is complete: all its rows are in
finer windows in memory, or arrive later. A window that begins before the watermark may lack rows, because finer windows
in it may have been removed from memory. The results of such a window are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tiltframe.streaming.open_level import OpenLevel
from tiltframe.streaming.stream_rules import StreamRules
from tiltframe.streaming.window_table import HIGHEST, to_partial_windows
from windows import TimeWindow


def reason_not_to_add(rules: StreamRules) -> str | None:
    """Return the reason why levels cannot be added to a saved stream with these rules, as a clause for a message.
    Return None if they can be added.
    """
    for level in rules.frame.levels:
        if not level.contiguous:
            return f"the windows of {level.name} do not follow each other without gaps or overlaps"
    if rules.emit.mode == "discarding":
        return "in the mode discarding, rows that were emitted are no longer in memory"
    if rules.emit.forgets_timed_out or rules.late.closes_by_events:
        return f"{rules.emit} and {rules.late} remove windows from memory that the watermark has not passed"
    return None


def with_added_levels(
    levels: Sequence[OpenLevel], added: Sequence[TimeWindow], rules: StreamRules
) -> tuple[OpenLevel, ...]:
    """Return the restored levels, followed by new levels for the windows ``added``, from the finest to the coarsest.

    If `StreamRules.cascades` is true, a finer window is merged into the added levels when it closes. If
    `StreamRules.cascades` is false, every batch is merged into all levels; the windows in memory are therefore merged
    into the added levels at once, and the new windows are marked as not yet emitted.
    """
    extended = list(levels)
    for window in added:
        finer = extended[-1]
        until = rules.last_closed_end(finer.watermark) if rules.cascades else HIGHEST
        none = finer.windows.without_rows()
        level = OpenLevel(window, none, none, finer.watermark, cascaded_until=until, known_from=finer.watermark)
        if not rules.cascades:
            parts = to_partial_windows(finer.windows, window)
            level = level.with_parts(parts.with_marks(new_rows=np.maximum(parts.marks["new_rows"], 1)), rules)
        extended[-1:] = [replace(finer, cascaded_until=until), level]
    return tuple(extended)
