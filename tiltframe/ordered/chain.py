"""Chains of ordered windows: each window of a coarser level consists of consecutive windows of the next finer level.

    rows        1  2  3  4  5  6  7  8  9 10 11 12
    count(2)   [1  2][3  4][5  6][7  8][9 10][11 12]
    count(3)   [               ][                  ]     each window has three windows of count(2)

The next level treats a window of one level like a row. The time of this row is the time of the row that closed the
window. The next level merges the states of its windows, so that only the first level reads the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from aggr import Measure
from aggr.arguments import checked_name, checked_type, shown
from aggr.arrow.normalize import with_nulls
from aggr.groups.groups import Groups
from aggr.tables.by_key import finish_by
from aggr.tables.keys import keys_as_text
from aggr.tables.state_plan import StateColumn, plan_state_columns
from tiltframe.event_time import INSTANT
from tiltframe.files.read_options import ReadOptions
from tiltframe.names import LEVEL
from tiltframe.ordered.aggregation import row_reducer
from tiltframe.ordered.aggregator import OrderedAggregator, iterate_batches
from tiltframe.ordered.query import MeasuredWindow, OrderedQuery, check_measures, make_order
from tiltframe.ordered.sequence import Order, sort_rows, with_ticks
from tiltframe.ordered.window_state import Flags, Ints, Reduce, advance
from tiltframe.tabular import one_table_or_batches, table_of
from windows.ordered import Input, OrderedWindow, Rows, Tick, as_ordered
from windows.ordered.contract import EVERY_ROW


@dataclass(frozen=True, init=False, eq=False)
class OrderedFrame(OrderedQuery):
    """Measures over a chain of ordered windows, from the finest level to the coarsest.

    Parameters
    ----------
    levels : ordered windows or their texts, or name -> window
        The windows from the finest level to the coarsest. A window of the first level consists of rows. A window of any
        other level consists of windows of the level before. In a list, the name of a level is the text of its window.
    time : str
        The column of event times.
    measures : name -> measure, or expression of other measures
        See `TiltFrame`.
    keys : column names, or name -> column or expression
        Results are computed per combination of key values. A key is computed as in a `TiltFrame`.
    order : column names
        Columns by which rows with equal times are sorted. Rows that are equal in these columns too keep the order of
        their arrival.

    Raises
    ------
    ValueError
        If a level other than the last has overlapping windows; if a level other than the first uses conditions, weights
        or ticks, which can only be computed from rows; or if a name is used twice.

    Examples
    --------
    >>> import aggr
    >>> OrderedFrame(["count(2)", "count(3)"], time="ts", keys=["host"], measures={"requests": aggr.count()})
    OrderedFrame(count(2) → count(3) by host; requests=count())
    """

    levels: Mapping[str, OrderedWindow]
    order: Order

    def __init__(
        self,
        levels: Sequence[OrderedWindow | str] | Mapping[str, OrderedWindow | str],
        time: str,
        measures: Mapping[str, Measure | str],
        keys: Sequence[str] | Mapping[str, str] = (),
        order: Sequence[str] = (),
    ) -> None:
        """Check the arguments that can be checked without data."""
        if not isinstance(levels, Sequence | Mapping) or isinstance(levels, str | bytes) or not levels:
            raise ValueError(
                f"levels must be a list of ordered windows, such as ['count(2)', 'count(3)']; got {shown(levels)}"
            )
        named_windows = list(levels.items()) if isinstance(levels, Mapping) else [(None, level) for level in levels]
        windows = [(name, as_ordered(window)) for name, window in named_windows]
        names = [str(window) if name is None else checked_name(name, "a level's name") for name, window in windows]
        if len(set(names)) < len(names):
            raise ValueError(
                f"two levels are called {max(names, key=names.count)}; give them different names with a dict, such as "
                f"{{'fine': …, 'coarse': …}}"
            )
        set_field = object.__setattr__
        set_field(self, "levels", dict(zip(names, (window for _, window in windows), strict=True)))
        set_field(self, "order", make_order(time, keys, order))
        stateful, expressions = check_measures(measures, self.order)
        set_field(self, "results", tuple(measures))
        set_field(self, "measures", stateful)
        set_field(self, "expressions", expressions)
        set_field(
            self, "measured_windows", tuple(MeasuredWindow(window, self.states) for window in self.levels.values())
        )
        self._check()

    @cached_property
    def states(self) -> tuple[StateColumn, ...]:
        """The columns of states from which the measures are computed, the same on all levels."""
        return plan_state_columns(self.measures)

    @property
    def reads(self) -> tuple[Input, ...]:
        """The conditions and weights that the first level needs for each row. Other levels do not need any."""
        return self.measured_windows[0].window.reads

    def ordered_by(self, order: Order) -> OrderedFrame:
        results: dict[str, Measure | str] = {**self.measures, **self.expressions}
        results_in_order = {name: results[name] for name in self.results}
        return OrderedFrame(self.levels, order.time, results_in_order, keys=order.keyed_by, order=order.tie_columns)

    def _check(self) -> None:
        """Raise ``ValueError`` if the levels cannot form a chain, or a name is used twice."""
        *finer, _ = self.levels.items()
        for name, window in finer:
            if window.per_row:
                raise ValueError(
                    f"windows of {name} overlap, so coarser windows cannot be computed from them; {name} must be the "
                    "last level"
                )
        first, *coarser = self.levels.items()
        if any(isinstance(read, Tick) for read in first[1].reads):
            raise ValueError(f"{first[0]} emits at ticks, which a chain does not support; use tiltframe.running")
        for name, window in coarser:
            if any(read != EVERY_ROW for read in window.reads):
                raise ValueError(
                    f"windows of {name} need conditions, weights or ticks of rows, but would consist of windows of "
                    f"{first[0]}; make {name} the first level"
                )
        reserved = [LEVEL, self.order.time, *self.order.keys, *self.results]
        for name in reserved:
            if reserved.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice among {LEVEL}, time, keys and measures; rename one")

    def __repr__(self) -> str:
        by = f" by {keys_as_text(self.order.keyed_by)}" if self.order.keys else ""
        results = {**self.measures, **self.expressions}
        measures = ", ".join(f"{name}={results[name]!r}" for name in self.results)
        return f"OrderedFrame({' → '.join(self.levels)}{by}; {measures})"


class OrderedRollup(OrderedAggregator):
    """Compute the states of all levels of a chain of ordered windows, batch by batch.

    Parameters
    ----------
    frame : OrderedFrame

    Guarantee
    ---------
    States are bit-for-bit the same however the rows are split into batches. Within a key, no row may be earlier than a
    row of a previous batch; within a batch, rows may have any order.

    Examples
    --------
    >>> import aggr
    >>> states = OrderedRollup(OrderedFrame(["count(2)"], time="ts", measures={"n": aggr.count()}))
    >>> [states.add(pa.table({"ts": [at]})).num_rows for at in (0, 1, 2, 3)]
    [0, 1, 0, 1]
    """

    query: OrderedFrame

    def __init__(self, frame: OrderedFrame) -> None:
        """Create a rollup that has not processed any rows."""
        super().__init__(checked_type(frame, OrderedFrame, "frame"))

    def add(self, batch: pa.Table | pa.RecordBatch, until: int | None = None) -> pa.Table:
        """Process a batch of rows, and return the states of the windows that it closes.

        Parameters
        ----------
        batch : table or record batch
            A batch, which may be empty. All batches have the same schema.
        until : int, optional
            Not used, because a chain has no ticks.

        Returns
        -------
        table
            One row for each closed window: level, time (of the row that closed the window), keys, and one struct per
            column of states.

        Raises
        ------
        ValueError, TypeError
            If the data does not fit the frame, or a row precedes a row of the same key in an earlier batch. After an
            error, the state is unchanged.
        """
        table = self._checked_batch(batch)
        frame = self.query
        names = [column.name for column in frame.states]
        ordered = sort_rows(table, frame.order, self._keys)
        rows_and_ticks = with_ticks(ordered, frame.reads, ())
        rows = rows_and_ticks.entries
        tables = []
        new_states = []
        states: Mapping[str, pa.StructArray] = {}
        for number, (name, window) in enumerate(frame.levels.items()):
            measured_window = frame.measured_windows[number]
            window_state = self._window_states[number].with_keys(
                ordered.new_key_ids, ordered.keys.n, window, measured_window.functions
            )
            reduce = (
                state_merger(measured_window, states)
                if number
                else row_reducer(measured_window, ordered, rows_and_ticks, window_state)
            )
            batch_result = advance(
                window, measured_window.functions, rows, state=window_state, reduce=reduce, choose=lambda ranges: None
            )
            key_ids = batch_result.ranges.key
            times = rows.times[batch_result.ranges.row]
            states = batch_result.states
            if window.least_rows:
                enough = pa.array(batch_result.ranges.last - batch_result.ranges.first >= window.least_rows)
                states = {n: with_nulls(state.filter(enough), enough) for n, state in states.items()}
            assert batch_result.state is not None
            new_states.append(batch_result.state)
            rows = _windows_as_rows(key_ids, times, ordered.keys.n)
            keys = {n: c.take(pa.array(key_ids)) for n, c in zip(frame.order.keys, ordered.keys.columns, strict=True)}
            level = {LEVEL: pa.repeat(pa.scalar(name), len(key_ids)), frame.order.time: pa.array(times).cast(INSTANT)}
            tables.append(pa.table(level | keys | {n: states[n] for n in names}))
        self._keys = ordered.keys
        self._window_states = new_states
        return pa.concat_tables(tables)

    def finish(self, batch: pa.Table | pa.RecordBatch | None = None, end: int | None = None) -> pa.Table:
        """Process the last batch, and return the states of the windows that it closes. Windows that are still open are
        not returned.
        """
        if batch is None:
            batch = pa.table({}) if self._schema is None else self._schema.empty_table()
        return self.add(batch)

    def results(self, emitted: pa.Table) -> pa.Table:
        return finish_ordered(emitted, self.query)


def ordered_rollup(data: Any, frame: OrderedFrame, reading: ReadOptions | None = None) -> pa.Table:
    """Return the states of all levels of a chain of ordered windows.

    Parameters
    ----------
    data : an input of `tiltframe.rollup`, or an iterable of batches
        In an iterable, no row may be earlier than a row of the same key in a previous batch.
    frame : OrderedFrame
    reading : ReadOptions, optional
        Information that files or tables do not contain, as for `tiltframe.rollup`.

    Returns
    -------
    table
        One row for each closed window: level, time (of the row that closed the window), keys, and one struct per column
        of states. The rows are sorted by level, keys and time; for an iterable, they are sorted for each batch.
        `finish_ordered` computes the results.

    Raises
    ------
    ValueError, TypeError
        If the data does not fit the frame.

    Examples
    --------
    >>> import aggr
    >>> frame = OrderedFrame(["count(2)", "count(2)"], time="ts", measures={"n": aggr.sum("n")})
    Traceback (most recent call last):
    ValueError: two levels are called count(2); give them different names with a dict, such as {'fine': …, 'coarse': …}
    >>> frame = OrderedFrame({"twos": "count(2)", "fours": "count(2)"}, time="ts", measures={"n": aggr.sum("n")})
    >>> states = ordered_rollup(pa.table({"ts": [0, 1, 2, 3], "n": [5, 2, 13, 4]}), frame)
    >>> finish_ordered(states, frame).select(["level", "n"]).to_pydict()
    {'level': ['twos', 'twos', 'fours'], 'n': [7, 17, 24]}
    """
    aggregator = OrderedRollup(frame)
    rows = one_table_or_batches(data, "data", frame.order.time, uses=aggregator.query.column_uses(), reading=reading)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return aggregator.add(rows)
    return pa.concat_tables([aggregator.add(batch) for batch in iterate_batches(rows)])


def finish_ordered(states: Any, frame: OrderedFrame) -> pa.Table:
    """Return the results of states of a chain of ordered windows.

    Parameters
    ----------
    states : table
        A table from `ordered_rollup`. The table is not changed.
    frame : OrderedFrame
        The frame of the states, or a frame that computes other results from the same states, such as other quantiles.

    Returns
    -------
    table
        The same rows, with the columns level, time, keys, and one column per measure and expression.

    Raises
    ------
    ValueError
        If a column is missing, if the states belong to other functions or parameters, or if they are damaged.
    """
    states = table_of(states, "states")
    checked_type(frame, OrderedFrame, "frame")
    state_columns = {name: column.name for column in frame.states for name in column.serves}
    for name in (LEVEL, frame.order.time, *frame.order.keys, *state_columns.values()):
        if name not in states.column_names:
            raise ValueError(
                f"these are not states of this frame: they have no column {name!r}; pass states that were "
                "computed with this frame"
            )
    measures = {name: (state_columns[name], measure) for name, measure in frame.measures.items()}
    return frame.with_expressions(finish_by(states, (LEVEL, frame.order.time, *frame.order.keys), measures))


def state_merger(measured_window: MeasuredWindow, states: Mapping[str, pa.StructArray]) -> Reduce:
    """Return the argument ``reduce`` of `advance` for a level other than the first: a function that merges the states
    of windows of the previous level. ``states`` maps the name of each column of states to the states of the previous
    level.
    """

    def reduce(name: str, used: Flags, groups: Groups) -> pa.StructArray:
        return measured_window.functions[name].merge(states[name].filter(pa.array(used)), groups)

    return reduce


def _windows_as_rows(key_ids: Ints, times: Ints, key_count: int) -> Rows:
    """Return the windows of a level in the form of rows, because the next level treats windows like rows. ``key_ids``
    has the id of each window's key, ``times`` has the time of each window in microseconds UTC, and ``key_count`` is the
    number of keys.
    """
    lengths = np.bincount(key_ids, minlength=key_count)
    return Rows(np.cumsum(lengths) - lengths, lengths, times, {EVERY_ROW: np.ones(len(key_ids), np.bool_)})
