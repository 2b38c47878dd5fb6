"""Cells: keys counted in lines of cells, and lines written as histograms.

Keys that lie close together are counted as they come, all groups' in one line. Others are counted group after group,
in a line that stays in the cache; where a group's keys lie so far apart that it would have many more cells than keys,
they are sorted instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.kernels.jit import Int, compiled
from aggr.kernels.leb128 import FAR, Bytes, put_number

# Cells an entry, above which entries are sorted instead. Up to there a line takes at most 256 bytes an entry, and its
# cells, below 1 ns each, cost less than a sort, 150 ns an entry and more (measured).
SPARSE = 32
FEW = 1 << 12  # cells that are never too many: 32 KiB, what the nearest cache holds

Whole = NDArray[np.int64]
Rows = NDArray[np.int32]
Written = tuple[Whole, Whole, Whole, Bytes, Whole]  # lowest keys, highest keys, totals, counts, where they end


@compiled
def reach(keys: NDArray[np.integer], ids: NDArray[np.intp], n: int) -> tuple[Whole, Whole]:
    """Find the least and the greatest key of each group; the least is greater where there is none."""
    low, high = np.full(n, FAR), np.full(n, -FAR)
    for i in range(len(keys)):
        group = ids[i]
        low[group], high[group] = min(low[group], keys[i]), max(high[group], keys[i])
    return low, high


@compiled
def tallied(keys: NDArray[np.integer], ids: NDArray[np.intp], low: Whole, base: Whole) -> Written:
    """Count the keys of each group, whose cells are ``base[g]`` to ``base[g + 1]``, from its key ``low[g]`` on."""
    n = len(low)
    cells, last, widest = np.zeros(base[n], np.int32), base[n] - 1, 0
    for i in range(len(keys)):
        group = ids[i]
        cell = base[group] + max(keys[i] - low[group], 0)
        cells[min(cell, last)] += 1  # never beyond the line, whatever keys come
    for group in range(n):
        widest = max(widest, base[group + 1] - base[group])
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    data, offsets, used = (
        np.empty(6 * len(keys) + 2, np.uint8),
        np.zeros(n + 1, np.int64),
        np.empty(widest + 1, np.int64),
    )
    at = 0
    for group in range(n):
        mine = cells[base[group] : base[group + 1]]
        if len(mine):
            for cell in range(len(mine)):
                totals[group] += mine[cell]
            at = write_cells(mine, used, data, at)
            lows[group], highs[group] = low[group], low[group] + len(mine) - 1
        offsets[group + 1] = at
    return lows, highs, totals, data[:at].copy(), offsets


@compiled
def counted(rows: Rows, until: Whole, keys: NDArray[np.integer], most: int) -> Written:
    """Count the keys of each group, which has ``rows[until[g]:until[g + 1]]``."""
    n = len(until) - 1
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # a count takes no more bytes than it counts rows, and before each may be a gap
    data, offsets = np.empty(6 * len(keys) + 2, np.uint8), np.zeros(n + 1, np.int64)
    mine, line, used = np.empty(_largest(until), np.int64), np.zeros(FEW, np.int64), np.empty(FEW + 1, np.int64)
    at = 0
    for group in range(n):
        first, size = until[group], until[group + 1] - until[group]
        if size:
            low = high = np.int64(keys[rows[first]])
            for i in range(size):
                key = np.int64(keys[rows[first + i]])
                low, high = min(low, key), max(high, key)
                mine[i] = key
            low = max(low, high - most + 1)
            span = high - low + 1
            if span > max(SPARSE * size, FEW):
                at = _write_keys(np.sort(np.maximum(mine[:size], low)), low, data, at)
            else:
                if span > len(line):
                    line, used = np.zeros(2 * span, np.int64), np.empty(2 * span + 1, np.int64)
                for i in range(size):
                    line[max(mine[i] - low, 0)] += 1
                at = write_cells(line[:span], used, data, at)
            lows[group], highs[group], totals[group] = low, high, size
        offsets[group + 1] = at
    return lows, highs, totals, data[:at].copy(), offsets


@compiled
def _largest(until: Whole) -> Int:
    """Find the most rows of a group."""
    largest = 0
    for group in range(len(until) - 1):
        largest = max(largest, until[group + 1] - until[group])
    return largest


@compiled
def write_cells(cells: NDArray[np.integer], used: Whole, data: Bytes, at: Int) -> Int:
    """Write the cells of a group, the first and the last of them used, and empty them; return the place after."""
    size = 0
    for cell in range(len(cells)):
        used[size] = cell  # overwritten by the next, where this one is empty
        size += cells[cell] != 0
    last = used[0] - 1
    for i in range(size):
        count, missing = np.int64(cells[used[i]]), used[i] - last - 1
        last = used[i]
        if count < 64 and missing < 64:  # a byte each, and no branches: gaps come as chance has them
            data[at] = (2 * missing - 1) * (missing > 1)
            at += missing != 0
            data[at] = 2 * count
            at += 1
        else:
            at = _write_count(missing, count, data, at)
    cells[:] = 0
    return at


@compiled
def _write_keys(keys: Whole, low: Int, data: Bytes, at: Int) -> Int:
    """Write how often each of the ordered keys occurs; return the place after."""
    return write_counts(keys, np.ones(len(keys), np.int64), low, data, at)


@compiled
def write_counts(keys: Whole, counts: Whole, low: Int, data: Bytes, at: Int) -> Int:
    """Write the sums of the counts of equal keys, which are ordered; return the place after."""
    expected, i = low, 0
    while i < len(keys):
        key, count = keys[i], 0
        while i < len(keys) and keys[i] == key:
            count += counts[i]
            i += 1
        at = _write_count(key - expected, count, data, at)
        expected = key + 1
    return at


@compiled
def _write_count(missing: Int, count: Int, data: Bytes, at: Int) -> Int:
    """Write a count and the empty keys before it; return the place after."""
    if missing:
        at = put_number(data, at, -missing if missing > 1 else 0)
    return put_number(data, at, count)
