"""Compaction: the parts of closed windows become one a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tiltframe.store.core import merging
from tiltframe.store.core.backend import Backend, Part
from tiltframe.store.core.buckets import bucket_of
from tiltframe.store.core.generations import commit_to
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.merging import merged
from tiltframe.store.core.read_plan import lasting
from tiltframe.store.core.retry import retry_on_conflict
from windows import TimeWindow


def merge_parts(
    backend: Backend, manifest: Manifest, before: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, tuple[int, int]]:
    """Merge the parts of windows that end before a moment, one bucket of time after the other.

    Parameters
    ----------
    before : int
        Microseconds UTC: windows that end later stay as they are.
    progress : called with how many parts are merged, and of how many

    Returns
    -------
    level name -> (parts that were merged, parts that they became)
    """
    done: dict[str, tuple[int, int]] = {}
    for level in manifest.frame.levels:

        def attempt(level: TimeWindow = level) -> tuple[int, int]:
            return _merge_level_parts(backend, manifest, level, before, progress)

        done[level.name] = retry_on_conflict(attempt)
    return done


def _merge_level_parts(
    backend: Backend, manifest: Manifest, level: TimeWindow, before: int, progress: Callable[[int, int], None]
) -> tuple[int, int]:
    views = backend.view([level.name for level in manifest.frame.levels])
    mine = next(view for view in views if view.level == level.name)
    groups = _by_bucket(lasting(views, mine.parts), level, before)
    total, was, now = sum(len(group) for group in groups), 0, 0
    for group in groups:
        part_ranges = [(part, (part.least, part.greatest + 1)) for part in group]
        add = merged(backend, manifest, level, part_ranges)
        commit_to(backend, manifest, mine, add, part_ranges)
        was, now = was + len(group), now + len(add)
        progress(was, total)
    return was, now


def _by_bucket(parts: Sequence[Part], level: TimeWindow, before: int) -> list[list[Part]]:
    """Group parts whose windows are all closed by the bucket they are in, where that is worth it."""
    empty = [part for part in parts if not part.rows]
    parts = [part for part in parts if part.rows]
    if not parts:
        return [empty] if empty else []
    closed = level.ends(np.array([part.greatest for part in parts], np.int64)) <= before
    buckets = bucket_of(level).starts(np.array([part.least for part in parts], np.int64))
    groups: dict[int, list[Part]] = {}
    for part, is_closed, bucket in zip(parts, closed, buckets, strict=True):
        if is_closed:
            groups.setdefault(int(bucket), []).append(part)
    clusters = [cluster for group in groups.values() for cluster in _clusters(group)]
    return [cluster for cluster in clusters if len(cluster) > 1] + ([empty] if empty else [])


def _clusters(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Put parts together that share windows, and neighbours that are small; large ones were split, and stay."""
    cluster: list[Part] = []
    for part in sorted(parts, key=lambda part: part.least):
        apart = cluster and part.least > max(other.greatest for other in cluster)
        if apart and sum(other.rows for other in [*cluster, part]) > merging.ROWS_AT_ONCE:
            yield cluster
            cluster = []
        cluster.append(part)
    yield cluster
