"""Rewriting: compaction, expiry, replacement and evolution: of a snapshot parts are derived, written and committed.

All levels change in one commit, so that a reader sees them before or after; on conflict all is done again. Whoever
appends meanwhile is not held up: merging on read counts rows that came beside what was rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tiltframe.frame import TiltFrame
from tiltframe.store import merging
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.protocol import EXPIRED, KNOWN, Backend, Part, Snapshot
from tiltframe.store.changes.append import check_frame, check_replacing
from tiltframe.store.changes.evolution import plan_evolution
from tiltframe.store.errors import Conflict
from tiltframe.store.log.run import retry_on_conflict
from tiltframe.store.manifest import Manifest, horizon_of
from tiltframe.store.merging import merge_into_parts, pieces_of
from tiltframe.store.ranges import EVER, Range, align_outward, as_text, first_whole, minus, range_text
from tiltframe.store.recorded import expired_before, held_from, known_from, snapshot_of
from windows import TimeWindow

Progress = Callable[[int, int], None]


def compact(
    backend: Backend, manifest: Manifest, before: int, progress: Progress = lambda done, of: None
) -> dict[str, tuple[int, int]]:
    """Merge the parts of windows that end before a moment, one bucket of time after the other.

    Returns by level how many parts were merged, and how many they became.
    """
    done: dict[str, tuple[int, int]] = {}
    for level in manifest.frame.levels:

        def attempt(level: TimeWindow = level) -> None:
            snapshot = _snapshot(backend, manifest)
            groups = list(mergeable(snapshot.of(level.name), level, before))
            total = sum(map(len, groups))
            for group in groups:
                add = merge_into_parts(backend, manifest, level, pieces_of(group, [EVER]))
                _commit(backend, add, group, {}, snapshot)
                was, now = done.get(level.name, (0, 0))
                done[level.name] = was + len(group), now + len(add)
                progress(done[level.name][0], total)

        done[level.name] = 0, 0
        retry_on_conflict(attempt)
    return done


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


def expire(backend: Backend, manifest: Manifest, now: int) -> dict[str, tuple[int, int]]:
    """Remove the windows of each level that are older than its retention, of all levels at once.

    Returns by level the time before which it holds no windows, and how many rows were removed.
    """

    def attempt() -> dict[str, tuple[int, int]]:
        snapshot = _snapshot(backend, manifest)
        add, remove, removed = list[Part](), list[Part](), dict[str, tuple[int, int]]()
        for name in manifest.retention:
            horizon = max(horizon_of(manifest, name, now), held_from(snapshot, name))
            old = [part for part in snapshot.of(name) if part.first_start < horizon]
            cut = [part for part in old if part.last_start >= horizon]
            rows = backend.read(pieces_of(cut, [(EVER[0], horizon)]), []).num_rows
            removed[name] = horizon, rows + sum(part.rows for part in old if part not in cut)
            add += _without(backend, manifest, name, cut, (EVER[0], horizon))
            remove += old
        if remove:
            gone = {name: horizon for name, (horizon, rows) in removed.items() if rows}
            _commit(backend, add, remove, {EXPIRED: json.dumps({**expired_before(snapshot), **gone})}, snapshot)
        return removed

    return retry_on_conflict(attempt)


def _without(backend: Backend, manifest: Manifest, level: str, parts: Sequence[Part], gone: Range) -> list[Part]:
    left = [(part, span) for part in parts for span in minus([part.range], [gone])]
    return merge_into_parts(backend, manifest, manifest.frame.level(level), left)


def replace_range(
    backend: Backend,
    manifest: Manifest,
    states: pa.Table | None,
    span: Range,
    recorded: Mapping[str, str] | None = None,
    replacing: Mapping[str, str | None] | None = None,
) -> None:
    """Replace the windows of a range, whole ones of the finest level, in all levels.

    ``states`` are of the finest level, all in the range; None leaves that as it is, and derives the coarser ones anew.
    What is ``replacing`` must still be recorded so. Raises ``ValueError`` if the range is not of whole windows, or
    coarser windows would need finer ones that have expired, `CommitConflict` if someone else has recorded the same.
    """
    check_whole(span, manifest.frame)
    texts, unchanged = recorded or {}, replacing or {}

    def attempt() -> None:
        snapshot = _snapshot(backend, manifest, [*texts, *unchanged])
        check_replacing(snapshot, unchanged)
        _check_held(manifest, snapshot, span, anew=states is not None)
        add, remove = list[Part](), list[Part]()
        below: Sequence[Part] = ()
        for level in manifest.frame.levels:
            parts, wide = snapshot.of(level.name), align_outward(span, level)
            if level != manifest.frame.levels[0]:
                anew = merge_into_parts(backend, manifest, level, pieces_of(below, [wide]))
            elif states is not None:
                anew = backend.write(level, states)
            else:
                below = parts
                continue
            old = [part for part in parts if part.within(wide)]
            left = _without(backend, manifest, level.name, old, wide)
            add, remove = [*add, *anew, *left], [*remove, *old]
            below = [*(part for part in parts if part not in old), *left, *anew]
        own = {EXPIRED: json.dumps(expired_before(snapshot))}
        if states is not None and known_from(snapshot):
            own[KNOWN] = json.dumps(_known_after(snapshot, span))
        _commit(backend, add, remove, {**own, **texts}, snapshot)

    retry_on_conflict(attempt)


def _known_after(snapshot: Snapshot, replaced: Range) -> dict[str, int]:
    """Tell from when on added columns are known once rows of a range are rolled up anew."""
    low, high = replaced
    first = min((part.first_start for part in snapshot.parts), default=low)
    known = {name: low if low < at <= high else at for name, at in known_from(snapshot).items()}
    return {name: at for name, at in known.items() if at > first}


def check_whole(span: Range, frame: TiltFrame) -> Range:
    """Return a range to replace; raise ``ValueError`` unless it is of whole windows of the finest level."""
    whole = align_outward(span, frame.levels[0])
    if whole != span:
        raise ValueError(f"a range to replace is of whole windows of {frame.levels[0].name}; say {range_text(whole)}")
    return span


def _check_held(manifest: Manifest, snapshot: Snapshot, span: Range, anew: bool) -> None:
    """Refuse a range whose coarser windows need finer ones, beside it, that have expired."""
    levels = manifest.frame.levels
    for fine, coarse in pairwise(levels):
        held, wide = held_from(snapshot, fine.name), align_outward(span, coarse)
        if wide[0] < held and (wide != span or not anew):
            raise ValueError(
                f"windows of {coarse.name} in the range need windows of {fine.name} that have expired; "
                f"replace whole windows of {coarse.name}: {range_text(wide)}"
                if anew
                else f"{fine.name} is held from {as_text(held)} only: coarser windows before cannot be derived anew"
            )


def evolve(backend: Backend, manifest: Manifest, frame: TiltFrame, row_schema: pa.Schema | None = None) -> Manifest:
    """Have a store be of another frame, and derive levels that are new; return what it says of itself then.

    Raises as `plan_evolution` does, and `OtherFrame` if the store is of yet another frame than it was opened by.
    """
    derived: dict[frozenset[Part], list[Part]] = {}  # parts of the coarsest level -> what new levels have of them

    def attempt() -> Manifest:
        snapshot = _snapshot(backend, manifest)
        now = Manifest.from_dict(snapshot.manifest, backend.display_uri)
        if frame.difference(now.frame) is None:
            return now
        following = plan_evolution(now, frame, row_schema)
        count, expired = len(now.frame.levels), dict(expired_before(snapshot))
        parts, new = snapshot.of(now.frame.levels[-1].name), following.frame.levels[count:]
        for below, level in zip(following.frame.levels[count - 1 :], new, strict=False):
            if below.name in expired:  # whole windows can be had only of what is still held
                expired[level.name] = first_whole(expired[below.name], level)
        for group in [group for group in derived if not group <= set(parts)]:
            backend.discard(derived.pop(group))
        missing = frozenset(parts).difference(*derived)  # of a second attempt, what has come since the first
        anew: list[Part] = []
        for level in new:
            held = pieces_of(missing, [(expired.get(level.name, EVER[0]), EVER[1])])
            anew += merge_into_parts(backend, now, level, held)
        derived[missing] = anew
        add = [part for group in derived.values() for part in group]
        texts = {EXPIRED: json.dumps(expired)} if expired != expired_before(snapshot) else {}
        added = [name for name in following.schema.names if name not in now.columns.names]
        if added and snapshot.parts:
            texts[KNOWN] = json.dumps(known_from(snapshot) | dict.fromkeys(added, _end_of_rows(snapshot, now)))
        backend.commit(add, (), texts, snapshot, following.to_dict(), following.columns)
        return following

    return retry_on_conflict(attempt)


def _end_of_rows(snapshot: Snapshot, manifest: Manifest) -> int:
    """Find the end of the last window of the finest level that has any."""
    level, parts = next((level, parts) for level in manifest.frame.levels if (parts := snapshot.of(level.name)))
    return int(level.ends(np.array([max(part.last_start for part in parts)], np.int64))[0])


def retain(backend: Backend, retention: Mapping[str, str]) -> Manifest:
    """Have a store keep its levels so long from now on."""

    def attempt() -> Manifest:
        snapshot = snapshot_of(backend)
        manifest = replace(Manifest.from_dict(snapshot.manifest, backend.display_uri), retention=retention)
        backend.commit((), (), {}, snapshot, manifest.to_dict(), manifest.columns)
        return manifest

    return retry_on_conflict(attempt)


def _snapshot(backend: Backend, manifest: Manifest, recorded: Sequence[str] = ()) -> Snapshot:
    """Look at a store that is still of the frame by which it was opened."""
    snapshot = snapshot_of(backend, recorded)
    check_frame(snapshot, manifest, backend)
    return snapshot


def _commit(
    backend: Backend, add: Sequence[Part], remove: Sequence[Part], recorded: Mapping[str, str], snapshot: Snapshot
) -> None:
    try:
        backend.commit(add, remove, recorded, snapshot)
    except Conflict:
        backend.discard(add)
        raise
