"""Catching up: coarser levels take over what finer ones hold, under the names of the commits that brought it."""

from __future__ import annotations

from tiltframe.store.core.backend import Backend
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.merging import merged
from tiltframe.store.core.ranges import EVER
from tiltframe.store.core.read_plan import read_plan
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import snapshot


def catch_up(backend: Backend, manifest: Manifest) -> int:
    """Have every level hold what finer ones do; return how many commits were missing somewhere.

    The coarsest goes first, so that a commit loses its name in a level only when all coarser ones hold it.
    """
    return retry_on_conflict(lambda: _catch_up(backend, manifest))


def _catch_up(backend: Backend, manifest: Manifest) -> int:
    levels = manifest.frame.levels
    views = snapshot(backend, levels)
    caught: set[tuple[str, int]] = set()
    for i in range(len(levels) - 1, 0, -1):
        lay = read_plan(views[: i + 1], levels[: i + 1], [EVER])
        if lay.txn_versions:
            add = merged(backend, manifest, levels[i], lay.borrowed)
            backend.commit(levels[i].name, add, lay.dropped, lay.txn_versions, views[i])
            caught |= lay.txn_versions.items()
    return len(caught)
