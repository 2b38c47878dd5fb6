"""Reducing: rows are reduced to states of panes, in a table with the columns window_start, window_end, keys and states.

If the windows of the finest level do not overlap, the panes are these windows. Otherwise, the panes are shorter windows
that do not overlap, and each overlapping window consists of consecutive panes. The length of a pane is the greatest one
that divides both the size and the hop of the overlapping windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

import pyarrow as pa

from aggr.groups.groups import group_by
from aggr.state_checks import mark_as_checked
from aggr.tables import partial_aggregation
from aggr.tables.by_key import reduce_by
from aggr.tables.keys import keyed
from tiltframe.event_time import event_times
from tiltframe.frame import TiltFrame
from tiltframe.instants import as_instants, instants_of, selects_all, take_rows
from tiltframe.merged_windows import merge_panes, windows_of_intervals
from tiltframe.names import END, START
from tiltframe.near_in_time import partition_by_time
from windows.timezone import Instants

# the maximum number of bytes of rows that are buffered to partition them by time
_MAX_BUFFERED_BYTES = 1 << 28
# If the groups of a batch have fewer rows than this on average, partitioning the rows by time takes less time than
# merging the states of all batches.
_FEW_ROWS = 256


def partial_states(
    batches: Iterable[pa.RecordBatch], frame: TiltFrame, max_bytes: int | None = None, jobs: int = 1
) -> Iterator[pa.Table]:
    """Reduce a stream of batches to states of the frame's panes, and yield tables with the columns window_start,
    window_end, keys and states.

    States of several batches are merged before they are yielded, if this reduces their number. The same window and key
    may still occur in several tables, and a session may still consist of several states. ``max_bytes`` limits the
    memory for states in bytes, as in `aggr.tables.partial_aggregation.partial_states`. ``jobs`` is the number of
    threads.
    """
    return map(itemgetter(1), adaptive_states(batches, frame, max_bytes, adaptive=False, jobs=jobs))


def adaptive_states(
    batches: Iterable[pa.RecordBatch],
    frame: TiltFrame,
    max_bytes: int | None = None,
    adaptive: bool = True,
    jobs: int = 1,
) -> Iterator[tuple[bool, pa.Table]]:
    """Yield pairs: either True and a table of states, as `partial_states` yields it, or False and a table of rows that
    were not reduced.

    Rows are not reduced if ``adaptive`` is true and their batch has almost as many groups as rows, as in
    `aggr.tables.partial_aggregation.adaptive_states`.
    """

    def reduce(table: pa.Table) -> pa.Table:
        frame.check(table.schema)
        return reduce_rows(table, frame)

    def merge(states: pa.Table) -> pa.Table:
        return merge_panes(mark_as_checked(states), frame, partial_aggregation.MAX_RATIO)

    def count_groups(table: pa.Table) -> int:
        starts = as_instants(frame.panes.starts(event_times(table.column(frame.time), frame.time, frame.timezone)))
        _, places, keys = keyed(table, frame.keyed_by, (), frame.timezone)
        # A row whose key is a list belongs to several groups, so the number of groups says nothing about the number of
        # rows per group. The result 0 makes the caller reduce the rows of the batch.
        if places is not None:
            return 0
        return group_by([starts, *keys.values()], table.num_rows)[0].n

    def has_small_groups(batch: pa.RecordBatch) -> bool:
        rows: int = batch.num_rows
        return _FEW_ROWS * count_groups(pa.Table.from_batches([batch])) > rows

    group_counter = count_groups if adaptive and frame.panes.contiguous else None
    if frame.panes.contiguous:
        batches = partition_by_time(
            batches, frame.time, has_small_groups, _MAX_BUFFERED_BYTES if max_bytes is None else 4 * max_bytes
        )
    return partial_aggregation.adaptive_states(batches, reduce, merge, max_bytes, count_groups=group_counter, jobs=jobs)


def reduce_rows(
    rows: pa.Table, frame: TiltFrame, times: Instants | None = None, window_times: Instants | None = None
) -> pa.Table:
    """Reduce rows to states of the frame's panes, and return a table with the columns window_start, window_end, keys
    and states.

    ``times`` and ``window_times`` have one time per row, in microseconds UTC. ``times`` replaces the event times of the
    rows. ``window_times`` replaces them only for the choice of windows; functions such as `aggr.first` still read the
    event times.
    """
    needed = frame.columns_to_reduce(tuple(rows.column_names))
    rows, places, keys = keyed(rows, frame.keyed_by, needed, frame.timezone)
    if times is None:
        times = event_times(rows.column(frame.time), frame.time, frame.timezone)
    elif places is not None:
        times = times[places]
        window_times = None if window_times is None else window_times[places]
    return reduce_keyed(rows, keys, frame, times=times, window_times=window_times)


def reduce_keyed(
    rows: pa.Table, keys: dict[str, pa.Array], frame: TiltFrame, times: Instants, window_times: Instants | None = None
) -> pa.Table:
    """Return the states of rows as `reduce_rows` does. ``keys`` are the columns of keys, as `aggr.tables.keys.keyed`
    returns them, and ``times`` the event times in microseconds UTC.
    """
    window_times = times if window_times is None else window_times
    if frame.panes.contiguous:  # the end of a window follows from its start, so rows are grouped by the start only
        starts = as_instants(frame.panes.starts(window_times))
        reduced = reduce_by(rows, {START: starts} | keys, frame.states, as_instants(times), timezone=frame.timezone)
        pane_ends = frame.panes.ends(instants_of(reduced, START))
        return reduced.append_column(END, as_instants(pane_ends)).select(frame.states_columns[1:])
    pane_windows = frame.panes.assign(window_times)
    if not selects_all(pane_windows.rows, rows.num_rows):
        rows = take_rows(rows, pane_windows.rows)
        keys = {name: key.take(pa.array(pane_windows.rows)) for name, key in keys.items()}
    times = times[pane_windows.rows]
    window_starts, window_ends = windows_of_intervals(frame.panes, pane_windows.starts, pane_windows.ends, keys)
    windows = {START: as_instants(window_starts)} | keys
    carried = {END: as_instants(window_ends)}
    reduced = reduce_by(rows, windows, frame.states, as_instants(times), carried=carried, timezone=frame.timezone)
    return reduced.select(frame.states_columns[1:])
