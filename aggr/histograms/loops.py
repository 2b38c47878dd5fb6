"""Loops over cells: keys counted in lines of cells, and lines written as histograms.

Keys are counted group after group, in a line that stays in the cache; a group whose keys lie so far apart that it would
have many more cells than keys is left out, for its keys to be sorted instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Bytes
from aggr.arrays import Whole as Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.leb128 import FAR, put_number

# A line may have this many cells an entry, or, up to `LINE` cells, of 4 or 8 bytes each, many more: those that are
# used are marked, a word for 64, so that an empty cell costs 0.01 ns, where sorting costs 60 ns an entry (measured).
# Beyond, entries are sorted instead.
SPARSE = 32
EMPTY, LINE = 1 << 10, 1 << 20
_BLOCK = 8  # cells looked at together
ONE, WORD_OF, PLACE = np.uint64(1), np.uint64(6), np.uint64(63)  # a bit; which word of 64 has a mark, and where
DENSE = 3  # cells a key, above which those that are used are marked
FEW = 1 << 12  # cells that are never too many: 32 KiB, what the nearest cache holds

Rows = NDArray[np.int32]
Line = tuple[Whole, Whole]  # room for the keys of a group and their counts
Written = tuple[Whole, Whole, Whole, Bytes, Whole]  # lowest keys, highest keys, totals, counts, where they end


@compiled
def find_key_ranges(keys: NDArray[np.integer], until: Whole) -> tuple[Whole, Whole]:
    """Find the least and the greatest key of each group; the least is greater where there is none."""
    n = len(until) - 1
    low, high = np.full(n, FAR), np.full(n, -FAR)
    for group in range(n):
        for key in keys[until[group] : until[group + 1]]:
            low[group], high[group] = min(low[group], key), max(high[group], key)
    return low, high


@compiled
def counted(keys: NDArray[np.integer], until: Whole, low: Whole, spans: Whole) -> Written:
    """Count the keys of each group, which are ``keys[until[g]:until[g + 1]]``, from its key ``low[g]`` on.

    Its cells are ``spans[g]``; a group that has none is left out.
    """
    cell: Int
    n, widest = len(until) - 1, np.int64(FEW)
    for group in range(n):
        widest = max(widest, spans[group])
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # a count takes no more bytes than it counts rows, and before each may be a gap
    data, offsets = np.empty(6 * len(keys) + 2, np.uint8), np.zeros(n + 1, np.int64)
    cells, marks, line = np.zeros(widest, np.int32), np.zeros(widest // 64 + 1, np.uint64), room(widest)
    at: Int = np.int64(0)
    for group in range(n):
        group_keys, span, lowest = keys[until[group] : until[group + 1]], spans[group], low[group]
        if span:
            # never beyond the line, whatever keys come
            if span <= DENSE * len(group_keys):
                for i in range(len(group_keys)):
                    cells[np.uint64(min(max(group_keys[i] - lowest, 0), span - 1))] += 1
                at = write_cells(cells[:span], line, data, at)
            else:
                for i in range(len(group_keys)):
                    cell = np.uint64(min(max(group_keys[i] - lowest, 0), span - 1))
                    cells[cell] += 1
                    marks[cell >> WORD_OF] |= ONE << (cell & PLACE)
                at = write_marked(cells, marks, span, data, at)
            lows[group], highs[group], totals[group] = lowest, lowest + span - 1, len(group_keys)
        offsets[group + 1] = at
    return lows, highs, totals, data[:at].copy(), offsets


@compiled
def room(cells: Int) -> Line:
    """Make room for the keys and counts of a number of cells."""
    return np.empty(cells + 1, np.int64), np.empty(cells + 1, np.int64)


@compiled
def write_cells(cells: NDArray[np.integer], line: Line, data: Bytes, at: Int) -> Int:
    """Write the cells of a group, the first and the last of them used, and empty them; return the place after."""
    keys, counts = line
    size, blocks_end = np.int64(0), len(cells) - len(cells) % _BLOCK
    for start in range(0, blocks_end, _BLOCK):
        used = cells[start]
        for cell in range(start + 1, start + _BLOCK):
            used |= cells[cell]
        if used:  # where keys are scattered, most blocks are empty
            for cell in range(start, start + _BLOCK):
                size = _list_cell(cells, cell, keys, counts, size)
    for cell in range(blocks_end, len(cells)):
        size = _list_cell(cells, cell, keys, counts, size)
    return write_keys(keys, counts, size, data, at)


@compiled
def write_marked(cells: NDArray[np.integer], marks: NDArray[np.uint64], span: Int, data: Bytes, at: Int) -> Int:
    """Write the cells of a group, a bit marking each that is used, and empty both; return the place after.

    Where most cells are empty this takes half the time of `write_cells`, which looks at all of them.
    """
    cell: Int
    last = np.int64(-1)
    for word in range((span - 1) // 64 + 1):
        left: Int = marks[np.uint64(word)]
        marks[np.uint64(word)] = 0
        while left:
            bit = left & (~left + ONE)  # the lowest; as a double, its exponent is its place
            left &= left - ONE
            cell = np.int64(64 * word + (np.float64(bit).view(np.int64) >> 52) - 1023)
            count, missing = np.int64(cells[np.uint64(cell)]), cell - last - 1
            cells[np.uint64(cell)], last = 0, cell
            gap = (2 * missing - 1) * (missing > 1)  # as `put_number` writes it, which takes longer to call
            while gap > 127:
                data[np.uint64(at)] = (gap & 127) | 128
                gap, at = gap >> 7, at + 1
            data[np.uint64(at)] = gap
            at += missing != 0
            if count < 64:
                data[np.uint64(at)] = 2 * count
                at += 1
            else:
                at = put_number(data, at, count)
    return at


@compiled
def _list_cell(cells: NDArray[np.integer], cell: Int, keys: Whole, counts: Whole, size: Int) -> Int:
    """Empty a cell, and list its key and count; an empty cell is overwritten by the next."""
    keys[np.uint64(size)], counts[np.uint64(size)] = cell, cells[cell]
    size += cells[cell] != 0
    cells[cell] = 0
    return size


@compiled
def write_keys(keys: Whole, counts: Whole, size: Int, data: Bytes, at: Int) -> Int:
    """Write ascending keys and their counts, at least one; return the place after."""
    last = keys[0] - 1
    for i in range(size):
        count, missing = counts[np.uint64(i)], keys[np.uint64(i)] - last - 1
        last = keys[np.uint64(i)]
        if count < 64 and missing < 64:  # a byte each, and no branches: gaps come as chance has them
            data[np.uint64(at)] = (2 * missing - 1) * (missing > 1)
            at += missing != 0
            data[np.uint64(at)] = 2 * count
            at += 1
        else:
            at = _write_count(missing, count, data, at)
    return at


@compiled
def _write_count(missing: Int, count: Int, data: Bytes, at: Int) -> Int:
    """Write a count and the empty keys before it; return the place after."""
    if missing:
        at = put_number(data, at, -missing if missing > 1 else np.int64(0))
    return put_number(data, at, count)
