"""Queries over ordered rows: measures and the window of each measure. A query is created and checked before data is
read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from aggr import Function, Measure, count, sql
from aggr.arguments import checked_list, checked_name, checked_names, shown
from aggr.function_inputs import EVENT_TIME
from aggr.tables.by_key import check_rows, columns_of_keys_and_measures
from aggr.tables.column_uses import ColumnUses
from aggr.tables.keys import checked_keys, columns_keys_may_read
from aggr.tables.result_expressions import order_expressions, split_results, with_expressions
from aggr.tables.state_plan import StateColumn, plan_state_columns
from tiltframe.names import LEVEL
from tiltframe.ordered.sequence import Order, check_inputs
from tiltframe.parameter_names import by_caller, parameter_text
from tiltframe.provenance import describe_states
from tiltframe.time_range import read_moment
from windows.ordered import Condition, Input, OrderedWindow, Tick, Weight, as_ordered, read_tick, running

EMIT = ("rows", "ticks", "final")
TICK = "tick"
# a value of the argument ``until`` of `tiltframe.running`
NEXT = "next"
# a value of the argument ``fill`` of `tiltframe.running`
ZERO = "zero"
# the name of an internal measure: the number of rows of a window, which is compared with `OrderedWindow.least_rows`
ROWS = "__rows"
# the type of the positions of rows within their key, which `first` and `last` use instead of times
POSITION = pa.int64()


@dataclass(frozen=True)
class MeasuredWindow:
    """A window of a query, and the columns of states from which the measures over this window are computed."""

    window: OrderedWindow
    states: tuple[StateColumn, ...]

    @property
    def functions(self) -> dict[str, Function]:
        """The function of each column of states, by the name of the column."""
        return {column.name: column.measure.function for column in self.states}


class OrderedQuery:
    """The base class of queries over ordered rows: `RunningQuery` and `OrderedFrame`."""

    order: Order
    # the names of measures and expressions, in the order of their columns
    results: tuple[str, ...]
    measures: Mapping[str, Measure]
    # The expressions are sorted, so that each uses only measures and earlier expressions.
    expressions: Mapping[str, str]
    # one element for each different window, or for each level of a chain of windows
    measured_windows: tuple[MeasuredWindow, ...]
    timezone = "UTC"

    @property
    def reads(self) -> tuple[Input, ...]:
        """The conditions, weights and ticks that the windows need for each row."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """The columns of states from which the measures are computed."""
        return tuple(
            dict.fromkeys(column for measured_window in self.measured_windows for column in measured_window.states)
        )

    @property
    def time(self) -> str:
        """The name of the column of event times."""
        return self.order.time

    @property
    def keyed_by(self) -> Mapping[str, str]:
        """The column or expression of each key, by the name of the key."""
        return self.order.keyed_by

    def ordered_by(self, order: Order) -> OrderedQuery:
        """Return the query with another order of rows. ``order`` must have the keys of this query, but may read them
        from other columns, for example after the keys were computed as columns.
        """
        raise NotImplementedError

    def columns_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of the input columns that the query needs; see `tiltframe.TiltFrame.columns_in`."""
        read = columns_of_keys_and_measures(self.keyed_by, self.columns, names)
        return tuple(dict.fromkeys([*read, self.time, *self.order.tie_columns, *columns_of_inputs(self.reads, names)]))

    def may_read(self) -> tuple[str, ...]:
        """Return the names of the columns that the query may need; see `tiltframe.TiltFrame.may_read`."""
        read = [name for column in self.columns for name in column.measure.columns()]
        keys = columns_keys_may_read(self.keyed_by)
        return tuple(
            dict.fromkeys([self.time, *keys, *read, *self.order.tie_columns, *columns_of_inputs(self.reads, ())])
        )

    def column_uses(self, where: str | None = None) -> ColumnUses:
        """Return the uses of the input columns by the query; see `tiltframe.TiltFrame.column_uses`."""
        return ColumnUses(self.keyed_by, tuple((column.measure,) for column in self.columns), where)

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if rows with this schema cannot be used; see `tiltframe.TiltFrame.check`."""
        check_rows(schema, self.keyed_by, self.columns, time=POSITION, more=[self.time, *self.order.tie_columns])
        check_inputs(self.reads, schema)

    def with_expressions(self, results: pa.Table) -> pa.Table:
        """Add the columns of the query's expressions to a table of results, and return the new table. It has the keys
        and the time, followed by the measures and expressions in the order of the query.
        """
        return with_expressions(results, self.expressions, self.timezone, self.results)

    def describe(self) -> dict[str, Any]:
        """Return a description of the query that can be written as JSON. Queries with equal descriptions can continue
        from the same saved state. Therefore parameters that affect only results, such as quantiles, are left out.
        """
        order = {"time": self.time, "keys": dict(self.keyed_by), "order": list(self.order.tie_columns)}
        states = [
            {column.name: describe_states(column) for column in measured_window.states}
            for measured_window in self.measured_windows
        ]
        return {
            **order,
            "windows": [str(measured_window.window) for measured_window in self.measured_windows],
            "states": states,
        }


@dataclass(frozen=True)
class RunningQuery(OrderedQuery):
    """A query of `tiltframe.running`. The docstring of that function describes the fields."""

    order: Order
    results: tuple[str, ...]
    measures: Mapping[str, Measure]
    expressions: Mapping[str, str]
    measured_windows: tuple[MeasuredWindow, ...]
    ticks: tuple[Tick, ...]
    emit: str
    until: int | str | None = None  # the time up to which there are ticks, in microseconds UTC, or `NEXT`
    fill: str | None = None
    # The time of the earliest of all rows, in microseconds UTC. It is set if this query reads only a part of the rows,
    # for example in a task of Spark. With ``fill``, the ticks of every key begin at this time.
    first_time: int | None = None

    @property
    def reads(self) -> tuple[Input, ...]:
        window_inputs = [read for measured_window in self.measured_windows for read in measured_window.window.reads]
        return tuple(dict.fromkeys([*window_inputs, *self.ticks]))

    @property
    def per_row(self) -> bool:
        """Whether there is one result per row. Otherwise, there is one result per window."""
        return self.measured_windows[0].window.per_row

    @property
    def keeps_rows(self) -> bool:
        """Whether the table of results also has all columns of the input rows."""
        return self.per_row and self.emit == "rows"

    def ordered_by(self, order: Order) -> RunningQuery:
        return replace(self, order=order)

    def columns_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of the input columns that the query needs or returns."""
        return tuple(names) if self.keeps_rows else super().columns_in(names)

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if rows with this schema cannot be used, or if a measure has the name of a column of the
        results.
        """
        super().check(schema)
        order = self.order
        columns = dict.fromkeys([*schema.names, *order.keys]) if self.keeps_rows else [*order.keys, order.time]
        reserved = [*columns, *([TICK] if self.ticks else [])]
        for name in [*self.results, *reserved]:
            if [*self.results, *reserved].count(name) > 1:
                raise ValueError(
                    f"the name {name!r} is used twice among the columns and the measures; rename one of them"
                )

    def describe(self) -> dict[str, Any]:
        """Return the description of the query, which also contains the ticks, ``emit`` and ``fill``."""
        return {**super().describe(), "ticks": [str(tick) for tick in self.ticks], "emit": self.emit, "fill": self.fill}


def running_query(
    measures: Mapping[str, Measure | str],
    window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None,
    time: str,
    keys: Sequence[str] | Mapping[str, str],
    order: Sequence[str],
    ticks: Tick | str | Sequence[Tick | str],
    emit: str,
    until: object = None,
    fill: str | None = None,
) -> RunningQuery:
    """Check the arguments of `tiltframe.running`, and return them as a query."""
    ordered_by = make_order(time, keys, order)
    results = tuple(measures) if isinstance(measures, Mapping) else ()
    measures, expressions = check_measures(measures, ordered_by)
    windows = _windows(measures, window)
    distinct = tuple(dict.fromkeys(windows.values()))
    if not isinstance(emit, str) or emit not in EMIT:
        raise ValueError(f"emit must be one of {', '.join(EMIT)}; got {shown(emit)}")
    if len(distinct) > 1 and not all(distinct_window.per_row for distinct_window in distinct):
        raise ValueError(
            "one call can compute measures over different windows only if each window is running, since or sliding, "
            f"because these have one result for every row; got {', '.join(map(str, distinct))}; compute measures over "
            "other windows in a separate call"
        )
    tick_reads = [read for distinct_window in distinct for read in distinct_window.reads if isinstance(read, Tick)]
    tick_list = [ticks] if isinstance(ticks, (Tick, str)) else checked_list(ticks, "ticks", "ticks such as hourly()")
    extra = [tick if isinstance(tick, Tick) else read_tick(tick) for tick in tick_list]
    all_ticks = tuple(dict.fromkeys([*tick_reads, *extra]))
    if all_ticks and not distinct[0].per_row:
        raise ValueError(
            f"windows of {distinct[0]} are emitted when they end, and cannot be emitted at ticks; leave out ticks"
        )
    if emit == "ticks" and not all_ticks:
        raise ValueError("emit='ticks' needs ticks, such as ticks=hourly() or window=since(daily('UTC'))")
    last_tick = _checked_until(until)
    if fill not in (None, ZERO):
        raise ValueError(f"fill must be None or {ZERO!r}; got {shown(fill)}")
    if not all_ticks and (last_tick is not None or fill is not None):
        name = "until" if last_tick is not None else "fill"
        raise ValueError(
            f"{parameter_text(name)} applies only to results at ticks; "
            + by_caller("use ticks in --ordered", "pass ticks=hourly() or window=since(daily('UTC'))")
            + ", or leave it out"
        )
    by_window = {
        distinct_window: {n: m for n, m in measures.items() if windows[n] == distinct_window}
        | ({ROWS: count()} if distinct_window.least_rows else {})
        for distinct_window in distinct
    }
    measured_windows = tuple(MeasuredWindow(window, plan_state_columns(named)) for window, named in by_window.items())
    return RunningQuery(
        ordered_by,
        results=results,
        measures=measures,
        expressions=expressions,
        measured_windows=measured_windows,
        ticks=all_ticks,
        emit=emit,
        until=last_tick,
        fill=fill,
    )


def _checked_until(until: object) -> int | str | None:
    """Check the argument ``until``. Return ``next``, a time in microseconds UTC, or None. Raise ``ValueError`` for
    other values.
    """
    if until is None or until == NEXT:
        return None if until is None else NEXT
    try:
        return read_moment(until, "UTC")
    except ValueError as error:
        raise ValueError(f"{parameter_text('until')} must be {NEXT!r}, or the time of the last tick: {error}") from None


def make_order(time: str, keys: Sequence[str] | Mapping[str, str], order: Sequence[str]) -> Order:
    """Check the arguments ``time``, ``keys`` and ``order``, and return them as an `Order`."""
    keyed_by = checked_keys(keys)
    then = checked_names(order, "order", "column names")
    if checked_name(time, "time, the column of event times,") in keyed_by:
        raise ValueError(
            f"the column {time!r} is used as the time and as a key; leave it out of keys, or pass another time"
        )
    return Order(keyed_by, time, then)


def check_measures(measures: Mapping[str, Measure | str], order: Order) -> tuple[dict[str, Measure], dict[str, str]]:
    """Check the argument ``measures``. Return the measures, and the expressions over them, sorted so that each uses
    only measures and earlier expressions.

    Measures that need event times as values get the column of times. Measures that use times only for the order of
    rows, such as ``first``, use the positions of rows instead. Raise ``ValueError`` if the argument is invalid.
    """
    if not isinstance(measures, Mapping) or not measures:
        raise ValueError(
            f"measures must name at least one measure, such as {{'total': aggr.sum('x')}}; got {shown(measures)}"
        )
    for name in measures:
        checked_name(name, "a measure's name")
    stateful, expressions = split_results(measures)
    if not stateful:
        raise ValueError(
            "at least one measure must be a function of aggr, such as aggr.sum('x'), from which the expressions are "
            f"computed; got {shown(expressions)}"
        )
    names = order_expressions(expressions, measures, (LEVEL, order.time, *order.keys))
    with_times = {name: _with_time(measure, order.time) for name, measure in stateful.items()}
    return with_times, {name: expressions[name] for name in names}


def _with_time(measure: Measure, time: str) -> Measure:
    """Return the measure with the column of event times as an input, if its function needs event times as values."""
    if measure.function.time_is_order:
        return measure
    inputs = zip(measure.function.inputs[1:], measure.others, strict=False)
    other_inputs = [time if role == EVENT_TIME and text is None else text for role, text in inputs]
    return replace(measure, others=tuple(other_inputs))


def columns_of_inputs(reads: Sequence[Input], names: Collection[str]) -> list[str]:
    """Return the names of the columns that conditions and weights need. ``names`` are the columns of the data."""
    columns = [name for read in reads if isinstance(read, Condition) for name in sql.columns_of(read.text)]
    conditions = [sql.column_in(name, names) or name for name in columns]
    return [*conditions, *(read.column for read in reads if isinstance(read, Weight))]


def _windows(
    measures: Mapping[str, Measure], window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None
) -> dict[str, OrderedWindow]:
    """Return the window of each measure, by the name of the measure."""
    if window is None:
        return dict.fromkeys(measures, running())
    if not isinstance(window, Mapping):
        return dict.fromkeys(measures, as_ordered(window))
    for name in window:
        if name not in measures:
            raise ValueError(
                f"the parameter 'window' has an entry for {shown(name)}, which is not a measure; use one of the "
                f"measures {', '.join(measures)}"
            )
    return {name: as_ordered(window[name]) if name in window else running() for name in measures}
