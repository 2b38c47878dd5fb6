"""Execution: the way of a query, from top to bottom.

Query ──▶ plan ──▶ read ──▶ regroup ──▶ finish ──▶ present: having, order, limit, zone, flat
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from tiltframe.frame import START
from tiltframe.level_chain import labelled
from tiltframe.ranges import EVER, Range, align_outward, as_text, common, first_whole
from tiltframe.store.backends.protocol import Backend, Snapshot
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import held_from, known_from, snapshot_of
from tiltframe.store.log.run import retry_on_conflict
from tiltframe.store.query.filling import fill_gaps, fill_values, finish_to_edges
from tiltframe.store.query.merging import PartRanges, by_windows, pieces_of
from tiltframe.store.query.plan import QueryPlan, plan_queries
from tiltframe.store.query.query import Query
from tiltframe.store.query.resolution import finest_within
from tiltframe.store.query.results import finish, latest_of_keys, present, regroup, united
from tiltframe.time_range import closed, read_moment, read_time_range
from windows import TimeWindow


class Expired(UserWarning):
    """Windows of a query have expired in the level that is read."""


class NotKnown(UserWarning):
    """A query reads a measure in windows of a time before it was added to the store."""


@dataclass(frozen=True)
class Answer:
    """What a store answers to a query.

    Parameters
    ----------
    schema : pa.Schema
        Of the results.
    slices : iterator of tables
        Of the results, once: at least one, perhaps without rows.
    expired : tuple of str
        A sentence for each level that is read and no longer holds all of the range.
    unknown : tuple of str
        A sentence if measures that were added later are not known in all of the range.
    """

    schema: pa.Schema
    slices: Iterator[pa.Table]
    expired: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    def table(self) -> pa.Table:
        """Read all results into one table."""
        return pa.concat_tables(self.slices)


def ask(backend: Backend, manifest: Manifest, query: Query, snapshot: Snapshot | None = None) -> Answer:
    """Answer a query as of a snapshot or of now; what cannot be asked is refused before anything is read."""
    now = moment(query.now, query.timezone or manifest.frame.timezone)
    snapshot = snapshot or snapshot_of(backend)
    plans = plans_of(manifest, query, snapshot, now)
    schema = query_schema(manifest, plans[0], query)
    readings = [read(backend, manifest, plan, snapshot) for plan in plans]
    slices = (
        results
        for plan, (states, held) in zip(plans, readings, strict=True)
        for results in finished(states, plan, query, held, now)
    )
    held_by = [(plan, held) for plan, (_, held) in zip(plans, readings, strict=True)]
    expired = dict.fromkeys(sentence for plan, held in held_by for sentence in _expired(plan, held))
    unknown = dict.fromkeys(sentence for plan, held in held_by for sentence in _unknown(plan, snapshot, held))
    return Answer(schema, present(slices, query, plans[0].timezone), tuple(expired), tuple(unknown))


def states_of(backend: Backend, manifest: Manifest, plan: QueryPlan, snapshot: Snapshot | None = None) -> Answer:
    """Read the merged states of a level, with the labels that a rollup gives them, as of a snapshot or of now."""
    snapshot = snapshot or snapshot_of(backend)
    tables, held = read(backend, manifest, plan, snapshot)
    nothing = regroup(manifest.schema.empty_table(), plan, (0, 0))
    schema = labelled(nothing, plan.frame, plan.window).schema
    slices = (labelled(states, plan.frame, plan.window) for states in tables)
    return Answer(schema, slices, _expired(plan, held), _unknown(plan, snapshot, held))


def plans_of(manifest: Manifest, query: Query, snapshot: Snapshot, now: int) -> list[QueryPlan]:
    """Plan a query for each kind of window; ``points`` are chosen by what the store holds."""
    frame, sizes = manifest.frame, query.sizes
    if query.points is not None:
        zone = query.timezone or frame.timezone
        within = EVER if query.within is None else read_time_range(query.within, zone, now, open_ends=True)
        sizes = (finest_within(snapshot, frame, within, query.points, zone),)
    return plan_queries(frame, query, sizes, now)


def query_schema(manifest: Manifest, plan: QueryPlan, query: Query) -> pa.Schema:
    """Return the schema of the results, reading nothing; raises ``ValueError`` for what does not fit them."""
    states = regroup(manifest.schema.empty_table(), plan, (0, 0))
    nothing = finish(states, plan, 0, 0)
    if query.fill:
        nothing = fill_values(nothing, states, plan, query.fill)
    return next(present(iter([nothing]), query, plan.timezone)).schema


def finished(slices: Iterator[pa.Table], plan: QueryPlan, query: Query, held: int, now: int) -> Iterator[pa.Table]:
    """Finish the states of windows that a query asks for: slice by slice, or together up to edges."""
    if plan.edges is not None:
        return iter([finish_to_edges(pa.concat_tables(slices), plan, query, held, now)])
    if query.latest:
        slices = iter([reduce(lambda kept, more: latest_of_keys(pa.concat_tables([kept, more]), plan), slices)])
    elif query.fill:
        states = pa.concat_tables(slices)
        return iter([fill_values(finish(fill_gaps(states, plan, now), plan, held, now), states, plan, query.fill)])
    return (finish(states, plan, held, now) for states in slices)


def read(
    backend: Backend, manifest: Manifest, plan: QueryPlan, snapshot: Snapshot | None = None
) -> tuple[Iterator[pa.Table], int]:
    """Read the states of the windows of a query plan, as of a snapshot or of now: at least one table, a window in one.

    They come some windows at a time, so that memory is bounded. Returns also from when on the level holds windows.
    """
    plan = plan.with_edges()
    part_ranges, held = planned_ranges(plan, snapshot or snapshot_of(backend))
    return _slices(backend, manifest, plan, part_ranges), held


def _slices(backend: Backend, manifest: Manifest, plan: QueryPlan, part_ranges: PartRanges) -> Iterator[pa.Table]:
    level = plan.frame.levels[plan.level()]
    span = closed(plan.span(), _range_of(part_ranges, level))
    schema = pa.schema([manifest.schema.field(name) for name in dict.fromkeys([START, *plan.columns])])
    nothing = regroup(schema.empty_table(), plan, (0, 0))
    yield nothing
    if plan.window.max_overlap > 1:  # a row lies in windows of several slices
        pieces = iter([part_ranges])
    else:
        pieces = by_windows(part_ranges, level if plan.whole else plan.window)
    states = (regroup(_read(backend, manifest, plan, some), plan, span) for some in pieces)
    yield from [united([nothing, *states], plan)] if plan.whole else states


def _read(backend: Backend, manifest: Manifest, plan: QueryPlan, part_ranges: PartRanges) -> pa.Table:
    """Read pieces; if they have been merged meanwhile, what stands for them now."""
    planned, span = [part_ranges], _range_of(part_ranges, plan.frame.levels[plan.level()])

    def attempt() -> pa.Table:
        if not planned:
            now, _ = planned_ranges(plan, snapshot_of(backend))
            planned.append([(part, piece) for part, whole in now for piece in common([whole], [span])])
        return backend.read(planned.pop(), plan.columns, plan.narrowing(manifest.schema))

    return retry_on_conflict(attempt)


def _range_of(part_ranges: PartRanges, level: TimeWindow) -> Range:
    if not part_ranges:
        return 0, 0
    return align_outward((min(low for _, (low, _) in part_ranges), max(high for _, (_, high) in part_ranges)), level)


def planned_ranges(plan: QueryPlan, snapshot: Snapshot) -> tuple[PartRanges, int]:
    """Choose what is read for a query plan; return also the time from which on its level holds windows."""
    level = plan.frame.levels[plan.level()].name
    held = held_from(snapshot, level)
    low, high = plan.span()
    return pieces_of(snapshot.of(level), [(max(low, held), high)]), held


def held_range(backend: Backend, manifest: Manifest) -> Range | None:
    """Find the whole coarsest windows that the finest level still holds; None if there are none."""
    finest, coarsest = manifest.frame.levels[0], manifest.frame.levels[-1]
    snapshot = snapshot_of(backend)
    parts = snapshot.of(finest.name)
    if not parts:
        return None
    span = min(part.first_start for part in parts), max(part.last_start for part in parts) + 1
    low, high = align_outward(span, coarsest)
    low = first_whole(max(low, held_from(snapshot, finest.name)), coarsest)
    return (low, high) if low < high else None


def moment(value: Any, timezone: str) -> int:
    """Read a moment in microseconds UTC; the clock's time for None."""
    return int(time.time() * 1e6) if value is None else read_moment(value, timezone)


def missing_in(plan: QueryPlan, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences about windows that have expired, and about measures that were added later."""
    held = held_from(snapshot, plan.frame.levels[plan.level()].name)
    return _expired(plan, held), _unknown(plan, snapshot, held)


def warn_of_missing(expired: Iterable[str], unknown: Iterable[str], stacklevel: int) -> None:
    """Warn of windows that have expired, and of measures that were added later."""
    for sentence in expired:
        warnings.warn(sentence, Expired, stacklevel=stacklevel + 1)
    for sentence in unknown:
        warnings.warn(sentence, NotKnown, stacklevel=stacklevel + 1)


def _expired(plan: QueryPlan, held: int) -> tuple[str, ...]:
    if plan.within[0] >= held:
        return ()
    level = plan.frame.levels[plan.level()].name
    return (f"{level} is held from {as_text(held)} only; ask per a coarser level for what was before",)


def _unknown(plan: QueryPlan, snapshot: Snapshot, held: int) -> tuple[str, ...]:
    known = known_from(snapshot)
    since = {name: known[column] for name, (column, _) in plan.measures.items() if column in known}
    return tuple(
        f"{name} is known from {as_text(at)} only, and null in windows before"
        for name, at in since.items()
        if max(plan.within[0], held) < at
    )
