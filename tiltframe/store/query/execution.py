"""Execution: what is read of a store for a query plan, and the results."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from tiltframe.level_chain import instants_of
from tiltframe.store.core.backend import Backend, Range
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.ranges import EVER, as_text
from tiltframe.store.core.read_plan import PartRanges, held_from, read_plan, widened
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import snapshot
from tiltframe.store.core.writers import EXPIRED
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.query.results import answers, filled, requested_states
from tiltframe.store.query.time_range import read_moment


class Expired(UserWarning):
    """Windows of a query have expired in the level that is read."""


def execute(
    backend: Backend,
    manifest: Manifest,
    plan: QueryPlan,
    fill: bool,
    now: int,
) -> pa.Table:
    """Execute a query plan; see `tiltframe.FrameStore.query`."""
    states, held = read_states(backend, manifest, plan)
    if fill:
        states = filled(states, plan, now)
    return answers(states, plan, held, now)


def read_states(backend: Backend, manifest: Manifest, plan: QueryPlan) -> tuple[pa.Table, int]:
    """Read the states of the windows of a query plan.

    Returns
    -------
    states, and the time from which on the level that is read holds windows
    """
    span, source = plan.span(), plan.frame.levels[plan.source()]

    def attempt() -> tuple[pa.Table, int]:
        part_ranges, held = planned_ranges(backend, manifest, plan)
        return backend.read(part_ranges, plan.columns, plan.narrowing(manifest.schema)), held

    rows, held = retry_on_conflict(attempt)
    if held > EVER[0] and (plan.within is None or plan.within[0] < held):
        warnings.warn(_expired(plan, source.name, held), Expired, stacklevel=4)
    if span is None:
        starts = instants_of(rows)
        span = widened((int(starts.min()), int(starts.max()) + 1), source) if len(starts) else (0, 0)
    return requested_states(rows, plan, span), held


def planned_ranges(backend: Backend, manifest: Manifest, plan: QueryPlan) -> tuple[PartRanges, int]:
    """Choose what is read for a query plan; return also the time from which on its level holds windows."""
    levels, at = plan.frame.levels, plan.source() + 1
    views = snapshot(backend, manifest, at)
    held = held_from(views, levels[:at])
    low, high = plan.span() or EVER
    low = max(low, held)
    return read_plan(views, levels[:at], [(low, high)] if low < high else []).part_ranges, held


def held_range(backend: Backend, manifest: Manifest) -> Range | None:
    """Find the whole coarsest windows that the finest level still holds; None if there are none."""
    finest, coarsest = manifest.frame.levels[0], manifest.frame.levels[-1]
    view = backend.view([finest.name])[0]
    parts = [part for part in view.parts if part.rows]
    if not parts:
        return None
    low, high = widened((min(part.least for part in parts), max(part.greatest for part in parts) + 1), coarsest)
    held = view.txn_versions.get(EXPIRED, EVER[0])
    if low < held:
        begun = coarsest.starts(np.array([held]))
        low = held if begun[0] == held else int(coarsest.ends(begun)[0])
    return (low, high) if low < high else None


def moment(value: Any, timezone: str) -> int:
    """Read a moment in microseconds UTC; the clock's time for None."""
    return int(time.time() * 1e6) if value is None else read_moment(value, timezone)


def _expired(plan: QueryPlan, level: str, held: int) -> str:
    return f"{level} is held from {as_text(held)} only; ask per a coarser level for what was before"
