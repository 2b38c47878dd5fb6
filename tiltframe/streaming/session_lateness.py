"""Rows that join sessions in the order of their arrival: which of them join a session that is kept.

A session is judged after the row has joined it. A row whose own interval is over counts if the session that it joins is
not over, whether that session was in memory or consists of earlier rows of the batch; later rows do not change this. So
the result does not depend on how rows are split into batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.compiling.jit import compiled
from windows.timezone import Instants

Keys = NDArray[np.integer]
_HIGHEST, _LOWEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def kept_in_order(own: NDArray[np.bool_], keys: Keys, starts: Instants, length: int) -> NDArray[np.bool_]:
    """Return which rows count, in the order of their arrival.

    ``own`` marks rows that count by themselves: their interval is not over, or touches a session in memory. All
    intervals have the same length in microseconds.
    """
    cells = starts // length  # rows of a cell overlap; others only touch in neighbouring cells
    order = np.lexsort((cells, keys))
    sorted_keys, sorted_cells = keys[order], cells[order]
    new = np.append(True, (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_cells[1:] != sorted_cells[:-1]))
    numbers = np.cumsum(new[: len(order)]) - 1
    ids = np.empty(len(order), np.int64)
    ids[order] = numbers
    of_key, of_cell = sorted_keys[new[: len(order)]], sorted_cells[new[: len(order)]]
    after = (of_key[1:] == of_key[:-1]) & (of_cell[1:] == of_cell[:-1] + 1)
    return np.asarray(_joining(own, ids, starts, np.append(False, after), np.append(after, False), length))


@compiled
def _joining(own, ids, starts, before, after, length):  # type: ignore[no-untyped-def]
    """Process rows one by one, with the first and the last counting row of each cell."""
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


def touches_held(
    present: tuple[Keys, Instants, Instants], keys: Keys, starts: Instants, end_times: Instants
) -> NDArray[np.bool_]:
    """Return which intervals overlap or touch a session in memory (keys, starts, ends); sessions of a key are apart."""
    held_keys, held_starts, held_ends = present
    n = len(held_keys)
    sought = np.repeat([False, True], [n, len(keys)])
    order = np.lexsort((sought, np.concatenate([held_starts, end_times]), np.concatenate([held_keys, keys])))
    last = np.maximum.accumulate(np.where(sought[order], -1, np.arange(len(order))))  # the session at or before
    places = np.where(last < 0, 0, order[last])  # it begins at or before the end, if it has the key
    touched = np.empty(n + len(keys), np.int64)
    touched[order] = np.where(last < 0, -1, places)
    at = touched[n:]
    meets = at >= 0
    meets[meets] = (held_keys[at[meets]] == keys[meets]) & (held_ends[at[meets]] >= starts[meets])
    return meets
