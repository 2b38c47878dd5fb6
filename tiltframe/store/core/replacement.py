"""Replacing: a range of time derived anew, in every level, at once.

The finest level changes first, in one commit, and says which range it has replaced; until coarser levels have
followed, they are read through finer ones in that range.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa

from tiltframe.frame import TiltFrame
from tiltframe.store.core.backend import Backend, Range, Snapshot, StoreError
from tiltframe.store.core.catching_up import catch_up
from tiltframe.store.core.generations import Evolved, commit_to
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.ranges import EVER, as_text
from tiltframe.store.core.read_plan import lasting, replaced_by, widened
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.writers import CHANGED, EXPIRED, expired_in


def replace_range(
    backend: Backend,
    manifest: Manifest,
    states: pa.Table | None,
    span: Range,
    also: Mapping[str, int] | None = None,
) -> None:
    """Replace the windows of a range, in all levels.

    Parameters
    ----------
    states : table or None
        Of the finest level: window_start, keys, states, all in the range. None leaves the finest level as it is, and
        derives the coarser ones anew.
    span : range
        Of whole windows of the finest level.
    also : name -> number, optional
        What else counts as committed with it.

    Raises
    ------
    ValueError
        If the range is not of whole windows, or if coarser windows would need finer ones that have expired.
    StoreError
        Where what else should be committed has been, by someone else.
    """
    check_whole(span, manifest.frame)
    retry_on_conflict(lambda: _replace(backend, manifest, states, span, also or {}))
    with suppress(Evolved):  # coarser levels follow by the frame that the store has by now
        catch_up(backend, manifest)


def check_whole(span: Range, frame: TiltFrame) -> Range:
    """Return a range to replace; raise ``ValueError`` unless it is of whole windows of the finest level."""
    whole = widened(span, frame.levels[0])
    if whole != span:
        raise ValueError(f"a range to replace is of whole windows of {frame.levels[0].name}; say {_text(whole)}")
    return span


def _replace(
    backend: Backend, manifest: Manifest, states: pa.Table | None, span: Range, also: Mapping[str, int]
) -> None:
    levels, writer = manifest.frame.levels, replaced_by(span)
    announced = [expired_in(level.name) for level in levels]
    views = backend.view([level.name for level in levels], [writer, CHANGED, *announced, *also])
    if any(views[0].txn_versions.get(name, -1) >= number for name, number in also.items()):
        raise StoreError("someone else has added or replaced the same meanwhile; nothing was written")
    _check_held(manifest, views, span, anew=states is not None)
    number = views[0].txn_versions.get(writer, 0) + 1
    finest = views[0].parts if states is not None else ()
    found = ((part, part.within(span)) for part in finest if part.rows)
    cut = [(part, piece) for part, piece in found if piece is not None]
    missing = {part for part, _ in cut} - set(lasting(views, [part for part, _ in cut]))
    rows = manifest.schema.empty_table() if states is None else states
    add = backend.write(levels[0].name, rows, writer, number)
    for name in {(part.writer, part.commit) for part in missing}:  # coarser levels must not take these over any more
        add += backend.write(levels[0].name, manifest.schema.empty_table(), *name)
    changed = views[0].txn_versions.get(CHANGED, 0) + 1
    commit_to(backend, manifest, views[0], add, cut, {writer: number, CHANGED: changed, **also})


def _check_held(manifest: Manifest, views: list[Snapshot], span: Range, anew: bool) -> None:
    """Refuse a range whose coarser windows need finer ones, beside it, that have expired."""
    levels = manifest.frame.levels
    for fine, coarse, view in zip(levels, levels[1:], views, strict=False):
        held = max(
            v.txn_versions.get(name, EVER[0]) for v, name in ((view, EXPIRED), (views[0], expired_in(fine.name)))
        )
        wide = widened(span, coarse)
        if wide[0] < held and (wide != span or not anew):
            raise ValueError(
                f"windows of {coarse.name} in the range need windows of {fine.name} that have expired; "
                f"replace whole windows of {coarse.name}: {_text(wide)}"
                if anew
                else f"{fine.name} is held from {as_text(held)} only: coarser windows before cannot be derived anew"
            )


def _text(span: Range) -> str:
    return ",".join(as_text(at) for at in span)
