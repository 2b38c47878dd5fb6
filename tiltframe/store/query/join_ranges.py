"""Ranges of a join: parse the range of each row, and determine the queries that return the results for all rows.

    rows, within=("start", "end")       ranges           queries
    10:00  12:00                        [10, 12)   ──▶   [10, 13)  for the first two rows, whose ranges overlap
    11:00  13:00                        [11, 13)
    18:00  19:00                        [18, 19)   ──▶   [18, 19)

Usually the result of a window does not depend on the range of the query. One query then serves all rows whose ranges
overlap, and each row uses the windows in its own range. If results depend on the range (one result over the whole
range, filled windows, the latest window), each distinct range has a separate query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow.normalize import normalize, one_array
from aggr.groups.groups import group_by
from tiltframe.frame import TiltFrame
from tiltframe.ranges import EVER, Range, as_text
from tiltframe.time_range import read_moment, read_time_range
from windows import AllTime, as_window

if TYPE_CHECKING:
    from tiltframe.store.query.join import Join
    from tiltframe.store.query.query import Query

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class RowRanges:
    """A query, and the rows of the join for which it returns results.

    Parameters
    ----------
    query : Query
    rows : array, shape (rows,)
        The indices of the rows.
    low, high : array, shape (rows,)
        The start and the end (exclusive) of each row's range, in microseconds UTC. A row has the results of the windows
        that start in its range.
    """

    query: Query
    rows: Positions
    low: Positions
    high: Positions


def ranges_of_rows(rows: pa.Table, join: Join, frame: TiltFrame, now: int) -> list[RowRanges]:
    """Return the queries of a join, each with its rows.

    A row belongs to exactly one query, or to no query if its range or its windows are null. Relative times such as
    ``-24h`` are counted from ``now``, in microseconds UTC. Raise ``ValueError`` if a range or a window cannot be read;
    the message contains the value in the row.
    """
    zone = join.options.get("timezone") or frame.timezone
    low, high, has_range = _range_of_rows(rows, join.within, zone, now)
    queries: list[RowRanges] = []
    for per, has_windows in _windows_of_rows(rows, join):
        row_indices = np.flatnonzero(has_range & has_windows)
        rows_with_ranges = row_indices, low[row_indices], high[row_indices]
        queries += (
            _queries_of_overlapping_ranges(join, per, *rows_with_ranges)
            if _is_range_independent(join, per, frame)
            else _queries_of_distinct_ranges(join, per, *rows_with_ranges)
        )
    return queries


def is_column(value: object, schema: pa.Schema) -> bool:
    """Return whether an argument of a join names a column of the rows."""
    return isinstance(value, str) and value in schema.names


def _range_of_rows(rows: pa.Table, within: Any, zone: str, now: int) -> tuple[Positions, Positions, NDArray[np.bool_]]:
    """Return three arrays with one element per row: the start and the end of the row's range, in microseconds UTC, and
    a mask of the rows that have a range.
    """
    if isinstance(within, tuple | list) and len(within) == 2 and any(is_column(end, rows.schema) for end in within):
        first, last = within
        low, has_low = _moments(rows, first, EVER[0], zone=zone, now=now)
        high, has_high = _moments(rows, last, EVER[1], zone=zone, now=now)
        has_range = has_low & has_high
        _check_not_empty(rows, within, low=low, high=high, has_range=has_range)
        return low, high, has_range

    def read(value: Any) -> Range:
        return read_time_range(value, zone, now, open_ends=True)

    if is_column(within, rows.schema):
        bounds, has_range = _read_column(rows, within, read)
        return bounds[:, 0], bounds[:, 1], has_range
    start, end = EVER if within is None else read(within)
    return np.full(rows.num_rows, start), np.full(rows.num_rows, end), np.ones(rows.num_rows, np.bool_)


def _moments(rows: pa.Table, moment: Any, open_end: int, *, zone: str, now: int) -> tuple[Positions, NDArray[np.bool_]]:
    """Return either the starts or the ends of the ranges of all rows, as two arrays with one element per row: the time
    in microseconds UTC, and a mask of the rows whose time is not null.

    ``moment`` is the name of a column of times, or one moment for all rows. None stands for ``open_end``.
    """
    if is_column(moment, rows.schema):
        micros, has_moment = _read_column(rows, moment, lambda value: (read_moment(value, zone, now),))
        return micros[:, 0], has_moment
    at = open_end if moment is None else read_moment(moment, zone, now)
    return np.full(rows.num_rows, at), np.ones(rows.num_rows, np.bool_)


def _read_column(
    rows: pa.Table, name: str, read: Callable[[Any], tuple[int, ...]]
) -> tuple[Positions, NDArray[np.bool_]]:
    """Call ``read``, which returns n numbers, for each distinct value of a column. Return two arrays: the numbers for
    the value of each row, with shape (rows, n), and a mask of the rows whose value is not null.
    """
    column = _in_microseconds(one_array(rows.column(name)))
    groups, row_of_group = group_by([column], rows.num_rows)
    numbers_of_values: list[tuple[int, ...]] = [(0,)]
    for value in column.take(pa.array(row_of_group)).to_pylist():
        try:
            numbers_of_values.append((0,) if value is None else read(value))
        except ValueError as error:
            raise ValueError(f"cannot read the row with {name}={shown(value)}: {error}") from None
    width = max(len(values) for values in numbers_of_values)
    table = np.array([values if len(values) == width else (0,) * width for values in numbers_of_values[1:]], np.int64)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return table.reshape(-1, width)[groups.ids], ~is_null


def _in_microseconds(column: pa.Array) -> pa.Array:
    """Return a timestamp column in microseconds, the resolution of windows. Other columns are returned unchanged."""
    if not pa.types.is_timestamp(column.type):
        return normalize(column)
    return column.cast(pa.timestamp("us", column.type.tz), safe=False)


def _check_not_empty(
    rows: pa.Table, within: Any, *, low: Positions, high: Positions, has_range: NDArray[np.bool_]
) -> None:
    """Raise ``ValueError`` if the range of a row, from ``low`` to ``high``, does not end after its start. The message
    contains the values of the first such row.
    """
    empty = np.flatnonzero((high <= low) & has_range)
    if not len(empty):
        return
    row = int(empty[0])
    values = {end: rows.column(end)[row].as_py() for end in within if is_column(end, rows.schema)}
    values_text = ", ".join(f"{name}={shown(value)}" for name, value in values.items())
    row_range = tuple(values.get(end, end) for end in within)
    raise ValueError(
        f"in the row with {values_text}, the range {shown(row_range)} is empty: its end must come after its start"
    )


def _windows_of_rows(rows: pa.Table, join: Join) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Yield each kind of window that ``join.per`` names, directly or in a column of the rows, together with a mask of
    the rows that need results for these windows.
    """
    if not is_column(join.per, rows.schema):
        yield join.per, np.ones(rows.num_rows, np.bool_)
        return
    column = normalize(one_array(rows.column(join.per)))
    groups, row_of_group = group_by([column], rows.num_rows)
    for group, per in enumerate(column.take(pa.array(row_of_group)).to_pylist()):
        if per is None:
            continue
        try:
            join.query(None, per)
        except ValueError as error:
            raise ValueError(f"cannot read the row with {join.per}={shown(per)}: {error}") from None
        yield per, groups.ids == group


def _is_range_independent(join: Join, per: Any, frame: TiltFrame) -> bool:
    """Return whether the result of a window is the same in every range that contains its start."""
    options = join.options
    if any(options.get(name) for name in ("fill", "latest", "edges", "running")):
        return False
    if options.get("timezone") not in (None, frame.timezone):
        # Windows of another zone are merged from a level that depends on the range, so their results may depend on it.
        return False
    windows = [AllTime() if size is None else as_window(size, frame.timezone) for size in join.query(None, per).sizes]
    return all(window != AllTime() and window.max_overlap == 1 for window in windows)


def _queries_of_overlapping_ranges(
    join: Join, per: Any, row_indices: Positions, low: Positions, high: Positions
) -> Iterator[RowRanges]:
    """Yield one query for each group of rows whose ranges overlap. ``row_indices`` are the indices of the rows, and
    ``low`` and ``high`` the starts and the ends of their ranges.

    Two ranges also belong to the same group if the gap between them is at most as long as the mean range, because it is
    faster to read the windows in the gap than to execute another query.
    """
    if not len(row_indices):
        return
    order = np.argsort(low, kind="stable")
    latest_end = np.maximum.accumulate(high[order])
    # The lengths are floats, because the length of a range without a start or an end may exceed int64.
    lengths = high.astype(np.float64) - low
    is_new = low[order][1:] - latest_end[:-1] > np.mean(lengths)
    for members in np.split(order, np.flatnonzero(is_new) + 1):
        query = _query(join, per, int(low[members].min()), int(high[members].max()))
        yield RowRanges(query, row_indices[members], low[members], high[members])


def _queries_of_distinct_ranges(
    join: Join, per: Any, row_indices: Positions, low: Positions, high: Positions
) -> Iterator[RowRanges]:
    """Yield one query for each distinct range, together with the rows that have this range. Each row gets all results
    of its query. ``row_indices`` are the indices of the rows, and ``low`` and ``high`` the starts and the ends of their
    ranges.
    """
    if not len(row_indices):
        return
    groups, row_of_group = group_by([pa.array(low), pa.array(high)], len(row_indices))
    order = np.argsort(groups.ids, kind="stable")
    members_of = np.split(order, np.cumsum(np.bincount(groups.ids, minlength=groups.n))[:-1])
    for row, members in zip(row_of_group.tolist(), members_of, strict=True):
        query = _query(join, per, int(low[row]), int(high[row]))
        bounds = (np.full(len(members), bound) for bound in EVER)
        yield RowRanges(query, row_indices[members], *bounds)


def _query(join: Join, per: Any, low: int, high: int) -> Query:
    start, end = (None if at in EVER else as_text(at) for at in (low, high))
    return join.query(None if start is None and end is None else (start, end), per)
