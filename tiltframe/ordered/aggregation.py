"""`running` aggregates rows in the order of key and time. `RunningAggregation` does the same batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Measure, count
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array, with_nulls, zero_of
from aggr.groups.groups import Groups
from tiltframe.event_time import INSTANT
from tiltframe.files.read_options import ReadOptions
from tiltframe.ordered.aggregator import OrderedAggregator, iterate_batches
from tiltframe.ordered.query import NEXT, ROWS, TICK, MeasuredWindow, RunningQuery, running_query
from tiltframe.ordered.sequence import Ints, Keys, RowsAndTicks, SortedRows, shown_time, sort_rows, with_ticks
from tiltframe.ordered.window_state import BatchResult, Flags, Reduce, WindowState, advance
from tiltframe.parameter_names import parameter_text
from tiltframe.tabular import one_table_or_batches
from windows.ordered import OrderedWindow, Ranges, Tick

States = Mapping[str, pa.StructArray]
_FINAL = "final"


class RunningAggregation(OrderedAggregator):
    """Aggregate rows in the order of key and time, batch by batch.

    Parameters
    ----------
    measures, window, time, keys, order, ticks, emit, until, fill : as in `tiltframe.running`

    Raises
    ------
    ValueError
        If the arguments contradict each other.

    Guarantee
    ---------
    Results are bit-for-bit the same however the rows are split into batches. Within a key, no row may be earlier than a
    row of a previous batch; within a batch, rows may have any order. A few states per key are kept in memory, and no
    rows.

    Examples
    --------
    >>> import aggr
    >>> totals = RunningAggregation({"total": aggr.sum("x")}, time="ts", keys=["k"])
    >>> totals.add(pa.table({"k": ["a", "b"], "ts": [0, 0], "x": [1, 10]})).column("total").to_pylist()
    [1, 10]
    >>> totals.add(pa.table({"k": ["a", "b"], "ts": [1, 1], "x": [2, 20]})).column("total").to_pylist()
    [3, 30]
    """

    query: RunningQuery
    # With ``emit="final"`` and one result per row, the last result of each key: the ids of the keys, the times in
    # microseconds UTC, and the states for each window of the query. Otherwise, and before the first batch, None.
    _final: tuple[Ints, Ints, list[States]] | None = None
    _is_finished = False

    def __init__(
        self,
        measures: Mapping[str, Measure | str],
        window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None = None,
        *,
        time: str,
        keys: Sequence[str] | Mapping[str, str] = (),
        order: Sequence[str] = (),
        ticks: Tick | str | Sequence[Tick | str] = (),
        emit: str = "rows",
        until: object = None,
        fill: str | None = None,
    ) -> None:
        """Check the arguments that can be checked without data."""
        query = running_query(
            measures, window, time=time, keys=keys, order=order, ticks=ticks, emit=emit, until=until, fill=fill
        )
        super().__init__(query)

    def add(self, batch: pa.Table | pa.RecordBatch, until: int | None = None) -> pa.Table:
        """Process a batch of rows, and return the results at the rows of the batch and at the ticks.

        Parameters
        ----------
        batch : table or record batch
            A batch, which may be empty. All batches have the same schema.
        until : int, optional
            A time in microseconds UTC before which later batches have no rows. Results at ticks before this time are
            returned now. A tick is the start of a unit of the clock, such as an hour.

        Returns
        -------
        table
            The results that the batch triggers, in the form of `tiltframe.running`, sorted by keys and time.

        Raises
        ------
        ValueError, TypeError
            If the data does not fit, a row precedes a row of the same key in an earlier batch, or `finish` was called.
            After an error, the state is unchanged.
        """
        return self._process_batch(batch, False, until)

    def finish(self, batch: pa.Table | pa.RecordBatch | None = None, end: int | None = None) -> pa.Table:
        """Process the last batch, and return the results at its rows and at the end of the data.

        At the end of the data, there are results for the remaining ticks and, with ``emit="final"``, the last result of
        each key.

        Parameters
        ----------
        batch : table or record batch, optional
            The last batch. By default, no rows are added.
        end : int, optional
            The time up to which there are ticks, in microseconds UTC. The default is the time of the last row of all
            keys.

        Returns
        -------
        table
            A table like the result of `tiltframe.running`, in the order of keys and time.

        Raises
        ------
        ValueError, TypeError
            For the same reasons as `add`, and if there was no batch, not even an empty one.
        """
        if batch is None:
            if self._schema is None:
                raise ValueError(
                    "no batch was passed, so the columns are unknown; pass at least one batch, which may be empty"
                )
            batch = self._schema.empty_table()
        self._checked_batch(batch)
        if end is not None:
            self._keys = self._keys._replace(last_time=max(self._keys.last_time, end))
        return self._process_batch(batch, True)

    def carried(self) -> dict[str, pa.Table]:
        tables = super().carried()
        if tables and self._final is not None:
            keys, times, states = self._final
            state_columns = {
                f"{window_index}.{name}": column
                for window_index, states_of_window in enumerate(states)
                for name, column in states_of_window.items()
            }
            tables[_FINAL] = pa.table({"key": keys, "time": times, **state_columns})
        return tables

    def restore(self, tables: Mapping[str, pa.Table], schema: pa.Schema) -> None:
        super().restore(tables, schema)
        if _FINAL in tables:
            final = {name: one_array(tables[_FINAL].column(name)) for name in tables[_FINAL].column_names}
            measured_windows = enumerate(self.query.measured_windows)
            states: list[States] = [
                {name: final[f"{window_index}.{name}"] for name in measured_window.functions}
                for window_index, measured_window in measured_windows
            ]
            self._final = final["key"].to_numpy(), final["time"].to_numpy(), states

    def _process_batch(self, batch: pa.Table | pa.RecordBatch, last: bool, watermark: int | None = None) -> pa.Table:
        """Process a batch, and return its results. ``last`` is true for the last batch. ``watermark`` is the argument
        ``until`` of `add`: a time in microseconds UTC before which later batches have no rows.
        """
        if self._is_finished:
            raise ValueError("this aggregation is finished; create a new one")
        table = self._checked_batch(batch)
        query = self.query
        if query.first_time is not None:
            self._keys = self._keys._replace(first_time=query.first_time)
        ordered = sort_rows(table, query.order, self._keys)
        if query.fill is not None:
            self._check_not_before_first_tick(ordered)
        rows_and_ticks = with_ticks(
            ordered,
            query.reads,
            query.ticks,
            self._last_tick(ordered) + 1 if last else watermark,
            is_last=last and query.until == NEXT,
            is_filled=query.fill is not None,
        )
        states_of_keys = [
            state.with_keys(ordered.new_key_ids, ordered.keys.n, measured_window.window, measured_window.functions)
            for measured_window, state in zip(query.measured_windows, self._window_states, strict=True)
        ]
        choose = partial(self._mask_needed_ranges, rows_and_ticks)
        drops_state = last and (query.per_row or query.emit != "final")
        batch_results = []
        for measured_window, state in zip(query.measured_windows, states_of_keys, strict=True):
            reduce = row_reducer(measured_window, ordered, rows_and_ticks, state)
            advanced = advance(
                measured_window.window,
                measured_window.functions,
                rows_and_ticks.entries,
                state=state,
                reduce=reduce,
                choose=choose,
                last=drops_state,
            )
            batch_results.append(advanced)
        self._keys = ordered.keys
        self._is_finished = last
        # The results at ticks before the watermark are returned by this call. ``latest`` is set to the watermark so
        # that the next call does not return them again.
        if query.ticks and watermark is not None:
            self._keys = ordered.keys._replace(latest=np.maximum(ordered.keys.latest, watermark))
        if not drops_state:
            self._window_states = [
                window_result.state for window_result in batch_results if window_result.state is not None
            ]
        if query.emit != "final":
            return _results_table(query, ordered, rows_and_ticks, batch_results)
        if query.per_row:
            self._keep_last_results(ordered, rows_and_ticks, batch_results)
        return self._final_results(table.schema, last)

    def _last_tick(self, ordered: SortedRows) -> int:
        """Return the time up to which there are ticks after the last batch, in microseconds UTC: the time of the last
        row of all keys, or the argument ``until`` of the query if it is a later time.
        """
        until = self.query.until
        return max(ordered.keys.last_time, until) if isinstance(until, int) else ordered.keys.last_time

    def _check_not_before_first_tick(self, ordered: SortedRows) -> None:
        """Raise ``ValueError`` if a row is earlier than all rows of the previous batches. With ``fill``, every key has
        results at all ticks since the earliest row. An even earlier row would require results at further ticks, but the
        results of that time were already returned.
        """
        if self._keys.n and ordered.keys.first_time < self._keys.first_time:
            begin = shown_time(self._keys.first_time)
            earlier = shown_time(ordered.keys.first_time)
            fill = parameter_text("fill")
            raise ValueError(
                f"with {fill}, the ticks of all keys begin at {begin}, the time of the first row, but a later batch "
                f"has a row at {earlier}; sort all rows by time, or leave out {fill}"
            )

    def _mask_needed_ranges(self, rows_and_ticks: RowsAndTicks, ranges: Ranges) -> Flags | None:
        """Return a mask of the ranges of rows for which ``emit`` requires a result, or None if all results are
        required. With consecutive windows and ``emit="final"``, the mask is false everywhere: ``ranges`` are the closed
        windows, and only the window that is open at the end of the data has a result.
        """
        if self.query.emit == "rows":
            return None
        if self.query.emit == "ticks":
            chosen: Flags = rows_and_ticks.source[ranges.row] < 0
        elif self.query.per_row:
            chosen = np.append(np.diff(ranges.key) != 0, True)[: len(ranges.key)]
        else:
            chosen = np.zeros(len(ranges.row), np.bool_)
        return chosen

    def _keep_last_results(
        self, ordered: SortedRows, rows_and_ticks: RowsAndTicks, batch_results: list[BatchResult]
    ) -> None:
        """Keep the last result of each key of this batch in memory. It replaces the result of the same key from an
        earlier batch.
        """
        ranges = batch_results[0].ranges
        keys = ranges.key
        times = rows_and_ticks.entries.times[ranges.row]
        states = [window_result.states for window_result in batch_results]
        if self._final is not None:
            old_keys = ordered.new_key_ids[self._final[0]]
            kept_positions = np.flatnonzero(~np.isin(old_keys, keys))
            all_keys = np.append(old_keys[kept_positions], keys)
            kept_rows = pa.array(kept_positions)
            order = np.argsort(all_keys, kind="stable")
            states = [
                {
                    name: pa.concat_arrays([old_states[name].take(kept_rows), new_states[name]]).take(pa.array(order))
                    for name in new_states
                }
                for old_states, new_states in zip(self._final[2], states, strict=True)
            ]
            keys = all_keys[order]
            times = np.append(self._final[1][kept_positions], times)[order]
        self._final = (keys, times, states)

    def _final_results(self, schema: pa.Schema, last: bool) -> pa.Table:
        """Return the results at the end of the data: for each key the last result or, for consecutive windows, the
        result of the window that is still open.

        If ``last`` is false, return an empty table with the same columns.
        """
        query = self.query
        if query.per_row:
            assert self._final is not None
            keys, times, states = self._final
        else:
            carry = self._window_states[0].carry
            keys_with_open_window = np.flatnonzero(carry.open_starts < carry.position)
            keys = keys_with_open_window
            times = self._keys.latest[keys_with_open_window]
            states = [
                {name: column.take(pa.array(keys_with_open_window)) for name, column in state.states.items()}
                for state in self._window_states
            ]
        if not last:
            keys = keys[:0]
            times = times[:0]
            states = [
                {name: column.slice(0, 0) for name, column in states_of_window.items()} for states_of_window in states
            ]
        columns = _key_columns(query, self._keys, keys) | _time_column(query, times)
        return query.with_expressions(pa.table(columns | _compute_results(query, states)))


def running(
    data: Any,
    measures: Mapping[str, Measure | str],
    window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None = None,
    *,
    time: str,
    keys: Sequence[str] | Mapping[str, str] = (),
    order: Sequence[str] = (),
    ticks: Tick | str | Sequence[Tick | str] = (),
    emit: str = "rows",
    until: object = None,
    fill: str | None = None,
    reading: ReadOptions | None = None,
) -> pa.Table:
    """Aggregate rows in the order of key and time. By default, there is one result per row.

    Parameters
    ----------
    data : table, or batches
        A table with rows in any order, another input of `tiltframe.rollup`, or an iterable of batches. In an iterable,
        no row may be earlier than a row of the same key in a previous batch.
    measures : name -> measure, or expression of other measures
        Measures from `aggr.count`, `aggr.dds` and the other functions of `aggr`. ``first`` and ``last`` without ``by=``
        use the order of rows.
    window : an ordered window, its text, or measure -> window
        A window from `windows.ordered`. By default, and for measures that are missing in a mapping, the window contains
        all rows of the key up to the current row.
    time : str
        The column of event times, of any type that `TiltFrame` accepts.
    keys : column names, or name -> column or expression
        Results are computed per combination of key values. Null is a valid key. ``{"route": "lower(route)"}`` groups by
        the value of an SQL expression. ``{"tag": each("tags")}`` groups by the elements of a list; a row then occurs
        once per element.
    order : column names
        Columns by which rows with equal times are sorted. Rows that are equal in these columns too keep the order of
        their arrival.
    ticks : ticks
        Ticks, such as the start of every hour, at which there are additional results.
    emit : ``rows``, ``ticks`` or ``final``
        ``rows``: a result for each row and each tick. Consecutive windows (count, weighted_count, interval, session,
        emit_when) have a result for each window that has ended. ``ticks``: only the results at ticks. ``final``: the
        last result of each key. With consecutive windows, this is the result of the window that is still open, if there
        is one.
    until : ``next`` or a moment, optional
        The time up to which there are ticks: a datetime, ISO 8601 text, or Unix milliseconds. The default is the time
        of the last row of all keys. ``next``: the first tick at or after the last row of all keys, so that there is a
        result for the last period.
    fill : ``zero``, optional
        With ``zero``, every key has results at all ticks between the first and the last row of all keys, and null
        numbers in results at ticks are replaced by 0. By default, the ticks of a key begin with its first row.
    reading : ReadOptions, optional
        Information that files or tables do not contain, as for `tiltframe.rollup`.

    Returns
    -------
    table
        One row for each result, sorted by keys, time, ``order`` and arrival. The table has the columns of the rows, and
        one column for each measure. Computed keys replace columns of the same name. With ticks, there is also the
        column ``tick``, which is true in results at ticks. In results at ticks, the time is in microseconds UTC, and
        columns other than keys, time and measures are null. For consecutive windows, the table has only keys, time and
        measures. The time of a window is the time of the row that closes it.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit, or a measure has the name of a column.

    Guarantee
    ---------
    Results are bit-for-bit the same however the rows are split into batches. Input that is already sorted is not sorted
    again.

    Examples
    --------
    >>> import aggr
    >>> table = pa.table({"ts": [0, 1, 2, 3], "n": [5, 2, 13, 4]})
    >>> totals = running(table, {"total": aggr.sum("n")}, time="ts")
    >>> totals.column("total").to_pylist()
    [5, 7, 20, 24]
    >>> running(totals, {"pairs": aggr.sum("n")}, "count(2)", time="ts").column("pairs").to_pylist()
    [7, 17]
    """
    aggregation = RunningAggregation(
        measures, window, time=time, keys=keys, order=order, ticks=ticks, emit=emit, until=until, fill=fill
    )
    rows = one_table_or_batches(data, "data", time, uses=aggregation.query.column_uses(), reading=reading)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return aggregation.finish(rows)
    tables = [aggregation.add(batch) for batch in iterate_batches(rows)]
    return pa.concat_tables([*tables, aggregation.finish()])


def row_reducer(
    measured_window: MeasuredWindow, ordered: SortedRows, rows_and_ticks: RowsAndTicks, state: WindowState
) -> Reduce:
    """Return the argument ``reduce`` of `advance` for a window over rows: a function that reduces the rows of a batch
    to states of ``measured_window``. The function leaves out ticks.
    """
    measures = {column.name: column.measure for column in measured_window.states}
    is_row = rows_and_ticks.source >= 0
    place = np.arange(len(rows_and_ticks.source)) + np.repeat(
        state.carry.position - rows_and_ticks.entries.heads, rows_and_ticks.entries.lengths
    )

    def reduce(name: str, used: Flags, groups: Groups) -> pa.StructArray:
        table = ordered.table
        remaining = groups if is_row.all() else groups.filter(is_row[used])
        used = used & is_row
        if not used.all() or len(used) != table.num_rows:
            read = measures[name].columns(table.column_names) or tuple(table.column_names[:1])
            table = table.select(list(read)).filter(pa.array(used[is_row]))
        return measures[name].reduce(table, remaining, pa.array(place[used]))

    return reduce


def _results_table(
    query: RunningQuery, ordered: SortedRows, rows_and_ticks: RowsAndTicks, batch_results: list[BatchResult]
) -> pa.Table:
    """Return the results of a batch as a table. For consecutive windows, it has a row for each closed window. For other
    windows, it has a row for each row and tick of the batch. ``batch_results`` has one element for each window of the
    query.
    """
    ranges = batch_results[0].ranges
    times = rows_and_ticks.entries.times[ranges.row]
    source = rows_and_ticks.source[ranges.row]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    keys = _key_columns(query, ordered.keys, ranges.key)
    if query.keeps_rows:
        is_unchanged = len(source) == ordered.table.num_rows and (source == np.arange(len(source))).all()
        rows = ordered.table if is_unchanged else ordered.table.take(pa.array(source, mask=source < 0))
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        columns |= {name: key for name, key in keys.items() if query.order.keyed_by[name] != name}
    if query.ticks or not columns:
        columns |= keys | _time_column(query, times)
    results = _compute_results(query, [window_result.states for window_result in batch_results])
    if query.ticks:
        is_tick = pa.array(source < 0)
        columns[TICK] = is_tick
        if query.fill is not None:
            results = {name: _with_zeros(column, is_tick) for name, column in results.items()}
    if query.expressions:
        computed = query.with_expressions(pa.table(keys | _time_column(query, times) | results))
        results = {name: one_array(computed.column(name)) for name in query.results}
    return pa.table(columns | results)


def _with_zeros(column: pa.Array, is_tick: pa.BooleanArray) -> pa.Array:
    """Return a column of results, with 0 instead of null in the results at ticks. A column that does not have numbers
    is returned unchanged. ``is_tick`` is a mask of the results at ticks.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return column
    return pc.if_else(pc.and_(is_tick, pc.is_null(column)), zero_of(column.type), column)


def _key_columns(query: RunningQuery, keys: Keys, chosen: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return the key columns of results, by name. ``chosen`` has the integer id of each result's key."""
    chosen_rows = pa.array(chosen)
    return {name: column.take(chosen_rows) for name, column in zip(query.order.keys, keys.columns, strict=True)}


def _time_column(query: RunningQuery, times: Ints) -> dict[str, pa.Array]:
    """Return a dict with one entry: the name of the column of event times, and the times of the results as an Arrow
    array. ``times`` are in microseconds UTC.
    """
    return {query.order.time: pa.array(times).cast(INSTANT)}


def _compute_results(query: RunningQuery, states: list[States]) -> dict[str, pa.Array]:
    """Return the results of each measure, by the name of the measure. ``states`` has the states for each window of the
    query. A result is null if its window has fewer rows than `OrderedWindow.least_rows`.
    """
    results: dict[str, pa.Array] = {}
    for measured_window, window_states in zip(query.measured_windows, states, strict=True):
        all_states = {name: window_states[column.name] for column in measured_window.states for name in column.serves}
        if measured_window.window.least_rows:
            rows = count().function.finish(all_states.pop(ROWS))
            enough = pc.greater_equal(rows, measured_window.window.least_rows)
            all_states = {name: with_nulls(state.filter(enough), enough) for name, state in all_states.items()}
        results |= {name: query.measures[name].function.finish(state) for name, state in all_states.items()}
    return {name: results[name] for name in query.measures}
