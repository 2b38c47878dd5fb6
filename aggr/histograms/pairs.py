"""The sum of two histograms, computed by merging the ascending lists of their keys.

Most merges in a stream have two inputs: the current state and a new state. Merging the lists takes time in proportion
to the number of keys. Adding counts in an array of cells takes time in proportion to the range of the keys.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Bytes, Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.column import saturated_sum
from aggr.histograms.loops import write_keys
from aggr.histograms.reading import decode_histogram

# the keys and the counts of the first histogram, of the second histogram and of their sum
PairLists = tuple[Whole, Whole, Whole, Whole, Whole, Whole]


@compiled
def allocate_pair_lists(max_bytes: Int) -> PairLists:
    """Allocate arrays for the keys and counts of two histograms and of their sum.

    The encoded counts of both histograms take at most ``max_bytes`` together.
    """
    n = max_bytes + 1
    keys = np.empty(n, np.int64)
    counts = np.empty(n, np.int64)
    more_keys = np.empty(n, np.int64)
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
    lists: PairLists,
    data: Bytes,
    at: Int,
) -> Int:
    """Encode the sum of the histograms in the rows ``first`` and ``second`` at the byte offset ``at`` of ``data``.

    Neither histogram may be empty. The encoded counts of a row are ``bytes_of_rows[places[row]:places[row + 1]]``, and
    ``low``, ``high`` and ``total`` have the lowest key, the highest key and the sum of the counts of each row.
    ``lists`` is the result of `allocate_pair_lists`, called with at least the number of bytes of the encoded counts of
    both histograms. Return the offset after the encoded sum, or -1 if one of the histograms is damaged.
    """
    keys_1, counts_1, keys_2, counts_2, keys, counts = lists
    begin = places[first]
    end = places[first + 1]
    n = decode_histogram(low[first], high[first], bytes_of_rows, at=begin, end=end, keys=keys_1, counts=counts_1)
    begin = places[second]
    end = places[second + 1]
    m = decode_histogram(low[second], high[second], bytes_of_rows, at=begin, end=end, keys=keys_2, counts=counts_2)
    if not (_adds_up(counts_1, n, total[first]) and _adds_up(counts_2, m, total[second])):
        return np.int64(-1)
    size = _merge_keys(
        keys_1, counts_1, np.uint64(n), keys_2, counts_2=counts_2, m=np.uint64(m), keys=keys, counts=counts
    )
    return write_keys(keys, counts, size, data, at)


@compiled
def _adds_up(counts: Whole, size: Int, total: Int) -> bool:
    """Return whether the first ``size`` counts add up to ``total``.

    Return False if ``size`` is -1, which is the result of `decode_histogram` for a damaged histogram.
    """
    value_count = np.uint64(0)
    for i in range(size):
        value_count = saturated_sum(value_count, counts[i])
    return bool(size >= 0 and value_count == np.uint64(total))


@compiled
def _merge_keys(
    keys_1: Whole, counts_1: Whole, n: Int, keys_2: Whole, counts_2: Whole, m: Int, keys: Whole, counts: Whole
) -> Int:
    """Merge two histograms into ``keys`` and ``counts``, and return the number of merged keys.

    ``keys_1`` has ``n`` ascending keys, with the counts ``counts_1``, and ``keys_2`` has ``m`` keys, with the counts
    ``counts_2``. The counts of a key that occurs in both are added.
    """
    i = np.uint64(0)
    j = np.uint64(0)
    size = np.uint64(0)
    step = np.uint64(1)
    while i < n and j < m:  # without branches, because the processor cannot predict the order of the keys
        a = keys_1[i]
        b = keys_2[j]
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
