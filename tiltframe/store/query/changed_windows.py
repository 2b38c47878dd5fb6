"""Changes of a store: find the windows whose states have changed since an earlier moment.

A store consists of immutable parts; a part contains states that were written together. The parts that were added and
removed since the earlier moment are read, merged and compared. A compaction replaces parts without changing a merged
state, so it changes no window.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.row_hash import row_hashes
from aggr.tables.by_key import key_column, merge_by
from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, LEVEL, START
from tiltframe.ranges import EVER
from tiltframe.store.backends.protocol import Backend, Part, Snapshot
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.run import retry_on_conflict, snapshot_of
from tiltframe.store.log.snapshot import PartRanges, pieces_of
from tiltframe.store.query.merging import split_by_windows
from windows import TimeWindow


@dataclass(frozen=True)
class SeenParts:
    """The version and parts of a store at one moment. `tiltframe.FrameStore.changes` compares them with those of a
    later moment.

    Parameters
    ----------
    version : int
        The version of the store.
    parts : tuple of Part
    """

    version: int
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        """Return the version and the parts as JSON text, which `from_json` reads."""
        return json.dumps({"version": self.version, "parts": [asdict(part) for part in self.parts]})

    @classmethod
    def from_json(cls, text: str) -> SeenParts:
        """Return the version and the parts that a JSON text contains.

        Parameters
        ----------
        text : str
            A text from `to_json`.

        Returns
        -------
        SeenParts

        Raises
        ------
        ValueError
            If the text was not written by `to_json`.
        """
        try:
            members = json.loads(text)
            return cls(members["version"], tuple(Part(**part) for part in members["parts"]))
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"cannot read {shown(text)}; pass text that SeenParts.to_json wrote") from None


@dataclass(frozen=True)
class Changes:
    """The windows that have changed since an earlier moment, and the parts of the store now.

    Parameters
    ----------
    seen : SeenParts
        The version and the parts of the store. Pass this object to the next call of `tiltframe.FrameStore.changes`.
    windows : table
        The windows that changed, were added or were removed, with the columns level, window_start, window_end and keys.
        Each window and key occurs once.
    """

    seen: SeenParts
    windows: pa.Table


def changes(backend: Backend, manifest: Manifest, snapshot: Snapshot, since: SeenParts | None) -> Changes:
    """Return the windows that have changed between ``since`` and ``snapshot``, or all windows if ``since`` is None.

    If parts are removed while they are read, a newer snapshot is used in the place of ``snapshot``. The result contains
    the version of the snapshot that was used.
    """
    first_snapshot = [snapshot]

    def attempt() -> Changes:
        snapshot = first_snapshot.pop() if first_snapshot else snapshot_of(backend)
        tables = [_no_windows(manifest)]
        # If the store was deleted and created again, it may have the same version with other parts.
        is_unchanged = since is not None and (since.version, since.parts) == (snapshot.version, snapshot.parts)
        changed_levels = () if is_unchanged else manifest.frame.levels
        for level in changed_levels:
            tables += _changed_windows(backend, manifest, level=level, since=since, snapshot=snapshot)
        return Changes(SeenParts(snapshot.version, snapshot.parts), pa.concat_tables(tables))

    return retry_on_conflict(attempt)


def _changed_windows(
    backend: Backend, manifest: Manifest, level: TimeWindow, since: SeenParts | None, snapshot: Snapshot
) -> list[pa.Table]:
    """Return tables of the windows and keys of a level whose merged states have changed. The parts that were removed
    after ``since`` are compared with those that were added, a few windows at a time.
    """
    parts_before = () if since is None else since.parts
    names_before = {part.name for part in parts_before}
    names_now = {part.name for part in snapshot.parts}
    removed = [part for part in parts_before if part.level == level.name and part.name not in names_now]
    added = [part for part in snapshot.of(level.name) if part.name not in names_before]
    tables = []
    for pieces in split_by_windows(pieces_of([*removed, *added], [EVER]), level):
        removed_pieces = [(part, span) for part, span in pieces if part.name not in names_now]
        added_pieces = [(part, span) for part, span in pieces if part.name in names_now]
        compared_columns = manifest.schema.names[1:] if removed_pieces and added_pieces else list(manifest.frame.keys)
        new_rows = _merged_rows(backend, manifest, level=level, pieces=added_pieces, columns=compared_columns)
        try:
            rows = _differing_rows(
                _merged_rows(backend, manifest, level=level, pieces=removed_pieces, columns=compared_columns), new_rows
            )
        except Conflict:  # A vacuum has deleted the old parts, so every window of the new parts counts as changed.
            if {part.name for part, _ in added_pieces} - {part.name for part in snapshot_of(backend).parts}:
                raise
            rows = new_rows
        keys = {name: key_column(rows.column(name)) for name in (START, END, *manifest.frame.keys)}
        windows = merge_by(rows, keys, {})
        tables.append(windows.add_column(0, LEVEL, pa.repeat(pa.scalar(level.name), windows.num_rows)))
    return tables


def _merged_rows(
    backend: Backend, manifest: Manifest, level: TimeWindow, pieces: PartRanges, columns: Sequence[str]
) -> pa.Table:
    """Return one row per window and key with the merged states in the ranges of parts ``pieces``. If ``columns``
    contains only the keys, nothing is merged: the result has the window and the keys of each stored row.
    """
    rows = backend.read(pieces, columns)
    if len(columns) > len(manifest.frame.keys):
        return merge_level(rows, manifest.frame, level, nulls_are_unknown=True)
    return rows.add_column(1, END, pa.array(level.ends(instants_of(rows))).cast(INSTANT))


def _differing_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    hashes_before, hashes_after = (row_hashes(table.columns)[0] for table in (before, after))
    sides = ((before, ~np.isin(hashes_before, hashes_after)), (after, ~np.isin(hashes_after, hashes_before)))
    return pa.concat_tables([table.filter(pa.array(is_unmatched)) for table, is_unmatched in sides])


def _no_windows(manifest: Manifest) -> pa.Table:
    fields = [manifest.schema.field(name) for name in manifest.frame.keys]
    time_type = manifest.schema.field(START).type
    return pa.schema([(LEVEL, pa.string()), (START, time_type), (END, time_type), *fields]).empty_table()
