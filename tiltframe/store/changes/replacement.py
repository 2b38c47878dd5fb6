"""Replacement: replace the windows of a range on every level atomically.

Rows that are appended to the range at the same time are merged with the replacing rows. Two concurrent replacements, or
a replacement and an expiry, take effect one after the other. Every replacement and every expiry writes the store's
record of expired windows (`EXPIRED`), even if the text of the record does not change. The later commit therefore
conflicts with the earlier commit, and is attempted again: its states are derived again from the new snapshot.

A part consists of states of one level that were written together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from tiltframe.exclusions import Exclusions, Note
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import LEVEL
from tiltframe.ranges import Range, align_outward, as_text, inside, range_text
from tiltframe.store.backends.protocol import Backend, Part, Snapshot
from tiltframe.store.changes.commit import EXCLUDED, check_unchanged, read_excluded
from tiltframe.store.checked_states import check_results_computable, checked_levels
from tiltframe.store.log.errors import CommitConflict, OtherFrame, StoreError
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import (
    COLUMN_STARTS,
    EXPIRED,
    available_from,
    checked_records,
    column_starts,
    expected_texts,
    expired_before,
)
from tiltframe.store.log.run import WritingTransaction, run_if_frame_unchanged, snapshot_of
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.merging import write_merged, write_without_range
from tiltframe.tabular import table_of
from tiltframe.time_range import read_time_range


@dataclass(frozen=True)
class Replacement:
    """A replacement whose states are written by several processes. It can be pickled.

    `tiltframe.FrameStore.begin_replacement` returns it.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
        The manifest of the store when the replacement began.
    span : (int, int)
        The range to replace, in microseconds UTC, end exclusive.
    recorded : name -> text
        Records to write.
    replacing : name -> text or None
        The text that each record must have in the store before it is written; None if it must not exist.
    """

    backend: Backend
    manifest: Manifest
    span: Range
    recorded: Mapping[str, str]
    replacing: Mapping[str, str | None]

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""
        return self.manifest.frame

    def write(self, states: pa.Table) -> str:
        """Check the states of a rollup, and write those of the finest level. Return a receipt for `commit`.

        All states of one key and one window of the coarsest level must be in the same call. Raise the same errors as
        `tiltframe.FrameStore.replace`.
        """
        finest = checked_finest(states, self.frame, self.span)
        self.backend.check_values(finest)
        return self.write_checked(finest)

    def write_checked(self, finest: pa.Table) -> str:
        """Write states of the finest level that `checked_finest` has returned for the range to replace. Return a
        receipt for `commit`.
        """
        parts = self.backend.write(self.frame.levels[0], finest)
        excluded = Exclusions(self.frame)
        for _ in excluded.count_while_yielding([(self.frame.levels[0], finest)]):
            pass
        return json.dumps({"parts": [asdict(part) for part in parts], EXCLUDED: excluded.as_record()})

    def commit(self, receipts: Iterable[str], note: Note | None = None) -> None:
        """Replace the range by the written states, on all levels at once.

        ``receipts`` must contain the result of each call of `write`. ``note`` receives the messages that
        `tiltframe.FrameStore.append` describes, for the finest level; by default they are warnings. Raise the same
        errors as `tiltframe.FrameStore.replace`; the written states are then removed, unless the commit may have taken
        effect in spite of the error.
        """
        receipts = list(receipts)
        parts = [Part(**part) for receipt in receipts for part in json.loads(receipt)["parts"]]
        try:
            replace_range(
                self.backend,
                self.manifest,
                new_parts=parts,
                span=self.span,
                new_records=self.recorded,
                expected_records=self.replacing,
            )
        except ValueError as error:
            # After these errors, the store does not contain the commit, so the parts are discarded. After any other
            # `StoreError`, the store may contain the commit, so the parts are not discarded.
            if isinstance(error, CommitConflict | OtherFrame) or not isinstance(error, StoreError):
                self.backend.discard(parts)
            raise
        read_excluded(receipts, self.frame).report(note)


def checked_finest(states: pa.Table, frame: TiltFrame, span: Range) -> pa.Table:
    """Check the states that are to replace a range. Return the states of the finest level, in the types that a store
    uses.

    Raise ``ValueError`` if the states do not belong to the frame, lie outside the range, or have results that cannot be
    computed. Nothing is written.
    """
    states = checked_levels(states, frame)
    finest = states.filter(pc.equal(states.column(LEVEL), frame.levels[0].name))
    is_inside = inside(instants_of(finest), [span])
    if not is_inside.all():
        start = as_text(int(instants_of(finest)[~is_inside][0]))
        raise ValueError(
            f"there are states outside the range to replace, {range_text(span)}, such as those of the window that "
            f"starts at {start}; leave out their rows"
        )
    check_results_computable(states, frame)
    return finest


def replace_range(
    backend: Backend,
    manifest: Manifest,
    new_parts: Sequence[Part] | None,
    span: Range,
    new_records: Mapping[str, str] | None = None,
    expected_records: Mapping[str, str | None] | None = None,
) -> None:
    """Replace the windows of a range on all levels. The range must consist of complete windows of the finest level.

    ``new_parts`` contains parts of the finest level that were written but not committed yet. These parts have no
    windows outside the range. Without ``new_parts``, the finest level is unchanged, and only the coarser levels are
    derived again. ``new_records`` contains the records to write, and ``expected_records`` the texts that records must
    have in the store when the replacement is committed.

    Raise ``ValueError`` if the range does not consist of complete windows, or if coarser windows would have to be
    derived from expired windows. Raise `CommitConflict` if a record does not have the text in ``expected_records``.
    """
    check_aligned(span, manifest.frame)
    texts = new_records or {}
    expected = expected_records or {}

    def attempt(transaction: WritingTransaction) -> None:
        snapshot = transaction.snapshot
        check_unchanged(transaction, expected)
        _check_derivable(manifest, snapshot, span, replaces_finest=new_parts is not None)
        finer_parts: Sequence[Part] = ()
        for level in manifest.frame.levels:
            parts = snapshot.of(level.name)
            aligned = align_outward(span, level)
            is_finest = level == manifest.frame.levels[0]
            if is_finest and new_parts is None:
                finer_parts = parts
                continue
            if is_finest:
                written = list(new_parts or ())
                transaction.adds(written)
            else:
                written = write_merged(
                    backend, transaction, manifest, level=level, part_ranges=pieces_of(finer_parts, [aligned])
                )
            replaced_parts = [part for part in parts if part.within(aligned)]
            remaining_parts = write_without_range(
                backend, transaction, manifest, level=level, parts=replaced_parts, removed_range=aligned
            )
            transaction.removes(replaced_parts)
            finer_parts = [*(part for part in parts if part not in replaced_parts), *remaining_parts, *written]
        transaction.records(EXPIRED, json.dumps(expired_before(snapshot)))
        if new_parts is not None and column_starts(snapshot):
            transaction.records(COLUMN_STARTS, json.dumps(_column_starts_after(snapshot, manifest.frame, span)))
        for name, text in texts.items():
            transaction.records(name, text)

    run_if_frame_unchanged(backend, manifest, attempt, [*texts, *expected])


def _column_starts_after(snapshot: Snapshot, frame: TiltFrame, replaced: Range) -> dict[str, int]:
    """Return the record `COLUMN_STARTS` for the store after a replacement. For each column of states that was added to
    an existing store, this record has a time in microseconds UTC. All rows from this time on have the column.

    ``replaced`` is the range of the replacement. The new rows in this range have all columns. Therefore, if the time of
    a column lies in this range or at its end, the column gets the start of the range as its new time. Columns that all
    rows have after the replacement are left out.

    Windows that begin before the range and end in it are derived again. They therefore lack a column only if another
    window ends before the range.
    """
    low, high = replaced
    first = min((part.first_start for part in snapshot.parts), default=low)
    first_starts = {part.level: min(p.first_start for p in snapshot.of(part.level)) for part in snapshot.parts}
    first_ends = [int(frame.level(name).ends(np.array([at]))[0]) for name, at in first_starts.items()]
    has_windows_before = min(first_ends, default=high) <= low
    starts = {}
    for name, at in column_starts(snapshot).items():
        if not low < at <= high:
            starts[name] = at
        elif has_windows_before:
            starts[name] = low
    return {name: at for name, at in starts.items() if at > first}


def check_aligned(span: Range, frame: TiltFrame) -> Range:
    """Return the range unchanged; raise ``ValueError`` unless it consists of complete windows of the finest level."""
    aligned = align_outward(span, frame.levels[0])
    if aligned != span:
        raise ValueError(
            f"a range to replace must consist of whole windows of {frame.levels[0].name}; got {range_text(span)}; use "
            f"{range_text(aligned)}"
        )
    return span


def _check_derivable(manifest: Manifest, snapshot: Snapshot, span: Range, replaces_finest: bool) -> None:
    """Raise ``ValueError`` if the coarser windows of a range cannot be derived because some of their finer windows have
    expired.

    If ``replaces_finest`` is true, the windows of the finest level in the range are replaced too. The coarser windows
    in the range are then derived from the new windows. Stored finer windows are needed only for coarser windows that
    extend beyond the range.
    """
    levels = manifest.frame.levels
    for fine, coarse in pairwise(levels):
        fine_from = available_from(snapshot, fine.name)
        aligned = align_outward(span, coarse)
        if aligned[0] < fine_from and (aligned != span or not replaces_finest):
            if replaces_finest:
                raise ValueError(
                    f"windows of {coarse.name} in the range need windows of {fine.name} that have expired; "
                    f"replace whole windows of {coarse.name}, such as {range_text(aligned)}"
                )
            raise ValueError(
                f"{fine.name} has windows only from {as_text(fine_from)} on, so earlier windows of {coarse.name} "
                "cannot be computed again; choose a later range"
            )


def replace(
    store: OpenedStore,
    states: Any,
    within: Any,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
    note: Note | None = None,
) -> None:
    """Replace the windows of a range on every level atomically.

    Parameters
    ----------
    states : table
        Any input of `append`, such as a table from `tiltframe.rollup`. Its rows must lie in the range.
    within : range
        A range of complete windows of the finest level, in the form that `query` accepts.
    recorded, replacing : name -> plain data, optional
        Values to record, and the values that they replace; see `append`.
    note : function of a text, optional
        See `append`. The messages count groups of the finest level only.

    Raises
    ------
    ValueError
        If the states do not belong to this frame (see `append`), if they lie outside the range, if the range does not
        consist of complete windows, or if coarser windows would have to be derived from windows that have expired.
    """
    table = table_of(states, "states")
    # The states are checked before begin_replacement, because begin_replacement creates the store if it does not exist.
    finest = checked_finest(table, store.frame, replaced_range(store, within))
    store.backend.check_values(finest)
    replacement = begin_replacement(store, within, states=table.schema, recorded=recorded, replacing=replacing)
    replacement.commit([replacement.write_checked(finest)], note)


def begin_replacement(
    store: OpenedStore,
    within: Any,
    states: pa.Schema,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
) -> Replacement:
    """Begin a replacement whose states are written by several processes.

    Parameters
    ----------
    within, recorded, replacing : range and mappings
        See `replace`.
    states : pa.Schema
        A schema from `tiltframe.TiltFrame.states_schema`.

    Returns
    -------
    Replacement
        The replacement, which can be pickled. In any process, ``write(states)`` writes states and returns a receipt;
        ``commit(receipts)`` then completes the replacement.

    Raises
    ------
    ValueError, StoreError
        For the same reasons as `replace`.
    """
    span = replaced_range(store, within)
    texts = checked_records(recorded)
    expected = expected_texts(recorded, replacing)
    manifest = store.ensure_created(states)
    manifest.check_same_store(snapshot_of(store.backend).manifest, store.backend.display_uri)
    return Replacement(store.backend, manifest, span=span, recorded=texts, replacing=expected)


def rebuild(store: OpenedStore, within: Any = None) -> None:
    """Derive the windows of the coarser levels again from the finest level.

    Parameters
    ----------
    within : range, optional
        A range of complete windows of the coarsest level, in the form that `query` accepts. By default, all
        coarser windows are derived again, except those for which windows of the finest level have expired.

    Raises
    ------
    ValueError
        If the range cannot be read, does not consist of complete windows, or needs finer windows that have expired.
    StoreError
        If the store does not exist or is damaged.
    """
    manifest = store.manifest
    span = (
        _derivable_range(store.backend, manifest) if within is None else read_time_range(within, store.frame.timezone)
    )
    if span is not None:
        replace_range(store.backend, manifest, None, check_aligned(span, store.frame))


def replaced_range(store: OpenedStore, within: Any) -> Range:
    """Return the range that `replace` would replace, without reading or writing.

    Parameters
    ----------
    within : range
        A range of complete windows of the finest level.

    Returns
    -------
    (int, int)
        The range in microseconds UTC, end exclusive.

    Raises
    ------
    ValueError
        If the range cannot be read, or does not consist of complete windows.
    """
    return check_aligned(read_time_range(within, store.frame.timezone), store.frame)


def _derivable_range(backend: Backend, manifest: Manifest) -> Range | None:
    """Return the range of the windows of the coarsest level that contain stored windows of the finest level. Windows
    are left out if some of their windows of the finest level have expired. Return None if no window remains.
    """
    finest = manifest.frame.levels[0]
    coarsest = manifest.frame.levels[-1]
    snapshot = snapshot_of(backend)
    manifest.check_same_store(snapshot.manifest, backend.display_uri)
    parts = snapshot.of(finest.name)
    if not parts:
        return None
    span = min(part.first_start for part in parts), max(part.last_start for part in parts) + 1
    low, high = align_outward(span, coarsest)
    low = coarsest.first_start_from(max(low, available_from(snapshot, finest.name)))
    return (low, high) if low < high else None
