"""Copying: copy a store to another folder, object store or database, between any backends. A second call brings the
copy up to date.

source ── parts of a bucket at a time ──▶ written to the target, not readable; the target records the copied parts
                            at the end ──▶ one commit: adds the copies, removes outdated parts, writes all records

A part consists of states of one level that were written together. All states of a part lie in one bucket of time, which
is an hour, day, month or year. Because one commit makes all copies readable, readers find the target either empty, or
complete as of one moment. If the process is killed, the next call continues the copy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from aggr.arguments import checked_truth
from tiltframe.ranges import EVER
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.open import absolute_uri, backend_at, check_options, checked_uri
from tiltframe.store.backends.protocol import Backend, Part, Snapshot, Transaction
from tiltframe.store.changes.progress import Progress, check_progress
from tiltframe.store.creation import with_new_id
from tiltframe.store.log.errors import Conflict, MissingStore, StoreError
from tiltframe.store.log.manifest import Manifest, check_name, id_in
from tiltframe.store.log.records import RECORD_PREFIX
from tiltframe.store.log.run import commit_on, retry_on_conflict, snapshot_of
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query import merging
from windows import TimeWindow

# The name of a record in the target. The record contains the address and the name of the source. For each copied group
# of parts of the source, the record also contains the parts of the target that are the copy of this group.
COPY = f"{RECORD_PREFIX}copy"

_PROGRESS_SECONDS = 1.0  # the minimum number of seconds between two commits that record the progress


@dataclass(frozen=True)
class _CopiedGroup:
    """Parts of the target that together contain the states of some parts of the source. ``added`` is true if a commit
    has made the parts of the target readable.
    """

    sources: list[str]  # the names of the parts of the source that were copied
    parts: list[Part]
    added: bool = False


def copy_store(source: Backend, target: Backend, name: str, progress: Progress = lambda done, total: None) -> int:
    """Copy a store, or bring a copy up to date; return the number of states that were written. ``progress`` receives
    the number of states written so far, and the number of states to write. If the copy is attempted again after a
    conflict, the states are counted again from 0.

    Raise `MissingStore` if the source does not exist, and `StoreError` if the target contains another store or other
    rows.
    """
    written = 0

    def attempt() -> int:
        nonlocal written
        source_snapshot = source.snapshot(None)
        if source_snapshot is None:
            raise MissingStore(
                f"there is no store {source.display_uri}; correct its address, or create it with a first commit"
            )
        manifest = Manifest.from_dict(source_snapshot.manifest, source.display_uri)
        origin = f"{absolute_uri(source.display_uri)} {manifest.name}"
        manifest = replace(manifest, name=name)
        target_snapshot = _prepare_target(target, manifest)
        copied = _recorded_copies(target_snapshot, origin, target)
        source_parts = {part.name for part in source_snapshot.parts}
        current_groups = [group for group in copied if source_parts.issuperset(group.sources)]
        outdated = [group for group in copied if not source_parts.issuperset(group.sources)]
        # Outdated parts that are readable stay until the copy is complete, so that readers find a complete store.
        # Outdated parts that are not readable are discarded now.
        readable = [group for group in outdated if group.added]
        target.discard([part for group in outdated if not group.added for part in group.parts])
        copied_parts = {name for group in current_groups for name in group.sources}
        missing = [part for part in source_snapshot.parts if part.name not in copied_parts]
        recorded_at = time.monotonic()
        before = written
        states = sum(part.rows for part in missing)
        for level, parts in _groups(missing, manifest):
            rows = source.read(pieces_of(parts, [EVER]), manifest.schema.names[1:])
            current_groups.append(_CopiedGroup([part.name for part in parts], target.write(level, rows)))
            written += rows.num_rows
            progress(written - before, states)
            if time.monotonic() - recorded_at > _PROGRESS_SECONDS:
                progress_text = _record_text(origin, [*readable, *current_groups])
                commit_on(target, target_snapshot, partial(_record_progress, text=progress_text))
                target_snapshot = snapshot_of(target, [COPY])
                recorded_at = time.monotonic()
        last = snapshot_of(target, [COPY, *source_snapshot.records])
        if last.revision(COPY) != target_snapshot.revision(COPY):
            raise Conflict(f"another process is copying to {target.display_uri}; wait until it has finished")
        # This call raises an error if another program has written to the target in the meantime. Its result is not
        # used.
        _recorded_copies(last, origin, target)
        commit_on(
            target,
            last,
            lambda transaction: _complete_copy(
                transaction, manifest, source_snapshot, origin=origin, current_groups=current_groups
            ),
        )
        return written

    return retry_on_conflict(attempt)


def _record_progress(transaction: Transaction, *, text: str) -> None:
    transaction.records(COPY, text)


def _complete_copy(
    transaction: Transaction,
    manifest: Manifest,
    source: Snapshot,
    *,
    origin: str,
    current_groups: Sequence[_CopiedGroup],
) -> None:
    """Add the copied parts (``current_groups``) to the target, remove all its other parts in the same transaction, and
    copy all records of the source. ``origin`` is the address and the name of the source, which the target records.
    """
    names = {part.name for copied in current_groups for part in copied.parts}
    for level in manifest.frame.levels:
        parts = transaction.reads(level.name, EVER)
        transaction.removes(part for part in parts if part.name not in names)
    transaction.adds(part for copied in current_groups if not copied.added for part in copied.parts)
    for record, text in source.texts.items():
        transaction.records(record, text)
    transaction.records(COPY, _record_text(origin, [replace(copied, added=True) for copied in current_groups]))


def _prepare_target(target: Backend, manifest: Manifest) -> Snapshot:
    """Create the target with a manifest, or replace the manifest of an earlier copy. Return the target's snapshot."""
    snapshot = target.snapshot([COPY])
    # The copy keeps its own id, which differs from the id of the source.
    manifest = with_new_id(manifest) if snapshot is None else replace(manifest, store_id=id_in(snapshot.manifest))
    described = json.loads(json.dumps(manifest.to_dict()))
    if snapshot is None:
        target.create(described, manifest.columns)
    elif snapshot.text(COPY) is not None and snapshot.manifest != described:
        commit_on(target, snapshot, lambda transaction: transaction.describes(described, manifest.columns))
    return snapshot_of(target, [COPY])


def _recorded_copies(snapshot: Snapshot, origin: str, target: Backend) -> list[_CopiedGroup]:
    """Return the copied groups of parts that the target has recorded under the name `COPY`. Raise `StoreError` if the
    target is not a copy of the source with the address and name ``origin``, or if the parts of the target differ from
    the recorded parts.
    """
    record = json.loads(snapshot.text(COPY) or "{}")
    if record.get("origin", origin) != origin or (snapshot.parts and not record):
        raise StoreError(f"the store {target.display_uri} exists, and is not a copy of {origin}; choose another place")
    copied = [
        _CopiedGroup(group["sources"], [Part(**part) for part in group["parts"]], group["added"])
        for group in record.get("copied", ())
    ]
    if {part.name for group in copied if group.added for part in group.parts} != {part.name for part in snapshot.parts}:
        raise StoreError(
            f"the store {target.display_uri} has been written to, or compacted, since it was copied from {origin}, "
            f"so the copy cannot continue; copy to another place"
        )
    return copied


def _groups(parts: Sequence[Part], manifest: Manifest) -> Iterator[tuple[TimeWindow, list[Part]]]:
    """Yield pairs of a level and a list of its parts that are copied together. The parts of a list belong to one
    bucket, and their rows fit into memory.
    """
    for level in manifest.frame.levels:
        level_parts = sorted((part for part in parts if part.level == level.name), key=lambda part: part.first_start)
        buckets = bucket_of(level).starts(np.array([part.first_start for part in level_parts], np.int64)).tolist()
        group: list[Part] = []
        for i, part in enumerate(level_parts):
            group.append(part)
            is_last = i + 1 == len(level_parts) or buckets[i] != buckets[i + 1]
            if is_last or sum(member.rows for member in group) + level_parts[i + 1].rows > merging.ROWS_AT_ONCE:
                yield level, group
                group = []


def _record_text(origin: str, copied: Sequence[_CopiedGroup]) -> str:
    return json.dumps({"origin": origin, "copied": [asdict(group) for group in copied]})


def copy_to(
    store: OpenedStore,
    uri: str | os.PathLike[str],
    *,
    name: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durable: bool = False,
    progress: Progress = lambda done, total: None,
) -> int:
    """Copy the store to another place (a folder, object store or database), or bring a copy up to date.

    Parameters
    ----------
    uri, storage_options, durable : str or path, mapping and bool
        The place of the copy, in the form that `tiltframe.FrameStore` accepts.
    name : str, optional
        The name of the copy; by default the name of the store.
    progress : callable of (states copied, states to copy), optional

    Returns
    -------
    int
        The number of states that were written; for an existing copy, only states that have changed since the last copy.

    Raises
    ------
    ValueError, StoreError
        If ``uri`` cannot be the address of a store, or if the place contains another store, or a copy to which another
        program has written.

    Guarantee
    ---------
    The copy appears atomically, as of one moment, with the same bits and all records. The records contain the commit
    numbers of writers. Therefore, if a writer repeats a commit on the copy, the commit counts once. If the process is
    killed at any moment, the next call continues the copy. Other programs may use the store at the same time.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> store.append_rows(pa.table({"ts": [0, 60_000]}), writer="docs", commit=1)
    True
    >>> place = tempfile.mkdtemp()
    >>> store.copy_to(place), store.copy_to(place)
    (3, 0)
    >>> FrameStore(place).query("1h").column("n").to_pylist()
    [2]
    """
    check_progress(progress)
    name = check_name(store.manifest.name if name is None else name)
    options = check_options(storage_options)
    target = backend_at(checked_uri(uri), name, options, checked_truth(durable, "durable")).store_named(name)
    if (target.display_uri, name) == (store.backend.display_uri, store.manifest.name):
        raise ValueError(f"the store {target.display_uri} cannot be copied onto itself; choose another place or name")
    return copy_store(store.backend, target, name, progress)
