"""Execution: read the states that the plan of a query selects, and compute the results from them.

Query ──▶ plan ──▶ read states ──▶ merge by windows and keys ──▶ compute results ──▶ having, order, limit, zone, flat

The states are read from parts. A part consists of states of one level that were written together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aggr.arrow.normalize import one_array
from aggr.workers import map_in_threads
from tiltframe.instants import instants_of, with_bounds
from tiltframe.level_chain import with_level_column
from tiltframe.names import START
from tiltframe.ranges import EVER, Range, align_outward
from tiltframe.store.backends.protocol import Backend, Snapshot, result_reader_of, table_keeper_of, threads_of
from tiltframe.store.backends.stored_types import stored, stored_schema
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.records import available_from
from tiltframe.store.log.run import retry_on_conflict, snapshot_of
from tiltframe.store.log.snapshot import PartRanges, pieces_within
from tiltframe.store.log.stream_watermarks import closed_before
from tiltframe.store.query.answer import PlannedRead
from tiltframe.store.query.extended_ranges import extend_each, hull_of, select_range
from tiltframe.store.query.filling import empty_rows_of_all_windows, fill_values
from tiltframe.store.query.kept_merges import Merged, merge_parts, merges_parts
from tiltframe.store.query.kept_results import KeptResults
from tiltframe.store.query.kept_schemas import kept_schema
from tiltframe.store.query.merging import ROWS_AT_ONCE, split_by_windows, without_common_windows
from tiltframe.store.query.missing import warn_of_missing
from tiltframe.store.query.partitions import has_open_end, split_range, without_open_ends
from tiltframe.store.query.results import (
    add_expressions,
    empty_measures,
    finish,
    finish_measures,
    format_results,
    merge_into_all_windows,
    merge_into_windows,
    merge_tables,
    select_closed,
    select_latest,
)
from tiltframe.store.query.running import running_states
from tiltframe.store.query.stored_results import read_results, row_functions
from tiltframe.time_range import fill_open_ends, moment_or_now
from windows import TimeWindow

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import RowFunction, TableKeeper
    from tiltframe.store.log.manifest import Manifest
    from tiltframe.store.query.plan import QueryPlan
    from tiltframe.store.query.query import Query

# the approximate number of stored rows whose results are read at once; a result takes much less memory than a state
_RESULTS_AT_ONCE = 5 * ROWS_AT_ONCE


def plan_read(plan: QueryPlan, snapshot: Snapshot, *, is_filled: bool = False) -> PlannedRead:
    """Return a query plan with the parts of ``snapshot`` that it reads. With the argument ``edges`` of the query, the
    parts also include windows shortly before and after the range. ``is_filled`` is true if windows without rows are
    added to the results.
    """
    planned = plan.with_edges()
    level = planned.stored_level.name
    retained_from = available_from(snapshot, level)
    low, high = planned.span()
    part_ranges = snapshot.pieces(level, (max(low, retained_from), high))
    return PlannedRead(
        plan=plan,
        part_ranges=part_ranges,
        retained_from=retained_from,
        closed_before=closed_before(snapshot) if plan.has_only_closed_windows else EVER[1],
        is_filled=is_filled,
    )


def read_states(backend: Backend, manifest: Manifest, planned_read: PlannedRead, jobs: int = 1) -> Iterator[pa.Table]:
    """Yield the merged states of the windows of a query plan, as at least one table, which may have no rows.

    All rows of a window are in the same table. A table has only some of the windows, so that memory is bounded.
    ``jobs`` is the number of threads that read and merge; the rows and their order do not depend on it.
    """
    plan = planned_read.plan.with_edges()
    part_ranges = planned_read.part_ranges
    level = plan.stored_level
    span = fill_open_ends(plan.span(), _range_of(part_ranges, level))
    threads = threads_of(backend, jobs)
    # Overlapping windows are not read in slices, because a row may lie in windows of several slices.
    if plan.window.max_overlap > 1:
        pieces = iter([part_ranges])
    else:
        pieces = split_by_windows(part_ranges, level if plan.has_single_window else plan.window)

    keeper = table_keeper_of(backend) if merges_parts(plan) else None

    def read_and_merge(pieces_read: PartRanges) -> pa.Table:
        if keeper is not None:
            # If another process has replaced a part, the parts that replaced it are read.
            with suppress(Conflict):
                return _merge_kept(keeper, backend, manifest, plan, part_ranges=pieces_read, span=span)
        return merge_into_windows(_read(backend, manifest, plan, pieces_read), plan, span)

    states = map_in_threads(read_and_merge, pieces, threads)
    first = next(states, None)
    if first is None:
        schema = pa.schema([manifest.schema.field(name) for name in dict.fromkeys([START, *plan.columns])])
        yield merge_into_windows(schema.empty_table(), plan, (0, 0))
    elif plan.has_single_window:
        yield merge_tables([first, *states], plan)
    else:
        yield first
        # The first table is deleted, so that its memory is free while the next table is read.
        del first
        yield from states


def results_of(
    backend: Backend, manifest: Manifest, planned_read: PlannedRead, query: Query, *, now: int, jobs: int = 1
) -> Iterator[pa.Table]:
    """Return an iterator of tables of results, as `results_from_states` does. If the backend is a `ResultReader`, it
    returns the results of windows whose states need no merge. ``now`` is in microseconds UTC.
    """
    plan = planned_read.plan
    functions = row_functions(plan, query)
    if functions is None or result_reader_of(backend) is None or not planned_read.part_ranges:
        return results_from_states(read_states(backend, manifest, planned_read, jobs), planned_read, query, now)
    part_results = _PartResults(backend, manifest, plan, functions)
    kept_tables = part_results.find(planned_read.part_ranges)
    if kept_tables is not None:
        tables = _join_tables(kept_tables, _RESULTS_AT_ONCE)
    else:
        pieces = split_by_windows(planned_read.part_ranges, plan.window, _RESULTS_AT_ONCE)
        tables = map_in_threads(part_results.read, pieces, threads_of(backend, jobs))
    selected = _selected_windows(tables, planned_read, query, now)
    return (add_expressions(table, plan, planned_read.retained_from, now) for table in selected)


@dataclass(frozen=True)
class _PartResults:
    """The results of a plan whose windows and keys are those of the stored states.

    Parameters
    ----------
    backend : Backend
        A backend that is a `ResultReader`.
    manifest : Manifest
    plan : QueryPlan
    functions : name -> RowFunction
        The functions that compute measures from stored rows; see `stored_results.row_functions`.
    """

    backend: Backend
    manifest: Manifest
    plan: QueryPlan
    functions: Mapping[str, RowFunction]

    def find(self, part_ranges: PartRanges) -> list[pa.Table] | None:
        """Return the results of ranges of parts as `read` does, in one or more tables, if the backend keeps all of them
        in memory. Otherwise, return None.
        """
        with suppress(Conflict):
            return None if self._kept_results is None else self._kept_results.find(self._group(part_ranges))
        return None

    def read(self, part_ranges: PartRanges) -> pa.Table:
        """Return a table of the results of the windows in ranges of parts, sorted by window and keys. It has the
        columns window_start, window_end, keys and measures.
        """
        # An error is raised if a result cannot be computed, or if another process has replaced a part. In both cases,
        # the states are then read and merged. Merging raises the error again only if the query needs the result.
        with suppress(Conflict, TypeError, ValueError, OverflowError):
            is_small = sum(part.rows for part, _ in part_ranges) <= 2 * _RESULTS_AT_ONCE
            if is_small and self._kept_results is not None:
                results = self._kept_results.read(self._group(part_ranges), self._read_parts)
            else:
                results = self._read_parts(part_ranges)
            if results is not None:
                return results
        return self._merge_and_finish(part_ranges, self._read_rows_of_any_version)

    @cached_property
    def _kept_results(self) -> KeptResults | None:
        keeper = table_keeper_of(self.backend)
        return None if keeper is None else KeptResults(keeper, self.plan, self.functions)

    def _group(self, part_ranges: PartRanges) -> list[PartRanges]:
        """Divide ranges of parts into groups without common windows, in the order of the windows."""
        return list(without_common_windows(part_ranges, self.plan.window))

    @cached_property
    def _narrowing(self) -> str | None:
        return self.plan.narrowing(self.manifest.schema)

    def _read_parts(self, part_ranges: PartRanges) -> pa.Table | None:
        """Compute the results of parts. Return None if the backend cannot read results, and raise `Conflict` if another
        process has removed a part.
        """
        reader = result_reader_of(self.backend)
        assert reader is not None
        return read_results(
            reader,
            self.plan,
            self.functions,
            part_ranges,
            narrowing=self._narrowing,
            read_merged=lambda span: self._merge_and_finish(pieces_within(part_ranges, span), self._read_rows),
        )

    def _merge_and_finish(self, part_ranges: PartRanges, read_rows_of: Callable[[PartRanges], pa.Table]) -> pa.Table:
        # The ranges of parts may be longer than the range of the query, because results of complete parts are kept.
        finished = list[pa.Table]()
        for pieces in split_by_windows(part_ranges, self.plan.window, ROWS_AT_ONCE):
            states = merge_into_all_windows(read_rows_of(pieces), self.plan, EVER)
            finished.append(finish_measures(states, self.plan))
        return pa.concat_tables(finished)

    def _read_rows(self, part_ranges: PartRanges) -> pa.Table:
        return self.backend.read(part_ranges, self.plan.columns, self._narrowing)

    def _read_rows_of_any_version(self, part_ranges: PartRanges) -> pa.Table:
        return _read(self.backend, self.manifest, self.plan, part_ranges)


def _join_tables(tables: Iterable[pa.Table], max_rows: int) -> Iterator[pa.Table]:
    """Yield at least one table. Successive tables are joined, without a copy, if they together have at most
    ``max_rows`` rows.
    """
    joined = list[pa.Table]()
    row_count = 0
    for table in tables:
        if joined and row_count + table.num_rows > max_rows:
            yield pa.concat_tables(joined)
            joined = []
            row_count = 0
        joined.append(table)
        row_count += table.num_rows
    yield pa.concat_tables(joined)


def read_states_with_level(
    backend: Backend, manifest: Manifest, planned_read: PlannedRead, jobs: int = 1
) -> Iterator[pa.Table]:
    """Yield merged states like `read_states`, with the column ``level`` as in the result of a rollup."""
    plan = planned_read.plan
    states_read = read_states(backend, manifest, planned_read, jobs)
    return (with_level_column(states, plan.frame, plan.window) for states in states_read)


def _merge_kept(
    keeper: TableKeeper,
    backend: Backend,
    manifest: Manifest,
    plan: QueryPlan,
    *,
    part_ranges: PartRanges,
    span: Range,
) -> pa.Table:
    """Merge the states of parts, and return a table like that of `merge_into_windows`. ``keeper``, which is the
    backend, keeps merged states in memory, and later queries use them again. Raise `Conflict` if a part was removed by
    another process.
    """
    narrowing = plan.narrowing(manifest.schema)

    def read_and_merge(pieces: PartRanges) -> Merged:
        # The backend keeps the merged states for queries of other ranges, so these states must not depend on the range
        # of this query. If the query has one result for its whole range, the states are therefore merged into the
        # window (0, 0). The bounds of this window are replaced below.
        rows = backend.read(pieces, plan.columns, narrowing)
        return Merged(merge_into_all_windows(rows, plan, (0, 0)), rows.num_rows)

    pieces = part_ranges if plan.has_single_window else extend_each(part_ranges)
    states = merge_parts(
        keeper, plan, pieces, read_and_merge=read_and_merge, merge_tables=partial(merge_tables, plan=plan)
    )
    if plan.has_single_window:
        starts, end_times = (np.full(states.num_rows, at) for at in span)
        return with_bounds(states, starts, end_times)
    return select_range(states, _range_of(part_ranges, plan.window))


def _read(backend: Backend, manifest: Manifest, plan: QueryPlan, part_ranges: PartRanges) -> pa.Table:
    """Return the rows of states in ``part_ranges``. If a compaction has removed some of the parts, the parts that
    replaced them are read instead.
    """
    planned = [part_ranges]
    span = _range_of(part_ranges, plan.stored_level)

    def attempt() -> pa.Table:
        if not planned:
            current_ranges = plan_read(plan, snapshot_of(backend)).part_ranges
            planned.append(pieces_within(current_ranges, span))
        return backend.read(planned.pop(), plan.columns, plan.narrowing(manifest.schema))

    return retry_on_conflict(attempt)


def _range_of(part_ranges: PartRanges, level: TimeWindow) -> Range:
    """Return the range of the windows of ``level`` that contain the ranges of parts, or (0, 0) without parts."""
    if not part_ranges:
        return 0, 0
    return align_outward(hull_of(part_ranges), level)


def states_schema(manifest: Manifest, plan: QueryPlan) -> pa.Schema:
    """Return the schema of the tables that `read_states_with_level` yields. Nothing is read."""
    empty_states = merge_into_windows(manifest.schema.empty_table(), plan, (0, 0))
    return with_level_column(empty_states, plan.frame, plan.window).schema


def query_schema(manifest: Manifest, plan: QueryPlan, query: Query) -> pa.Schema:
    """Return the schema of the results of a query. Nothing is read. Raise ``ValueError`` if a condition, an order or an
    expression of the query cannot be computed from results with their types.
    """

    def compute() -> pa.Schema:
        measures = empty_measures(manifest.schema, plan)
        results = add_expressions(measures, plan, 0, 0)
        if query.fill:
            results = fill_values(results, measures, plan, query.fill)
        return next(format_results(iter([results]), query, plan.timezone)).schema

    return kept_schema(manifest, plan, query, compute)


def results_from_states(
    slices: Iterator[pa.Table], planned_read: PlannedRead, query: Query, now: int
) -> Iterator[pa.Table]:
    """Return an iterator of tables of results. ``slices`` are the tables of states that `read_states` yields. If
    results depend on other windows (``fill``, ``edges`` or ``running``), there is one table with all results. Otherwise
    there is one table of results for each table of states. ``now`` is in microseconds UTC.
    """
    plan = planned_read.plan
    retained_from = planned_read.retained_from
    if plan.edges is None and not query.fill and not query.running:
        return (
            finish(states, plan, retained_from, now) for states in _selected_windows(slices, planned_read, query, now)
        )
    states = pa.concat_tables(slices)
    if plan.edges is not None:
        results = _finish_to_edges(states, plan, fill=query.fill, known_from=retained_from, now=now)
    else:
        windows = _fill_gaps(states, plan, now) if query.fill else states
        results = finish(running_states(windows, plan) if query.running else windows, plan, retained_from, now)
        results = fill_values(results, states, plan, query.fill) if query.fill else results
    return _selected_windows(iter([results]), planned_read, query, now)


def _finish_to_edges(states: pa.Table, plan: QueryPlan, *, fill: str | bool, known_from: int, now: int) -> pa.Table:
    """Return the results of the windows in the range of a query that has the argument ``edges``. ``states`` also
    contains windows outside the range, because the values of their rows are used for the results of windows inside the
    range. ``known_from`` and ``now`` are the arguments of `finish`.
    """
    starts = instants_of(states)
    is_requested = (starts >= plan.within[0]) & (starts < plan.within[1])
    requested, neighbouring = (states.filter(pa.array(rows)) for rows in (is_requested, ~is_requested))
    windows = _fill_gaps(requested, plan, now) if fill else requested
    results = finish(pa.concat_tables([windows, neighbouring]), plan, known_from, now).slice(0, windows.num_rows)
    return fill_values(results, requested, plan, fill) if fill else results


def _fill_gaps(states: pa.Table, plan: QueryPlan, now: int) -> pa.Table:
    """Return states with a row for every window in the range up to ``now`` and every key that occurs in ``states``."""
    return (
        states if plan.has_single_window else merge_tables([states, empty_rows_of_all_windows(states, plan, now)], plan)
    )


def _selected_windows(
    windows: Iterator[pa.Table], planned_read: PlannedRead, query: Query, now: int
) -> Iterator[pa.Table]:
    """Return an iterator of tables with the rows that ``closed`` and ``latest`` of the query select: only closed
    windows, or only the last window of each key.

    ``windows`` are tables of states or of results. The caller passes states if each result depends on its own window
    only; results are then computed for the selected rows only.
    """
    if query.closed:
        bound = min(now, planned_read.closed_before)
        windows = (select_closed(table, planned_read.retained_from, bound) for table in windows)
    if not query.latest:
        return windows
    plan = planned_read.plan
    first = select_latest(next(windows), plan)
    return iter([reduce(lambda newest, more: select_latest(pa.concat_tables([newest, more]), plan), windows, first)])


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
        Whether to return columns in the types in which the store writes them. For example, the store writes uint64 as
        decimal, because Delta Lake and Spark do not support uint64.
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
        return split_range(self.plan, self._part_ranges(), rows)

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
        planned_read = plan_read(plan, snapshot_of(self.backend))
        if self.as_states:
            return pa.concat_tables(read_states_with_level(self.backend, self.manifest, planned_read))
        states = read_states(self.backend, self.manifest, planned_read)
        now = moment_or_now(self.query.now, plan.timezone)
        results = pa.concat_tables(
            format_results(results_from_states(states, planned_read, self.query, now), self.query, plan.timezone)
        )
        if not self.stored_types:
            return results
        columns = [stored(one_array(column)) for column in results.columns]
        return pa.table(columns, names=results.column_names)

    def _without_open_ends(self, partition: Range) -> Range | None:
        """Return a partition in which open ends are replaced by the first and the last time of the store's windows.
        Return None if the store has no windows in the partition.
        """
        if has_open_end(partition):
            return without_open_ends(self.plan.window, partition, self._part_ranges())
        low, high = partition
        return partition if low < high else None

    def _part_ranges(self) -> PartRanges:
        return plan_read(self.plan, snapshot_of(self.backend)).part_ranges
