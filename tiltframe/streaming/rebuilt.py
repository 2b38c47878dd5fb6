"""Rebuild the open windows of all levels from states of a store."""

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
from tiltframe.streaming.window_table import new_windows, unknown_marks


def rebuild_levels(
    committed_states: pa.Table, committed_until: int, frame: TiltFrame, rules: StreamRules
) -> tuple[StreamRules, list[OpenLevel]]:
    """Return the rules and the levels of a stream that continues from the states of a store.

    Parameters
    ----------
    committed_states : table of level, window_start, window_end, keys, states
        States of the finest level, and of coarser levels if they are available.
    committed_until : int
        The time in microseconds UTC up to which the store has all windows of the finest level.
    frame : TiltFrame
    rules : StreamRules

    Returns
    -------
    StreamRules
        The rules, in which ``added`` also names the columns of states that are missing in some of the windows.
    list of OpenLevel
        The levels from the finest to the coarsest, with the windows that end after ``committed_until``.
    """
    finest = frame.levels[0]
    levels: list[OpenLevel] = []
    closed_until = committed_until
    finer_states = committed_states
    # the columns of states that only the emit policy needs, and that are therefore missing in the store
    policy_columns = [name for name in rules.memory_frame.state_functions if name not in committed_states.column_names]
    added = [column.name for column in frame.states if committed_states.column(column.name).null_count] + policy_columns
    rules = replace(rules, added=tuple(added))
    for level in frame.levels:
        is_of_level = pc.equal(committed_states.column(LEVEL), level.name)
        states_of_level = committed_states.filter(is_of_level).drop_columns([LEVEL])
        if level == finest:
            states_of_level = finer_states = states_of_level.filter(
                pa.array(finest.ends(instants_of(states_of_level)) <= committed_until)
            )
        table = merge_level(finer_states, frame, level, nulls_are_unknown=True)
        # A store does not record emissions, so each window is marked as a window with rows that were not emitted yet.
        new_rows = np.ones(table.num_rows, np.int64)
        windows = new_windows(table, new_rows=new_rows, unknown=unknown_marks(table, added))
        windows = windows if level == finest else mark_first_panes(windows, level, finer_states, rules)
        unclosed = windows.filter(windows.ends > closed_until)
        no_windows = windows.without_rows()
        levels.append(OpenLevel(level, unclosed, no_windows, closed_until + rules.emit.delay_micros))
        # If windows are closed by newer events, and not by a watermark, windows of several levels close together: when
        # a window of this level closes, all windows of the next coarser level that end at or before the start of the
        # closed window close too. For the coarser level, ``closed_until`` is therefore the start of the newest closed
        # window of this level.
        if rules.late.closes_by_events:
            closed_until = int(level.starts(level.starts(np.array([closed_until])) - 1)[0])
        finer_states = states_of_level if states_of_level.num_rows else table
    return rules, levels
