"""Loops that count keys in arrays of cells, with one cell per key, and that write such arrays as histograms.

Keys are counted group after group, in the same cells, which fit into the cache. A group is left out if its keys are so
far apart that it would need many more cells than it has keys. `aggr.histograms.buckets` sorts the keys of such a group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Bytes
from aggr.arrays import Whole as Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.leb128 import FAR, put_number

# A group with n keys may have `MAX_CELLS_PER_KEY` · n cells, but at most `LARGE_GROUP_CELLS`. If
# `MAX_CELLS_PER_KEY_OF_LARGE` · n exceeds `LARGE_GROUP_CELLS`, the group may have `MAX_CELLS_PER_KEY_OF_LARGE` · n
# cells. When histograms are merged, n is the number of their encoded bytes. If a group would need more cells, its keys
# are sorted instead. In measurements, sorting took 60 ns per key. An empty cell took only 0.01 ns, because used cells
# are marked in words of 64 bits, so that 64 empty cells are skipped at a time.
MAX_CELLS_PER_KEY_OF_LARGE = 32
MAX_CELLS_PER_KEY = 1 << 10
LARGE_GROUP_CELLS = 1 << 20

# Cells are tested in blocks of this size. If all cells of a block are 0, the block is skipped.
_BLOCK = 8

# The mark of ``cell`` is the bit ``ONE << (cell & MARK_BIT_MASK)`` of the word ``marks[cell >> MARK_WORD_SHIFT]``.
ONE = np.uint64(1)
MARK_WORD_SHIFT = np.uint64(6)
MARK_BIT_MASK = np.uint64(63)
# If a group has more than this number of cells per key, each used cell is marked by a bit, so that empty cells need not
# be examined.
MAX_UNMARKED_CELLS_PER_KEY = 3
# Every group may have up to this number of cells, even if it has few keys. With 8 bytes per cell, the cells take
# 32 KiB, the usual size of a processor's first-level cache.
MIN_CELLS = 1 << 12

Rows = NDArray[np.int32]
KeyLists = tuple[Whole, Whole]  # an array for the keys of a group, and an array for their counts

# the lowest keys, highest keys and totals of histograms, their encoded counts, and the offsets of the encoded counts
HistogramColumns = tuple[Whole, Whole, Whole, Bytes, Whole]


@compiled
def find_key_ranges(keys: NDArray[np.integer], offsets: Whole) -> tuple[Whole, Whole]:
    """Return the lowest and the highest key of each group, each of shape (groups,).

    The keys of group ``g`` are ``keys[offsets[g]:offsets[g + 1]]``. For a group without keys, the results are `FAR` and
    ``-FAR``.
    """
    n = len(offsets) - 1
    low = np.full(n, FAR)
    high = np.full(n, -FAR)
    for group in range(n):
        for key in keys[offsets[group] : offsets[group + 1]]:
            low[group], high[group] = min(low[group], key), max(high[group], key)
    return low, high


@compiled
def count_keys(keys: NDArray[np.integer], offsets_of_groups: Whole, low: Whole, spans: Whole) -> HistogramColumns:
    """Return the histogram of each group ``g``, whose keys are ``keys[offsets_of_groups[g]:offsets_of_groups[g + 1]]``.

    The histogram has ``spans[g]`` adjacent keys, from ``low[g]`` on. Lower keys are counted at ``low[g]``. If
    ``spans[g]`` is 0, the group is left out, and its histogram is empty.
    """
    cell: Int
    n = len(offsets_of_groups) - 1
    widest = np.int64(MIN_CELLS)
    for group in range(n):
        widest = max(widest, spans[group])
    lows = np.zeros(n, np.int64)
    highs = np.zeros(n, np.int64)
    totals = np.zeros(n, np.int64)
    # An encoded count of n takes at most n bytes, and the gap before each count takes at most five bytes.
    data = np.empty(6 * len(keys) + 2, np.uint8)
    offsets = np.zeros(n + 1, np.int64)
    cells = np.zeros(widest, np.int32)
    marks = np.zeros(widest // 64 + 1, np.uint64)
    key_lists = allocate_lists(widest)
    at: Int = np.int64(0)
    for group in range(n):
        span = spans[group]
        lowest = low[group]
        group_keys = keys[offsets_of_groups[group] : offsets_of_groups[group + 1]]
        if span:
            # Keys are clipped, so that a key outside the range of the group cannot write outside the cells.
            if span <= MAX_UNMARKED_CELLS_PER_KEY * len(group_keys):
                for i in range(len(group_keys)):
                    cells[np.uint64(min(max(group_keys[i] - lowest, 0), span - 1))] += 1
                at = write_cells(cells[:span], key_lists, data, at)
            else:
                for i in range(len(group_keys)):
                    cell = np.uint64(min(max(group_keys[i] - lowest, 0), span - 1))
                    cells[cell] += 1
                    marks[cell >> MARK_WORD_SHIFT] |= ONE << (cell & MARK_BIT_MASK)
                at = write_marked(cells, marks, span, data, at)
            lows[group], highs[group], totals[group] = lowest, lowest + span - 1, len(group_keys)
        offsets[group + 1] = at
    return lows, highs, totals, data[:at].copy(), offsets


@compiled
def allocate_lists(cells: Int) -> KeyLists:
    """Allocate two arrays, for keys and for counts, each with ``cells`` entries and one unused entry."""
    return np.empty(cells + 1, np.int64), np.empty(cells + 1, np.int64)


@compiled
def write_cells(cells: NDArray[np.integer], key_lists: KeyLists, data: Bytes, at: Int) -> Int:
    """Encode the counts in ``cells`` at the byte offset ``at`` of ``data``, and set the cells to 0.

    The first and the last cell must not be 0. ``key_lists`` is memory for the keys and counts. Return the offset after
    the encoded counts.
    """
    keys, counts = key_lists
    size = np.int64(0)
    blocks_end = len(cells) - len(cells) % _BLOCK
    for start in range(0, blocks_end, _BLOCK):
        has_count = cells[start]
        for cell in range(start + 1, start + _BLOCK):
            has_count |= cells[cell]
        if has_count:  # if keys are far apart, most blocks have only zeros
            for cell in range(start, start + _BLOCK):
                size = _list_cell(cells, cell, keys, counts, size)
    for cell in range(blocks_end, len(cells)):
        size = _list_cell(cells, cell, keys, counts, size)
    return write_keys(keys, counts, size, data, at)


@compiled
def write_marked(cells: NDArray[np.integer], marks: NDArray[np.uint64], span: Int, data: Bytes, at: Int) -> Int:
    """Encode the counts in the marked cells among the first ``span`` cells, at the byte offset ``at`` of ``data``.

    Set the cells and the marks to 0. Return the offset after the encoded counts. If most cells are 0, this takes half
    the time of `write_cells`, which examines all cells.
    """
    cell: Int
    last = np.int64(-1)
    for word in range((span - 1) // 64 + 1):
        remaining_marks: Int = marks[np.uint64(word)]
        marks[np.uint64(word)] = 0
        while remaining_marks:
            # ``bit`` contains only the lowest mark of the word. It is converted to a double, because the exponent of
            # this double is the position of the mark.
            bit = remaining_marks & (~remaining_marks + ONE)
            remaining_marks &= remaining_marks - ONE
            cell = np.int64(64 * word + (np.float64(bit).view(np.int64) >> 52) - 1023)
            count = np.int64(cells[np.uint64(cell)])
            skipped = cell - last - 1
            cells[np.uint64(cell)], last = 0, cell
            gap = (2 * skipped - 1) * (skipped > 1)
            while gap > 127:  # writes the same bytes as `put_number` for -skipped, but is faster than a call
                data[np.uint64(at)] = (gap & 127) | 128
                gap = gap >> 7
                at = at + 1
            data[np.uint64(at)] = gap
            at += skipped != 0
            if count < 64:
                data[np.uint64(at)] = 2 * count
                at += 1
            else:
                at = put_number(data, at, count)
    return at


@compiled
def _list_cell(cells: NDArray[np.integer], cell: Int, keys: Whole, counts: Whole, size: Int) -> Int:
    """Write a cell's key and count at position `size` of the lists, clear the cell, and return the new size.

    An empty cell does not increase the size, so that the next call overwrites the entry of the empty cell.
    """
    keys[np.uint64(size)], counts[np.uint64(size)] = cell, cells[cell]
    size += cells[cell] != 0
    cells[cell] = 0
    return size


@compiled
def write_keys(keys: Whole, counts: Whole, size: Int, data: Bytes, at: Int) -> Int:
    """Encode the counts of the first ``size`` entries of ``keys`` at the byte offset ``at`` of ``data``.

    The keys must ascend, and there must be at least one. Return the offset after the encoded counts.
    """
    previous_key = keys[0] - 1
    for i in range(size):
        count = counts[np.uint64(i)]
        gap = keys[np.uint64(i)] - previous_key - 1
        previous_key = keys[np.uint64(i)]
        # In the usual case, the gap and the count take at most one byte each. They are then written without another
        # branch, because the processor cannot predict gaps.
        if count < 64 and gap < 64:
            data[np.uint64(at)] = (2 * gap - 1) * (gap > 1)
            at += gap != 0
            data[np.uint64(at)] = 2 * count
            at += 1
        else:
            at = _write_count(gap, count, data, at)
    return at


@compiled
def _write_count(gap: Int, count: Int, data: Bytes, at: Int) -> Int:
    """Encode a gap of ``gap`` keys and then a count at the byte offset ``at``.

    Return the offset after the count.
    """
    if gap:
        at = put_number(data, at, -gap if gap > 1 else np.int64(0))
    return put_number(data, at, count)
