"""Partitions: split the range of a query into ranges of time with about equal numbers of rows.

A query may be planned once and read many times later, when the store has more windows. If the range of the query has an
open end, the first or the last partition has the same open end. Each time this partition is read, the open end is
replaced by the first or the last time in the store.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tiltframe.ranges import EVER, Range
from tiltframe.store.backends.buckets import bucket_of
from windows import TimeWindow

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import PartRanges
    from tiltframe.store.query.plan import QueryPlan


def split_range(plan: QueryPlan, part_ranges: PartRanges, rows: int) -> list[Range]:
    """Split the range of a query plan into ranges of window starts with about ``rows`` rows of states each.
    ``part_ranges`` has the parts that the plan reads. The states of a level are divided into files by buckets of time,
    such as days. A bucket is never split.
    """
    begins = np.array([low for _, (low, _) in part_ranges], np.int64)
    sizes = np.array([part.rows for part, _ in part_ranges], np.int64)
    buckets = bucket_of(plan.stored_level).starts(begins)
    low, high = plan.within
    cuts = (at for at in _cuts(plan.window.starts(buckets), sizes, rows) if low < at < high)
    return list(pairwise([low, *cuts, high]))


def has_open_end(partition: Range) -> bool:
    """Return whether a partition has no start or no end."""
    return partition[0] <= EVER[0] or EVER[1] <= partition[1]


def without_open_ends(window: TimeWindow, partition: Range, part_ranges: PartRanges) -> Range | None:
    """Return a partition in which open ends are replaced by the first and the last time of windows in ``part_ranges``.
    ``window`` is the kind of window of the results. Return None if there are no windows in the partition.
    """
    spans = [span for _, span in part_ranges]
    if not spans:
        return None
    low = max(partition[0], earliest_window_start(window, min(span[0] for span in spans)))
    high = min(partition[1], max(span[1] for span in spans))
    return (low, high) if low < high else None


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
