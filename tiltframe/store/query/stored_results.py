"""Stored results: results of windows whose states are stored in one row each, so that no states need to be merged.

Such results can be computed from each stored row alone. Backends keep them in memory, and later queries do not read the
states again (`tiltframe.store.backends.protocol.ResultReader`). If the parts of a store contain several rows of some
windows and keys, such windows are read as states and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aggr import sql
from aggr.arrow.normalize import one_array
from aggr.function import Function
from aggr.groups.groups import group_by
from aggr.state_checks import checked
from aggr.tables.by_key import group_keys, key_column
from tiltframe.instants import as_instants, instants_of
from tiltframe.names import END, START
from tiltframe.ranges import EVER, Range
from tiltframe.store.log.snapshot import PartRanges, pieces_within
from windows import TimeWindow
from windows.timezone import Instants

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import ResultReader, RowFunction
    from tiltframe.store.query.plan import QueryPlan
    from tiltframe.store.query.query import Query


@dataclass(frozen=True)
class StateResult:
    """A function that computes the result of a measure from each state of a column; see `RowFunction`.

    ``stored_function`` is the function to which the column of states belongs, and ``result_function`` is the function
    that computes the results. The two differ if a measure is computed from the states of another measure.
    """

    column: str
    stored_function: Function
    result_function: Function

    def __call__(self, states: pa.Array) -> pa.Array:
        """Check the states completely, as a merge does, and return one result for each of them. Raise ``ValueError`` if
        a state has the layout of an earlier release, which a merge would convert.
        """
        if not self.stored_function.own_state.is_current(states.drop_null()):
            raise ValueError("a state has the layout of an earlier release; merge it before results are computed")
        return self.result_function.finish(checked(self.stored_function, states))


def row_functions(plan: QueryPlan, query: Query) -> Mapping[str, RowFunction] | None:
    """Return the measures of a plan as functions of stored rows. Return None if the windows and keys of the results
    differ from the stored windows and keys, if results depend on other windows, or if a parameter of a function is not
    hashable.
    """
    has_all_keys = set(plan.keys) == set(plan.frame.keys) and not plan.derived_keys
    has_own_windows = not plan.has_single_window and plan.window == plan.stored_level
    if not has_all_keys or not has_own_windows or plan.edges is not None or query.fill or query.running:
        return None
    functions = {
        name: StateResult(column, plan.frame.state_functions[column], measure.function)
        for name, (column, measure) in plan.measures.items()
    }
    try:
        hash(tuple(functions.values()))
    except TypeError:
        return None
    return functions


def read_results(
    backend: ResultReader,
    plan: QueryPlan,
    functions: Mapping[str, RowFunction],
    part_ranges: PartRanges,
    *,
    narrowing: str | None,
    read_merged: Callable[[Range], pa.Table],
) -> pa.Table | None:
    """Return a table of the results of the windows in ranges of parts, sorted by window and keys. It has the columns
    window_start, window_end, keys and measures.

    ``functions`` is the result of `row_functions`, and ``narrowing`` is the condition on keys that the backend may use
    to skip rows. ``read_merged`` returns the same columns for a range of windows, from merged states. It is called
    once, for the range from the first to the last window that has several rows of the same keys. Return None if the
    backend cannot read results.
    """
    # If parts overlap, a window may have several rows, whose states must be merged. Results of the single rows would
    # not be used, so the first read returns only the keys.
    first_read_functions = {} if _overlap(part_ranges) else functions
    rows = backend.read_results(part_ranges, plan.keys_to_read, first_read_functions, narrowing)
    if rows is None:
        return None
    is_selected = None
    if plan.where is not None:
        is_selected = pa.array(sql.rows_where(plan.where, rows, plan.timezone))
        rows = rows.filter(is_selected)
    starts = instants_of(rows)
    keys = {START: as_instants(starts)} | {name: key_column(rows.column(name)) for name in plan.keys}
    groups, row_of_group = group_by(list(keys.values()), rows.num_rows)
    if groups.n == rows.num_rows:
        results = rows
        if first_read_functions != functions:
            rows_with_results = backend.read_results(part_ranges, (), functions, narrowing)
            if rows_with_results is None:
                return None
            results = rows_with_results if is_selected is None else rows_with_results.filter(is_selected)
        order = pa.array(row_of_group)
        columns = group_keys(keys, row_of_group)
        columns |= {name: one_array(results.column(name)).take(order) for name in functions}
        return pa.table(columns).add_column(1, END, as_instants(_window_ends(starts[row_of_group], plan.window)))
    repeated = starts[row_of_group[groups.counts() > 1]]
    low = int(repeated.min())
    high = int(plan.window.ends(repeated.max(keepdims=True))[0])
    tables = list[pa.Table]()
    for span in ((EVER[0], low), (low, high), (high, EVER[1])):
        pieces = pieces_within(part_ranges, span)
        if not pieces:
            continue
        if span == (low, high):
            table: pa.Table | None = read_merged(span)
        else:
            table = read_results(backend, plan, functions, pieces, narrowing=narrowing, read_merged=read_merged)
        if table is None:
            return None
        tables.append(table)
    return pa.concat_tables(tables)


def _overlap(part_ranges: PartRanges) -> bool:
    """Return whether at least two of the ranges overlap."""
    ranges = sorted(part_range for _, part_range in part_ranges)
    return any(next_range[0] < part_range[1] for part_range, next_range in pairwise(ranges))


def _window_ends(starts: Instants, window: TimeWindow) -> Instants:
    """Return the end of the window for each of ``starts``. Equal starts are consecutive, because ``starts`` are
    ascending, so the end of each window is computed only once.
    """
    first_rows = np.flatnonzero(np.diff(starts, prepend=starts[:1] - 1))
    window_ends: Instants = np.repeat(window.ends(starts[first_rows]), np.diff(first_rows, append=len(starts)))
    return window_ends
