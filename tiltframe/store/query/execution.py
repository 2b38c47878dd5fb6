"""Execution: what is read of a store for a query plan, and the results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pyarrow as pa

from tiltframe.frame import START
from tiltframe.store.backends.protocol import Backend, Snapshot
from tiltframe.store.manifest import Manifest
from tiltframe.store.merging import PartRanges, by_windows, pieces_of
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.query.results import answers, filled, latest_of_keys, requested_states, united
from tiltframe.store.query.time_range import read_moment
from tiltframe.store.ranges import EVER, Range, align_outward, as_text, common, first_whole
from tiltframe.store.recorded import held_from, snapshot_of
from tiltframe.store.retry import retry_on_conflict
from windows import TimeWindow


class Expired(UserWarning):
    """Windows of a query have expired in the level that is read."""


def execute(
    backend: Backend,
    manifest: Manifest,
    plan: QueryPlan,
    fill: bool,
    now: int,
    latest: bool = False,
    snapshot: Snapshot | None = None,
) -> Iterator[pa.Table]:
    """Execute a query plan, as of a snapshot or of now; see `tiltframe.FrameStore.query`.

    Results come by slices of time, the earliest first.
    """
    slices, held = read_slices(backend, manifest, plan, snapshot)
    if latest:
        slices = iter([reduce(lambda kept, more: latest_of_keys(pa.concat_tables([kept, more]), plan), slices)])
    elif fill:
        slices = iter([filled(pa.concat_tables(slices), plan, now)])
    for states in slices:
        yield answers(states, plan, held, now)


def read_states(backend: Backend, manifest: Manifest, plan: QueryPlan) -> pa.Table:
    """Read the states of the windows of a query plan."""
    return pa.concat_tables(read_slices(backend, manifest, plan)[0])


def read_slices(
    backend: Backend, manifest: Manifest, plan: QueryPlan, snapshot: Snapshot | None = None
) -> tuple[Iterator[pa.Table], int]:
    """Read the states of the windows of a query plan, of one moment, some windows at a time, so that memory is bounded.

    Returns
    -------
    at least one table of states, perhaps without rows, each window in one of them
    the time from which on the level that is read holds windows
    """
    part_ranges, held = planned_ranges(plan, snapshot or snapshot_of(backend))
    if held > EVER[0] and (plan.within is None or plan.within[0] < held):
        warnings.warn(_expired(plan, plan.frame.levels[plan.source()].name, held), Expired, stacklevel=5)
    return _slices(backend, manifest, plan, part_ranges), held


def _slices(backend: Backend, manifest: Manifest, plan: QueryPlan, part_ranges: PartRanges) -> Iterator[pa.Table]:
    level = plan.frame.levels[plan.source()]
    span = plan.span() or _range_of(part_ranges, level)
    schema = pa.schema([manifest.schema.field(name) for name in dict.fromkeys([START, *plan.columns])])
    nothing = requested_states(schema.empty_table(), plan, (0, 0))
    yield nothing
    if plan.target.max_overlap > 1:  # a row lies in windows of several slices
        pieces = iter([part_ranges])
    else:
        pieces = by_windows(part_ranges, level if plan.whole else plan.target)
    found = (requested_states(_read(backend, manifest, plan, some), plan, span) for some in pieces)
    yield from [united([nothing, *found], plan)] if plan.whole else found


def _read(backend: Backend, manifest: Manifest, plan: QueryPlan, part_ranges: PartRanges) -> pa.Table:
    """Read pieces; where they have been merged meanwhile, what stands for them now."""
    planned, span = [part_ranges], _range_of(part_ranges, plan.frame.levels[plan.source()])

    def attempt() -> pa.Table:
        if not planned:
            now, _ = planned_ranges(plan, snapshot_of(backend))
            planned.append([(part, piece) for part, whole in now for piece in common([whole], [span])])
        return backend.read(planned.pop(), plan.columns, plan.narrowing(manifest.schema))

    return retry_on_conflict(attempt)


def _range_of(part_ranges: PartRanges, level: TimeWindow) -> Range:
    """Find the whole windows of a level that pieces lie in."""
    if not part_ranges:
        return 0, 0
    return align_outward((min(low for _, (low, _) in part_ranges), max(high for _, (_, high) in part_ranges)), level)


def planned_ranges(plan: QueryPlan, snapshot: Snapshot) -> tuple[PartRanges, int]:
    """Choose what is read for a query plan; return also the time from which on its level holds windows."""
    level = plan.frame.levels[plan.source()].name
    held = held_from(snapshot, level)
    low, high = plan.span() or EVER
    return pieces_of(snapshot.of(level), [(max(low, held), high)]), held


def held_range(backend: Backend, manifest: Manifest) -> Range | None:
    """Find the whole coarsest windows that the finest level still holds; None if there are none."""
    finest, coarsest = manifest.frame.levels[0], manifest.frame.levels[-1]
    snapshot = snapshot_of(backend)
    parts = snapshot.of(finest.name)
    if not parts:
        return None
    low, high = align_outward(
        (min(part.first_start for part in parts), max(part.last_start for part in parts) + 1), coarsest
    )
    low = first_whole(max(low, held_from(snapshot, finest.name)), coarsest)
    return (low, high) if low < high else None


def moment(value: Any, timezone: str) -> int:
    """Read a moment in microseconds UTC; the clock's time for None."""
    return int(time.time() * 1e6) if value is None else read_moment(value, timezone)


def _expired(plan: QueryPlan, level: str, held: int) -> str:
    return f"{level} is held from {as_text(held)} only; ask per a coarser level for what was before"
