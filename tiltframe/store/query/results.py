"""Results: merge the states of a level into the windows and keys of a query plan, and compute results from them.

states of a level ──▶ where ──▶ derived keys ──▶ merged by windows and keys ──▶ results ──▶ having, order, limit, flat
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aggr import sql
from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.groups.groups import group_by
from aggr.neighbours import Neighbours
from aggr.sql.inputs import values_in
from aggr.state_checks import CheckedStates, arrow_of, mark_as_checked
from aggr.tables.by_key import finish_by, key_column, key_type, merge_by
from aggr.tables.flat_results import flattened
from aggr.tables.result_expressions import with_expressions
from aggr.tables.result_names import result_values, results_where
from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of, take_rows
from tiltframe.names import END, LEVEL, PARTIAL, START
from tiltframe.ranges import EVER, Range
from tiltframe.store.query.limits import MAX_ROWS
from tiltframe.store.query.other_zone import check_windows_nest
from windows import MIN_INSTANT
from windows.timezone import Instants

if TYPE_CHECKING:
    from tiltframe.store.query.plan import QueryPlan
    from tiltframe.store.query.query import Query


def select_rows(rows: pa.Table, plan: QueryPlan) -> pa.Table:
    """Return the rows of states that meet the condition of a plan, with a column for each key of its results."""
    if plan.where is not None:
        rows = rows.filter(pa.array(sql.rows_where(plan.where, rows, plan.timezone)))
    for name in plan.key_fields:
        rows = rows.append_column(name, values_in(name, rows, plan.timezone))
    derived = {name: key.keys_of(rows, name, plan.now) for name, key in plan.derived_keys.items()}
    return pa.table({name: rows.column(name) for name in rows.column_names} | derived)


def merge_into_windows(rows: pa.Table, plan: QueryPlan, span: Range) -> pa.Table:
    """Merge rows of states of a level into the windows and keys of a plan. Return a table with window_start,
    window_end, keys and states, of the windows in the range of the plan. The arguments are those of
    `merge_into_all_windows`.
    """
    merged = merge_into_all_windows(rows, plan, span)
    if plan.has_single_window:
        return merged
    starts = instants_of(merged)
    return merged.filter(pa.array((starts >= plan.within[0]) & (starts < plan.within[1])))


def merge_into_all_windows(rows: pa.Table, plan: QueryPlan, span: Range) -> pa.Table:
    """Merge rows of states as `merge_into_windows` does, but also into windows outside the range of the plan.

    If the plan has one result over the whole range, ``span`` is the start and the end of its only window, in
    microseconds UTC. Other plans ignore ``span``. Raise ``ValueError`` if overlapping windows would need more than
    `MAX_ROWS` rows.
    """
    rows = select_rows(rows, plan)
    if plan.has_single_window:
        starts, window_ends = (np.full(rows.num_rows, at) for at in span)
        return merge_windows(rows, starts, window_ends, plan)
    check_windows_nest(instants_of(rows), plan.stored_level, plan.window)
    if plan.window.max_overlap > 1:
        panes = plan.window.pane.assign(instants_of(rows))
        rows = merge_windows(rows, panes.starts, panes.ends, plan)
        if rows.num_rows * plan.window.max_overlap > MAX_ROWS:
            raise ValueError(
                f"{rows.num_rows:,} states, each in {plan.window.max_overlap:,} windows of {plan.per}, would become "
                f"{rows.num_rows * plan.window.max_overlap:,} states, but at most {MAX_ROWS:,} are allowed; use a "
                "shorter range, fewer keys or longer hops"
            )
    windows = plan.window.assign(instants_of(rows))
    rows = take_rows(rows, windows.rows)
    # If windows overlap, the states were checked when they were merged into panes, and are not checked again.
    states = mark_as_checked(rows) if plan.window.max_overlap > 1 else rows
    return merge_windows(states, windows.starts, windows.ends, plan)


def merge_tables(parts: Sequence[pa.Table], plan: QueryPlan) -> pa.Table:
    """Merge tables that `merge_into_windows` has returned. Return one table with one row per window and key."""
    states = pa.concat_tables(parts)
    return merge_windows(mark_as_checked(states), instants_of(states), instants_of(states, END), plan)


def select_latest(states: pa.Table, plan: QueryPlan) -> pa.Table:
    """Return the rows that belong to the last window of each key. ``states`` is a table of states or of results."""
    groups, _ = group_by([key_column(states.column(name)) for name in plan.keys], states.num_rows)
    starts = instants_of(states)
    last = np.full(groups.n, MIN_INSTANT)
    np.maximum.at(last, groups.ids, starts)
    return states.filter(pa.array(starts == last[groups.ids]))


def select_closed(windows: pa.Table, known_from: int, until: int) -> pa.Table:
    """Return the rows of the windows that begin at or after ``known_from`` and end at or before ``until``, both in
    microseconds UTC.
    """
    return windows.filter(pc.invert(_is_partial(windows, known_from, until)))


def _is_partial(states: pa.Table, known_from: int, now: int) -> pa.ChunkedArray:
    """Return, for each row, whether its window ends after ``now`` or begins before ``known_from``, both in microseconds
    UTC.
    """
    ends_later = pc.greater(states.column(END), pa.scalar(int(now), INSTANT))
    if known_from == EVER[0]:  # No window has expired.
        return ends_later
    return pc.or_(ends_later, pc.less(states.column(START), pa.scalar(int(known_from), INSTANT)))


def finish(states: pa.Table, plan: QueryPlan, known_from: int, now: int) -> pa.Table:
    """Return the results of merged states as a table with the columns level, window_start, window_end, keys, measures
    and expressions, and partial. A window is partial if it ends after ``now`` or begins before ``known_from``, both in
    microseconds UTC.
    """
    neighbours = {}
    if plan.edges is not None:
        keys, _ = group_by([key_column(states.column(name)) for name in plan.keys], states.num_rows)
        neighbours_of_windows = Neighbours(keys, instants_of(states), instants_of(states, END), plan.edges)
        neighbours = dict.fromkeys(plan.read_to_edges, neighbours_of_windows)
    return add_expressions(finish_measures(states, plan, neighbours), plan, known_from, now)


def finish_measures(
    states: pa.Table, plan: QueryPlan, neighbours: Mapping[str, Neighbours] = MappingProxyType({})
) -> pa.Table:
    """Return the measures of merged states as a table with window_start, window_end, the keys and the measures.
    ``neighbours`` has the points next to each window, for the measures to which the argument ``edges`` of the query
    applies.
    """
    return finish_by(mark_as_checked(states), (START, END, *plan.keys), plan.measures, neighbours)


def empty_measures(stored: pa.Schema, plan: QueryPlan) -> pa.Table:
    """Return a table without rows, in the form in which `finish_measures` returns results. ``stored`` is the schema of
    the states in the store. Raise ``ValueError`` if the condition of the plan cannot be computed from this schema.
    """
    key_schema = pa.schema([stored.field(name) for name in (START, *plan.keys_to_read)])
    keys = select_rows(key_schema.empty_table(), plan).schema
    fields = [pa.field(START, INSTANT), pa.field(END, INSTANT)]
    fields += [pa.field(name, key_type(keys.field(name).type)) for name in plan.keys]
    for name, (column, measure) in plan.measures.items():
        fields.append(pa.field(name, measure.function.result_type(stored.field(column).type)))
    return pa.schema(fields).empty_table()


def add_expressions(measures_table: pa.Table, plan: QueryPlan, known_from: int, now: int) -> pa.Table:
    """Return results as `finish` does, from a table with window_start, window_end, keys and the measures of a plan."""
    columns = {name: measures_table.column(name) for name in (START, END, *plan.keys)}
    fields = [measures_table.schema.field(name) for name in columns]
    if plan.stored_expressions:
        measures_table = with_expressions(measures_table, plan.stored_expressions, plan.timezone)
    for name, expression in plan.results.items():
        if expression is None:
            column = measures_table.column(name)
        else:
            column = result_values(expression, measures_table, plan.timezone, f"compute {name}:")
        columns[name] = column
        fields.append(pa.field(name, column.type))
    columns[PARTIAL] = _is_partial(measures_table, known_from, now)
    level = pa.repeat(pa.scalar(plan.per), measures_table.num_rows)
    # The table is created at once, because each `append_column` would copy the lists of all columns.
    schema = pa.schema([pa.field(LEVEL, level.type), *fields, pa.field(PARTIAL, pa.bool_())])
    return pa.Table.from_arrays([level, *columns.values()], schema=schema)


def format_results(slices: Iterator[pa.Table], query: Query, timezone: str) -> Iterator[pa.Table]:
    """Yield tables of results as the query returns them: selected by ``having``, sorted by ``order_by``, cut off after
    ``limit`` rows, and with window times in ``timezone``. If the query's ``flat`` is true, each field of a record is a
    separate column.
    """
    having = query.having
    if having is not None:
        slices = (results.filter(pa.array(results_where(having, results, timezone))) for results in slices)
    if query.order:
        slices = iter([sort_results(pa.concat_tables(slices), query.order, query.limit, timezone)])
    elif query.limit is not None:
        slices = _first_rows(slices, query.limit)
    slices = (_in_zone(results, timezone) for results in slices)
    return (flattened(results) for results in slices) if query.flat else slices


def _in_zone(results: pa.Table, timezone: str) -> pa.Table:
    zone_type = pa.timestamp("us", timezone)
    for name in (START, END):
        at = results.column_names.index(name)
        if results.schema.field(at).type != zone_type:
            results = results.set_column(at, name, results.column(at).cast(zone_type))
    return results


def sort_results(results: pa.Table, order: Sequence[tuple[str, str]], limit: int | None, timezone: str) -> pa.Table:
    """Sort results, and return the first ``limit`` rows, or all rows without a limit. ``order`` contains pairs: a name
    or an expression, and ``ascending`` or ``descending``. Raise ``ValueError`` if the values to sort by are lists or
    records.

    NaN counts as greater than all numbers. Null comes last.
    """
    sort_keys = []
    columns = {}
    for i, (name, direction) in enumerate(order):
        columns[str(i)] = result_values(name, results, timezone)
        # Arrow sorts NaN last in both directions. Sorting by a separate column first makes NaN the largest value.
        if pa.types.is_floating(columns[str(i)].type):
            columns[f"{i} is NaN"] = pc.is_nan(columns[str(i)])
            sort_keys.append((f"{i} is NaN", direction))
        if pa.types.is_nested(columns[str(i)].type):
            raise ValueError(
                f"cannot order by {shown(name)}, which has the type {shown(columns[str(i)].type)}; use a column of "
                "numbers, texts or times"
            )
        sort_keys.append((str(i), direction))
    # `sort_indices` puts nulls last in both directions.
    results = results.take(pc.sort_indices(pa.table(columns), sort_keys=sort_keys))
    return results if limit is None else results.slice(0, limit)


def _first_rows(slices: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """Yield the first ``limit`` rows, in at least one table, and read no further tables of ``slices``."""
    for results in slices:
        yield results.slice(0, limit)
        limit -= min(limit, results.num_rows)
        if not limit:
            return


def merge_windows(states: pa.Table | CheckedStates, starts: Instants, ends: Instants, plan: QueryPlan) -> pa.Table:
    """Merge states by keys and windows. ``starts`` and ``ends`` contain the start and the end of each state's window,
    in microseconds UTC. States are checked unless they are `CheckedStates`.
    """
    columns = {name: key_column(arrow_of(states).column(name)) for name in plan.keys}
    keys = {START: pa.array(starts).cast(INSTANT)} | columns
    functions = {name: f for name, f in plan.frame.state_functions.items() if name in plan.states}
    merged = merge_by(states, keys, functions, carried={END: pa.array(ends).cast(INSTANT)}, unknown=True)
    return merged.select([START, END, *plan.keys, *functions])
