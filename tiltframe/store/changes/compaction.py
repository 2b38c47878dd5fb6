"""Compaction: the parts of closed windows are merged, one bucket of time after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from tiltframe.ranges import EVER
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.protocol import Backend, Part
from tiltframe.store.changes.on_frame import run_on_frame
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import snapshot_of
from tiltframe.store.log.run import Attempt
from tiltframe.store.query import merging
from tiltframe.store.query.merging import pieces_of, write_merged
from windows import TimeWindow

Progress = Callable[[int, int], None]


def compact(
    backend: Backend, manifest: Manifest, before: int, progress: Progress = lambda done, of: None
) -> dict[str, tuple[int, int]]:
    """Merge the parts of windows that end before a moment, one bucket of time after the other.

    Returns by level how many parts were merged, and how many they became.
    """
    return {
        level.name: _compact_level(backend, manifest, level, before=before, progress=progress)
        for level in manifest.frame.levels
    }


def _compact_level(
    backend: Backend, manifest: Manifest, level: TimeWindow, *, before: int, progress: Progress
) -> tuple[int, int]:
    merged, written, is_current = 0, 0, False
    while not is_current:  # until all groups of one snapshot were there to be merged
        is_current = True
        groups = list(mergeable(snapshot_of(backend).of(level.name), level, before))
        total = merged + sum(map(len, groups))
        for group in groups:
            merge = partial(_merge_group, backend=backend, manifest=manifest, level=level, group=group)
            parts = run_on_frame(backend, manifest, merge)
            if parts is None:
                is_current = False
                continue
            merged += len(group)
            written += len(parts)
            progress(merged, total)
    return merged, written


def _merge_group(
    transaction: Attempt, *, backend: Backend, manifest: Manifest, level: TimeWindow, group: Sequence[Part]
) -> list[Part] | None:
    """Replace parts by merged ones, which are returned; None if another commit has removed some of them."""
    readable = {part.name for part in transaction.snapshot.parts}
    if any(part.name not in readable for part in group):
        return None
    transaction.removes(group)
    return write_merged(backend, transaction, manifest, level=level, part_ranges=pieces_of(group, [EVER]))


def mergeable(parts: Sequence[Part], level: TimeWindow, before: int = EVER[1]) -> Iterator[list[Part]]:
    """Group parts whose windows all end before a moment by the bucket they are in, if they can become fewer."""
    if not parts:
        return
    closed = level.ends(np.array([part.last_start for part in parts], np.int64)) <= before
    buckets = bucket_of(level).starts(np.array([part.first_start for part in parts], np.int64))
    groups: dict[int, list[Part]] = {}
    for part, is_closed, bucket in zip(parts, closed, buckets, strict=True):
        if is_closed:
            groups.setdefault(int(bucket), []).append(part)
    for group in groups.values():
        yield from (cluster for cluster in _clusters(group) if len(cluster) > 1)


def _clusters(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Put parts together that share windows, and neighbours that are small; large ones were split, and stay."""
    cluster: list[Part] = []
    for part in sorted(parts, key=lambda part: part.first_start):
        apart = cluster and part.first_start > max(other.last_start for other in cluster)
        if apart and sum(other.rows for other in [*cluster, part]) > merging.ROWS_AT_ONCE:
            yield cluster
            cluster = []
        cluster.append(part)
    yield cluster
