"""Export: results of levels as plain tables, which other tools read without knowing what a state is.

A table notes which parts it was made from. It is brought up to date where there are other parts since, and from the
first window on that was not over then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from aggr.tables.flat_results import flattened
from tiltframe.frame import END
from tiltframe.level_chain import instants_of
from tiltframe.names import LEVEL
from tiltframe.ranges import LAST, Range, union
from tiltframe.store.backends.protocol import Backend, ResultTables
from tiltframe.store.changes.on_frame import check_frame
from tiltframe.store.log.errors import StoreError
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import snapshot_of
from tiltframe.store.log.run import retry_on_conflict
from tiltframe.store.query.execution import query_schema, read
from tiltframe.store.query.plan import plan_query
from tiltframe.store.query.query import Query
from tiltframe.store.query.results import finish

_OPEN = "open"  # in place of a part's name: the windows that were not over
_FRAME = "frame"  # in place of a part's name: the generation of the frame, where it has evolved


def export_level(backend: Backend, manifest: Manifest, level: str, now: int) -> int:
    """Bring a level's plain table up to date; return how many rows it wrote. Raises `StoreError` if none is kept."""
    if not isinstance(backend, ResultTables):
        raise StoreError(f"the store {backend.display_uri} keeps no plain tables; read results by query(…, flat=True)")
    kept = backend
    return retry_on_conflict(lambda: _export(backend, kept, manifest, level, now))


def exported_levels(backend: Backend, manifest: Manifest) -> list[str]:
    """Name the levels that have a plain table; none if the flat names of the frame clash."""
    if not isinstance(backend, ResultTables):
        return []
    query = Query(manifest.frame.levels[0], flat=True)
    try:
        query_schema(manifest, plan_query(manifest.frame, query), query)
    except ValueError:
        return []
    return [level.name for level in manifest.frame.levels if backend.result_sources(level.name) is not None]


def _export(backend: Backend, kept: ResultTables, manifest: Manifest, level: str, now: int) -> int:
    """Note the parts first: results that are newer are read again the next time, and none is taken for newer."""
    snapshot = snapshot_of(backend)
    check_frame(snapshot, manifest, backend)
    before = kept.result_sources(level)
    if before and before.get(_FRAME, (0, 0))[0] != manifest.generation:
        before = {}  # its columns are those of an earlier frame
    parts = {part.name: part.range for part in snapshot.of(level)}
    ranges = _changed(before or {}, parts)
    if before is not None and not ranges:
        return 0
    plan = plan_query(manifest.frame, Query(manifest.frame.level(level)))
    readings = [read(backend, manifest, replace(plan, within=span)) for span in ranges or [(0, 0)]]
    tables = (finish(states, plan, held, now) for slices, held in readings for states in slices)
    results = flattened(pa.concat_tables(tables).drop_columns([LEVEL]))
    starts, ends = instants_of(results), instants_of(results, END)
    if (ends > now).any():
        parts[_OPEN] = (int(starts[ends > now].min()), LAST)
    if manifest.generation:
        parts[_FRAME] = (manifest.generation, manifest.generation)
    kept.write_results(level, ranges, results, parts)
    return len(starts)


def _changed(before: Mapping[str, Range], parts: Mapping[str, Range]) -> list[Range]:
    """Find the windows that parts have come to or gone from, and those that were not over."""
    changed = [span for name, span in before.items() if parts.get(name) != span and name != _FRAME]
    return union([*changed, *(span for name, span in parts.items() if before.get(name) != span)])
