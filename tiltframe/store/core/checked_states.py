"""Checked states: a store takes states only for what they are, and looks at all of them before it writes any.

Their columns and the frame they say they are of are checked by `tiltframe.TiltFrame.check_states`; here their rows:
levels the frame has, windows these levels have, coarser states that are the merged finer ones, and results that can be
read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels import compute as pc
from aggr.kernels.normalize import normalize
from aggr.states.grouped_tables import finish_by
from aggr.states.row_hash import row_hashes
from tiltframe.frame import END, INSTANT, LEVEL, START, TiltFrame
from tiltframe.level_chain import labelled, merge_level
from tiltframe.store.core.ranges import as_text
from windows import TimeWindow


def checked(states: pa.Table, frame: TiltFrame) -> pa.Table:
    """Check states of a frame.

    Parameters
    ----------
    states : table
        As `tiltframe.rollup` gives it; a window and key may come more than once. A null state says that a measure has
        not seen all rows of the window.
    frame : TiltFrame

    Returns
    -------
    table
        The same levels, merged: one row a level, window and key, in types that a store keeps.

    Raises
    ------
    ValueError
        If they are not states of the frame, saying in what they differ; if the finest level is missing, or a coarser
        one is not what the finest gives.
    OverflowError
        If a result cannot be read.
    """
    frame.check_states(states.schema, exactly=True)
    given = _by_level(states, frame)
    if not states.num_rows:
        return labelled(merge_level(states, frame, frame.levels[0], unknown=True), frame, frame.levels[0])
    finest = frame.levels[0]
    if finest.name not in given:
        raise ValueError(f"the states of the finest level, {finest.name}, are missing: coarser ones are made of them")
    merged, below = [], given[finest.name]
    for level in frame.levels:
        below = labelled(merge_level(below, frame, level, unknown=True), frame, level)
        check_readable(below, frame)
        if level.name in given:
            if level != finest:
                _check_made_of(merge_level(given[level.name], frame, level, unknown=True), below, frame, level)
            merged.append(below)
    return pa.concat_tables(merged)


def check_readable(states: pa.Table, frame: TiltFrame) -> None:
    """Raise an error that names measure, level if it is given, window and keys unless every result can be read."""
    measures = {name: (frame.state_of(name), measure) for name, measure in frame.measures.items()}
    level = [LEVEL] if LEVEL in states.column_names else []
    finish_by(states, (*level, START, *frame.keys), measures)


def _by_level(states: pa.Table, frame: TiltFrame) -> dict[str, pa.Table]:
    """Share states out by level, each of which the frame must have, and check their windows."""
    names = normalize(states.column(LEVEL))
    there = [level.name for level in frame.levels]
    for name in pc.unique(names).to_pylist():
        if name not in there:
            raise ValueError(f"the frame has no level {name!r}; it has {', '.join(there)}")
    given = {}
    for level in frame.levels:
        mine = states.filter(pc.equal(names, level.name))
        if mine.num_rows:
            _check_windows(mine, level, frame.timezone)
            given[level.name] = mine
    return given


def _check_windows(states: pa.Table, level: TimeWindow, timezone: str) -> None:
    starts, ends = (micros_of(states, name) for name in (START, END))
    wrong = np.flatnonzero(level.starts(starts) != starts)
    if len(wrong):
        raise ValueError(
            f"no window of {level.name} in {timezone} starts at {as_text(int(starts[wrong[0]]))}, as a state says; "
            "these are states of other windows, or of another time zone"
        )
    wrong = np.flatnonzero(level.ends(starts) != ends)
    if len(wrong):
        start, end = (as_text(int(at[wrong[0]])) for at in (starts, ends))
        raise ValueError(
            f"the window of {level.name} in {timezone} that starts at {start} does not end at {end}, as a state says; "
            "these are states of other windows, or of another time zone"
        )


def micros_of(states: pa.Table, name: str) -> NDArray[np.int64]:
    """Read a column of moments in microseconds UTC; raises ``ValueError`` where there is none."""
    column = states.column(name)
    if column.null_count:
        raise ValueError(f"the column {name!r} of states must not be null")
    try:
        micros: NDArray[np.int64] = normalize(column).cast(INSTANT).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column {name!r} holds no moments in microseconds: {error}") from None
    return micros


def _check_made_of(given: pa.Table, derived: pa.Table, frame: TiltFrame, level: TimeWindow) -> None:
    """Raise ``ValueError`` unless the states of a coarser level are what the finest level gives."""
    wanted, found = _hashes(derived, frame), _hashes(given, frame)
    if np.array_equal(wanted, found):  # both are in the order of window and keys
        return
    mine, theirs = ({tuple(row): i for i, row in enumerate(each.T.tolist())} for each in (wanted, found))
    table, rows = (given, theirs) if theirs.keys() - mine.keys() else (derived, mine)
    row = min(rows[h] for h in (theirs.keys() - mine.keys() or mine.keys() - theirs.keys()))
    at = as_text(int(micros_of(table.slice(row, 1), START)[0]))
    raise ValueError(
        f"the states of {level.name} at {at} are not those of {frame.levels[0].name} merged: give levels that were "
        "rolled up from the same rows, or the finest one alone"
    )


def _hashes(states: pa.Table, frame: TiltFrame) -> NDArray[np.uint64]:
    return row_hashes([states.column(name) for name in [START, *frame.keys, *(c.name for c in frame.states)]])
