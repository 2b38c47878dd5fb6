"""Slices: the windows that are asked for, shared out among tasks by what the store says it would read.

Spark plans a relation once, however often it is read later. So the first and the last slice are open where the
question is: a task finds out itself where the windows begin and end.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tiltframe.store.answer import pieces_asked
from tiltframe.store.compact import EVER, again
from tiltframe.store.layers import Pieces
from tiltframe.store.question import Question
from tiltframe.store.tables import Range, Tables, bucket_of
from windows import Hopping, Window


def slices(tables: Tables, asked: Question, rows_per_task: int) -> list[Range]:
    """Cut the windows that are asked for into ranges of starts; reads no states.

    Parameters
    ----------
    tables : Tables
    asked : Question
        Per windows, not the whole range.
    rows_per_task : int
        Of states, about; a bucket of the store's, see `tiltframe.store.tables.bucket_of`, is never cut.

    Returns
    -------
    list of ranges, in order, that touch; at least one
    """
    assert asked.target is not None
    found = _pieces(tables, asked)
    begins, rows = (
        np.array(column, np.int64) for column in ([low for _, (low, _) in found], [p.rows for p, _ in found])
    )
    buckets = bucket_of(asked.frame.levels[asked.source()]).starts(begins)
    step = asked.target if isinstance(asked.target, Window) else asked.target.hop
    low, high = asked.within or EVER
    return list(
        pairwise([low, *(at for at in _cuts(step.starts(buckets), rows, rows_per_task) if low < at < high), high])
    )


def held(tables: Tables, asked: Question, span: Range) -> Range | None:
    """Close a slice that is open, by the windows that there are now; None where there are none."""
    assert asked.target is not None
    if EVER[0] < span[0] and span[1] < EVER[1]:
        return span
    found = [each for _, each in _pieces(tables, asked)]
    if not found:
        return None
    low = max(span[0], first_with(asked.target, min(low for low, _ in found)))
    high = min(span[1], max(high for _, high in found))
    return (low, high) if low < high else None


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


def _pieces(tables: Tables, asked: Question) -> Pieces:
    return [(part, span) for part, span in again(lambda: pieces_asked(tables, asked))[0] if part.rows]


def _cuts(places: NDArray[np.int64], rows: NDArray[np.int64], rows_per_task: int) -> list[int]:
    """Choose places to cut at, so that some rows lie between each two."""
    places, of = np.unique(places, return_inverse=True)
    each = np.bincount(of, rows).astype(np.int64)
    before = np.cumsum(each) - each
    cuts: list[int] = places[1:][np.diff(before // rows_per_task) > 0].tolist()
    return cuts
