"""Rows that join sessions in the order of their arrival: determine which rows join a session that is still kept.

Whether a session is kept is determined after the row has joined it. A row whose own interval is over therefore counts
if the session that it joins is not over. The session may be in memory or consist of earlier rows of the batch; later
rows make no difference. The result therefore does not depend on how rows are split into batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.compiling.jit import compiled
from windows.timezone import Instants

Keys = NDArray[np.integer]
_HIGHEST, _LOWEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def kept_in_order(own: NDArray[np.bool_], keys: Keys, starts: Instants, length: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that count, in the order of their arrival.

    ``own`` marks the rows that count independently of other rows: their interval is not over, or it touches a session
    in memory. All intervals have the same length, in microseconds.
    """
    cells = starts // length  # rows in the same cell overlap; other rows can touch only if their cells are adjacent
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
    """Process rows one by one. For each cell, store the first and the last row that counts."""
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
    """Return a mask of the intervals that overlap or touch a session in memory (keys, starts, ends). Sessions of a key
    do not touch each other.
    """
    held_keys, held_starts, held_ends = present
    n = len(held_keys)
    sought = np.repeat([False, True], [n, len(keys)])
    order = np.lexsort((sought, np.concatenate([held_starts, end_times]), np.concatenate([held_keys, keys])))
    # the session that begins at or before the interval's end
    last = np.maximum.accumulate(np.where(sought[order], -1, np.arange(len(order))))
    # if its key is the same, it begins at or before the end of the interval
    places = np.where(last < 0, 0, order[last])
    touched = np.empty(n + len(keys), np.int64)
    touched[order] = np.where(last < 0, -1, places)
    at = touched[n:]
    meets = at >= 0
    meets[meets] = (held_keys[at[meets]] == keys[meets]) & (held_ends[at[meets]] >= starts[meets])
    return meets
