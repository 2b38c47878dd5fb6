"""Results: from the states of a level to the windows and keys of a query plan.

states of a level ──▶ where ──▶ the plan's keys ──▶ its windows, by merging ──▶ finish
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr import predicate
from aggr.arguments import checked_names, is_name, nearest, shown
from aggr.kernels import compute as pc
from aggr.kernels.groups import Groups
from aggr.states.flat_results import flattened
from aggr.states.grouped_tables import finish_by, key_column, merge_by
from tiltframe.frame import END, INSTANT, LEVEL, START
from tiltframe.level_chain import instants_of, taken
from tiltframe.names import PARTIAL as PARTIAL
from tiltframe.store.core.backend import Range
from tiltframe.store.query.other_zone import check_parts
from tiltframe.store.query.plan import QueryPlan
from windows.timezone import Instants

_MOST_ROWS = 10_000_000  # a result of more is a mistake, and would not fit into memory


def requested_states(rows: pa.Table, plan: QueryPlan, span: Range | None) -> pa.Table:
    """Merge states of a level into the windows and keys of a plan: window_start, window_end, keys, states."""
    if plan.where is not None:
        rows = rows.filter(pa.array(predicate.rows_where(plan.where, rows)))
    if plan.whole:
        low, high = span or (0, 0)
        return _merged(rows, np.full(rows.num_rows, low), np.full(rows.num_rows, high), plan)
    check_parts(instants_of(rows), plan.frame.levels[plan.source()], plan.target)
    if plan.target.overlap > 1:
        panes = plan.target.pane.assign(instants_of(rows))
        rows = _merged(rows, panes.starts, panes.ends, plan)
        if rows.num_rows * plan.target.overlap > _MOST_ROWS:
            raise ValueError(
                f"{plan.per} would put {rows.num_rows:,} states into {plan.target.overlap:,} windows each; ask for a "
                "shorter range, fewer keys or longer hops"
            )
    found = plan.target.assign(instants_of(rows))
    merged = _merged(taken(rows, found.rows), found.starts, found.ends, plan, trusted=plan.target.overlap > 1)
    if plan.within is None:
        return merged
    begun = instants_of(merged)
    return merged.filter(pa.array((begun >= plan.within[0]) & (begun < plan.within[1])))


def filled(states: pa.Table, plan: QueryPlan, now: int) -> pa.Table:
    """Add the windows without events of every key that has any, up to now; their states are of nothing.

    Raises ``ValueError`` for more rows than anyone can want.
    """
    if plan.whole:
        return states
    starts = instants_of(states)
    low, high = plan.within or ((int(starts.min()), int(starts.max()) + 1) if len(starts) else (0, 0))
    wanted = plan.target.between(low, min(high, now + 1)) if low < min(high, now + 1) else np.array([], np.int64)
    keys = merge_by(states, {name: key_column(states.column(name)) for name in plan.keys}, {}) if plan.keys else None
    each = 1 if keys is None else keys.num_rows
    if len(wanted) * each > _MOST_ROWS:
        raise ValueError(
            f"filling would give {len(wanted) * each:,} rows; ask for a shorter range, fewer keys or coarser windows"
        )
    grid = {
        name: pa.array(np.repeat(at, each)).cast(INSTANT)
        for name, at in ((START, wanted), (END, plan.target.ends(wanted)))
    }
    for name in plan.keys:
        assert keys is not None
        grid[name] = keys.column(name).take(pa.array(np.tile(np.arange(each), len(wanted))))
    functions = {column.name: column.measure.function for column in plan.frame.states}
    for name in plan.states:  # of nothing, where null would be of what is not known
        nothing = functions[name].merge(pa.nulls(1, states.column(name).type), Groups.each(1))
        grid[name] = nothing.take(pa.array(np.zeros(len(wanted) * each, np.int64)))
    both = pa.concat_tables([states, pa.table(grid, schema=states.schema)])
    return _merged(both, instants_of(both), instants_of(both, END), plan, trusted=True)


def answers(states: pa.Table, plan: QueryPlan, known_from: int, now: int) -> pa.Table:
    """Read results of merged states: level, window_start, window_end, keys, measures, partial."""
    results = finish_by(states, (START, END, *plan.keys), plan.measures, trusted=True)
    partial = pa.array((instants_of(states, END) > now) | (instants_of(states) < known_from))
    results = results.add_column(0, LEVEL, pa.repeat(pa.scalar(plan.per), states.num_rows))
    return results.append_column(PARTIAL, partial)


def check_having(having: str | None, asked: QueryPlan, schema: pa.Schema) -> None:
    """Raise ``ValueError`` unless a condition can be evaluated on the results of a query, for which nothing is read."""
    if having is None:
        return
    if not is_name(having):
        raise ValueError(f"having must be a condition on results, say 'requests > 100'; got {shown(having)}")
    nothing = flattened(answers(requested_states(schema.empty_table(), asked, (0, 0)), asked, 0, 0))
    for name in predicate.columns_of(having):
        if name not in nothing.column_names:
            raise ValueError(f"having names {shown(name)}, which is no result; {nearest(name, nothing.column_names)}")
    predicate.rows_where(having, nothing)


def found_having(results: pa.Table, having: str | None) -> pa.Table:
    """Keep the results for which a condition on their flat columns is true."""
    if having is None:
        return results
    return results.filter(pa.array(predicate.rows_where(having, flattened(results))))


def in_zone(results: pa.Table, timezone: str | None) -> pa.Table:
    """Give the windows' starts and ends in a zone; the instants stay the same."""
    for name in (START, END) if timezone is not None else ():
        at = results.column_names.index(name)
        results = results.set_column(at, name, results.column(name).cast(pa.timestamp("us", timezone)))
    return results


def checked_order(order_by: str | Sequence[str]) -> list[tuple[str, str]]:
    """Read what results are ordered by: columns or fields, each ``ascending`` or ``descending``.

    Raises ``ValueError`` for what is no list of names, and for a name given twice.

    >>> checked_order(["latency.quantiles.0.99 desc", "n"])
    [('latency.quantiles.0.99', 'descending'), ('n', 'ascending')]
    """
    texts = checked_names([order_by] if isinstance(order_by, str) else order_by, "order_by", "columns to order by")
    order: dict[str, str] = {}
    for text in texts:
        name, _, way = text.strip().rpartition(" ")
        if not name or way.lower() not in ("asc", "desc"):
            name, way = text.strip(), "asc"
        if name.strip() in order:
            raise ValueError(f"order_by names {shown(name.strip())} twice; give it once")
        order[name.strip()] = "descending" if way.lower() == "desc" else "ascending"
    return list(order.items())


def ordered(results: pa.Table, order: Sequence[tuple[str, str]], limit: int | None) -> pa.Table:
    """Order results by columns, or fields of records, as `checked_order` reads them; keep the first of them.

    Raises ``ValueError`` for a column that is not there or has no order.
    """
    sorting, columns = [], {}
    for i, (name, way) in enumerate(order):
        columns[str(i)] = _found(results, name)
        sorting.append((str(i), way))
    if sorting:
        order = pc.sort_indices(pa.table(columns), sort_keys=sorting)  # nulls come last
        results = results.take(order)
    return results if limit is None else results.slice(0, limit)


def _found(results: pa.Table, path: str) -> pa.ChunkedArray:
    """Find a column, or a field of a record, by its name, its flat name or its path."""
    if path not in results.column_names and path in (flat := flattened(results)).column_names:
        return flat.column(path)
    column, rest = None, path
    for name in results.column_names:
        if path == name or path.startswith(f"{name}."):
            column, rest = results.column(name), path[len(name) + 1 :]
    while column is not None and rest:
        fields = [f.name for f in column.type] if pa.types.is_struct(column.type) else []
        name = next((f for f in sorted(fields, key=len, reverse=True) if rest == f or rest.startswith(f"{f}.")), None)
        column = None if name is None else pc.struct_field(column, [name])
        rest = "" if name is None else rest[len(name) + 1 :]
    if column is None or pa.types.is_nested(column.type):
        raise ValueError(
            f"cannot order by {shown(path)}; there are {', '.join(results.column_names)}, and fields of records such "
            "as latency_p99"
        )
    return column


def _merged(rows: pa.Table, starts: Instants, ends: Instants, plan: QueryPlan, *, trusted: bool = False) -> pa.Table:
    """Merge states into windows; those that a store has just been read for are checked, those merged here are not."""
    keys = {START: pa.array(starts).cast(INSTANT)} | {name: key_column(rows.column(name)) for name in plan.keys}
    functions = {c.name: c.measure.function for c in plan.frame.states if c.name in plan.states}
    merged = merge_by(rows, keys, functions, carried={END: pa.array(ends).cast(INSTANT)}, trusted=trusted, unknown=True)
    return merged.select([START, END, *plan.keys, *functions])
