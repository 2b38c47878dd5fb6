"""Overlapping windows as ranges of panes. A pane is a shorter window, whose length is the greatest one that divides
both the size and the hop of the overlapping windows. Panes do not overlap, and an overlapping window consists of
consecutive panes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# If the number of keys times the number of windows is less than this limit, one int64 can represent a pair of a key and
# a window.
_LIMIT = 2**62


class PaneRanges(NamedTuple):
    """Windows as ranges of panes. The window with the index ``i`` has the key ``keys[i]`` and the ordinal number
    ``numbers[i]``. Consecutive windows have consecutive numbers, and windows of different keys with the same times have
    the same number. The window consists of the panes with the indices ``first[i]`` to ``last[i] - 1``.
    """

    keys: Ints
    numbers: Ints
    first: Ints
    last: Ints


def ranges_of_panes(keys: Ints, first: Ints, last: Ints) -> PaneRanges:
    """Return all windows that contain at least one pane, with the range of panes of each window.

    Parameters
    ----------
    keys : array of int64, shape (panes,)
        The key of each pane, ascending.
    first, last : arrays of int64, shape (panes,)
        The ordinal numbers of the first and of the last window that contains each pane. They do not decrease within a
        key.

    Returns
    -------
    PaneRanges

    Examples
    --------
    >>> ranges = ranges_of_panes(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([2, 3, 2]))
    >>> ranges.numbers, ranges.first, ranges.last
    (array([1, 2, 3, 1, 2]), array([0, 0, 1, 2, 2]), array([1, 2, 2, 3, 3]))
    """
    is_head = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    before = np.append(0, last[:-1])[: len(keys)]
    new_first = np.where(is_head, first, np.maximum(first, before + 1))
    counts = np.maximum(last - new_first + 1, 0)
    window_keys = np.repeat(keys, counts)
    place = np.arange(len(window_keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.repeat(new_first, counts) + place
    low = int(first.min(initial=0))
    high = int(last.max(initial=0))
    key_ids = np.cumsum(is_head) - 1
    if (high - low + 1) * (len(keys) + 1) < _LIMIT:
        width = high - low + 1
        firsts = first - low
        lasts = last - low
        sought = numbers - low
    else:  # A key and the number of a window do not fit into one int64. The numbers are replaced by their ranks.
        _, ranks = np.unique(np.concatenate([first, last, numbers]), return_inverse=True)
        firsts, lasts, sought = np.split(ranks, [len(first), 2 * len(first)])
        width = int(ranks.max()) + 1
    lifted = np.repeat(key_ids, counts) * width + sought
    begin = np.searchsorted(key_ids * width + lasts, lifted, side="left")
    end = np.searchsorted(key_ids * width + firsts, lifted, side="right")
    return PaneRanges(window_keys, numbers, begin, end)
