"""Answering: what is read of a store for a question, and what comes of it."""

from __future__ import annotations

import datetime as dt
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltframe.frame import START
from tiltframe.store.ask import answers, filled, ordered, states_asked
from tiltframe.store.compact import EVER, again
from tiltframe.store.description import Description
from tiltframe.store.layers import REPLACED, layer, widened
from tiltframe.store.question import Question
from tiltframe.store.tables import EXPIRED, MERGED, Range, StoreError, Tables, View
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
    frame, at = asked.frame, asked.source()
    source = frame.levels[at]
    span = asked.span()

    def attempt() -> tuple[pa.Table, int]:
        views = tables.view([level.name for level in frame.levels[: at + 1]])
        check_whole(views, tables.uri)
        held = views[-1].covers.get(EXPIRED, EVER[0])
        low, high = span or EVER
        low = max(low, held)
        pieces = layer(views, frame.levels[: at + 1], [(low, high)] if low < high else []).pieces
        return tables.read(pieces, asked.columns), held

    rows, held = again(attempt)
    if held > EVER[0] and (asked.within is None or asked.within[0] < held):
        warnings.warn(_expired(asked, source.name, held), Expired, stacklevel=4)
    if span is None:
        starts = rows.column(START).cast(pa.int64()).to_numpy()
        span = widened((int(starts.min()), int(starts.max()) + 1), source) if len(starts) else (0, 0)
    return states_asked(rows, asked, span), span, held


def check_whole(views: Sequence[View], uri: str) -> None:
    """Raise `StoreError` where a coarser level has been lost: what finer ones have merged was in it."""
    merged = any(part.writer == MERGED for part in views[0].parts)
    for view in views[1:]:
        rebuilding = any(part.writer.startswith(REPLACED) and not view.holds(part) for part in views[0].parts)
        if merged and not view.parts and not view.covers and not rebuilding:
            raise StoreError(f"the store {uri} is damaged: its level {view.level} is lost; rebuild() derives it anew")


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
    since = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=held)
    return f"{level} is held from {since.isoformat()}Z only; ask per a coarser level for what was before"
