"""Pairs: add two histograms by interleaving lists of their keys, which is fast if the keys are far apart.

Most merges in a stream have two inputs: the state so far and a new state. The time of counting in cells grows with the
distance of the keys. The time of interleaving two lists grows with the number of keys.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Bytes, Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.column import saturated
from aggr.histograms.loops import write_keys
from aggr.histograms.reading import listed

# keys and counts of the first histogram, of the second, and of the sum
Lists = tuple[Whole, Whole, Whole, Whole, Whole, Whole]


@compiled
def lists_of(max_bytes: Int) -> Lists:
    """Allocate lists for two histograms of at most ``max_bytes`` in total."""
    n = max_bytes + 1
    keys, counts, more_keys = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    return keys, counts, more_keys, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)


@compiled
def add_two(
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    total: Whole,
    bytes_of_rows: Bytes,
    places: Whole,
    first: Int,
    second: Int,
    lists: Lists,
    data: Bytes,
    at: Int,
) -> Int:
    """Write the sum of the histograms in two rows that are not empty; return the byte offset after the sum, or -1 if
    one of them is damaged.
    """
    keys_1, counts_1, keys_2, counts_2, keys, counts = lists
    n = listed(low[first], high[first], bytes_of_rows, places[first], places[first + 1], keys_1, counts_1)
    m = listed(low[second], high[second], bytes_of_rows, places[second], places[second + 1], keys_2, counts_2)
    if not (_adds_up(counts_1, n, total[first]) and _adds_up(counts_2, m, total[second])):
        return np.int64(-1)
    size = _interleave(
        keys_1, counts_1, np.uint64(n), keys_2, counts_2=counts_2, m=np.uint64(m), keys=keys, counts=counts
    )
    return write_keys(keys, counts, size, data, at)


@compiled
def _adds_up(counts: Whole, size: Int, total: Int) -> bool:
    """Return whether the counts add up to ``total``. The result is False for a size of -1, which marks a damaged
    histogram.
    """
    seen = np.uint64(0)
    for i in range(size):
        seen = saturated(seen, counts[i])
    return bool(size >= 0 and seen == np.uint64(total))


@compiled
def _interleave(
    keys_1: Whole, counts_1: Whole, n: Int, keys_2: Whole, counts_2: Whole, m: Int, keys: Whole, counts: Whole
) -> Int:
    """Merge two ascending lists of keys, and add the counts of keys that occur in both; return the number of keys."""
    i, j, size, step = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(1)
    while i < n and j < m:  # without branches, because the order of keys is unpredictable
        a, b = keys_1[i], keys_2[j]
        keys[size] = min(a, b)
        counts[size] = (a <= b) * counts_1[i] + (b <= a) * counts_2[j]
        i += np.uint64(a <= b)
        j += np.uint64(b <= a)
        size += step
    while i < n:
        keys[size], counts[size] = keys_1[i], counts_1[i]
        i += step
        size += step
    while j < m:
        keys[size], counts[size] = keys_2[j], counts_2[j]
        j += step
        size += step
    return np.int64(size)
