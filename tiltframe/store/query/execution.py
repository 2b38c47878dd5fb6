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
from tiltframe.store.core.read_plan import Pieces, read_plan, widened
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import snapshot
from tiltframe.store.core.writers import EXPIRED
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.query.results import answers, filled, states_asked
from tiltframe.store.query.time_range import read_moment


class Expired(UserWarning):
    """Windows that were asked for have expired in the level that is read."""


def execute(
    backend: Backend,
    manifest: Manifest,
    asked: QueryPlan,
    fill: bool,
    now: int,
) -> pa.Table:
    """Execute a query plan; see `tiltframe.FrameStore.query`."""
    states, held = read_states(backend, manifest, asked)
    if fill:
        states = filled(states, asked, now)
    return answers(states, asked, held, now)


def read_states(backend: Backend, manifest: Manifest, asked: QueryPlan) -> tuple[pa.Table, int]:
    """Read the states of the windows that are asked for.

    Returns
    -------
    states, and the time from which on the level that is read holds windows
    """
    span, source = asked.span(), asked.frame.levels[asked.source()]

    def attempt() -> tuple[pa.Table, int]:
        pieces, held = pieces_asked(backend, asked)
        return backend.read(pieces, asked.columns, asked.where), held

    rows, held = retry_on_conflict(attempt)
    if held > EVER[0] and (asked.within is None or asked.within[0] < held):
        warnings.warn(_expired(asked, source.name, held), Expired, stacklevel=4)
    if span is None:
        starts = instants_of(rows)
        span = widened((int(starts.min()), int(starts.max()) + 1), source) if len(starts) else (0, 0)
    return states_asked(rows, asked, span), held


def pieces_asked(backend: Backend, asked: QueryPlan) -> tuple[Pieces, int]:
    """Choose what is read for a query plan; return also the time from which on its level holds windows."""
    levels, at = asked.frame.levels, asked.source() + 1
    views = snapshot(backend, levels, at)
    held = views[-1].txn_versions.get(EXPIRED, EVER[0])
    low, high = asked.span() or EVER
    low = max(low, held)
    return read_plan(views, levels[:at], [(low, high)] if low < high else []).pieces, held


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


def _expired(asked: QueryPlan, level: str, held: int) -> str:
    return f"{level} is held from {as_text(held)} only; ask per a coarser level for what was before"
