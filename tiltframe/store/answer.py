"""Answering: what is read of a store for a question, and what comes of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltframe.frame import START
from tiltframe.store.ask import answers, filled, ordered, states_asked
from tiltframe.store.compact import EVER, again, look
from tiltframe.store.description import Description
from tiltframe.store.layers import Pieces, layer, widened
from tiltframe.store.question import Question
from tiltframe.store.ranges import as_text
from tiltframe.store.tables import EXPIRED, Range, Tables
from tiltframe.store.within import read_moment


class Expired(UserWarning):
    """Windows that were asked for have expired in the level that answers."""


def answer(
    tables: Tables,
    description: Description,
    asked: Question,
    fill: bool,
    order_by: str | Sequence[str],
    limit: int | None,
    now: int,
) -> pa.Table:
    """Answer a question; see `tiltframe.FrameStore.query`."""
    states, span, held = read_states(tables, description, asked)
    if fill:
        states = filled(states, asked, now)
    return ordered(answers(states, asked, span, held, now), order_by, limit)


def read_states(tables: Tables, description: Description, asked: Question) -> tuple[pa.Table, Range, int]:
    """Read the states of the windows that are asked for.

    Returns
    -------
    states, their range, and the time from which on the level that answers holds windows
    """
    span, source = asked.span(), asked.frame.levels[asked.source()]

    def attempt() -> tuple[pa.Table, int]:
        pieces, held = pieces_asked(tables, asked)
        return tables.read(pieces, asked.columns), held

    rows, held = again(attempt)
    if held > EVER[0] and (asked.within is None or asked.within[0] < held):
        warnings.warn(_expired(asked, source.name, held), Expired, stacklevel=4)
    if span is None:
        starts = rows.column(START).cast(pa.int64()).to_numpy()
        span = widened((int(starts.min()), int(starts.max()) + 1), source) if len(starts) else (0, 0)
    return states_asked(rows, asked, span), span, held


def pieces_asked(tables: Tables, asked: Question) -> tuple[Pieces, int]:
    """Choose what is read for a question; tell also the time from which on its level holds windows."""
    levels, at = asked.frame.levels, asked.source() + 1
    views = look(tables, levels, at)
    held = views[-1].covers.get(EXPIRED, EVER[0])
    low, high = asked.span() or EVER
    low = max(low, held)
    return layer(views, levels[:at], [(low, high)] if low < high else []).pieces, held


def held_range(tables: Tables, description: Description) -> Range | None:
    """Find the whole coarsest windows that the finest level still holds; None if there are none."""
    finest, coarsest = description.frame.levels[0], description.frame.levels[-1]
    view = tables.view([finest.name])[0]
    parts = [part for part in view.parts if part.rows]
    if not parts:
        return None
    low, high = widened((min(part.least for part in parts), max(part.greatest for part in parts) + 1), coarsest)
    held = view.covers.get(EXPIRED, EVER[0])
    if low < held:
        begun = coarsest.starts(np.array([held]))
        low = held if begun[0] == held else int(coarsest.ends(begun)[0])
    return (low, high) if low < high else None


def moment(value: Any, timezone: str) -> int:
    """Read a moment in microseconds UTC; the clock's time for None."""
    return int(time.time() * 1e6) if value is None else read_moment(value, timezone)


def _expired(asked: Question, level: str, held: int) -> str:
    return f"{level} is held from {as_text(held)} only; ask per a coarser level for what was before"
