"""Export: results of levels as plain tables, which other tools read without knowing what a state is.

    <name>_<level>_flat      window_start  window_end  keys…  latency_count  latency_p50  latency_p99  partial

A table notes which parts it was made from. It is brought up to date where there are other parts since, and from the
first window on that was not over then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from aggr.states.flat_results import flattened
from tiltframe.frame import END
from tiltframe.level_chain import instants_of
from tiltframe.names import LEVEL
from tiltframe.store.core.backend import Backend, KeepsResults, Range, StoreError
from tiltframe.store.core.generations import evolved_since, manifest_of
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.ranges import LAST, union
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.query.execution import execute
from tiltframe.store.query.plan import plan_query
from tiltframe.store.query.results import answers, requested_states

_OPEN = "open"  # in place of a part's name: the windows that were not over
_FRAME = "frame"  # in place of a part's name: the generation of the frame, where it has evolved


def export_level(backend: Backend, manifest: Manifest, level: str, now: int) -> int:
    """Bring the plain table of a level up to date; returns how many rows were written.

    Raises `StoreError` for a backend that keeps none.
    """
    if not isinstance(backend, KeepsResults):
        raise StoreError(f"the store {backend.place} keeps no plain tables; read results by query(…, flat=True)")
    kept = backend
    return retry_on_conflict(lambda: _export(backend, kept, manifest, level, now))


def exported_levels(backend: Backend, manifest: Manifest) -> list[str]:
    """Name the levels that have a plain table; none where the flat names of the frame clash."""
    if not isinstance(backend, KeepsResults):
        return []
    asked = plan_query(manifest.frame, manifest.frame.levels[0])
    try:
        flattened(answers(requested_states(manifest.schema.empty_table(), asked, None), asked, 0, 0))
    except ValueError:
        return []
    return [level.name for level in manifest.frame.levels if backend.flat_parts(level.name) is not None]


def _export(backend: Backend, kept: KeepsResults, manifest: Manifest, level: str, now: int) -> int:
    """Note the parts first: results that are newer are read again the next time, and none is taken for newer."""
    if manifest_of(backend).generation != manifest.generation:
        raise evolved_since(backend, manifest)
    before = kept.flat_parts(level)
    if before and before.get(_FRAME, (0, 0))[0] != manifest.generation:
        before = {}  # its columns are those of an earlier frame
    view = backend.view([level])[0]
    parts = {part.name: (part.least, part.greatest + 1) for part in view.parts if part.rows}
    ranges = _changed(before or {}, parts)
    if before is not None and not ranges:
        return 0
    asked = plan_query(manifest.frame, level)
    spans = ranges or [(0, 0)]
    found = chain.from_iterable(execute(backend, manifest, replace(asked, within=at), False, now) for at in spans)
    results = flattened(pa.concat_tables(found).drop_columns([LEVEL]))
    starts, ends = instants_of(results), instants_of(results, END)
    if (ends > now).any():
        parts[_OPEN] = (int(starts[ends > now].min()), LAST)
    if manifest.generation:
        parts[_FRAME] = (manifest.generation, manifest.generation)
    kept.write_flat(level, ranges, results, parts)
    return len(starts)


def _changed(before: Mapping[str, Range], parts: Mapping[str, Range]) -> list[Range]:
    """Find the windows that parts have come to or gone from, and those that were not over."""
    changed = [span for name, span in before.items() if parts.get(name) != span and name != _FRAME]
    return union([*changed, *(span for name, span in parts.items() if before.get(name) != span)])
