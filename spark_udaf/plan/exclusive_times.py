"""Exclusive times: times that only one task reads, according to the statistics of Parquet files.

    rows of task 0   ├──────────────┤                        from the earliest to the latest time of its row groups
    rows of task 1               ├───────────────┤
    rows of task 2                                  ├───┤
    exclusive       ─ 0 ────────┤    ├ 1 ──────────┤├ 2 ──   times at which only this task can have rows

If a window lies within the exclusive times of a task, this task reads all rows of the window, and can compute its
results before the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from tiltframe.event_time import event_times
from windows import MAX_INSTANT, MIN_INSTANT

# A row group: a file, and the index of the row group in this file.
RowGroup: TypeAlias = tuple[ds.ParquetFileFragment, int]

# The earliest and the latest time of some rows, both inclusive, in microseconds UTC.
TimeBounds: TypeAlias = tuple[int, int]

# A range of times in microseconds UTC: its start, inclusive, and its end, exclusive.
Span: TypeAlias = tuple[int, int]


def exclusive_times(bounds_by_task: Sequence[TimeBounds]) -> list[Span | None]:
    """For each task, return a range of times that no other task can read, or None if there is no such range.

    The range starts after the latest time of all tasks that begin earlier, and stops at the earliest time of the task
    that begins next.

    Parameters
    ----------
    bounds_by_task : for each task, the pair of its earliest and its latest time, in microseconds UTC

    Returns
    -------
    list of pairs of start and end, the end exclusive
        In microseconds UTC. The range of the task that begins first has no lower limit, and the range of the task that
        begins last has no upper limit.

    Examples
    --------
    >>> exclusive_times([(0, 10), (10, 19), (30, 40), (31, 32)])[1:]
    [(11, 30), (20, 31), None]
    """
    first_times, last_times = np.array(bounds_by_task, np.int64).reshape(-1, 2).T
    order = np.argsort(first_times, kind="stable")
    starts = np.empty(len(first_times), np.int64)
    stops = np.empty(len(first_times), np.int64)
    starts[order] = np.append(MIN_INSTANT, np.maximum.accumulate(last_times[order]) + 1)[: len(first_times)]
    stops[order] = np.append(first_times[order][1:], MAX_INSTANT)[: len(first_times)]
    is_exclusive = (starts <= last_times) & (first_times < stops)
    return [
        (start, stop) if exclusive else None
        for start, stop, exclusive in zip(starts.tolist(), stops.tolist(), is_exclusive.tolist(), strict=True)
    ]


def time_bounds_of(
    row_groups: Iterable[RowGroup], time: str, dtype: pa.DataType, timezone: str = "UTC"
) -> TimeBounds | None:
    """Return the earliest and the latest event time of row groups, in microseconds UTC.

    Return None if a row group has no statistics, if there are no rows, or if the type is not a timestamp, a date or an
    integer.

    Parameters
    ----------
    row_groups : pairs of a file and the index of a row group, in the order of files
    time : name of the column of event times
    dtype : the type in which the column is read
    timezone : the time zone of the windows; if the column has dates, a date is a day in this zone
    """
    # The statistics of a column of texts contain the first and the last text in alphabetical order, which need not
    # belong to the earliest and the latest time.
    if not (pa.types.is_timestamp(dtype) or pa.types.is_date(dtype) or pa.types.is_integer(dtype)):
        return None
    times_by_file = []
    for file, row_groups_of_file in groupby(row_groups, key=itemgetter(0)):
        times = _row_group_times(file, [index for _, index in row_groups_of_file], time, timezone)
        if times is None:
            return None
        times_by_file.append(times)
    all_times = np.concatenate([np.empty(0, np.int64), *times_by_file])
    return (int(all_times.min()), int(all_times.max())) if len(all_times) else None


def _row_group_times(
    file: ds.ParquetFileFragment, row_group_indices: Sequence[int], time: str, timezone: str
) -> NDArray[np.int64] | None:
    """Return one array with the earliest and the latest event time of each row group that has rows, in microseconds
    UTC. The times are read from the statistics of the file. Return None if a row group has no statistics, or if Python
    or Arrow cannot represent a time.
    """
    metadata = file.metadata
    column_index = file.physical_schema.get_field_index(time)
    # Parquet indexes leaf columns. If a column is nested, the indices of later columns differ from their positions in
    # the Arrow schema.
    if metadata.num_columns != len(file.physical_schema):
        column_index = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == time), -1)
    if column_index < 0:
        return None
    extremes: list[object] = []
    try:
        for row_group in map(metadata.row_group, row_group_indices):
            if not row_group.num_rows:
                continue
            statistics = row_group.column(column_index).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            extremes += (statistics.min, statistics.max)
        return event_times(pa.array(extremes, file.physical_schema.field(time).type), time, timezone)
    # These errors are raised if the types of Python or Arrow cannot represent a time in the statistics.
    except (ValueError, OverflowError, pa.ArrowException):
        return None
