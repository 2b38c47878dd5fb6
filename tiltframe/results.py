"""Results: the values of the measures of a frame, computed from states."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_truth, checked_type
from aggr.state_checks import CheckedStates
from aggr.tables.by_key import finish_by
from aggr.tables.flat_results import flattened
from aggr.workers import checked_jobs, map_in_threads
from tiltframe.frame import TiltFrame
from tiltframe.names import END, LEVEL, START
from tiltframe.tabular import table_of

# the minimum number of rows of states for one thread; fewer rows take only milliseconds
_MIN_ROWS_PER_THREAD = 100_000


def finish(states: Any, frame: TiltFrame, flat: bool = False, *, jobs: int | None = None) -> pa.Table:
    """Return the results of states, in the same rows, with one column of results for each measure.

    Parameters
    ----------
    states : table
        A table that `rollup` returned, also in the form of a DataFrame, a stream, a dataset or Parquet files. It is not
        changed.
    frame : TiltFrame
        The frame of the states, or a frame that reads other quantiles from the same states.
    flat : bool
        Whether to return the fields of records as plain columns: ``latency_count``, ``latency_p50``, ``latency_p99``.
    jobs : int, optional
        The number of threads for many states, by default one for each available core, but at most four. The results do
        not depend on it.

    Returns
    -------
    table
        A table with the columns level, window_start, window_end, keys, and one column for each measure, or for each
        field of its records. Starts and ends are in the frame's time zone, as in `FrameStore.query`.

    Raises
    ------
    ValueError
        If the states do not belong to the frame or are damaged, or if an expression cannot be computed.
    OverflowError
        If a result does not fit its type; the message names the group.

    Examples
    --------
    >>> import aggr, pyarrow as pa
    >>> from tiltframe import TiltFrame, finish, rollup
    >>> frame = TiltFrame(["1s"], time="ts", measures={"total": aggr.sum("x")})
    >>> finish(rollup(pa.table({"ts": [0, 500], "x": [1, 2]}), frame), frame).column("total").to_pylist()
    [3]
    """
    checked_type(frame, TiltFrame, "frame")
    states = table_of(states, "states")
    frame.check_states(states.schema)
    results = _results_in_threads(states, frame, checked_jobs(jobs))
    for name in (START, END):
        column = results.column(name).cast(pa.timestamp("us", frame.timezone))
        results = results.set_column(results.column_names.index(name), name, column)
    return flattened(results) if checked_truth(flat, "flat") else results


def results_of(states: pa.Table | CheckedStates, frame: TiltFrame) -> pa.Table:
    """Return the results of a table of states: a table of the same rows with the columns level, window_start,
    window_end, the keys, and one column for each measure and expression of the frame.
    """
    return frame.with_expressions(_finish_measures(states, frame))


def _results_in_threads(states: pa.Table, frame: TiltFrame, jobs: int) -> pa.Table:
    """Return the table that `results_of` returns. If there are many states, up to ``jobs`` threads compute it."""
    size = max(_MIN_ROWS_PER_THREAD, -(-states.num_rows // jobs))
    if states.num_rows <= size:
        return results_of(states, frame)
    parts = [states.slice(begin, size) for begin in range(0, states.num_rows, size)]
    results = map_in_threads(partial(_finish_measures, frame=frame), parts, jobs)
    return frame.with_expressions(pa.concat_tables(results))


def _finish_measures(states: pa.Table | CheckedStates, frame: TiltFrame) -> pa.Table:
    measures = {name: (frame.column_of_measure[name], measure) for name, measure in frame.measures.items()}
    return finish_by(states, (LEVEL, START, END, *frame.keys), measures)
