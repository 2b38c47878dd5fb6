"""Kept merges: merged states of parts, kept in memory by the backend, so that a repeated query merges only new parts.

A query that merges many keys or windows reads many more states than it returns. The merged states of a part are small,
and a part never changes. Later queries can therefore merge the kept states of a part with the states of other parts.
The results have the same bits, because merging adds no error.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from aggr.state import State

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import TableKeeper
    from tiltframe.store.log.snapshot import PartRanges
    from tiltframe.store.query.plan import QueryPlan

# Parts with fewer rows are merged together, because merging them separately would take more time.
_MIN_ROWS = 1 << 15
# Merged states are kept only if they have at most this share of the rows from which they were merged.
_MAX_SHARE = 0.25
# This empty table is kept in the place of merged states that exceed this share, so that later queries do not merge the
# same parts separately again.
_HARDLY_MERGED = pa.table({})


class Merged(NamedTuple):
    """Merged states, and the number of rows from which they were merged."""

    states: pa.Table
    row_count: int


def merges_parts(plan: QueryPlan) -> bool:
    """Return whether it is useful to keep the merged states of parts for later queries. Two conditions must hold:
    merging may reduce the states of a part to far fewer states, and the merged states depend only on the part, and not
    on the time or the range of the query.
    """
    if plan.window.max_overlap > 1 or plan.derived_keys:
        return False
    has_fewer_keys = set(plan.keys) != set(plan.frame.keys)
    return has_fewer_keys or plan.stored_level.length <= _MAX_SHARE * plan.window.length


def merge_parts(
    keeper: TableKeeper,
    plan: QueryPlan,
    part_ranges: PartRanges,
    *,
    read_and_merge: Callable[[PartRanges], Merged],
    merge_tables: Callable[[Sequence[pa.Table]], pa.Table],
) -> pa.Table:
    """Return the merged states of ranges of parts. There must be at least one part.

    ``keeper`` keeps tables of merged states in memory: one table for each large part, and one table for all small parts
    together. A table is kept only if it has far fewer states than the parts from which it was merged. Parts whose
    merged states are kept are not read again. ``read_and_merge`` merges the states of some ranges of parts,
    independently of the range of the query, and ``merge_tables`` merges several results of ``read_and_merge``. Raise
    `Conflict` if a part was removed by another process.
    """
    description = _merge_description(plan)
    small_parts = [piece for piece in part_ranges if piece[0].rows < _MIN_ROWS]
    groups = [[piece] for piece in part_ranges if piece[0].rows >= _MIN_ROWS] + ([small_parts] if small_parts else [])
    merged = list[pa.Table]()
    hardly_merged: PartRanges = []
    for group in sorted(groups, key=_count_rows):
        parts = [part for part, _ in group]
        key = description, tuple(part_range for _, part_range in group)
        (table,) = keeper.kept_tables([parts], key)
        # If merging one group hardly reduces the number of states, the same is probably true of the next groups. It
        # takes less time to merge all such groups together than to merge each of them separately.
        if table is None and not hardly_merged:
            table, row_count = read_and_merge(group)
            if table.num_rows > _MAX_SHARE * row_count:
                if len(groups) == 1:
                    return table
                table = _HARDLY_MERGED
            keeper.keep_table(parts, key, table)
        if table is None or not table.num_columns:
            hardly_merged += group
        else:
            merged.append(table)
    if hardly_merged:
        merged.append(read_and_merge(hardly_merged).states)
    return merged[0] if len(merged) == 1 else merge_tables(merged)


def _count_rows(part_ranges: PartRanges) -> int:
    return sum(part.rows for part, _ in part_ranges)


def _merge_description(plan: QueryPlan) -> Hashable:
    """Return a value that determines how a plan merges the states of a part. Plans with equal values merge a part into
    equal states.
    """
    functions = [(name, plan.frame.state_functions[name]) for name in plan.states]
    return (
        plan.window.name,
        plan.window.timezone,
        plan.keys,
        plan.key_fields,
        plan.where,
        plan.timezone,
        tuple((name, type(function), _state_text(function.own_state)) for name, function in functions),
    )


def _state_text(state: State) -> str:
    """Return a text that contains the name and the parameters of a state."""
    return repr([state.name, *((name, state.parameter(name)) for name in state.parameters)])
