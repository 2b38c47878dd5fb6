"""Generations: who works by an earlier frame of a store does not commit by it.

A frame has a number, its generation. Every commit to a level notes it in the level, so that a process that still works
by an earlier one is told to open the store again: it would merge states without the measures that were added, or let go
of what new levels have not taken over yet. Who reads by an earlier frame sees what that frame has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiltframe.store.core.backend import Backend, Conflict, Part, Range, Snapshot, StoreError
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.writers import FRAME


class Evolved(StoreError):
    """The store's frame has evolved since the store was opened; nothing was written."""


def commit_to(
    backend: Backend,
    manifest: Manifest,
    seen: Snapshot,
    add: Sequence[Part],
    cut: Sequence[tuple[Part, Range]] = (),
    txn_versions: Mapping[str, int] | None = None,
    notes: Mapping[str, int] | None = None,
) -> None:
    """Commit to the level of a snapshot, by the frame of a manifest; parameters as for `Backend.commit`.

    Raises
    ------
    Conflict
        As `Backend.commit` does, and where the store's frame has just evolved.
    Evolved
        Where the store is of a later frame.
    """
    check_generation(backend, manifest, [seen])
    held = seen.txn_versions.get(FRAME, 0)
    numbers = {**(txn_versions or {}), **({FRAME: manifest.generation} if held < manifest.generation else {})}
    backend.commit(seen.level, add, cut, numbers, seen, notes)


def check_generation(backend: Backend, manifest: Manifest, views: Sequence[Snapshot]) -> None:
    """Raise `Evolved` where a level has taken commits of a later frame: what is merged of it, is merged by that one."""
    if any(view.txn_versions.get(FRAME, 0) > manifest.generation for view in views):
        raise evolved_since(backend, manifest)


def note_generation(backend: Backend, manifest: Manifest) -> None:
    """Have every level know of the frame's generation, the finest first; raises `Conflict` where others commit."""
    for view in backend.view([level.name for level in manifest.frame.levels]):
        if view.txn_versions.get(FRAME, 0) < manifest.generation:
            commit_to(backend, manifest, view, [])


def manifest_of(backend: Backend) -> Manifest:
    """Read what a store says of itself now."""
    return Manifest.from_dict(_described(backend), backend.place)


def alter(backend: Backend, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Have a store say of itself what a function makes of what it says now, and return that.

    A function that returns what it was given changes nothing. Raises `Conflict` where the store has changed meanwhile.
    """
    seen = _described(backend)
    now = Manifest.from_dict(seen, backend.place)
    following = change(now)
    if following is not now:
        backend.alter(following.to_dict(), following.columns, seen)
    return following


def _described(backend: Backend) -> dict[str, Any]:
    described = backend.describe()
    if described is None:
        raise StoreError(f"there is no store {backend.place}")
    return described


def evolved_since(backend: Backend, manifest: Manifest) -> Evolved:
    """Say how the frame differs from what it was."""
    difference = manifest.frame.difference(manifest_of(backend).frame) or "its states are kept otherwise"
    return Evolved(
        f"the frame of the store {backend.place} has evolved since it was opened here: {difference}; nothing was "
        "written, open the store again"
    )


def check_noted(backend: Backend, manifest: Manifest, finest: Snapshot) -> None:
    """Raise `Conflict` unless the finest level knew of the frame's generation in a snapshot, and note it there."""
    if finest.txn_versions.get(FRAME, 0) < manifest.generation:
        commit_to(backend, manifest, finest, [])
        raise Conflict("the frame has just evolved")
