"""Slices: the windows that are asked for, shared out among tasks by what the store says it would read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tiltframe.store.answer import pieces_asked
from tiltframe.store.compact import EVER, again
from tiltframe.store.question import Question
from tiltframe.store.tables import Range, Tables, bucket_of
from windows import Hopping, Window


def slices(tables: Tables, asked: Question, bounds: Range, rows_per_task: int) -> list[Range]:
    """Cut the windows that are asked for, and that there can be, into ranges of starts; reads no states.

    Parameters
    ----------
    tables : Tables
    asked : Question
        Per windows, not the whole range.
    bounds : range
        In which windows must start, beside what is asked.
    rows_per_task : int
        Of states, about; a bucket of the store's, see `tiltframe.store.tables.bucket_of`, is never cut.

    Returns
    -------
    list of ranges, in order, that touch
    """
    assert asked.target is not None
    found = [(part, span) for part, span in again(lambda: pieces_asked(tables, asked))[0] if part.rows]
    if not found:
        return []
    begins = np.array([low for _, (low, _) in found], np.int64)
    within = asked.within or EVER
    low = max(first_with(asked.target, int(begins.min())), within[0], bounds[0])
    high = min(max(high for _, (_, high) in found), within[1], bounds[1])
    buckets = bucket_of(asked.frame.levels[asked.source()]).starts(begins)
    cuts = _cuts(_step(asked.target).starts(buckets), np.array([part.rows for part, _ in found]), rows_per_task)
    edges = [low, *(at for at in cuts.tolist() if low < at < high), high]
    return list(pairwise(edges)) if low < high else []


def first_with(target: Window | Hopping, at: int) -> int:
    """Find the first window that has a moment in it.

    >>> from windows import hopping
    >>> first_with(hopping("1h", "30m"), 3_600_000_000) // 60_000_000
    30
    """
    moment = np.array([at], np.int64)
    if isinstance(target, Window):
        return int(target.starts(moment)[0])
    return int(target.starts_of(target.pane.starts(moment))[1].min())


def _step(target: Window | Hopping) -> Window:
    return target if isinstance(target, Window) else target.hop


def _cuts(places: NDArray[np.int64], rows: NDArray[np.int64], rows_per_task: int) -> NDArray[np.int64]:
    """Choose places to cut at, so that some rows lie between each two."""
    places, of = np.unique(places, return_inverse=True)
    each = np.bincount(of, rows).astype(np.int64)
    before = np.cumsum(each) - each
    cuts: NDArray[np.int64] = places[1:][np.diff(before // rows_per_task) > 0]
    return cuts
