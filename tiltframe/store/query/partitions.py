"""Partitions: split a query into ranges of time with about equal numbers of rows. Other processes read one range each.

A query may be planned once and read many times later, when the store has more windows. If the range of the query has an
open end, the first or the last partition has the same open end. Each time this partition is read, the open end is
replaced by the first or the last time in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.normalize import one_array
from tiltframe.ranges import EVER, Range
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.backends.stored_types import stored, stored_schema
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.run import snapshot_of
from tiltframe.store.log.snapshot import PartRanges
from tiltframe.store.query.execution import (
    query_schema,
    read_states,
    read_states_with_level,
    reading_of,
    results_from_states,
    states_schema,
)
from tiltframe.store.query.missing import warn_of_missing
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.query.query import Query
from tiltframe.store.query.results import format_results
from tiltframe.time_range import moment_or_now
from windows import TimeWindow


@dataclass(frozen=True)
class PlannedQuery:
    """A planned query of a store; `tiltframe.FrameStore.plan` returns it. It can be pickled for the tasks that read its
    partitions.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
    query : Query
    plan : QueryPlan
    as_states : bool
        Whether to return the states of a level instead of results.
    stored_types : bool
        Whether to return columns in the types in which the store writes them, such as decimal instead of uint64, which
        Delta Lake and Spark do not have.
    expired, unknown : tuple of str
        Messages about expired windows, and about measures that were added later; see `Answer`.
    """

    backend: Backend
    manifest: Manifest
    query: Query
    plan: QueryPlan
    as_states: bool = False
    stored_types: bool = False
    expired: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def warn_of_missing(self) -> None:
        """Warn about windows that have expired, and about measures that were added later."""
        warn_of_missing(self.expired, self.unknown)

    @property
    def is_indivisible(self) -> bool:
        """Whether the query must be read as one partition, because it has a single window, or because results depend on
        the whole range (``fill``, ``latest`` and ``running``).
        """
        return bool(self.query.fill) or self.query.latest or self.query.running or self.plan.has_single_window

    @property
    def schema(self) -> pa.Schema:
        """The schema of the results or, with ``as_states``, of the states. Nothing is read."""
        if self.as_states:
            return states_schema(self.manifest, self.plan)
        schema = query_schema(self.manifest, self.plan, self.query)
        return stored_schema(schema) if self.stored_types else schema

    def partitions(self, rows: int) -> list[Range]:
        """Split the range of the query into ranges of window starts. No states are read.

        Parameters
        ----------
        rows : int
            The approximate number of rows of states per range. A bucket, which is the hour, day, month or year whose
            states are stored together, is never split.

        Returns
        -------
        list of (start, end)
            At least one range, in microseconds UTC, ascending and without gaps.
        """
        if self.is_indivisible:
            return [self.plan.within]
        part_ranges = self._part_ranges()
        begins = np.array([low for _, (low, _) in part_ranges], np.int64)
        sizes = np.array([part.rows for part, _ in part_ranges], np.int64)
        buckets = bucket_of(self.plan.find_level()).starts(begins)
        low, high = self.plan.within
        cuts = (at for at in _cuts(self.plan.window.starts(buckets), sizes, rows) if low < at < high)
        return list(pairwise([low, *cuts, high]))

    def read(self, partition: Range) -> pa.Table:
        """Return the results or the states of the windows in a partition.

        Parameters
        ----------
        partition : (int, int)
            A range that `partitions` returned in any process.

        Returns
        -------
        table
            A table, which may have no rows.
        """
        within = partition if self.is_indivisible else self._without_open_ends(partition)
        if within is None:
            return self.schema.empty_table()
        plan = replace(self.plan, within=within)
        reading = reading_of(plan, snapshot_of(self.backend))
        if self.as_states:
            return pa.concat_tables(read_states_with_level(self.backend, self.manifest, reading))
        states = read_states(self.backend, self.manifest, reading)
        now = moment_or_now(self.query.now, plan.timezone)
        results = pa.concat_tables(
            format_results(results_from_states(states, reading, self.query, now), self.query, plan.timezone)
        )
        if not self.stored_types:
            return results
        columns = [stored(one_array(column)) for column in results.columns]
        return pa.table(columns, names=results.column_names)

    def _without_open_ends(self, partition: Range) -> Range | None:
        """Return a partition without open ends: the first and the last time of the store's windows replace them. Return
        None if the store has no windows in the partition.
        """
        low, high = partition
        if low <= EVER[0] or EVER[1] <= high:
            spans = [span for _, span in self._part_ranges()]
            if not spans:
                return None
            low = max(low, earliest_window_start(self.plan.window, min(span[0] for span in spans)))
            high = min(high, max(span[1] for span in spans))
        return (low, high) if low < high else None

    def _part_ranges(self) -> PartRanges:
        return reading_of(self.plan, snapshot_of(self.backend)).part_ranges


def earliest_window_start(target: TimeWindow, at: int) -> int:
    """Return the start of the earliest window of ``target`` that contains the moment ``at``; both are in microseconds
    UTC.

    >>> from windows import hopping
    >>> earliest_window_start(hopping("1h", "30m"), 3_600_000_000) // 60_000_000
    30
    """
    return int(target.assign(np.array([at], np.int64)).starts.min())


def _cuts(times: NDArray[np.int64], rows: NDArray[np.int64], rows_per_task: int) -> list[int]:
    """Return the values of ``times`` at which to split rows, so that about ``rows_per_task`` rows lie between two
    splits. ``times`` are times in microseconds UTC, and ``rows[i]`` is the number of rows at ``times[i]``.
    """
    times, time_indices = np.unique(times, return_inverse=True)
    rows_by_time = np.bincount(time_indices, rows).astype(np.int64)
    before = np.cumsum(rows_by_time) - rows_by_time
    cuts: list[int] = times[1:][np.diff(before // rows_per_task) > 0].tolist()
    return cuts
