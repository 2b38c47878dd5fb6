"""Results: from the states of a level to the windows and keys of a query plan.

states of a level ──▶ where ──▶ the plan's keys ──▶ its windows, by merging ──▶ finish
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from aggr import sql
from aggr.arguments import checked_names, shown
from aggr.kernels import compute as pc
from aggr.kernels.groups import Groups, group_by
from aggr.state_checks import CheckedStates, arrow_of, made_here
from aggr.states.grouped_tables import finish_by, key_column, merge_by
from aggr.states.result_names import result_values, results_where
from tiltframe.frame import END, INSTANT, LEVEL, START
from tiltframe.level_chain import instants_of, taken
from tiltframe.names import PARTIAL as PARTIAL
from tiltframe.store.query.other_zone import check_parts
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.ranges import Range
from windows import MIN_INSTANT
from windows.timezone import Instants

_MOST_ROWS = 10_000_000  # a result of more is a mistake, and would not fit into memory


def requested_states(rows: pa.Table, plan: QueryPlan, span: Range | None) -> pa.Table:
    """Merge states of a level into the windows and keys of a plan: window_start, window_end, keys, states."""
    if plan.where is not None:
        rows = rows.filter(pa.array(sql.rows_where(plan.where, rows, plan.timezone)))
    if plan.whole:
        low, high = span or (0, 0)
        return _merged(rows, np.full(rows.num_rows, low), np.full(rows.num_rows, high), plan)
    check_parts(instants_of(rows), plan.frame.levels[plan.source()], plan.target)
    if plan.target.max_overlap > 1:
        panes = plan.target.pane.assign(instants_of(rows))
        rows = _merged(rows, panes.starts, panes.ends, plan)
        if rows.num_rows * plan.target.max_overlap > _MOST_ROWS:
            raise ValueError(
                f"{plan.per} would put {rows.num_rows:,} states into {plan.target.max_overlap:,} windows each; "
                "ask for a shorter range, fewer keys or longer hops"
            )
    found = plan.target.assign(instants_of(rows))
    rows = taken(rows, found.rows)
    states = made_here(rows) if plan.target.max_overlap > 1 else rows  # merged above
    merged = _merged(states, found.starts, found.ends, plan)
    if plan.within is None:
        return merged
    begun = instants_of(merged)
    return merged.filter(pa.array((begun >= plan.within[0]) & (begun < plan.within[1])))


def united(parts: Sequence[pa.Table], plan: QueryPlan) -> pa.Table:
    """Merge the states of the whole range, as `requested_states` gives them of parts of it."""
    states = pa.concat_tables(parts)
    return _merged(made_here(states), instants_of(states), instants_of(states, END), plan)


def latest_of_keys(states: pa.Table, plan: QueryPlan) -> pa.Table:
    """Keep of each key the window that begins last."""
    groups, _ = group_by([key_column(states.column(name)) for name in plan.keys], states.num_rows)
    starts, last = instants_of(states), np.full(groups.n, MIN_INSTANT)
    np.maximum.at(last, groups.ids, starts)
    return states.filter(pa.array(starts == last[groups.ids]))


def filled(states: pa.Table, plan: QueryPlan, now: int) -> pa.Table:
    """Add the windows without events of every key that has any, up to now; their states are of nothing.

    Raises ``ValueError`` for more rows than anyone can want.
    """
    if plan.whole:
        return states
    starts = instants_of(states)
    low, high = plan.within or ((int(starts.min()), int(starts.max()) + 1) if len(starts) else (0, 0))
    wanted = plan.target.starts_between(low, min(high, now + 1)) if low < min(high, now + 1) else np.array([], np.int64)
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
    return _merged(made_here(both), instants_of(both), instants_of(both, END), plan)


def answers(states: pa.Table, plan: QueryPlan, known_from: int, now: int) -> pa.Table:
    """Read results of merged states: level, window_start, window_end, keys, measures, partial."""
    results = finish_by(made_here(states), (START, END, *plan.keys), plan.measures)
    partial = pa.array((instants_of(states, END) > now) | (instants_of(states) < known_from))
    results = results.add_column(0, LEVEL, pa.repeat(pa.scalar(plan.per), states.num_rows))
    return results.append_column(PARTIAL, partial)


def empty_results(asked: QueryPlan, schema: pa.Schema) -> pa.Table:
    """Return the results of a query of nothing, for which nothing is read; ``schema`` is of the stored states."""
    return answers(requested_states(schema.empty_table(), asked, (0, 0)), asked, 0, 0)


def found_having(results: pa.Table, having: str | None, timezone: str) -> pa.Table:
    """Keep the results for which a condition is true."""
    return results if having is None else results.filter(pa.array(results_where(having, results, timezone)))


def in_zone(results: pa.Table, timezone: str | None) -> pa.Table:
    """Give the windows' starts and ends in a zone; the instants stay the same."""
    for name in (START, END) if timezone is not None else ():
        at = results.column_names.index(name)
        results = results.set_column(at, name, results.column(name).cast(pa.timestamp("us", timezone)))
    return results


def checked_order(order_by: str | Sequence[str]) -> list[tuple[str, str]]:
    """Read what results are ordered by: results by their names, or expressions, each ``ascending`` or ``descending``.

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


def ordered(results: pa.Table, order: Sequence[tuple[str, str]], limit: int | None, timezone: str = "UTC") -> pa.Table:
    """Order results by what `checked_order` has read; keep the first of them.

    Raises ``ValueError`` for what is no result, and for what has no order.
    """
    sorting, columns = [], {}
    for i, (name, way) in enumerate(order):
        columns[str(i)] = result_values(name, results, timezone)
        if pa.types.is_nested(columns[str(i)].type):
            raise ValueError(f"cannot order by {shown(name)}, which is a list; order by a number, a text or a time")
        sorting.append((str(i), way))
    if sorting:
        order = pc.sort_indices(pa.table(columns), sort_keys=sorting)  # nulls come last
        results = results.take(order)
    return results if limit is None else results.slice(0, limit)


def limited(slices: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """Pass the first rows on, and read no further; at least one table."""
    for results in slices:
        yield results.slice(0, limit)
        limit -= min(limit, results.num_rows)
        if not limit:
            return


def _merged(states: pa.Table | CheckedStates, starts: Instants, ends: Instants, plan: QueryPlan) -> pa.Table:
    """Merge states into windows; those that a store has just been read for are checked, those merged here are not."""
    columns = {name: key_column(arrow_of(states).column(name)) for name in plan.keys}
    keys = {START: pa.array(starts).cast(INSTANT)} | columns
    functions = {c.name: c.measure.function for c in plan.frame.states if c.name in plan.states}
    merged = merge_by(states, keys, functions, carried={END: pa.array(ends).cast(INSTANT)}, unknown=True)
    return merged.select([START, END, *plan.keys, *functions])
