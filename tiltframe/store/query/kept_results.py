"""Kept results: results of parts, kept in memory by the backend, so that a repeated query computes only new results.

A part never changes, so the results of its windows do not change either, unless another part has rows in the same
windows. Druid caches results per segment for the same reason.

    parts in order of time ──▶ groups without common windows ──▶ kept results, or results of stored states
                                                            ──▶ results of windows in the range of the query
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tiltframe.store.query.extended_ranges import are_complete, extend_together, hull_of, select_range

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import RowFunction, TableKeeper
    from tiltframe.store.log.snapshot import PartRanges
    from tiltframe.store.query.plan import QueryPlan


@dataclass(frozen=True)
class KeptResults:
    """The results of a plan that a backend keeps in memory, by groups of parts.

    The groups are in the order of their windows, and parts of different groups have no windows in common.

    Parameters
    ----------
    keeper : TableKeeper
    plan : QueryPlan
    functions : name -> RowFunction
        The functions that compute measures from stored rows; see `stored_results.row_functions`.
    """

    keeper: TableKeeper
    plan: QueryPlan
    functions: Mapping[str, RowFunction]

    def find(self, groups: Iterable[PartRanges]) -> list[pa.Table] | None:
        """Return the results of groups of parts, one table for each group. Return None if results of some groups are
        not in memory. Raise `Conflict` if a part was removed by another process.
        """
        tables = list[pa.Table]()
        for group in groups:
            table = self._table_of(group)
            if table is None:
                return None
            tables.append(table if are_complete(group) else select_range(table, hull_of(group)))
        return tables

    def read(self, groups: Sequence[PartRanges], compute: Callable[[PartRanges], pa.Table | None]) -> pa.Table | None:
        """Return the results of the windows in groups of ranges of parts, sorted by window and keys. There must be at
        least one group.

        ``compute`` computes results from stored states, sorted in the same way, and returns None if the backend cannot
        read results. In this case, this method returns None as well. Raise `Conflict` if a part was removed by another
        process.
        """
        tables = [self._table_of(group) for group in groups]
        if any(table is None for table in tables):
            # All missing results are computed together, because separate calls would take more time.
            missing_groups = [
                extend_together(group) for group, table in zip(groups, tables, strict=True) if table is None
            ]
            results = compute([piece for group in missing_groups for piece in group])
            if results is None:
                return None
            computed_tables = iter([self._keep(group, results) for group in missing_groups])
            tables = [next(computed_tables) if table is None else table for table in tables]
        selected = [select_range(table, hull_of(group)) for group, table in zip(groups, tables, strict=True)]
        return selected[0] if len(selected) == 1 else pa.concat_tables(selected)

    def _table_of(self, group: PartRanges) -> pa.Table | None:
        return self.keeper.kept_table([part for part, _ in group], self._description)

    def _keep(self, group: PartRanges, results: pa.Table) -> pa.Table:
        """Return the results of a group. Keep them if the group consists of complete parts. ``results`` may also
        contain the results of other groups.
        """
        selected = select_range(results, hull_of(group))
        if not are_complete(group):
            return selected
        # A copy is kept, because a slice would keep the larger table in memory.
        copy = selected.take(pa.array(np.arange(selected.num_rows))).combine_chunks()
        self.keeper.keep_table([part for part, _ in group], self._description, copy)
        return copy

    @cached_property
    def _description(self) -> Hashable:
        """A value that determines the results of a part. Plans with equal values have equal results. The windows are
        those of the part.
        """
        plan = self.plan
        return "results", plan.keys, plan.where, plan.timezone, tuple(self.functions.items())
