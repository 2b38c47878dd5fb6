"""Determine which rows join a session that is still in memory.

Rows are processed in the order of their arrival. A row is accepted if its session, after the row has joined it, is new
enough to stay in memory. A row that would be too old alone is therefore accepted if it joins a session in memory, or a
session that earlier rows of the batch have formed. Later rows of the batch do not count, so that the result does not
depend on how rows are split into batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.compiling.jit import compiled
from windows.timezone import Instants

Keys = NDArray[np.integer]
_HIGHEST, _LOWEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def rows_joining_kept_sessions(own: NDArray[np.bool_], keys: Keys, starts: Instants, length: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that are accepted. These are the rows for which ``own`` is true, and the rows whose
    interval touches the interval of an earlier accepted row of the same key.

    Parameters
    ----------
    own : array of bool, shape (rows,)
        Whether a row is accepted without regard to other rows of the batch: its interval is not too old, or it touches
        a session in memory.
    keys : array of int, shape (rows,)
        The integer id of each row's key.
    starts : array of int64, shape (rows,)
        The start of each row's interval, in microseconds, in the order of arrival. An interval extends from the time of
        a row to one session gap later.
    length : int
        The length of all intervals, the session gap, in microseconds.
    """
    # The time of each key is divided into cells of one session gap, and an interval belongs to the cell of its start.
    # Two intervals in the same cell overlap. Two intervals in different cells can touch only if the cells are adjacent.
    cells = starts // length
    order = np.lexsort((cells, keys))
    sorted_keys, sorted_cells = keys[order], cells[order]
    new = np.append(True, (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_cells[1:] != sorted_cells[:-1]))
    numbers = np.cumsum(new[: len(order)]) - 1
    ids = np.empty(len(order), np.int64)
    ids[order] = numbers
    of_key, of_cell = sorted_keys[new[: len(order)]], sorted_cells[new[: len(order)]]
    after = (of_key[1:] == of_key[:-1]) & (of_cell[1:] == of_cell[:-1] + 1)
    return np.asarray(_accept_rows(own, ids, starts, np.append(False, after), np.append(after, False), length))


@compiled
def _accept_rows(own, ids, starts, before, after, length):  # type: ignore[no-untyped-def]
    """Return the mask of `rows_joining_kept_sessions`, which is computed row by row.

    A cell is a combination of a key and a number ``starts // length``. ``ids`` has the cell of each row. ``before`` and
    ``after`` have, for each cell, whether the cell with the next lower or the next higher number exists for the same
    key.
    """
    low = np.full(len(before), _HIGHEST)
    high = np.full(len(before), _LOWEST)
    counts = np.empty(len(own), np.bool_)
    for row in range(len(own)):
        cell, at = ids[row], starts[row]
        joins = own[row] or high[cell] > _LOWEST
        if not joins and before[cell] and high[cell - 1] > _LOWEST:
            joins = at - high[cell - 1] <= length
        if not joins and after[cell] and low[cell + 1] < _HIGHEST:
            joins = low[cell + 1] - at <= length
        counts[row] = joins
        if joins:
            low[cell] = min(low[cell], at)
            high[cell] = max(high[cell], at)
    return counts


def touch_kept_sessions(
    present: tuple[Keys, Instants, Instants], keys: Keys, starts: Instants, end_times: Instants
) -> NDArray[np.bool_]:
    """Return a mask of the intervals that overlap or touch a session in memory. Both ends count as part of an interval.

    Parameters
    ----------
    present : tuple of keys, starts, ends
        The sessions in memory. Sessions of the same key do not touch each other.
    keys, starts, end_times : arrays, shape (intervals,)
        The ids of keys, and times in microseconds.
    """
    held_keys, held_starts, held_ends = present
    n = len(held_keys)
    sought = np.repeat([False, True], [n, len(keys)])
    order = np.lexsort((sought, np.concatenate([held_starts, end_times]), np.concatenate([held_keys, keys])))
    # For each interval, the last session in the order of keys and starts that begins at or before the interval's end.
    last = np.maximum.accumulate(np.where(sought[order], -1, np.arange(len(order))))
    # This session may belong to another key, so the keys are compared below.
    places = np.where(last < 0, 0, order[last])
    touched = np.empty(n + len(keys), np.int64)
    touched[order] = np.where(last < 0, -1, places)
    at = touched[n:]
    meets = at >= 0
    meets[meets] = (held_keys[at[meets]] == keys[meets]) & (held_ends[at[meets]] >= starts[meets])
    return meets
