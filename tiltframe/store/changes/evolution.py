"""Evolution: change a store's frame by adding or dropping measures, or adding coarser levels.

Stored states do not change. Existing rows lack the states of an added measure, so these states are unknown. Every
result that includes such a row is null until the rows are rolled up again (`replacement.replace_range`). A new level is
derived, in the same commit, from the level that was the coarsest before the change.

A part consists of states of one level that were written together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from aggr.groups.groups import Groups
from aggr.tables.by_key import check_rows
from aggr.tables.state_plan import StateColumn
from tiltframe.changed_frames import states_after_change
from tiltframe.event_time import INSTANT
from tiltframe.frame import TiltFrame
from tiltframe.names import START
from tiltframe.parameter_names import by_caller
from tiltframe.ranges import EVER
from tiltframe.store.backends.protocol import Backend, Part, Snapshot
from tiltframe.store.log.manifest import Manifest, check_levels, check_states_names
from tiltframe.store.log.records import COLUMN_STARTS, EXPIRED, column_starts, expired_before
from tiltframe.store.log.run import WritingTransaction, run_if_frame_unchanged, run_transaction
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.query.merging import write_merged
from windows import TimeWindow


def evolve(backend: Backend, manifest: Manifest, frame: TiltFrame, row_schema: pa.Schema | None = None) -> Manifest:
    """Change a store's frame and derive its new levels; return the new manifest.

    Raise the same errors as `plan_evolution`, and `OtherFrame` if the frame has changed since the store was opened.
    """
    # This dict maps sets of parts of the coarsest level to the parts of new levels that were derived from them. If the
    # transaction is attempted again after a conflict, the derived parts are used again.
    derived: dict[frozenset[Part], list[Part]] = {}

    def attempt(transaction: WritingTransaction) -> Manifest:
        snapshot = transaction.snapshot
        current = Manifest.from_dict(snapshot.manifest, backend.display_uri)
        if frame.difference(current.frame) is None:
            return current
        new_manifest = plan_evolution(current, frame, row_schema)
        count = len(current.frame.levels)
        expired = dict(expired_before(snapshot))
        coarsest = current.frame.levels[-1]
        new_levels = new_manifest.frame.levels[count:]
        for finer, level in zip(new_manifest.frame.levels[count - 1 :], new_levels, strict=False):
            if finer.name in expired:  # A window is derived only if all of its finer windows exist.
                expired[level.name] = level.first_start_from(expired[finer.name])
        if new_levels:
            parts = transaction.reads(coarsest.name, EVER)
            starts = {level.name: expired.get(level.name, EVER[0]) for level in new_levels}
            transaction.adds(_derive_levels(backend, current, new_levels, starts=starts, parts=parts, derived=derived))
        transaction.read(EXPIRED)
        if expired != expired_before(snapshot):
            transaction.records(EXPIRED, json.dumps(expired))
        added = [name for name in new_manifest.schema.names if name not in current.columns.names]
        rows = [part for level in current.frame.levels if added for part in transaction.reads(level.name, EVER)]
        if rows:
            starts_of_added = column_starts(snapshot) | dict.fromkeys(added, _end_of_rows(snapshot, current))
            transaction.records(COLUMN_STARTS, json.dumps(starts_of_added))
        transaction.describes(new_manifest.to_dict(), new_manifest.columns)
        return new_manifest

    return run_if_frame_unchanged(backend, manifest, attempt)


def _derive_levels(
    backend: Backend,
    manifest: Manifest,
    levels: Sequence[TimeWindow],
    *,
    starts: Mapping[str, int],
    parts: Sequence[Part],
    derived: dict[frozenset[Part], list[Part]],
) -> list[Part]:
    """Derive and write the windows of the new levels ``levels``, and return the written parts. ``parts`` contains the
    parts of the old coarsest level, from which the windows are derived.

    ``starts`` maps each new level to a time; only windows that begin at or after this time are derived. ``derived``
    contains the parts that earlier attempts have written. A part in ``derived`` is used again if its source parts still
    exist.
    """
    for group in [group for group in derived if not group <= set(parts)]:
        backend.discard(derived.pop(group))
    missing = frozenset(parts).difference(*derived)
    derived[missing] = []
    for level in levels:
        pieces = pieces_of(missing, [(starts[level.name], EVER[1])])
        derived[missing] += write_merged(backend, backend, manifest, level=level, part_ranges=pieces)
    return [part for group in derived.values() for part in group]


def _end_of_rows(snapshot: Snapshot, manifest: Manifest) -> int:
    """Return the end of the store's last window, in microseconds UTC. The end is read from the finest level that has
    windows.
    """
    level, parts = next((level, parts) for level in manifest.frame.levels if (parts := snapshot.of(level.name)))
    return int(level.ends(np.array([max(part.last_start for part in parts)], np.int64))[0])


def set_retention(backend: Backend, retention: Mapping[str, str]) -> Manifest:
    """Set the retention of a store's levels (how long their windows are kept), and return the new manifest."""

    def attempt(transaction: WritingTransaction) -> Manifest:
        current = Manifest.from_dict(transaction.snapshot.manifest, backend.display_uri)
        new_manifest = replace(current, retention=retention)
        transaction.describes(new_manifest.to_dict(), new_manifest.columns)
        return new_manifest

    return run_transaction(backend, attempt)


def plan_evolution(manifest: Manifest, frame: TiltFrame, row_schema: pa.Schema | None = None) -> Manifest:
    """Return the manifest that a store would have with another frame. ``row_schema`` is the schema of future
    rows, which determines the types of new states.

    Raise ``ValueError`` or ``TypeError`` if the store cannot change to this frame; the message names the reason.
    """
    old_frame = manifest.frame
    _check_same_windows(old_frame, frame)
    states = states_of_new_frame(manifest, frame)
    new_frame = frame.keeping(states)
    check_levels(new_frame)
    fields = {field.name: field for field in manifest.schema}
    fields |= {c.name: pa.field(c.name, _state_type(c, row_schema)) for c in states if c.name not in fields}
    names = [c.name for c in states]
    dropped_names = [column.name for column in old_frame.states if column.name not in names]
    new_manifest = replace(
        manifest,
        frame=new_frame,
        schema=pa.schema([fields[name] for name in (START, *new_frame.keys, *names)]),
        generation=manifest.generation + 1,
        dropped=pa.schema([*manifest.dropped, *(fields[name] for name in dropped_names)]),
        earlier=(*manifest.earlier, tuple(column.name for column in old_frame.states)),
    )
    check_states_names(new_manifest.columns.names)
    return new_manifest


def _check_same_windows(old: TiltFrame, new: TiltFrame) -> None:
    """Raise ``ValueError`` unless the new frame has the keys, the time zone, the column of times and all levels of the
    old frame. Added levels must be coarser than all levels of the old frame.
    """
    new_parts = new.describe()
    old_parts = old.describe()
    for part in ("keys", "timezone", "time"):
        if new_parts[part] != old_parts[part]:
            raise ValueError(
                f"a store cannot change its {part}: it has {old_parts[part]}, and the new frame has {new_parts[part]}; "
                f"{_ADVICE}"
            )
    old_levels, new_levels = (tuple(level.name for level in frame.levels) for frame in (old, new))
    if missing := [name for name in old_levels if name not in new_levels]:
        raise ValueError(f"the level {missing[0]} cannot be removed; use expire() to remove windows by age")
    if new_levels[: len(old_levels)] != old_levels:
        other = next(name for name in new_levels if name not in old_levels)
        raise ValueError(
            f"a new level must be coarser than {old_levels[-1]}, the coarsest level of the store; {other} is finer; "
            f"{_ADVICE}"
        )


_ADVICE = "roll up the rows again into a new store"


def states_of_new_frame(manifest: Manifest, frame: TiltFrame) -> tuple[StateColumn, ...]:
    """Return the columns of states for a new frame: the existing columns that its measures need, and new columns for
    measures that cannot be computed from existing columns.

    Raise ``ValueError`` if a measure differs from the existing measure of the same name, or has the name of a dropped
    measure.
    """
    return states_after_change(manifest.frame, frame, manifest.dropped.names, "the store")


def _state_type(column: StateColumn, rows: pa.Schema | None) -> pa.DataType:
    """Return the type of a new column of states for rows with the schema ``rows``. Raise an error if the types in
    ``rows`` do not fit the measure, or if the measure has input columns and no schema is passed.
    """
    measure = column.measure
    if rows is None and measure.inputs:
        raise ValueError(
            f"the types of {', '.join(measure.columns())} determine the states of {column.name!r}; "
            + by_caller(
                "pass these types with --type COL=TYPE",
                "pass these types with --type COL=TYPE on the command line, or in Python evolve(frame, "
                "row_schema=SCHEMA), with the schema of future rows",
            )
        )
    if rows is not None:
        check_rows(rows, {}, [column], INSTANT)
    dtype = measure.function.state_type(measure.input_type(pa.schema([]) if rows is None else rows, INSTANT))
    return measure.function.merge(pa.array([], dtype), Groups.of([], 0)).type
