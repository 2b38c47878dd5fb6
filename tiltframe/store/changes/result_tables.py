"""Export: results of levels as plain tables, which other tools read without knowing what a state is.

A table notes which parts it was made from. It is brought up to date where there are other parts since, and from the
first window on that was not over then.
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
from tiltframe.ranges import EVER, LAST, Range, union
from tiltframe.store.backends.protocol import Backend, ResultTables
from tiltframe.store.changes.on_frame import check_frame
from tiltframe.store.log.errors import StoreError
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import snapshot_of
from tiltframe.store.log.run import retry_on_conflict
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.execution import query_schema, read_states, reading_of
from tiltframe.store.query.plan import plan_queries
from tiltframe.store.query.query import Query
from tiltframe.store.query.results import finish
from tiltframe.time_range import moment_or_now

_OPEN = "open"  # in place of a part's name: the windows that were not over
_FRAME = "frame"  # in place of a part's name: the generation of the frame, where it has evolved


def export_level(backend: Backend, manifest: Manifest, level: str, now: int) -> int:
    """Bring a level's plain table up to date; return how many rows it wrote. Raises `StoreError` if none is kept."""
    if not isinstance(backend, ResultTables):
        raise StoreError(f"the store {backend.display_uri} keeps no plain tables; read results by query(…, flat=True)")
    result_tables = backend
    return retry_on_conflict(lambda: _export(backend, result_tables, manifest=manifest, level=level, now=now))


def exported_levels(backend: Backend, manifest: Manifest) -> list[str]:
    """Name the levels that have a plain table; none if the flat names of the frame clash."""
    if not isinstance(backend, ResultTables):
        return []
    query = Query(manifest.frame.levels[0], flat=True)
    (plan,) = plan_queries(manifest.frame, query, within=EVER, sizes=query.sizes, now=0)
    try:
        query_schema(manifest, plan, query)
    except ValueError:
        return []
    return [level.name for level in manifest.frame.levels if backend.result_sources(level.name) is not None]


def _export(backend: Backend, result_tables: ResultTables, manifest: Manifest, level: str, now: int) -> int:
    """Note the parts first: results that are newer are read again the next time, and none is taken for newer."""
    snapshot = snapshot_of(backend)
    check_frame(snapshot, manifest, backend)
    before = result_tables.result_sources(level)
    if before and before.get(_FRAME, (0, 0))[0] != manifest.generation:
        before = {}  # its columns are those of an earlier frame
    parts = {part.name: part.range for part in snapshot.of(level)}
    ranges = _changed(before or {}, parts)
    if before is not None and not ranges:
        return 0
    query = Query(manifest.frame.level(level))
    (plan,) = plan_queries(manifest.frame, query, within=EVER, sizes=query.sizes, now=now)
    readings = [reading_of(replace(plan, within=span), snapshot) for span in ranges or [(0, 0)]]
    tables = (
        finish(states, plan, reading.held, now)
        for reading in readings
        for states in read_states(backend, manifest, reading)
    )
    results = flattened(pa.concat_tables(tables).drop_columns([LEVEL]))
    starts, window_ends = instants_of(results), instants_of(results, END)
    if (window_ends > now).any():
        parts[_OPEN] = (int(starts[window_ends > now].min()), LAST)
    if manifest.generation:
        parts[_FRAME] = (manifest.generation, manifest.generation)
    result_tables.write_results(level, ranges, results, parts)
    return len(starts)


def _changed(before: Mapping[str, Range], parts: Mapping[str, Range]) -> list[Range]:
    """Find the windows that parts have come to or gone from, and those that were not over."""
    changed = [span for name, span in before.items() if parts.get(name) != span and name != _FRAME]
    return union([*changed, *(span for name, span in parts.items() if before.get(name) != span)])


def export(
    store: OpenedStore, per: str | Sequence[str] | None = None, flat: bool = True, now: Any = None
) -> dict[str, int]:
    """Keep results of levels as plain tables, ``<name>_<level>_flat``: for tools that know nothing of states.

    In a folder or object store each is a Delta table of its own, which any reader of Delta reads; in PostgreSQL a
    table, from which the view ``<name>_<level>_current`` takes quantiles. `compact` brings those that are there
    up to date, and so does this.

    Parameters
    ----------
    per : level or levels, optional
        All of them unless given.
    flat : bool
        Records as plain columns, ``latency_p99``; other tables are not kept.
    now : moment, optional
        For ``partial``; the clock's.

    Returns
    -------
    level name -> rows that were written: those of windows that have changed

    Raises
    ------
    ValueError
        For a level that is not there, and for names of columns that clash.
    StoreError
        Where the backend keeps no such tables.
    """
    if not checked_truth(flat, "flat"):
        raise ValueError("plain tables are flat; read records by query()")
    manifest, at = store.manifest, moment_or_now(now, store.frame.timezone)
    named = [per] if isinstance(per, str) else per
    requested = store.frame.levels if named is None else checked_names(named, "per", "levels")
    levels = [store.frame.level(level).name for level in requested]
    return {level: export_level(store.backend, manifest, level, at) for level in levels}
