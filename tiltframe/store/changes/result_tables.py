"""Export: store the results of levels as plain tables, for tools that cannot read states.

A plain table stores the list of parts from which it was computed. A part consists of states that were written together.
An update computes the windows of parts that were added or removed since the last update. It also computes the first
window that was incomplete at the last update, and all later windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_names, checked_truth
from aggr.tables.flat_results import flattened
from tiltframe.instants import instants_of
from tiltframe.names import END, LEVEL
from tiltframe.ranges import EVER, LATEST_TIME, Range, union
from tiltframe.store.backends.protocol import Backend, ResultTables
from tiltframe.store.log.errors import StoreError
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.run import retry_on_conflict, snapshot_of
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.execution import plan_read, read_states
from tiltframe.store.query.plan import plan_queries
from tiltframe.store.query.query import Query
from tiltframe.store.query.results import finish
from tiltframe.time_range import moment_or_now

# The list of parts from which a plain table was computed also contains two entries that are not parts. The entry
# `_OPEN` has the range of the windows that were incomplete at the last update. The entry `_FRAME` is a range with two
# equal ends: the number of changes of the frame before the last update. If the frame has changed since the last update,
# the columns of the table belong to an earlier frame.
_OPEN = "open"
_FRAME = "frame"


def export_level(backend: Backend, manifest: Manifest, level: str, now: int) -> int:
    """Update the plain table that contains the results of a level: write the results of all windows that have changed,
    and return the number of rows that were written. Raise `StoreError` if the backend does not support plain tables.
    """
    if not isinstance(backend, ResultTables):
        raise StoreError(
            f"the store {backend.display_uri} does not support plain tables; read flat results with query(…, flat=True)"
        )
    result_tables = backend
    return retry_on_conflict(
        lambda: _update_plain_table(backend, result_tables, manifest=manifest, level=level, now=now)
    )


def _update_plain_table(backend: Backend, result_tables: ResultTables, manifest: Manifest, level: str, now: int) -> int:
    """Update the plain table that contains the results of a level, and return the number of rows that were written.

    The list of parts is read before the results. Windows that are changed between the two reads are therefore computed
    again by the next update.
    """
    snapshot = snapshot_of(backend)
    manifest.check_frame_unchanged(snapshot.manifest, backend.display_uri)
    old_sources = result_tables.result_sources(level)
    if old_sources and old_sources.get(_FRAME, (0, 0))[0] != manifest.generation:
        old_sources = {}  # update all windows, because the columns of the table belong to an earlier frame
    parts = {part.name: part.range for part in snapshot.of(level)}
    ranges = _ranges_to_update(old_sources or {}, parts)
    if old_sources is not None and not ranges:
        return 0
    query = Query(manifest.frame.level(level))
    (plan,) = plan_queries(manifest.frame, query, within=EVER, requested_windows=query.sizes, now=now)
    planned_reads = [plan_read(replace(plan, within=span), snapshot) for span in ranges or [(0, 0)]]
    tables = (
        finish(states, plan, planned_read.retained_from, now)
        for planned_read in planned_reads
        for states in read_states(backend, manifest, planned_read)
    )
    results = flattened(pa.concat_tables(tables).drop_columns([LEVEL]))
    starts = instants_of(results)
    window_ends = instants_of(results, END)
    if (window_ends > now).any():
        parts[_OPEN] = (int(starts[window_ends > now].min()), LATEST_TIME)
    if manifest.generation:
        parts[_FRAME] = (manifest.generation, manifest.generation)
    result_tables.write_results(level, ranges, results, parts)
    return len(starts)


def _ranges_to_update(old_sources: Mapping[str, Range], parts: Mapping[str, Range]) -> list[Range]:
    """Return the ranges of windows to compute: the ranges of added and removed parts, and the range of windows that
    were incomplete at the last update. ``old_sources`` and ``parts`` map the names of parts to their ranges, at the
    last update and now.
    """
    changed = [span for name, span in old_sources.items() if parts.get(name) != span and name != _FRAME]
    return union([*changed, *(span for name, span in parts.items() if old_sources.get(name) != span)])


def export(
    store: OpenedStore, per: str | Sequence[str] | None = None, flat: bool = True, now: Any = None
) -> dict[str, int]:
    """Store results of levels as plain tables, ``<name>_<level>_flat``, for tools that cannot read states.

    In a folder or object store, each table is a separate Delta table that any reader of Delta can use. In PostgreSQL,
    the view ``<name>_<level>_current`` reads quantiles from the plain table, because the view cannot compute them
    from states. `compact` and this function bring existing tables up to date.

    Parameters
    ----------
    per : level or levels, optional
        The levels to export; by default all.
    flat : bool
        Must be True. The fields of records become plain columns, such as ``latency_p99``.
    now : moment, optional
        Windows that end after this time are marked as partial. The default is the current time.

    Returns
    -------
    dict of level name -> int
        The number of rows that were written: the results of windows that have changed since the last update.

    Raises
    ------
    ValueError
        If a level does not exist, or names of columns clash.
    StoreError
        If the backend does not support plain tables.
    """
    if not checked_truth(flat, "flat"):
        raise ValueError("flat must be True, because plain tables contain only flat results; read records with query()")
    manifest = store.manifest
    at = moment_or_now(now, store.frame.timezone)
    level_names = [per] if isinstance(per, str) else per
    requested = store.frame.levels if level_names is None else checked_names(level_names, "per", "levels")
    levels = [store.frame.level(level).name for level in requested]
    return {level: export_level(store.backend, manifest, level, at) for level in levels}
