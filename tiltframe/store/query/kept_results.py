"""Kept results: results of parts, kept in memory by the backend, so that a repeated query computes only new results.

A part never changes, so the results of its windows do not change either, unless another part has rows in the same
windows. Druid caches results per segment for the same reason.

    parts in order of time ──▶ groups without common windows ──▶ kept results, or results of stored states
                                                            ──▶ results of windows in the range of the query
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tiltframe.store.query.extended_ranges import are_complete, extend_together, hull_of, select_range

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import RowFunction, TableKeeper
    from tiltframe.store.log.snapshot import PartRanges
    from tiltframe.store.query.plan import QueryPlan


# the name of the metadata with the range of the windows of a kept table, in microseconds UTC
_RANGE = b"range"


@dataclass(frozen=True, eq=False)
class _Description:
    """A description of results, which equals only itself; see `_shared`."""

    value: Hashable


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
        groups = list(groups)
        selected = list[pa.Table]()
        for group, table in zip(groups, self._kept_tables(groups), strict=True):
            if table is None:
                return None
            selected.append(table if are_complete(group) else select_range(table, hull_of(group)))
        return selected

    def read(self, groups: Sequence[PartRanges], compute: Callable[[PartRanges], pa.Table | None]) -> pa.Table | None:
        """Return the results of the windows in groups of ranges of parts, sorted by window and keys. There must be at
        least one group.

        ``compute`` computes results from stored states, sorted in the same way, and returns None if the backend cannot
        read results. In this case, this method returns None as well. Raise `Conflict` if a part was removed by another
        process.
        """
        tables = self._kept_tables(groups)
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

    def _kept_tables(self, groups: Sequence[PartRanges]) -> list[pa.Table | None]:
        """Return, for each group, a table in memory that contains its results, or None."""
        tables = self.keeper.kept_tables([[part for part, _ in group] for group in groups], self._description)
        return [
            table if table is not None and _contains(table, group) else None
            for group, table in zip(groups, tables, strict=True)
        ]

    def _keep(self, group: PartRanges, results: pa.Table) -> pa.Table:
        """Return the results of a group, and keep them. ``results`` may also contain the results of other groups."""
        span = hull_of(group)
        selected = select_range(results, span)
        # A copy is kept, because a slice would keep the larger table in memory.
        copy = selected.take(pa.array(np.arange(selected.num_rows))).combine_chunks()
        # A table without a range contains the results of complete parts.
        copy = copy.replace_schema_metadata(None if are_complete(group) else {_RANGE: json.dumps(span)})
        self.keeper.keep_table([part for part, _ in group], self._description, copy)
        return copy

    @cached_property
    def _description(self) -> Hashable:
        """A value that determines the results of a part. Plans with equal values have equal results. The windows are
        those of the part.
        """
        plan = self.plan
        return _shared(("results", plan.keys, plan.where, plan.timezone, tuple(self.functions.items())))


@lru_cache(maxsize=1024)
def _shared(description: Hashable) -> object:
    """Return the same object for equal descriptions. Looking up an object by its identity takes far less time than
    comparing descriptions.
    """
    return _Description(description)


def _contains(table: pa.Table, group: PartRanges) -> bool:
    """Return whether a kept table contains the results of ranges of the parts for which it was kept."""
    metadata = table.schema.metadata
    if metadata is None:
        return True
    kept_range = json.loads(metadata[_RANGE])
    first, end = hull_of(group)
    return bool(kept_range[0] <= first and end <= kept_range[1])
