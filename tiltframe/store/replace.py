"""Replacing: a range of time derived anew, in every level, at once.

The finest level changes first, in one commit, and says which range it has replaced; until coarser levels have
followed, they are read through finer ones in that range.
"""

from __future__ import annotations

import pyarrow as pa

from tiltframe.store.compact import EVER, again, catch_up
from tiltframe.store.description import Description
from tiltframe.store.layers import lasting, replaced_by, widened
from tiltframe.store.ranges import as_text
from tiltframe.store.tables import CHANGED, EXPIRED, Range, Tables, View, expired_in


def replace_range(tables: Tables, description: Description, states: pa.Table | None, span: Range) -> None:
    """Replace the windows of a range, in all levels.

    Parameters
    ----------
    states : table or None
        Of the finest level: window_start, keys, states, all in the range. None leaves the finest level as it is, and
        derives the coarser ones anew.
    span : range
        Of whole windows of the finest level.

    Raises
    ------
    ValueError
        If the range is not of whole windows, or if coarser windows would need finer ones that have expired.
    """
    levels = description.frame.levels
    whole = widened(span, levels[0])
    if whole != span:
        raise ValueError(f"a range to replace is of whole windows of {levels[0].name}; say {_text(whole)}")
    again(lambda: _replace(tables, description, states, span))
    catch_up(tables, description)


def _replace(tables: Tables, description: Description, states: pa.Table | None, span: Range) -> None:
    levels, writer = description.frame.levels, replaced_by(span)
    announced = [expired_in(level.name) for level in levels]
    views = tables.view([level.name for level in levels], [writer, CHANGED, *announced])
    _check_held(description, views, span, anew=states is not None)
    number = views[0].covers.get(writer, 0) + 1
    finest = views[0].parts if states is not None else ()
    found = ((part, part.within(span)) for part in finest if part.rows)
    cut = [(part, piece) for part, piece in found if piece is not None]
    missing = {part for part, _ in cut} - set(lasting(views, [part for part, _ in cut]))
    rows = description.schema.empty_table() if states is None else states
    add = tables.write(levels[0].name, rows, writer, number)
    for name in {(part.writer, part.commit) for part in missing}:  # coarser levels must not take these over any more
        add += tables.write(levels[0].name, description.schema.empty_table(), *name)
    changed = views[0].covers.get(CHANGED, 0) + 1
    tables.commit(levels[0].name, add, cut, {writer: number, CHANGED: changed}, views[0])


def _check_held(description: Description, views: list[View], span: Range, anew: bool) -> None:
    """Refuse a range whose coarser windows need finer ones, beside it, that have expired."""
    levels = description.frame.levels
    for fine, coarse, view in zip(levels, levels[1:], views, strict=False):
        held = max(v.covers.get(name, EVER[0]) for v, name in ((view, EXPIRED), (views[0], expired_in(fine.name))))
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
