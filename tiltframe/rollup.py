"""Rolling up: rows to the finest windows, and each level's states to the next one's, by merging.

    rows ── reduce ──▶ 10s states ── merge ──▶ 1m ── merge ──▶ 10m ── merge ──▶ 1h

Rows are read once, at the finest level. Everything here is a pure function of Arrow tables, so a local run, a
Spark job and a store all climb the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import partial
from aggr.keyed import finish_by, key_column, merge_by, reduce_by
from aggr.plain import plain
from tiltframe.frame import END, INSTANT, LEVEL, START, TiltFrame
from tiltframe.times import event_times
from windows import Window


def rollup(data: pa.Table, frame: TiltFrame) -> pa.Table:
    """Roll up a table: the states of every level.

    Parameters
    ----------
    data : table
        With the frame's time, keys and the columns of its measures.
    frame : TiltFrame

    Returns
    -------
    table
        One row per level, window and key: level, window_start, window_end (exclusive), keys, one struct per
        state; ordered by level, window, keys.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit the frame.

    Examples
    --------
    >>> import aggr
    >>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"bytes": aggr.sum("bytes")})
    >>> states = rollup(pa.table({"ts": [0, 500, 1000], "bytes": [1, 2, 3]}), frame)
    >>> finish(states, frame).select(["level", "bytes"]).to_pydict()
    {'level': ['1s', '1s', '1m'], 'bytes': [3, 3, 6]}
    """
    return rollup_batches(data.to_batches() or [pa.RecordBatch.from_pylist([], data.schema)], frame)


def rollup_batches(batches: Iterable[pa.RecordBatch], frame: TiltFrame) -> pa.Table:
    """Roll up a stream of batches, at least one, perhaps without rows; memory grows with the windows, not the rows."""
    return climb(merge_level(pa.concat_tables(partial_states(batches, frame)), frame, frame.levels[0]), frame)


def partial_states(batches: Iterable[pa.RecordBatch], frame: TiltFrame, most: int | None = None) -> Iterator[pa.Table]:
    """Reduce a stream of batches to states of the finest level: window_start, keys, states.

    They are merged as they come, where that leaves fewer; a window may come more than once.

    ``most`` bounds the bytes that are held, as in `aggr.partial.partial_states`.
    """

    checked: set[pa.Schema] = set()

    def reduce(table: pa.Table) -> pa.Table:
        if table.schema not in checked:
            frame.check(table.schema)
            checked.add(table.schema)
        return reduce_rows(table, frame)

    def merge(states: pa.Table) -> pa.Table:
        return merge_level(states, frame, frame.levels[0], partial.WORTH)

    return partial.partial_states(batches, reduce, merge, most)


def reduce_rows(rows: pa.Table, frame: TiltFrame) -> pa.Table:
    """Reduce rows to states of the finest level: window_start, keys, states."""
    times = event_times(rows.column(frame.time), frame.time)
    keys = _keys(rows, frame.levels[0].starts(times), frame)
    return reduce_by(rows, keys, frame.states, pa.array(times).cast(INSTANT))


def merge_level(states: pa.Table, frame: TiltFrame, level: Window, worth: float = 1.0) -> pa.Table:
    """Merge states into the windows of a level, the same or a coarser one: window_start, keys, states.

    With ``worth`` below 1 perhaps not at all, as in `aggr.keyed.merge_by`; the level must be theirs then.
    """
    keys = _keys(states, level.starts(_micros(states.column(START))), frame)
    return merge_by(states, keys, {c.name: c.measure.function for c in frame.states}, worth)


def climb(finest: pa.Table, frame: TiltFrame) -> pa.Table:
    """Merge merged states of the finest level up through all levels; add level and window_end."""
    tables, below = [], finest
    for level in frame.levels:
        below = below if level == frame.levels[0] else merge_level(below, frame, level)
        tables.append(labelled(below, frame, level))
    return pa.concat_tables(tables)


def labelled(states: pa.Table, frame: TiltFrame, level: Window) -> pa.Table:
    """Name the level of merged states, which are in the order of window and keys, and add where their windows end."""
    starts = _micros(states.column(START))
    ends = pa.array(level.ends(starts)).cast(INSTANT)
    states = states.add_column(1, END, ends)
    return states.add_column(0, LEVEL, pa.repeat(pa.scalar(level.name), len(starts)))


def finish(states: pa.Table, frame: TiltFrame) -> pa.Table:
    """Read the results of states: the same rows, a result for each measure.

    Parameters
    ----------
    states : table
        As `rollup` gives it. It stays as it is.
    frame : TiltFrame
        The same, or one that asks the same states for other quantiles.

    Returns
    -------
    table of level, window_start, window_end, keys and one column per measure
    """
    frame.check_states(states.schema)
    measures = {name: (frame.state_of(name), measure) for name, measure in frame.measures.items()}
    return finish_by(states, (LEVEL, START, END, *frame.keys), measures)


def _keys(table: pa.Table, starts: NDArray[np.int64], frame: TiltFrame) -> dict[str, pa.Array]:
    """Read what rows are grouped by: the start of the window, and the keys."""
    return {START: pa.array(starts).cast(INSTANT)} | {name: key_column(table.column(name)) for name in frame.keys}


def _micros(column: pa.ChunkedArray) -> NDArray[np.int64]:
    micros: NDArray[np.int64] = plain(column).cast(INSTANT).cast(pa.int64()).to_numpy()
    return micros
