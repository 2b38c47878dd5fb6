"""Catching up: coarser levels take over what finer ones hold, under the names of the commits that brought it."""

from __future__ import annotations

from tiltframe.store.core.backend import Backend
from tiltframe.store.core.generations import check_generation, check_noted, commit_to
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.merging import merged
from tiltframe.store.core.ranges import EVER
from tiltframe.store.core.read_plan import held_from, read_plan
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import snapshot
from tiltframe.store.core.writers import EXPIRED, FILLED


def catch_up(backend: Backend, manifest: Manifest) -> int:
    """Have every level hold what finer ones do; return how many commits were missing somewhere.

    The coarsest goes first, so that a commit loses its name in a level only when all coarser ones hold it.
    """
    return retry_on_conflict(lambda: _catch_up(backend, manifest))


def _catch_up(backend: Backend, manifest: Manifest) -> int:
    levels = manifest.frame.levels
    views = snapshot(backend, manifest)
    check_generation(backend, manifest, views)
    if any(view.unfilled for view in views):
        check_noted(backend, manifest, views[0])  # from then on nothing is let go of in finer levels that new ones lack
    caught: set[tuple[str, int]] = set()
    for i in range(len(levels) - 1, 0, -1):
        held = held_from(views[: i + 1], levels[: i + 1]) if views[i].unfilled else EVER[0]
        lay = read_plan(views[: i + 1], levels[: i + 1], [(held, EVER[1])])
        if lay.txn_versions or views[i].unfilled:
            add = merged(backend, manifest, levels[i], lay.borrowed)
            filled = {FILLED: 1} if views[i].unfilled else {}
            notes = {EXPIRED: held} if held > EVER[0] else {}
            commit_to(backend, manifest, views[i], add, lay.dropped, {**lay.txn_versions, **filled}, notes)
            caught |= lay.txn_versions.items()
    return len(caught)
