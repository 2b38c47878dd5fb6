"""Answers: from the states of a level to results per window asked for.

states of a level ──▶ where ──▶ keys that are kept ──▶ windows asked for, by merging ──▶ finish
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.keyed import finish_by, key_column, merge_by
from aggr.where import rows_where
from tiltframe.frame import END, INSTANT, LEVEL, START
from tiltframe.store.question import Question
from tiltframe.store.tables import Range
from windows import Hopping, Window

PARTIAL = "partial"
_MOST_ROWS = 10_000_000


def states_asked(rows: pa.Table, asked: Question, span: Range | None) -> pa.Table:
    """Merge states of a level into the windows and keys that are asked for: window_start, keys, states."""
    if asked.where is not None:
        rows = rows.filter(pa.array(rows_where(asked.where, rows)))
    starts = _micros(rows)
    if isinstance(asked.target, Hopping):
        panes = _merged(rows, asked.target.pane.starts(starts), asked)
        if panes.num_rows * asked.target.panes > _MOST_ROWS:
            raise ValueError(
                f"{asked.per} would put {panes.num_rows:,} states into {asked.target.panes:,} windows each; ask for a "
                "shorter range, fewer keys or longer hops"
            )
        taken, starts = asked.target.starts_of(_micros(panes))
        rows = panes.take(pa.array(taken))
    elif isinstance(asked.target, Window):
        starts = asked.target.starts(starts)
    else:
        low = span[0] if span else int(starts.min()) if len(starts) else 0
        starts = np.full(len(starts), low)
    merged = _merged(rows, starts, asked)
    if asked.within is None or asked.target is None:
        return merged
    begun = _micros(merged)
    return merged.filter(pa.array((begun >= asked.within[0]) & (begun < asked.within[1])))


def filled(states: pa.Table, asked: Question, now: int) -> pa.Table:
    """Add the windows without events of every key that has any, up to now; their states are of nothing.

    Raises ``ValueError`` for more rows than anyone can want.
    """
    if asked.target is None:
        return states
    starts = _micros(states)
    low, high = asked.within or ((int(starts.min()), int(starts.max()) + 1) if len(starts) else (0, 0))
    wanted = asked.target.between(low, min(high, now + 1)) if low < min(high, now + 1) else np.array([], np.int64)
    keys = merge_by(states, {name: key_column(states.column(name)) for name in asked.keys}, {}) if asked.keys else None
    each = 1 if keys is None else keys.num_rows
    if len(wanted) * each > _MOST_ROWS:
        raise ValueError(
            f"filling would give {len(wanted) * each:,} rows; ask for a shorter range, fewer keys or coarser windows"
        )
    grid = {START: pa.array(np.repeat(wanted, each)).cast(INSTANT)}
    for name in asked.keys:
        assert keys is not None
        grid[name] = keys.column(name).take(pa.array(np.tile(np.arange(each), len(wanted))))
    for name in asked.states:
        grid[name] = pa.nulls(len(wanted) * each, states.column(name).type)
    both = pa.concat_tables([states, pa.table(grid, schema=states.schema)])
    return _merged(both, _micros(both), asked)


def answers(states: pa.Table, asked: Question, span: Range | None, known_from: int, now: int) -> pa.Table:
    """Read results: level, window_start, window_end, keys, measures, partial."""
    starts = _micros(states)
    ends = _ends(starts, asked, span)
    results = finish_by(states, (START, *asked.keys), asked.measures)
    partial = pa.array((ends > now) | (starts < known_from))
    results = results.add_column(1, END, pa.array(ends).cast(INSTANT))
    results = results.add_column(0, LEVEL, pa.repeat(pa.scalar(asked.per), len(starts)))
    return results.append_column(PARTIAL, partial)


def ordered(results: pa.Table, order_by: Sequence[str], limit: int | None) -> pa.Table:
    """Order results by columns, or fields of records, ``latency.quantiles.0.99 desc``; keep the first of them.

    Raises ``ValueError`` for a column that is not there or has no order.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ValueError(f"limit must be a whole number from 0; got {limit!r}")
    if isinstance(order_by, str):
        order_by = [order_by]
    sorting, columns = [], {}
    for i, text in enumerate(order_by):
        name, _, way = text.strip().rpartition(" ")
        if way.lower() not in ("asc", "desc"):
            name, way = text.strip(), "asc"
        columns[str(i)] = _found(results, name.strip())
        sorting.append((str(i), "descending" if way.lower() == "desc" else "ascending"))
    if sorting:
        order = pc.sort_indices(pa.table(columns), sort_keys=sorting)  # nulls come last
        results = results.take(order)
    return results if limit is None else results.slice(0, limit)


def _found(results: pa.Table, path: str) -> pa.ChunkedArray:
    """Find a column, or a field of a record, by its name or path."""
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
            f"cannot order by {path!r}; there are {', '.join(results.column_names)}, and fields of records such as "
            "latency.quantiles.0.99"
        )
    return column


def _merged(rows: pa.Table, starts: np.ndarray, asked: Question) -> pa.Table:
    keys = {START: pa.array(starts).cast(INSTANT)} | {name: key_column(rows.column(name)) for name in asked.keys}
    functions = {c.name: c.measure.function for c in asked.frame.states if c.name in asked.states}
    return merge_by(rows, keys, functions)


def _ends(starts: np.ndarray, asked: Question, span: Range | None) -> np.ndarray:
    if asked.target is not None:
        return asked.target.ends(starts)
    return np.full(len(starts), span[1] if span else 0)


def _micros(states: pa.Table) -> np.ndarray:
    micros: np.ndarray = states.column(START).cast(pa.int64()).to_numpy()
    return micros
