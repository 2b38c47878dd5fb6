"""Determine which rows join a session that is still in memory.

Rows are processed in the order of their arrival. A row is accepted if the session that results from adding it is recent
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
_HIGHEST = np.iinfo(np.int64).max
_LOWEST = np.iinfo(np.int64).min


def find_accepted_rows(
    accepted_alone: NDArray[np.bool_], keys: Keys, starts: Instants, length: int
) -> NDArray[np.bool_]:
    """Return a mask of the rows that are accepted. These are the rows for which ``accepted_alone`` is true, and the
    rows whose interval touches the interval of an earlier accepted row of the same key.

    Parameters
    ----------
    accepted_alone : array of bool, shape (rows,)
        Whether each row is accepted without regard to other rows of the batch: its interval is not too old, or it
        touches a session in memory.
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
    cell_numbers_of_rows = starts // length
    order = np.lexsort((cell_numbers_of_rows, keys))
    sorted_keys = keys[order]
    sorted_cell_numbers = cell_numbers_of_rows[order]
    has_other_cell = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_cell_numbers[1:] != sorted_cell_numbers[:-1])
    is_first_of_cell = np.append(True, has_other_cell)[: len(order)]
    row_cells = np.empty(len(order), np.int64)
    row_cells[order] = np.cumsum(is_first_of_cell) - 1
    # for each cell, its key and its number; the number is the start of any interval in the cell, divided by the session
    # gap and rounded down
    cell_keys = sorted_keys[is_first_of_cell]
    cell_numbers = sorted_cell_numbers[is_first_of_cell]
    are_adjacent = (cell_keys[1:] == cell_keys[:-1]) & (cell_numbers[1:] == cell_numbers[:-1] + 1)
    neighbours = np.append(False, are_adjacent), np.append(are_adjacent, False)
    return np.asarray(_accept_rows(accepted_alone, row_cells, starts, *neighbours, length))


@compiled
def _accept_rows(accepted_alone, row_cells, starts, has_previous, has_next, length):  # type: ignore[no-untyped-def]
    """Compute the mask of `find_accepted_rows` row by row, and return it.

    A cell is a combination of a key and a number. A row belongs to the cell with the key of the row and the number
    ``start // length``, where ``start`` is the start of the row's interval. ``row_cells`` has the index of the cell of
    each row. Cells are sorted by key and number. For a cell with the number n, ``has_previous`` and ``has_next`` say
    whether the same key has a cell with the number n - 1 or n + 1.
    """
    # For each cell, the earliest and the latest start of the intervals that belong to accepted rows of the cell.
    first_start = np.full(len(has_previous), _HIGHEST)
    last_start = np.full(len(has_previous), _LOWEST)
    accepted = np.empty(len(accepted_alone), np.bool_)
    for row in range(len(accepted_alone)):
        cell = row_cells[row]
        start = starts[row]
        is_accepted = accepted_alone[row] or last_start[cell] > _LOWEST
        if not is_accepted and has_previous[cell] and last_start[cell - 1] > _LOWEST:
            is_accepted = start - last_start[cell - 1] <= length
        if not is_accepted and has_next[cell] and first_start[cell + 1] < _HIGHEST:
            is_accepted = first_start[cell + 1] - start <= length
        accepted[row] = is_accepted
        if is_accepted:
            first_start[cell] = min(first_start[cell], start)
            last_start[cell] = max(last_start[cell], start)
    return accepted


def mask_touching_sessions(
    sessions: tuple[Keys, Instants, Instants], keys: Keys, starts: Instants, end_times: Instants
) -> NDArray[np.bool_]:
    """Return a mask of the intervals that overlap or touch a session in memory. An interval includes its start and its
    end.

    Parameters
    ----------
    sessions : tuple of keys, starts, ends
        The sessions in memory. Sessions of the same key do not touch each other.
    keys, starts, end_times : arrays, shape (intervals,)
        The ids of keys, and times in microseconds.
    """
    session_keys, session_starts, session_ends = sessions
    session_count = len(session_keys)
    is_interval = np.repeat([False, True], [session_count, len(keys)])
    order = np.lexsort((is_interval, np.concatenate([session_starts, end_times]), np.concatenate([session_keys, keys])))
    # The candidate of an interval is the last session, in the order of keys and starts, that begins at or before the
    # interval's end. An interval that touches any session of its key touches its candidate.
    last = np.maximum.accumulate(np.where(is_interval[order], -1, np.arange(len(order))))
    # A candidate may belong to another key than the interval, so the keys are compared below.
    places = np.where(last < 0, 0, order[last])
    candidates = np.empty(session_count + len(keys), np.int64)
    candidates[order] = np.where(last < 0, -1, places)
    # for each interval, the index of its candidate, or -1 if it has no candidate
    candidate_sessions = candidates[session_count:]
    touches = candidate_sessions >= 0
    sessions_of_candidates = candidate_sessions[touches]
    has_same_key = session_keys[sessions_of_candidates] == keys[touches]
    touches[touches] = has_same_key & (session_ends[sessions_of_candidates] >= starts[touches])
    return touches
