"""Rebuilding: restore the open windows of all levels from committed states of finer levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import LEVEL
from tiltframe.streaming.open_level import OpenLevel
from tiltframe.streaming.stream_rules import StreamRules, mark_first_panes
from tiltframe.streaming.window_table import new_windows, unknown_in


def rebuilt_levels(
    committed_states: pa.Table, committed: int, frame: TiltFrame, rules: StreamRules
) -> tuple[StreamRules, list[OpenLevel]]:
    """Return the levels with the windows that end after a moment, and rules that record which states are missing."""
    finest = frame.levels[0]
    levels: list[OpenLevel] = []
    at, below = committed, committed_states
    # The policy may need additional columns.
    own = [name for name in rules.functions if name not in committed_states.column_names]
    added = [column.name for column in frame.states if committed_states.column(column.name).null_count] + own
    rules = replace(rules, added=tuple(added))
    for level in frame.levels:
        here = pc.equal(committed_states.column(LEVEL), level.name)
        of_level = committed_states.filter(here).drop_columns([LEVEL])
        if level == finest:
            of_level = below = of_level.filter(pa.array(finest.ends(instants_of(of_level)) <= committed))
        table = merge_level(below, frame, level, unknown=True)
        new_rows = np.ones(table.num_rows, np.int64)  # The rows of these windows have not been emitted.
        windows = new_windows(table, new_rows=new_rows, unknown=unknown_in(table, added))
        windows = windows if level == finest else mark_first_panes(windows, level, below, rules)
        unclosed, none = windows.filter(windows.ends > at), windows.none()
        levels.append(OpenLevel(level, unclosed, none, at + rules.emit.delay_micros))
        if rules.late.closes_by_events:  # The next window to close begins after the newest closed window.
            at = int(level.starts(level.starts(np.array([at])) - 1)[0])
        below = of_level if of_level.num_rows else table
    return rules, levels
