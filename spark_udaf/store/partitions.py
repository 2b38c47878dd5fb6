"""Slices: the windows of a query, shared out among tasks by what the store says it would read.

Spark plans a relation once, however often it is read later. So the first and the last slice are open where the
query is: a task finds out itself where the windows begin and end.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.merging import PartRanges
from tiltframe.store.query.execution import planned_ranges
from tiltframe.store.query.plan import QueryPlan
from tiltframe.store.ranges import EVER, Range
from tiltframe.store.recorded import snapshot_of
from windows import TimeWindow


def slices(backend: Backend, plan: QueryPlan, rows_per_task: int) -> list[Range]:
    """Cut the windows of a query into ranges of starts; reads no states.

    Parameters
    ----------
    backend : Backend
    plan : QueryPlan
        Per windows, not the whole range.
    rows_per_task : int
        Of states, about; a bucket of the store's, see `tiltframe.store.backends.buckets.bucket_of`, is never cut.

    Returns
    -------
    list of ranges, in order, that touch; at least one
    """
    found = _part_ranges(backend, plan)
    begins, rows = (
        np.array(column, np.int64) for column in ([low for _, (low, _) in found], [p.rows for p, _ in found])
    )
    buckets = bucket_of(plan.frame.levels[plan.level()]).starts(begins)
    low, high = plan.within
    return list(
        pairwise(
            [low, *(at for at in _cuts(plan.window.starts(buckets), rows, rows_per_task) if low < at < high), high]
        )
    )


def held(backend: Backend, plan: QueryPlan, span: Range) -> Range | None:
    """Close a slice that is open, by the windows that there are now; None where there are none."""
    if EVER[0] < span[0] and span[1] < EVER[1]:
        return span
    found = [each for _, each in _part_ranges(backend, plan)]
    if not found:
        return None
    low = max(span[0], first_with(plan.window, min(low for low, _ in found)))
    high = min(span[1], max(high for _, high in found))
    return (low, high) if low < high else None


def first_with(target: TimeWindow, at: int) -> int:
    """Find the first window that has a moment in it.

    >>> from windows import hopping
    >>> first_with(hopping("1h", "30m"), 3_600_000_000) // 60_000_000
    30
    """
    return int(target.assign(np.array([at], np.int64)).starts.min())


def _part_ranges(backend: Backend, plan: QueryPlan) -> PartRanges:
    part_ranges, _ = planned_ranges(plan, snapshot_of(backend))
    return part_ranges


def _cuts(places: NDArray[np.int64], rows: NDArray[np.int64], rows_per_task: int) -> list[int]:
    """Choose places to cut at, so that some rows lie between each two."""
    places, of = np.unique(places, return_inverse=True)
    each = np.bincount(of, rows).astype(np.int64)
    before = np.cumsum(each) - each
    cuts: list[int] = places[1:][np.diff(before // rows_per_task) > 0].tolist()
    return cuts
