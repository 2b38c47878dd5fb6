"""Replacement: the windows of a range become others in every level, at once.

Rows that are appended to the range meanwhile are merged with those that replace it. Of two
replacements, or a replacement and an expiry, at the same time one comes after the other: each of them records how much
has expired, even if that has not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from tiltframe.frame import TiltFrame
from tiltframe.store.backends.protocol import EXPIRED, KNOWN, Backend, Part, Snapshot
from tiltframe.store.changes.append import check_unchanged
from tiltframe.store.changes.on_frame import run_on_frame
from tiltframe.store.log.run import Attempt
from tiltframe.store.manifest import Manifest
from tiltframe.store.merging import pieces_of, write_merged, write_without
from tiltframe.store.ranges import Range, align_outward, as_text, range_text
from tiltframe.store.recorded import expired_before, held_from, known_from


def replace_range(
    backend: Backend,
    manifest: Manifest,
    states: pa.Table | None,
    span: Range,
    recorded: Mapping[str, str] | None = None,
    replacing: Mapping[str, str | None] | None = None,
) -> None:
    """Replace the windows of a range, whole ones of the finest level, in all levels.

    ``states`` are of the finest level, all in the range; None leaves that as it is, and derives the coarser ones anew.
    What is ``replacing`` must still be recorded so. Raises ``ValueError`` if the range is not of whole windows, or
    coarser windows would need finer ones that have expired, `CommitConflict` if someone else has recorded the same.
    """
    check_whole(span, manifest.frame)
    texts, unchanged = recorded or {}, replacing or {}

    def attempt(transaction: Attempt) -> None:
        snapshot = transaction.snapshot
        check_unchanged(transaction, unchanged)
        _check_held(manifest, snapshot, span, anew=states is not None)
        below: Sequence[Part] = ()
        for level in manifest.frame.levels:
            parts, wide = snapshot.of(level.name), align_outward(span, level)
            is_finest = level == manifest.frame.levels[0]
            if is_finest and states is None:
                below = parts
                continue
            if is_finest:
                anew = transaction.write(level, states)
            else:
                anew = write_merged(backend, transaction, manifest, level=level, part_ranges=pieces_of(below, [wide]))
            old = [part for part in parts if part.within(wide)]
            left = write_without(backend, transaction, manifest, level=level, parts=old, removed=wide)
            transaction.removes(old)
            below = [*(part for part in parts if part not in old), *left, *anew]
        transaction.records(EXPIRED, json.dumps(expired_before(snapshot)))
        if states is not None and known_from(snapshot):
            transaction.records(KNOWN, json.dumps(_known_after(snapshot, span)))
        for name, text in texts.items():
            transaction.records(name, text)

    run_on_frame(backend, manifest, attempt, [*texts, *unchanged])


def _known_after(snapshot: Snapshot, replaced: Range) -> dict[str, int]:
    """Tell from when on added columns are known once rows of a range are rolled up anew."""
    low, high = replaced
    first = min((part.first_start for part in snapshot.parts), default=low)
    known = {name: low if low < at <= high else at for name, at in known_from(snapshot).items()}
    return {name: at for name, at in known.items() if at > first}


def check_whole(span: Range, frame: TiltFrame) -> Range:
    """Return a range to replace; raise ``ValueError`` unless it is of whole windows of the finest level."""
    whole = align_outward(span, frame.levels[0])
    if whole != span:
        raise ValueError(f"a range to replace is of whole windows of {frame.levels[0].name}; say {range_text(whole)}")
    return span


def _check_held(manifest: Manifest, snapshot: Snapshot, span: Range, anew: bool) -> None:
    """Refuse a range whose coarser windows need finer ones, beside it, that have expired."""
    levels = manifest.frame.levels
    for fine, coarse in pairwise(levels):
        held, wide = held_from(snapshot, fine.name), align_outward(span, coarse)
        if wide[0] < held and (wide != span or not anew):
            raise ValueError(
                f"windows of {coarse.name} in the range need windows of {fine.name} that have expired; "
                f"replace whole windows of {coarse.name}: {range_text(wide)}"
                if anew
                else f"{fine.name} is held from {as_text(held)} only: coarser windows before cannot be derived anew"
            )
