"""Expiry: remove the windows of each level that are older than the level's retention, on all levels at once.

A part consists of states of one level that were written together. A part that also contains newer windows is replaced
by a part with the newer windows only.
"""

from __future__ import annotations

import json
from typing import Any

from tiltframe.ranges import EVER
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.manifest import Manifest, horizon_of
from tiltframe.store.log.records import EXPIRED, available_from, expired_before
from tiltframe.store.log.run import WritingTransaction, run_if_frame_unchanged
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.merging import write_without_range
from tiltframe.time_range import moment_or_now


def expire_windows(backend: Backend, manifest: Manifest, now: int) -> dict[str, tuple[int, int]]:
    """Remove the windows of each level that are older than the level's retention, on all levels at once.

    For each level with a retention, return the time before which its windows have expired, in microseconds UTC, and the
    number of rows of states that were removed.
    """

    def attempt(transaction: WritingTransaction) -> dict[str, tuple[int, int]]:
        snapshot = transaction.snapshot
        removed = dict[str, tuple[int, int]]()
        for name in manifest.retention:
            horizon = max(horizon_of(manifest, name, now), available_from(snapshot, name))
            expired_parts = [part for part in snapshot.of(name) if part.first_start < horizon]
            # These parts also contain windows that have not expired. Such windows are written again.
            partly_expired = [part for part in expired_parts if part.last_start >= horizon]
            rows = backend.read(pieces_of(partly_expired, [(EVER[0], horizon)]), []).num_rows
            removed[name] = horizon, rows + sum(part.rows for part in expired_parts if part not in partly_expired)
            transaction.removes(expired_parts)
            write_without_range(
                backend,
                transaction,
                manifest,
                level=manifest.frame.level(name),
                parts=partly_expired,
                removed_range=(EVER[0], horizon),
            )
        if transaction.removed:
            horizons = {name: horizon for name, (horizon, rows) in removed.items() if rows}
            transaction.records(EXPIRED, json.dumps({**expired_before(snapshot), **horizons}))
        return removed

    return run_if_frame_unchanged(backend, manifest, attempt)


def expire(store: OpenedStore, now: Any = None) -> dict[str, tuple[int, int]]:
    """Remove windows that are older than their level's retention.

    Parameters
    ----------
    now : moment, optional
        The time from which ages are measured; by default the current time.

    Returns
    -------
    dict of level name -> (int, int)
        The time before which windows of the level have expired, in microseconds UTC, and the number of rows of states
        that were removed. Levels without a retention have no entry.

    Raises
    ------
    ValueError
        If ``now`` cannot be read.
    StoreError
        If the store does not exist or is damaged.
    """
    return expire_windows(store.backend, store.manifest, moment_or_now(now, store.frame.timezone))
