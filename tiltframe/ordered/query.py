"""Queries of ordered rows: measures, each over a window. Queries are checked without data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from aggr import Function, Measure, count, sql
from aggr.arguments import checked_list, checked_name, checked_names, shown
from aggr.function import EVENT_TIME
from aggr.tables.by_key import check_rows, columns_read
from aggr.tables.column_uses import ColumnUses
from aggr.tables.keys import checked_keys, columns_keys_may_read
from aggr.tables.result_expressions import in_order, split_results, with_expressions
from aggr.tables.state_plan import StateColumn, plan
from tiltframe.names import LEVEL
from tiltframe.ordered.sequence import Order, check_inputs
from tiltframe.provenance import describe_states
from tiltframe.time_range import read_moment
from windows.ordered import Condition, Input, OrderedWindow, Tick, Weight, as_ordered, read_tick, running

EMIT = ("rows", "ticks", "final")
TICK = "tick"
NEXT, ZERO = "next", "zero"  # a value of until, and a value of fill
ROWS = "__rows"  # a hidden measure: the number of rows of a window, which decides whether the window has results
POSITION = pa.int64()  # the type of the positions of rows in their key, by which first and last order them


@dataclass(frozen=True)
class Part:
    """The measures that share one window, and the columns of states that they need."""

    window: OrderedWindow
    states: tuple[StateColumn, ...]

    @property
    def functions(self) -> dict[str, Function]:
        """The function of each column of states."""
        return {column.name: column.measure.function for column in self.states}


class OrderedQuery:
    """A query over ordered rows: measures over windows of each key. The query is checked without data."""

    order: Order
    results: tuple[str, ...]  # the names of measures and expressions, in the order of their columns
    measures: Mapping[str, Measure]
    expressions: Mapping[str, str]  # in an order in which each can be computed
    parts: tuple[Part, ...]  # the windows, each with its columns of states
    timezone = "UTC"

    @property
    def reads(self) -> tuple[Input, ...]:
        """The inputs that the windows and the ticks read from rows."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        """The columns of states from which the measures are computed."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.states))

    @property
    def time(self) -> str:
        """The column of event times."""
        return self.order.time

    @property
    def keyed_by(self) -> Mapping[str, str]:
        """A mapping of each key to its column or expression."""
        return self.order.keyed_by

    def ordered_by(self, order: Order) -> OrderedQuery:
        """Return the same query for another order of rows with the same keys, for example if keys are already
        computed.
        """
        raise NotImplementedError

    def columns_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the input columns that are read, like `tiltframe.TiltFrame.columns_in`."""
        read = columns_read(self.keyed_by, self.columns, names)
        return tuple(dict.fromkeys([*read, self.time, *self.order.then, *reads_of(self.reads, names)]))

    def may_read(self) -> tuple[str, ...]:
        """Return the columns that may be read, like `tiltframe.TiltFrame.may_read`."""
        read = [name for column in self.columns for name in column.measure.columns()]
        keys = columns_keys_may_read(self.keyed_by)
        return tuple(dict.fromkeys([self.time, *keys, *read, *self.order.then, *reads_of(self.reads, ())]))

    def column_uses(self, where: str | None = None) -> ColumnUses:
        """Return how keys, measures and a condition use columns, like `tiltframe.TiltFrame.column_uses`."""
        return ColumnUses(self.keyed_by, tuple((column.measure,) for column in self.columns), where)

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if the schema of rows does not fit, like `tiltframe.TiltFrame.check`."""
        check_rows(schema, self.keyed_by, self.columns, time=POSITION, more=[self.time, *self.order.then])
        check_inputs(self.reads, schema)

    def with_expressions(self, results: pa.Table) -> pa.Table:
        """Return the table with the results of the expressions added. The columns that are not measures come first."""
        return with_expressions(results, self.expressions, self.timezone, self.results)

    def describe(self) -> dict[str, Any]:
        """Return a description of the states between batches as plain data. Parameters that only affect how results are
        read from states are left out.
        """
        order = {"time": self.time, "keys": dict(self.keyed_by), "order": list(self.order.then)}
        states = [{column.name: describe_states(column) for column in part.states} for part in self.parts]
        return {**order, "windows": [str(part.window) for part in self.parts], "states": states}


@dataclass(frozen=True)
class RunningQuery(OrderedQuery):
    """Measures over windows of ordered rows; `tiltframe.running` describes the arguments."""

    order: Order
    results: tuple[str, ...]
    measures: Mapping[str, Measure]
    expressions: Mapping[str, str]
    parts: tuple[Part, ...]
    ticks: tuple[Tick, ...]
    emit: str
    until: int | str | None = None  # the last tick in microseconds UTC, or NEXT
    fill: str | None = None
    first: int | None = None  # microseconds UTC; the first row of other aggregations over parts of the same data

    @property
    def reads(self) -> tuple[Input, ...]:
        window_inputs = [read for part in self.parts for read in part.window.reads]
        return tuple(dict.fromkeys([*window_inputs, *self.ticks]))

    @property
    def per_row(self) -> bool:
        """Whether there is an output for every row, rather than for every window."""
        return self.parts[0].window.per_row

    @property
    def keeps_rows(self) -> bool:
        """Whether the results contain the columns of the rows."""
        return self.per_row and self.emit == "rows"

    def ordered_by(self, order: Order) -> RunningQuery:
        return replace(self, order=order)

    def columns_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the input columns that are read or returned."""
        return tuple(names) if self.keeps_rows else super().columns_in(names)

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if the data does not fit, or if it has a column with the name of a measure."""
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
        """Add the ticks and the kind of results to the description."""
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
    """Return a checked query; see `tiltframe.running`."""
    ordered_by = make_order(time, keys, order)
    results = tuple(measures) if isinstance(measures, Mapping) else ()
    measures, expressions = check_measures(measures, ordered_by)
    windows = _windows(measures, window)
    distinct = tuple(dict.fromkeys(windows.values()))
    if not isinstance(emit, str) or emit not in EMIT:
        raise ValueError(f"emit must be one of {', '.join(EMIT)}; got {shown(emit)}")
    if len(distinct) > 1 and not all(distinct_window.per_row for distinct_window in distinct):
        raise ValueError(
            "measures over different windows need windows with one result for every row, which are running, since "
            "and sliding; got "
            f"{', '.join(map(str, distinct))}; compute the others separately"
        )
    tick_reads = [read for distinct_window in distinct for read in distinct_window.reads if isinstance(read, Tick)]
    tick_list = [ticks] if isinstance(ticks, (Tick, str)) else checked_list(ticks, "ticks", "ticks such as hourly()")
    extra = [tick if isinstance(tick, Tick) else read_tick(tick) for tick in tick_list]
    every = tuple(dict.fromkeys([*tick_reads, *extra]))
    if every and not distinct[0].per_row:
        raise ValueError(f"{distinct[0]} emits when a window ends, and cannot emit at ticks; leave out ticks")
    if emit == "ticks" and not every:
        raise ValueError("emit='ticks' needs ticks, such as ticks=hourly() or window=since(daily('UTC'))")
    last_tick = _checked_until(until)
    if fill not in (None, ZERO):
        raise ValueError(f"fill must be None or {ZERO!r}; got {shown(fill)}")
    if not every and (last_tick is not None or fill is not None):
        name = "until" if last_tick is not None else "fill"
        raise ValueError(f"{name} applies only to results at ticks; pass ticks=hourly() or window=since(daily('UTC'))")
    by_window = {
        distinct_window: {n: m for n, m in measures.items() if windows[n] == distinct_window}
        | ({ROWS: count()} if distinct_window.least_rows else {})
        for distinct_window in distinct
    }
    parts = tuple(Part(window_of_part, plan(named)) for window_of_part, named in by_window.items())
    return RunningQuery(
        ordered_by,
        results=results,
        measures=measures,
        expressions=expressions,
        parts=parts,
        ticks=every,
        emit=emit,
        until=last_tick,
        fill=fill,
    )


def _checked_until(until: object) -> int | str | None:
    """Return ``next``, or a moment in microseconds UTC; raise ``ValueError`` for other values."""
    if until is None or until == NEXT:
        return None if until is None else NEXT
    try:
        return read_moment(until, "UTC")
    except ValueError as error:
        raise ValueError(f"until must be {NEXT!r}, or the time of the last tick: {error}") from None


def make_order(time: str, keys: Sequence[str] | Mapping[str, str], order: Sequence[str]) -> Order:
    """Return the order of rows, after checking its arguments."""
    keyed_by = checked_keys(keys)
    then = checked_names(order, "order", "column names")
    if checked_name(time, "time, the column of event times,") in keyed_by:
        raise ValueError(f"{time!r} cannot be both the time and a key")
    return Order(keyed_by, time, then)


def check_measures(measures: Mapping[str, Measure | str], order: Order) -> tuple[dict[str, Measure], dict[str, str]]:
    """Return the measures of a mapping, with the event times that they read, and its expressions over results, in an
    order in which each can be computed.

    Functions that use times only to order rows read the positions of the rows instead. Raise ``ValueError`` for other
    values.
    """
    if not isinstance(measures, Mapping) or not measures:
        raise ValueError(
            f"measures must name at least one measure, such as {{'total': aggr.sum('x')}}; got {shown(measures)}"
        )
    for name in measures:
        checked_name(name, "a measure's name")
    stateful, expressions = split_results(measures)
    if not stateful:
        raise ValueError(f"at least one measure must be made by aggr, such as aggr.sum('x'); got {shown(expressions)}")
    names = in_order(expressions, measures, (LEVEL, order.time, *order.keys))
    with_times = {name: _with_time(measure, order.time) for name, measure in stateful.items()}
    return with_times, {name: expressions[name] for name in names}


def _with_time(measure: Measure, time: str) -> Measure:
    if measure.function.time_is_order:
        return measure
    inputs = zip(measure.function.inputs[1:], measure.others, strict=False)
    by = [time if role == EVENT_TIME and text is None else text for role, text in inputs]
    return replace(measure, others=tuple(by))


def reads_of(reads: Sequence[Input], names: Collection[str]) -> list[str]:
    """Return those columns in ``names`` that windows read."""
    columns = [name for read in reads if isinstance(read, Condition) for name in sql.columns_of(read.text)]
    conditions = [sql.column_in(name, names) or name for name in columns]
    return [*conditions, *(read.column for read in reads if isinstance(read, Weight))]


def _windows(
    measures: Mapping[str, Measure], window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None
) -> dict[str, OrderedWindow]:
    if window is None:
        return dict.fromkeys(measures, running())
    if not isinstance(window, Mapping):
        return dict.fromkeys(measures, as_ordered(window))
    for name in window:
        if name not in measures:
            raise ValueError(
                f"window refers to {shown(name)}, which is not a measure; the measures are {', '.join(measures)}"
            )
    return {name: as_ordered(window[name]) if name in window else running() for name in measures}
