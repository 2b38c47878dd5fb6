"""Compaction: merge the parts of closed windows, one bucket of time after another.

A part consists of states of one level that were written together. The states of a level are stored in buckets of time:
one for each hour, day, month or year, depending on the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from aggr.arguments import checked_type
from aggr.workers import map_in_threads
from tiltframe.caller_warnings import warn_caller
from tiltframe.ranges import EVER
from tiltframe.store.backends.protocol import Backend, Part, ResultTables, threads_of
from tiltframe.store.changes.progress import Progress, check_progress
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.run import WritingTransaction, run_if_frame_unchanged, snapshot_of
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.merging import groups_to_compact, select_small_parts, write_merged
from tiltframe.store.query.query import Query
from tiltframe.time_range import moment_or_now
from windows import TimeWindow


def compact_parts(
    backend: Backend, manifest: Manifest, before: int, progress: Progress = lambda done, total: None, jobs: int = 1
) -> dict[str, tuple[int, int]]:
    """Merge the parts of windows that end at or before ``before``, in microseconds UTC, one bucket of time after
    another.

    For each level, return the number of merged parts, and the number of parts that replace them. For each level,
    ``progress`` receives the number of parts merged so far and the total number of parts to merge. ``jobs`` is the
    number of buckets that are merged at the same time; the merged parts do not depend on ``jobs``.
    """
    threads = threads_of(backend, jobs)
    return {
        level.name: _compact_level(backend, manifest, level, before=before, progress=progress, jobs=threads)
        for level in manifest.frame.levels
    }


def _compact_level(
    backend: Backend, manifest: Manifest, level: TimeWindow, *, before: int, progress: Progress, jobs: int
) -> tuple[int, int]:
    """Merge the parts of one level. Return the number of merged parts, and the number of parts that replace them."""
    merged = 0
    written = 0
    is_current = False
    while not is_current:  # If another commit has removed a part of a group, the groups are listed again.
        is_current = True
        groups = list(groups_to_compact(snapshot_of(backend).of(level.name), level, before))
        total = merged + sum(map(len, groups))

        def merge(group: list[Part]) -> tuple[int, list[Part] | None]:
            attempt = partial(_merge_group, backend=backend, manifest=manifest, level=level, group=group)
            return len(group), run_if_frame_unchanged(backend, manifest, attempt)

        for part_count, parts in map_in_threads(merge, groups, jobs):
            if parts is None:
                is_current = False
                continue
            merged += part_count
            written += len(parts)
            progress(merged, total)
    return merged, written


def _merge_group(
    transaction: WritingTransaction, *, backend: Backend, manifest: Manifest, level: TimeWindow, group: Sequence[Part]
) -> list[Part] | None:
    """Replace ``group``, parts of one bucket of time, by merged parts, and return the merged parts. Return None, and
    change nothing, if another commit has removed one of the parts in ``group``.
    """
    committed_names = {part.name for part in transaction.snapshot.parts}
    if any(part.name not in committed_names for part in group):
        return None
    transaction.removes(group)
    return write_merged(backend, transaction, manifest, level=level, part_ranges=pieces_of(group, [EVER]))


def compact_small_parts(backend: Backend, manifest: Manifest, before: int) -> dict[str, tuple[int, int]]:
    """Merge small parts of windows that end at or before ``before``, in microseconds UTC, in one commit for all levels.
    A large part is left unchanged until its bucket of time contains enough small parts; see
    `tiltframe.store.query.merging.select_small_parts`.

    For each level, return the number of merged parts, and the number of parts that replace them.
    """

    def attempt(transaction: WritingTransaction) -> dict[str, tuple[int, int]]:
        counts = {}
        for level in manifest.frame.levels:
            merged = 0
            written = 0
            for group in map(select_small_parts, groups_to_compact(transaction.snapshot.of(level.name), level, before)):
                if group:
                    transaction.removes(group)
                    pieces = pieces_of(group, [EVER])
                    written += len(write_merged(backend, transaction, manifest, level=level, part_ranges=pieces))
                    merged += len(group)
            counts[level.name] = merged, written
        return counts

    return run_if_frame_unchanged(backend, manifest, attempt)


def compact(
    store: OpenedStore,
    before: Any = None,
    progress: Progress = lambda done, total: None,
    *,
    only_small: bool = False,
) -> dict[str, tuple[int, int]]:
    """Merge the parts of closed windows, so that queries read fewer parts.

    Existing plain tables of results (see `export`) are brought up to date, unless ``only_small`` is set.

    Parameters
    ----------
    before : moment, optional
        Only parts of windows that end at or before this time are merged. The default is the current time.
    progress : callable of (parts merged, parts to merge), optional
    only_small : bool, optional
        Whether to merge only small parts of similar size, in one commit. A large part is left unchanged until its
        bucket of time contains enough small parts ("size-tiered compaction"). This takes little time, so that a program
        that commits several times per second can call it every few seconds. A few parts remain in each bucket of time.

    Returns
    -------
    dict of level name -> (number of merged parts, number of parts that replace them)

    Raises
    ------
    ValueError
        If ``before`` cannot be read, ``progress`` cannot be called, or ``only_small`` is not a bool.
    StoreError
        If the store does not exist or is damaged.

    Guarantee
    ---------
    Results stay bit-for-bit the same. Other programs may read and write at the same time.
    """
    manifest = store.manifest
    at = moment_or_now(before, store.frame.timezone)
    check_progress(progress)
    if checked_type(only_small, bool, "only_small"):
        return compact_small_parts(store.backend, manifest, at)
    merged = compact_parts(store.backend, manifest, before=at, progress=progress, jobs=store.jobs)
    for level in _exported_levels(store):
        try:
            store.export(level)
        except OverflowError as error:
            # A warning is sufficient: the parts are merged, and queries of the store are correct. Only the table of
            # results that `export` has stored for other tools is outdated.
            warn_caller(f"the plain table of {level} was not updated: {error}; queries of the store are not affected")
    return merged


def _exported_levels(store: OpenedStore) -> list[str]:
    """Return the names of the levels whose results `export` has stored as plain tables. The list is empty if two
    columns of such a table would have the same name.
    """
    backend = store.backend
    if not isinstance(backend, ResultTables):
        return []
    frame_levels = store.manifest.frame.levels
    exported = [level.name for level in frame_levels if backend.result_sources(level.name) is not None]
    if exported:
        try:
            store.query_schema(Query(frame_levels[0], flat=True))
        except ValueError:
            return []
    return exported
