"""Checked states: a store checks all states of a commit before it writes them.

`tiltframe.TiltFrame.check_states` checks the columns, and the frame in the metadata of states. This module checks the
rows: their levels and windows, and that the states of each coarser level equal the merged states of the finest level.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize, one_array
from aggr.arrow.row_hash import row_hashes
from aggr.state_checks import CheckedStates, arrow_of, mark_as_checked
from aggr.tables.by_key import finish_by
from tiltframe.frame import TiltFrame
from tiltframe.instants import checked_instants
from tiltframe.level_chain import with_level_column
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, LEVEL, START
from tiltframe.ranges import as_text
from windows import TimeWindow


def checked_levels(states: pa.Table, frame: TiltFrame) -> pa.Table:
    """Check states from `tiltframe.rollup`; return the merged states of all levels, in the types that a store uses.

    If a window and key occur several times, their states are merged. A null state means that the measure is unknown for
    some rows of the window, because it was added to the frame later. Raise ``ValueError`` if the states do not belong
    to the frame (the message names the difference), if the finest level is missing, or if a coarser level differs from
    the merged states of the finest level.
    """
    frame.check_states(states.schema, exactly=True)
    states_by_level = _by_level(states, frame)
    if not states.num_rows:
        return with_level_column(
            merge_level(states, frame, frame.levels[0], nulls_are_unknown=True), frame, frame.levels[0]
        )
    finest = frame.levels[0]
    if finest.name not in states_by_level:
        raise ValueError(
            f"the states of the finest level, {finest.name}, are missing, and coarser states are computed from them; "
            f"add the states of {finest.name}"
        )
    merged: list[pa.Table] = []
    for level in frame.levels:
        finer = mark_as_checked(merged[-1]) if merged else states_by_level[finest.name]
        merged.append(with_level_column(merge_level(finer, frame, level, nulls_are_unknown=True), frame, level))
        if level.name in states_by_level and level != finest:
            _check_derived(states_by_level[level.name], merged[-1], frame, level)
    return pa.concat_tables(merged)


def check_results_computable(states: pa.Table | CheckedStates, frame: TiltFrame) -> None:
    """Raise an error if a result cannot be computed from the states. The message names the measure, the level (if the
    states have a column of levels), the window and the keys.
    """
    measures = {name: (frame.state_of(name), measure) for name, measure in frame.measures.items()}
    level = [LEVEL] if LEVEL in arrow_of(states).column_names else []
    finish_by(states, (*level, START, *frame.keys), measures)


def check_fallible(states: pa.Table, fallible: TiltFrame) -> None:
    """Raise an error if a result of ``fallible``, a frame that `frame_of_fallible_measures` has returned, cannot be
    computed from states. A rollup in the same program must have returned the states, because they are not checked for
    damage.
    """
    check_results_computable(mark_as_checked(states), fallible)


def frame_of_fallible_measures(states: pa.Schema, frame: TiltFrame) -> TiltFrame | None:
    """Return the frame with only those measures whose results may be impossible to compute although their states are
    undamaged. An example is a weighted count, which may exceed int64. Return None if there is no such measure.

    The states must have been reduced from rows with this frame.
    """
    fallible = {
        name: measure
        for name, measure in frame.measures.items()
        if measure.weight is not None
        or not measure.function.is_always_readable(states.field(frame.state_of(name)).type)
    }
    if not fallible:
        return None
    columns = [column for column in frame.states if fallible.keys() & set(column.serves)]
    fallible_frame = TiltFrame(frame.levels, frame.time, fallible, keys=frame.keyed_by, timezone=frame.timezone)
    return fallible_frame.keeping(columns)


def _by_level(states: pa.Table, frame: TiltFrame) -> dict[str, pa.Table]:
    """Check the levels and windows of states, and return the states by level."""
    names = normalize(states.column(LEVEL))
    level_names = [level.name for level in frame.levels]
    for name in pc.unique(names).to_pylist():
        if name not in level_names:
            raise ValueError(f"the frame has no level {name!r}; it has {', '.join(level_names)}")
    states_by_level = {}
    for level in frame.levels:
        level_states = states.filter(pc.equal(names, level.name))
        if level_states.num_rows:
            _check_windows(level_states, level, frame.timezone)
            states_by_level[level.name] = level_states
    return states_by_level


def _check_windows(states: pa.Table, level: TimeWindow, timezone: str) -> None:
    """Raise ``ValueError`` unless the start and the end of every state are those of a window of the level."""
    starts, window_ends = (checked_instants(states, name) for name in (START, END))
    wrong_rows = np.flatnonzero(level.starts(starts) != starts)
    if len(wrong_rows):
        raise ValueError(
            f"no window of {level.name} in {timezone} starts at {as_text(int(starts[wrong_rows[0]]))}, but the states "
            "contain such a window; the states were computed with other windows or another time zone; roll up the rows "
            "with this frame"
        )
    wrong_rows = np.flatnonzero(level.ends(starts) != window_ends)
    if len(wrong_rows):
        start, end = (as_text(int(at[wrong_rows[0]])) for at in (starts, window_ends))
        raise ValueError(
            f"the window of {level.name} in {timezone} that starts at {start} does not end at {end}, but the states "
            "contain such a window; the states were computed with other windows or another time zone; roll up the rows "
            "with this frame"
        )


def _check_derived(states: pa.Table, derived: pa.Table, frame: TiltFrame, level: TimeWindow) -> None:
    """Raise ``ValueError`` if the states of the coarser level ``level`` differ from ``derived``, the merged states of
    the finest level.
    """
    columns = [START, *frame.keys, *(column.name for column in frame.states)]
    if _bytes_of(states.select(columns)) == _bytes_of(derived.select(columns)):
        return
    states = merge_level(states, frame, level, nulls_are_unknown=True)
    derived_hashes = _hashes(derived, frame)
    state_hashes = _hashes(states, frame)
    # The hashes can be compared row by row, because both tables are sorted by window and keys.
    if np.array_equal(derived_hashes, state_hashes):
        return
    derived_rows, state_rows = (
        {tuple(row): i for i, row in enumerate(hashes.T.tolist())} for hashes in (derived_hashes, state_hashes)
    )
    table, rows = (states, state_rows) if state_rows.keys() - derived_rows.keys() else (derived, derived_rows)
    row = min(rows[h] for h in (state_rows.keys() - derived_rows.keys() or derived_rows.keys() - state_rows.keys()))
    at = as_text(int(checked_instants(table.slice(row, 1), START)[0]))
    raise ValueError(
        f"the states of {level.name} at {at} differ from the merged states of {frame.levels[0].name}; pass levels "
        f"that were rolled up from the same rows, or only the finest level"
    )


def _hashes(states: pa.Table, frame: TiltFrame) -> NDArray[np.uint64]:
    """Return a 128-bit hash of the window_start, keys and states of each row, as two uint64 words: shape (2, rows)."""
    return row_hashes([states.column(name) for name in [START, *frame.keys, *(c.name for c in frame.states)]])


def _bytes_of(table: pa.Table) -> pa.Buffer:
    """Return a table as bytes. Tables with equal bytes are equal, but equal tables may have different bytes."""
    columns = [one_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema).serialize()
