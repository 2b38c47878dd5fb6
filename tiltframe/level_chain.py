"""Rolling up: rows to the finest windows, and each level's states to the next one's, by merging.

    rows ── reduce ──▶ 10s states ── merge ──▶ 1m ── merge ──▶ 10m ── merge ──▶ 1h

Rows are read once. States carry their window's start and end from the first reduction on. Where a level's windows
overlap, its states are kept per pane, and a window's state is the merge of its panes'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_truth, checked_type
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from aggr.groups.groups import Groups, group_by
from aggr.state_checks import CheckedStates, arrow_of, checked_like, made_here
from aggr.tables import partial_aggregation
from aggr.tables.by_key import check_rows, finish_by, key_column, merge_by, reduce_by
from aggr.tables.flat_results import flattened
from aggr.tables.keys import keyed, plain_keys
from aggr.tables.ranges import merge_runs
from tiltframe.event_time import INSTANT, event_times
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.names import END, LEVEL, START
from tiltframe.near_in_time import near_in_time
from tiltframe.overlapping_windows import ranges_of_panes
from tiltframe.tabular import Batches, consume, rows_of, table_of
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.contract import Numbered, check_nested
from windows.timezone import Instants

T = TypeVar("T")
_HELD_BYTES = 1 << 28  # of rows that are brought near in time
_FEW_ROWS = 256  # of a group in a batch, where merging its states costs more than bringing rows near in time


def rollup(data: Any, frame: TiltFrame, reading: ReadOptions | None = None) -> pa.Table:
    """Roll up a table: the states of every level.

    Parameters
    ----------
    data : table, DataFrame of polars or pandas, DuckDB relation, RecordBatchReader, dataset, or paths
        With the frame's time, keys and the columns of its measures: whatever has ``__arrow_c_stream__``, a pyarrow
        dataset or scanner, or the path of Parquet, CSV or JSON-lines files or of a folder of them, or a list of
        paths. Streams, datasets and files are read once, in batches.
    frame : TiltFrame
    reading : ReadOptions, optional
        What files do not say of themselves, such as types and signs of numbers; of any rows, how their time is
        computed, and which of them count.

    Returns
    -------
    table
        One row per level, window and key: level, window_start, window_end (exclusive), keys, one struct per
        state; ordered by level, window, keys. Rows that lie in no window are left out.

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
    return from_rows(data, frame, reading, lambda batches: rollup_batches(batches, frame))


def from_rows(
    data: Any, frame: TiltFrame, reading: ReadOptions | None, read: Callable[[Iterator[pa.RecordBatch]], T]
) -> T:
    """Read the columns of a frame of whatever `rollup` takes: ``read`` gets at least one batch, perhaps without rows.

    It is called again, with all batches, if a file shows the type of a column late.
    """
    rows = _rows(data, frame, reading)
    return consume(rows, lambda rows: read(_frame_batches(rows, frame)))


def frame_batches(data: Any, frame: TiltFrame, reading: ReadOptions | None = None) -> Iterator[pa.RecordBatch]:
    """Read the columns of a frame once, as `from_rows` does, where rows cannot be read again."""
    return _frame_batches(_rows(data, frame, reading), frame)


def _rows(data: Any, frame: TiltFrame, reading: ReadOptions | None) -> Batches:
    checked_type(frame, TiltFrame, "frame")
    reading = checked_type(ReadOptions() if reading is None else reading, ReadOptions, "reading")
    reading.check(frame.time, frame.may_read())
    return rows_of(
        data,
        "data",
        frame.columns_in,
        frame.time,
        uses=frame.column_uses(reading.where),
        coded=plain_keys(frame.keyed_by),
        reading=reading,
        timezone=frame.timezone,
        check=frame.check,
    )


def _frame_batches(rows: Batches, frame: TiltFrame) -> Iterator[pa.RecordBatch]:
    """Choose the columns of a frame of batches, after one that has no rows."""
    schema = rows.schema
    frame.check(schema)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)  # perhaps alone
    columns = list(frame.columns_in(schema.names))
    return (batch.select(columns) for batch in chain([nothing], rows.batches))


def rollup_states(data: pa.Table, frame: TiltFrame) -> pa.Table:
    """Roll up states that are there already, such as the intervals of a histogram log: the states of every level.

    Parameters
    ----------
    data : table
        With the frame's time and keys, and for each of its columns of states (`TiltFrame.states`) one of this name that
        holds states of its function. A state counts, as a row would, in the windows of its time.
    frame : TiltFrame

    Returns
    -------
    table, as `rollup` gives it, for `finish` and for a store

    Raises
    ------
    ValueError, TypeError
        If the data does not fit the frame, or the states are of another function or of other parameters. Which rows
        they were made of, no state tells: that they are those of the measure's column is for the caller to know.

    Examples
    --------
    >>> import aggr
    >>> frame = TiltFrame(["1s", "1m"], time="start", measures={"ms": aggr.hdr("ms", [0.5])})
    >>> states = aggr.Hdr().reduce(pa.array([3, 5, 800]), aggr.Groups.each(3))
    >>> found = finish(rollup_states(pa.table({"start": [0, 500, 1500], "ms": states}), frame), frame)
    >>> [(row["level"], row["ms"]["quantiles"]["0.5"]) for row in found.to_pylist()]
    [('1s', 3), ('1s', 800), ('1m', 5)]
    """
    checked_type(frame, TiltFrame, "frame")
    wanted = [frame.time, *(column.name for column in frame.states)]
    check_rows(checked_type(data, pa.Table, "data").schema, {name: name for name in frame.keys}, (), INSTANT, wanted)
    found = frame.panes.assign(event_times(data.column(frame.time), frame.time, frame.timezone))
    states = taken(data, found.rows)
    keys = _frame_keys(states, frame)
    finest = _merged(states, keys, frame, *_united(frame.panes, found.starts, found.ends, keys))
    return joined(climb(finest, frame), frame)


def rollup_batches(batches: Iterable[pa.RecordBatch], frame: TiltFrame) -> pa.Table:
    """Roll up a stream of batches, at least one, perhaps without rows; memory grows with the windows, not the rows."""
    states = made_here(pa.concat_tables(partial_states(batches, frame)))
    return joined(climb(merge_panes(states, frame), frame), frame)


def partial_states(
    batches: Iterable[pa.RecordBatch], frame: TiltFrame, max_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Reduce a stream of batches to states of the finest panes: window_start, window_end, keys, states.

    They are merged as they come, where that leaves fewer; a window may come more than once, a session in pieces.
    ``max_bytes`` bounds the bytes that are held, as in `aggr.tables.partial_aggregation.partial_states`.
    """
    return map(itemgetter(1), adaptive_states(batches, frame, max_bytes, adaptive=False))


def adaptive_states(
    batches: Iterable[pa.RecordBatch], frame: TiltFrame, max_bytes: int | None = None, adaptive: bool = True
) -> Iterator[tuple[bool, pa.Table]]:
    """Reduce a stream of batches as `partial_states` does, or hand rows on as they are where hardly two share a state.

    Pairs of whether these are states, and the table, as `aggr.tables.partial_aggregation.adaptive_states` gives them.
    """
    checked: set[pa.Schema] = set()

    def reduce(table: pa.Table) -> pa.Table:
        schema = table.schema.remove_metadata()  # which pandas adds, and older pyarrow cannot hash
        if schema not in checked:
            frame.check(schema)
            checked.add(schema)
        return reduce_rows(table, frame)

    def merge(states: pa.Table) -> pa.Table:
        return merge_panes(made_here(states), frame, partial_aggregation.MAX_RATIO)

    def groups(table: pa.Table) -> int:
        starts = _instants(frame.panes.starts(event_times(table.column(frame.time), frame.time, frame.timezone)))
        _, places, keys = keyed(table, frame.keyed_by, (), frame.timezone)
        if places is not None:  # a row is in several groups, of several shards
            return 0
        return group_by([starts, *keys.values()], table.num_rows)[0].n

    def few_rows(batch: pa.RecordBatch) -> bool:
        rows: int = batch.num_rows
        return _FEW_ROWS * groups(pa.Table.from_batches([batch])) > rows

    counted = groups if adaptive and frame.panes.contiguous else None
    if frame.panes.contiguous:
        batches = near_in_time(batches, frame.time, few_rows, _HELD_BYTES if max_bytes is None else 4 * max_bytes)
    return partial_aggregation.adaptive_states(batches, reduce, merge, max_bytes, counted)


def reduce_rows(
    rows: pa.Table, frame: TiltFrame, times: Instants | None = None, placed: Instants | None = None
) -> pa.Table:
    """Reduce rows to states of the finest panes: window_start, window_end, keys, states.

    ``times``, microseconds UTC, are taken for the rows' event times where they are given. Rows lie in the windows of
    the times at which they are ``placed``, unless these are their own.
    """
    rows, places, keys = keyed(rows, frame.keyed_by, columns_to_reduce(rows, frame), frame.timezone)
    if times is None:
        times = event_times(rows.column(frame.time), frame.time, frame.timezone)
    elif places is not None:
        times, placed = times[places], None if placed is None else placed[places]
    return reduce_keyed(rows, keys, frame, times, placed)


def columns_to_reduce(rows: pa.Table, frame: TiltFrame) -> set[str]:
    """Name the columns that are needed of rows to reduce them, but for keys."""
    return {frame.time, *(name for column in frame.states for name in column.read(rows.column_names))}


def reduce_keyed(
    rows: pa.Table, keys: dict[str, pa.Array], frame: TiltFrame, times: Instants, placed: Instants | None = None
) -> pa.Table:
    """Reduce rows as `reduce_rows` does, whose keys and times are known, as `aggr.tables.keys.keyed` gives them."""
    placed = times if placed is None else placed
    if frame.panes.contiguous:  # a start tells the end: it is enough to find the ends of groups
        starts = _instants(frame.panes.starts(placed))
        reduced = reduce_by(rows, {START: starts} | keys, frame.states, _instants(times), timezone=frame.timezone)
        ends = frame.panes.ends(instants_of(reduced, START))
        return reduced.append_column(END, _instants(ends)).select(frame.states_columns[1:])
    found = frame.panes.assign(placed)
    if not _all_of(found.rows, rows.num_rows):
        rows, keys = taken(rows, found.rows), {name: key.take(pa.array(found.rows)) for name, key in keys.items()}
    times = times[found.rows]
    begun, over = _united(frame.panes, found.starts, found.ends, keys)
    windows = {START: _instants(begun)} | keys
    reduced = reduce_by(rows, windows, frame.states, _instants(times), {END: _instants(over)}, frame.timezone)
    return reduced.select(frame.states_columns[1:])


def merge_panes(states: pa.Table | CheckedStates, frame: TiltFrame, max_ratio: float = 1.0) -> pa.Table:
    """Merge partial states of the finest panes, as `reduce_rows` gives them: one row per pane and key.

    With ``max_ratio`` below 1 perhaps not at all, and checked states unchecked, as in `aggr.tables.by_key.merge_by`.
    """
    table = arrow_of(states)
    keys = _frame_keys(table, frame)
    starts, ends = _united(frame.panes, instants_of(table, START), instants_of(table, END), keys)
    return _merged(states, keys, frame, starts, ends, max_ratio)


def merge_level(
    states: pa.Table | CheckedStates,
    frame: TiltFrame,
    level: TimeWindow,
    *,
    unknown: bool = False,
) -> pa.Table:
    """Merge states of windows, known by their starts, into the windows of a level: the same, or made of them.

    Null states are ``unknown`` in a store, and count as identities elsewhere. Checked states are not checked again.
    Raises ``ValueError`` for a window that crosses an edge of the level.
    """
    table = arrow_of(states)
    starts = instants_of(table, START)
    numbered = level.numbered(starts) if len(starts) and not unknown else None
    if numbered is not None:
        return merge_overlapping(states, frame, numbered)
    assigned = level.assign(starts)
    if END in table.column_names and not table.column(END).null_count:
        check_nested(level, assigned, starts, instants_of(table, END))
    table = taken(table, assigned.rows)
    keys = _frame_keys(table, frame)
    return _merged(checked_like(states, table), keys, frame, assigned.starts, assigned.ends, unknown=unknown)


def merge_overlapping(states: pa.Table | CheckedStates, frame: TiltFrame, numbered: Numbered) -> pa.Table:
    """Merge states of panes, whose windows are ``numbered``, into windows that overlap: by ranges of panes.

    A window of a key is a range of the key's panes in their order. Memory grows with panes and windows, not with the
    number of windows that a pane lies in.
    """
    table = arrow_of(states)
    starts = instants_of(table, START)
    keys = _frame_keys(table, frame)
    groups, _ = group_by(list(keys.values()), table.num_rows)
    order = np.lexsort((starts, groups.ids))
    ranges = ranges_of_panes(groups.ids[order], numbered.first[order], numbered.last[order])
    window_starts, window_ends = numbered.bounds(ranges.numbers)
    by_start = np.lexsort((ranges.keys, window_starts))
    one_of_each = pa.array(order[ranges.first[by_start]])
    columns = {START: _instants(window_starts[by_start])}
    columns |= {END: _instants(window_ends[by_start])}
    columns |= {name: table.column(name).take(one_of_each) for name in frame.keys}
    panes, places = pa.array(order), pa.array(by_start)
    for state in frame.states:
        function = state.measure.function
        # a null state is an identity: merging each state alone writes it as one
        merged_alone = function.merge(states.column(state.name), Groups.each(table.num_rows))
        merged = merge_runs(function, arrow_of(merged_alone).take(panes), ranges.first, ranges.last)
        columns[state.name] = merged.take(places)
    return pa.table(columns).select(frame.states_columns[1:])


def climb(
    finest: pa.Table, frame: TiltFrame, coarser: Sequence[pa.Table] = ()
) -> Iterator[tuple[TimeWindow, pa.Table]]:
    """Merge merged states of the finest panes, as `merge_panes` gives them, up through all levels.

    ``coarser`` are states that have climbed before, as `climb_within` leaves them: for each level above the finest some
    of its windows, none of whose rows are in states of finer ones. Gives each level, from the finest on, with its
    states: window_start, window_end, keys, states, in the order of window and keys.
    """
    below, panes = finest, frame.panes
    for level, others in zip_longest(frame.levels, [None, *coarser]):
        if level.pane != panes:
            if others is not None and others.num_rows:
                below = pa.concat_tables([below, others.select(below.column_names)])
            below, panes = merge_level(made_here(below), frame, level.pane), level.pane
        yield level, below if level == panes else merge_level(made_here(below), frame, level)


def climb_within(
    finest: pa.Table, frame: TiltFrame, start: int, end: int
) -> tuple[list[tuple[TimeWindow, pa.Table]], list[pa.Table]]:
    """Climb with merged states of the finest panes as far as windows lie in a span, whose rows are all among them.

    Of a frame of disjoint levels ``whole`` is each level, from the finest on, with the states of its windows in the
    span, but for those that are left; ``left`` has for each level the states that are to meet others: of the finest,
    those of windows that are not in the span; of each, those that are part of a coarser window that is not. `climb`
    goes on with it.

    >>> import aggr
    >>> frame = TiltFrame(["1s", "10s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> rows = pa.table({"ts": [1000, 9000, 10000, 20000, 21000, 30000, 61000]})
    >>> finest = merge_panes(reduce_rows(rows, frame), frame)
    >>> whole, left = climb_within(finest, frame, 9_500_000, 60_000_000)
    >>> [(level.name, states.num_rows) for level, states in whole], [states.num_rows for states in left]
    ([('1s', 4), ('10s', 0), ('1m', 0)], [3, 3, 0])
    """
    whole, left = [], []
    states, apart = _parted(finest, frame.levels[0], start, end)
    for level, coarser in zip_longest(frame.levels, frame.levels[1:]):
        if coarser is None:
            whole.append((level, states))
            left.append(apart)
            break
        states, more = _parted(states, coarser, start, end)
        whole.append((level, states))
        left.append(pa.concat_tables([apart, more]))
        states = merge_level(made_here(states), frame, coarser)
        apart = states.slice(0, 0)
    return whole, left


def _parted(states: pa.Table, level: TimeWindow, start: int, end: int) -> tuple[pa.Table, pa.Table]:
    """Part states by whether the window of a level that they are part of lies in a span; what is part of none does."""
    found = level.assign(instants_of(states))
    within = np.ones(states.num_rows, np.bool_)
    within[found.rows] = (found.starts >= start) & (found.ends <= end)
    rows = np.flatnonzero(within)
    if len(rows) and len(rows) == rows[-1] + 1 - rows[0]:  # as windows come in order; slices share the memory
        first, last = int(rows[0]), int(rows[-1]) + 1
        return states.slice(first, len(rows)), pa.concat_tables([states.slice(0, first), states.slice(last)])
    return states.filter(pa.array(within)), states.filter(pa.array(~within))


def taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Take rows of a table, by ascending indices; the table itself where they are all of its rows."""
    return table if _all_of(rows, table.num_rows) else table.take(pa.array(rows))


def _all_of(rows: NDArray[np.int64], n: int) -> bool:
    return len(rows) == n and bool((rows == np.arange(n)).all())


def joined(levels: Iterable[tuple[TimeWindow, pa.Table]], frame: TiltFrame) -> pa.Table:
    """Put the states of levels into one table: level, window_start, window_end, keys, states."""
    return pa.concat_tables([labelled(states, frame, level) for level, states in levels])


def labelled(states: pa.Table, frame: TiltFrame, level: TimeWindow) -> pa.Table:
    """Name the level of states; where a window has no start or no end, null says so."""
    for name in (START, END):
        at = instants_of(states, name)
        if not len(at) or (at.min() > MIN_INSTANT and at.max() < MAX_INSTANT):
            continue
        known = pc.if_else(pa.array((at > MIN_INSTANT) & (at < MAX_INSTANT)), _instants(at), pa.scalar(None, INSTANT))
        states = states.set_column(states.column_names.index(name), name, known)
    return states.add_column(0, frame.level_field, pa.repeat(pa.scalar(level.name), states.num_rows))


def finish(states: Any, frame: TiltFrame, flat: bool = False) -> pa.Table:
    """Read the results of states: the same rows, a result for each measure.

    Parameters
    ----------
    states : table
        As `rollup` gives it, or whatever holds the same: a DataFrame, a stream, a dataset, Parquet files. It stays
        unchanged.
    frame : TiltFrame
        The same, or one that reads other quantiles from the same states.
    flat : bool
        Give plain columns in place of records: ``latency_count``, ``latency_p50``, ``latency_p99``.

    Returns
    -------
    table
        level, window_start, window_end, keys, a column for each measure, or for each field of its records. Starts and
        ends are in the frame's time zone, as `FrameStore.query` gives them.

    Raises
    ------
    ValueError
        If they are not states of the frame, or damaged.
    OverflowError
        If a result does not fit its type, naming the group.

    Examples
    --------
    >>> import aggr
    >>> frame = TiltFrame(["1s"], time="ts", measures={"total": aggr.sum("x")})
    >>> finish(rollup(pa.table({"ts": [0, 500], "x": [1, 2]}), frame), frame).column("total").to_pylist()
    [3]
    """
    checked_type(frame, TiltFrame, "frame")
    states = table_of(states, "states")
    frame.check_states(states.schema)
    measures = {name: (frame.state_of(name), measure) for name, measure in frame.measures.items()}
    results = finish_by(states, (LEVEL, START, END, *frame.keys), measures)
    for name in (START, END):
        column = results.column(name).cast(pa.timestamp("us", frame.timezone))
        results = results.set_column(results.column_names.index(name), name, column)
    return flattened(results) if checked_truth(flat, "flat") else results


def _merged(
    states: pa.Table | CheckedStates,
    keys: dict[str, pa.Array],
    frame: TiltFrame,
    starts: Instants,
    ends: Instants,
    max_ratio: float = 1.0,
    unknown: bool = False,
) -> pa.Table:
    functions = {c.name: c.measure.function for c in frame.states}
    keys, carried = {START: _instants(starts)} | keys, {END: _instants(ends)}
    merged = merge_by(states, keys, functions, max_ratio, carried, unknown=unknown)
    return merged if merged is arrow_of(states) else merged.select(frame.states_columns[1:])


def _united(
    window: TimeWindow, starts: Instants, ends: Instants, keys: Mapping[str, pa.Array]
) -> tuple[Instants, Instants]:
    """Replace intervals by the windows that they are part of; equal ones are grouped by their start as they are."""
    if not window.is_merging:
        return starts, ends
    groups, _ = group_by(list(keys.values()), len(starts))
    merged = window.merge(groups.ids, starts, ends)
    return merged.starts[merged.ids], merged.ends[merged.ids]


def _frame_keys(table: pa.Table, frame: TiltFrame) -> dict[str, pa.Array]:
    return {name: key_column(table.column(name)) for name in frame.keys}


def _instants(micros: Instants) -> pa.Array:
    return pa.array(micros).cast(INSTANT)


def instants_of(table: pa.Table, name: str = START) -> Instants:
    """Read a column of moments, where windows start unless another is named, in microseconds UTC."""
    micros: Instants = normalize(table.column(name)).cast(INSTANT).cast(pa.int64()).to_numpy()
    return micros


def checked_instants(states: pa.Table, name: str) -> NDArray[np.int64]:
    """Read a column of moments in microseconds UTC; raises ``ValueError`` for what holds none."""
    if states.column(name).null_count:
        raise ValueError(f"the column {name!r} of states must not be null")
    try:
        return instants_of(states, name)
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column {name!r} holds no moments in microseconds: {error}") from None
