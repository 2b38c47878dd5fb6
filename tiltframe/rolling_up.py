"""Rolling up: rows are reduced to states of the windows of the finest level, and the states of each level are merged
into those of the next coarser level.

    rows ── reduce ──▶ 10s states ── merge ──▶ 1m ── merge ──▶ 10m ── merge ──▶ 1h

Rows are read once. If the windows of the finest level overlap, rows are first reduced to states of panes: adjacent
intervals from which these windows are composed (`TiltFrame.panes`). Otherwise, the panes are the windows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from aggr.arguments import checked_type
from aggr.state_checks import mark_as_checked
from aggr.tables import partial_aggregation
from aggr.tables.by_key import check_rows
from aggr.workers import checked_jobs
from tiltframe.event_time import INSTANT, event_times
from tiltframe.exclusions import Exclusions
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.instants import take_rows
from tiltframe.level_chain import climb, join_levels
from tiltframe.merged_windows import frame_keys, merge_panes, merge_states, windows_of_intervals
from tiltframe.reducing import partial_states, reduce_rows
from tiltframe.tabular import InputRows, StoredTypes, consume, rows_of

T = TypeVar("T")


def rollup(data: Any, frame: TiltFrame, reading: ReadOptions | None = None, *, jobs: int | None = None) -> pa.Table:
    """Return the states of rows at every level.

    Parameters
    ----------
    data : table, DataFrame of polars or pandas, DuckDB relation, RecordBatchReader, dataset, or paths
        Rows with the frame's time, keys and the columns of its measures: an object with ``__arrow_c_stream__``, a
        pyarrow dataset or scanner, a path, or a list of paths. Paths name Parquet, CSV or JSON-lines files, or folders
        of such files. Streams, datasets and files are read once, in batches.
    frame : TiltFrame
    reading : ReadOptions, optional
        Information that files do not contain, such as types and the notation of numbers. It may also contain an
        expression that computes the time, and a condition that selects rows. The expression and the condition apply to
        all inputs, and not only to files.
    jobs : int, optional
        The number of threads that reduce rows, by default one for each available core, but at most four. The states do
        not depend on it.

    Returns
    -------
    table
        A table with one row per level, window and key: level, window_start, window_end (exclusive), keys, and one
        struct per column of states. It is sorted by level, window and keys. Rows that do not lie in a window are left
        out.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit the frame.

    Warns
    -----
    BeyondLimit
        For each measure with ``beyond="null"`` that has groups with more values than its limit. The warning has the
        number of such groups.
    RefusedValues
        For each measure with ``bad_values="skip"`` that has skipped values. The warning has the number of values that
        were skipped.

    Examples
    --------
    >>> import aggr, pyarrow as pa
    >>> from tiltframe import TiltFrame, finish, rollup
    >>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"bytes": aggr.sum("bytes")})
    >>> states = rollup(pa.table({"ts": [0, 500, 1000], "bytes": [1, 2, 3]}), frame)
    >>> finish(states, frame).select(["level", "bytes"]).to_pydict()
    {'level': ['1s', '1s', '1m'], 'bytes': [3, 3, 6]}
    """
    jobs = checked_jobs(jobs)
    rows = _open_rows(data, frame, reading)
    panes, states = consume(rows, lambda rows: _states_of_panes_and_levels(_frame_batches(rows, frame), frame, jobs))
    excluded = Exclusions(frame)
    if excluded.has_columns:
        excluded.count_values(panes)
        excluded.count_levels(states)
        excluded.report()
    return states


def from_rows(
    data: Any,
    frame: TiltFrame,
    reading: ReadOptions | None,
    read: Callable[[Iterator[pa.RecordBatch]], T],
    use_stored_types: StoredTypes | None = None,
) -> T:
    """Call the function ``read`` with the batches of rows of ``data``, and return its result. ``data`` may be any input
    that `rollup` accepts.

    The batches have the columns that the frame needs, and the first one is empty. If a value in a file does not fit the
    type that was inferred for its column, ``read`` is called again, with all batches and a wider type.
    ``use_stored_types`` may replace inferred types by those of a store, as `tiltframe.tabular.rows_of` describes.
    """
    rows = _open_rows(data, frame, reading, use_stored_types)
    return consume(rows, lambda rows: read(iter(_frame_batches(rows, frame))))


def frame_batches(data: Any, frame: TiltFrame, reading: ReadOptions | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `from_rows` passes to ``read``. Raise `WiderTypeNeeded`, a ``ValueError``, if a value in a
    file does not fit the type that was inferred for its column.
    """
    return iter(_frame_batches(_open_rows(data, frame, reading), frame))


def rollup_batches(batches: Iterable[pa.RecordBatch], frame: TiltFrame) -> pa.Table:
    """Return the states of all levels, as `rollup` does, for a stream of batches. The stream must have at least one
    batch, from which the schema is read; this batch may be empty. The memory that is needed grows with the number of
    windows and keys, not with the number of rows.
    """
    return _states_of_panes_and_levels(batches, frame)[1]


def finest_states(batches: Iterable[pa.RecordBatch], frame: TiltFrame, jobs: int = 1) -> pa.Table:
    """Reduce at least one batch to states of the frame's panes (`TiltFrame.panes`). Return a table with one row per
    pane and key. If ``batches`` is a list with few rows, all its rows are reduced together. Any other input is reduced
    by ``jobs`` threads, and the states are then merged.
    """
    if isinstance(batches, list) and sum(batch.num_rows for batch in batches) <= partial_aggregation.REDUCE_ROWS:
        partial_aggregation.keep_freed_memory()
        rows = partial_aggregation.joined_batches(batches)
        frame.check(rows.schema)
        return reduce_rows(rows, frame)
    return merge_panes(mark_as_checked(pa.concat_tables(partial_states(batches, frame, jobs=jobs))), frame)


def _states_of_panes_and_levels(
    batches: Iterable[pa.RecordBatch], frame: TiltFrame, jobs: int = 1
) -> tuple[pa.Table, pa.Table]:
    """Return the states of the frame's panes, and the states of all levels."""
    panes = finest_states(batches, frame, jobs)
    return panes, join_levels(climb(panes, frame), frame)


def rollup_states(data: pa.Table, frame: TiltFrame) -> pa.Table:
    """Return the states at every level for rows that already contain states, such as the intervals of a histogram
    log.

    Parameters
    ----------
    data : table
        A table with the frame's time and keys. For each column of states of the frame (`TiltFrame.states`), it has a
        column of the same name with states of the same function. A state belongs to the windows that contain the time
        of its row.
    frame : TiltFrame

    Returns
    -------
    table
        A table in the form of the result of `rollup`, for `finish` and for a store.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit the frame, or the states belong to another function or other parameters. States do not
        record the column from which they were computed. The caller must ensure that it is the column of the measure.

    Examples
    --------
    >>> import aggr, pyarrow as pa
    >>> from tiltframe import TiltFrame, finish, rollup_states
    >>> frame = TiltFrame(["1s", "1m"], time="start", measures={"ms": aggr.hdr("ms", [0.5])})
    >>> states = aggr.Hdr().reduce(pa.array([3, 5, 800]), aggr.Groups.each(3))
    >>> found = finish(rollup_states(pa.table({"start": [0, 500, 1500], "ms": states}), frame), frame)
    >>> [(row["level"], row["ms"]["quantiles"]["0.5"]) for row in found.to_pylist()]
    [('1s', 3), ('1s', 800), ('1m', 5)]
    """
    checked_type(frame, TiltFrame, "frame")
    columns = [frame.time, *(column.name for column in frame.states)]
    check_rows(
        checked_type(data, pa.Table, "data").schema, {name: name for name in frame.keys}, (), time=INSTANT, more=columns
    )
    windows = frame.panes.assign(event_times(data.column(frame.time), frame.time, frame.timezone))
    states = take_rows(data, windows.rows)
    keys = frame_keys(states, frame)
    finest = merge_states(states, keys, frame, *windows_of_intervals(frame.panes, windows.starts, windows.ends, keys))
    return join_levels(climb(finest, frame), frame)


def _open_rows(
    data: Any, frame: TiltFrame, reading: ReadOptions | None, use_stored_types: StoredTypes | None = None
) -> InputRows:
    checked_type(frame, TiltFrame, "frame")
    if reading is None:
        reading = NO_OPTIONS
    else:
        checked_type(reading, ReadOptions, "reading").check(frame.time, frame.may_read())
    return rows_of(
        data,
        "data",
        frame.columns_in,
        frame.time,
        uses=frame.column_uses(reading.where),
        keys=frame.keyed_by,
        reading=reading,
        timezone=frame.timezone,
        check=frame.check,
        use_stored_types=use_stored_types,
    )


def _frame_batches(rows: InputRows, frame: TiltFrame) -> Iterable[pa.RecordBatch]:
    """Return the batches of ``rows`` with only the columns that the frame needs, preceded by an empty batch. The result
    is a list if the batches are in memory, and otherwise an iterator.
    """
    schema = rows.schema
    frame.check(schema)
    # A batch with the schema and without rows is added before the batches of the input, because the input may have no
    # batches, and the schema is read from the first batch.
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    columns = list(frame.columns_in(schema.names))
    if isinstance(rows.batches, list):
        return [batch.select(columns) for batch in [nothing, *rows.batches]]
    return (batch.select(columns) for batch in chain([nothing], rows.batches))
