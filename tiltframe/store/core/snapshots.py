"""Snapshots: what the levels of a store hold, consistent enough to be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiltframe.store.core.backend import Backend, Conflict, Snapshot, StoreError
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.read_plan import lost_level, replaced_since
from tiltframe.store.core.writers import CHANGED, FILLED


def snapshot(backend: Backend, manifest: Manifest, most: int | None = None) -> list[Snapshot]:
    """Take snapshots of levels, from the finest on, or of the first of them, to read them.

    A range that has been replaced, and not yet in all of them, is read from finer levels as if at one moment: raises
    `Conflict` where anything came to it, or went, meanwhile; and `StoreError` where a level is lost.
    """
    levels = manifest.frame.levels
    views = snapshot_levels(backend, manifest, most)
    if stale := replaced_since(views, levels[-1]):
        now = backend.view([levels[0].name])[0]
        if any(part.within(span) for part in set(now.parts) ^ set(views[0].parts) for span in stale):
            raise Conflict("a range that is being replaced is being written")
    return views


def snapshot_levels(
    backend: Backend, manifest: Manifest, most: int | None = None, writers: Iterable[str] = ()
) -> list[Snapshot]:
    """Take snapshots of levels, from the finest on, or of the first of them; raises `StoreError` where one is lost."""
    writers = [*writers, CHANGED]
    views = view_levels(backend, manifest, most, writers)
    if not (views[0].parts or views[0].txn_versions):
        views = view_levels(backend, manifest, None, writers)
    if lost_level(views):  # or it was made, or all that it held replaced by nothing, between two views
        views = view_levels(backend, manifest, None, writers)
    if lost := lost_level(views):
        raise StoreError(
            f"the store {backend.place} is damaged: its level {lost} is lost; rebuild() derives coarser ones"
        )
    return views[:most]


def view_levels(
    backend: Backend, manifest: Manifest, most: int | None = None, writers: Iterable[str] = ()
) -> list[Snapshot]:
    """Take snapshots of levels, from the finest on, as they are; mark new ones that have not been filled yet."""
    views = backend.view([level.name for level in manifest.frame.levels[:most]], [*writers, FILLED])
    return [
        replace(view, unfilled=view.level in manifest.unfilled and FILLED not in view.txn_versions) for view in views
    ]
