"""Buckets: the field of a state that holds histograms over whole-number keys, which HdrHistogram and DDSketch share.

Group after group, keys are counted in a line of cells that stays in the cache; where a group's keys lie so far apart
that there would be many more cells than keys, they are sorted instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.compiled import Int, compiled
from aggr.groups import Groups
from aggr.histograms import DAMAGED, MOST, capped, column_of
from aggr.zigzag import FAR, Bytes, get_number, of_arrow, put_number, to_arrow

_SPARSE = 32  # cells an entry, from which on sorting is faster
_FEW = 1 << 12  # cells that cost nothing

Whole = NDArray[np.int64]
Rows = NDArray[np.int32]
Written = tuple[Whole, Whole, Whole, Bytes, Whole]  # lowest keys, highest keys, totals, counts, where they end


@dataclass(frozen=True, slots=True)
class Buckets:
    """The field of a state that holds histograms, a column of `aggr.histograms.HISTOGRAM_TYPE`.

    Parameters
    ----------
    most : int or None
        Keep at most this many neighbouring keys: every key more than ``most - 1`` below the highest one counts
        at the lowest key kept. What is kept depends on the highest key alone, so the order of merges does not
        show.
    """

    most: int | None = None

    def reduce(self, keys: NDArray[np.integer], groups: Groups) -> pa.StructArray:
        """Count the keys of each group; keys must lie within int32."""
        return _column(*_counted(*groups.rows(), keys, self.most or FAR))

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add the histograms of each group.

        Raises ``ValueError`` for a damaged one, and ``OverflowError`` where a group counts beyond int64.
        """
        low, high, totals = (column.field(name).to_numpy() for name in ("low", "high", "total"))
        data, places = of_arrow(column.field("counts"))
        written, broken, overflown = _merged(*groups.rows(), low, high, totals, data, places, self.most or FAR)
        if broken:
            raise ValueError(DAMAGED)
        if overflown:
            raise OverflowError("a count grew beyond int64")
        return _column(*written)


def _column(low: Whole, high: Whole, totals: Whole, data: Bytes, offsets: Whole) -> pa.StructArray:
    return column_of(low, high, totals, to_arrow(data, offsets))


@compiled
def _counted(rows: Rows, until: Whole, keys: NDArray[np.integer], most: int) -> Written:
    """Count the keys of each group, which has ``rows[until[g]:until[g + 1]]``."""
    n = len(until) - 1
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # a count takes no more bytes than it counts rows, and before each may be a gap
    data, offsets = np.empty(6 * len(keys) + 2, np.uint8), np.zeros(n + 1, np.int64)
    mine, line, used = np.empty(_largest(until), np.int64), np.zeros(_FEW, np.int64), np.empty(_FEW + 1, np.int64)
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
            if span > max(_SPARSE * size, _FEW):
                at = _write_keys(np.sort(np.maximum(mine[:size], low)), low, data, at)
            else:
                if span > len(line):
                    line, used = np.zeros(2 * span, np.int64), np.empty(2 * span + 1, np.int64)
                for i in range(size):
                    line[max(mine[i] - low, 0)] += 1
                at = _write_cells(line[:span], used, data, at)
            lows[group], highs[group], totals[group] = low, high, size
        offsets[group + 1] = at
    return lows, highs, totals, data[:at].copy(), offsets


@compiled
def _merged(
    rows: Rows,
    until: Whole,
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    total: Whole,
    given: Bytes,
    places: NDArray[np.int32],
    most: int,
) -> tuple[Written, bool, bool]:
    """Merge the histograms of each group, which has ``rows[until[g]:until[g + 1]]``.

    Say as well whether one is damaged, and whether a count grew beyond int64.
    """
    n, broken, overflown = len(until) - 1, False, False
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # a sum takes no more bytes than what is summed, and before each may be a gap
    data, offsets = np.empty(6 * len(given) + 2, np.uint8), np.zeros(n + 1, np.int64)
    line, used = np.zeros(_FEW, np.int64), np.empty(_FEW + 1, np.int64)
    at = 0
    for group in range(n):
        least: Int
        greatest: Int
        least, greatest, size, only = FAR, -FAR, 0, -1
        for i in range(until[group], until[group + 1]):
            row = rows[i]
            if total[row]:
                only = row if size == 0 else -1
                least, greatest = min(least, np.int64(low[row])), max(greatest, np.int64(high[row]))
                size += places[row + 1] - places[row]
                totals[group] = capped(totals[group], total[row])
        folded = max(least, greatest - most + 1)
        span = greatest - folded + 1
        overflown |= only < 0 and totals[group] == MOST
        if size and span < 1:
            broken = True
            break
        if only >= 0 and folded == least:  # alone: as it is
            for place in range(places[only], places[only + 1]):
                data[at] = given[place]
                at += 1
        elif size and span > max(_SPARSE * size, _FEW):
            keys, counts = np.empty(size, np.int64), np.empty(size, np.int64)
            entries = 0
            for i in range(until[group], until[group + 1]):
                row = rows[i]
                if total[row] and entries >= 0:
                    entries = _list(keys, counts, entries, np.int64(low[row]), given, places[row], places[row + 1])
            if entries < 0:
                broken = True
                break
            order = np.argsort(keys[:entries])
            at = _write_counts(np.maximum(keys[order], folded), counts[order], folded, data, at)
        elif size:
            if span > len(line):
                line, used = np.zeros(2 * span, np.int64), np.empty(2 * span + 1, np.int64)
            for i in range(until[group], until[group + 1]):
                row = rows[i]
                if total[row]:
                    broken |= not _add(line[:span], low[row] - folded, given, places[row], places[row + 1])
            at = _write_cells(line[:span], used, data, at)
        if size:
            lows[group], highs[group] = folded, greatest
        offsets[group + 1] = at
    return (lows, highs, totals, data[:at].copy(), offsets), broken, overflown


@compiled
def _largest(until: Whole) -> Int:
    """Find the most rows of a group."""
    largest = 0
    for group in range(len(until) - 1):
        largest = max(largest, until[group + 1] - until[group])
    return largest


@compiled
def _add(cells: Whole, cell: Int, given: Bytes, at: Int, end: Int) -> bool:
    """Add a histogram whose lowest key has this cell, to the first one what lies before it; False if it is damaged."""
    while at < end:
        number: Int = np.int64(given[at])
        if number < 128:  # most are one byte
            number = (number >> 1) ^ -(number & 1)
            at += 1
        else:
            number, at = get_number(given, at, end)
        if at < 0 or cell >= len(cells):
            return False
        cells[max(cell, 0)] += max(number, 0)
        cell += max(-max(number, -FAR), 1)
    return True


@compiled
def _list(keys: Whole, counts: Whole, entries: Int, key: Int, given: Bytes, at: Int, end: Int) -> Int:
    """Append the keys and counts of a histogram; return how many there are then, -1 if it is damaged."""
    while at < end:
        number, at = get_number(given, at, end)
        if at < 0:
            return -1
        if number > 0:
            keys[entries] = key
            counts[entries] = number
            entries += 1
        key += max(-max(number, -FAR), 1)
    return entries


@compiled
def _write_cells(cells: Whole, used: Whole, data: Bytes, at: Int) -> Int:
    """Write the cells of a group, the first and the last of them used, and empty them; return the place after."""
    size = 0
    for cell in range(len(cells)):
        used[size] = cell  # overwritten by the next, where this one is empty
        size += cells[cell] != 0
    last = used[0] - 1
    for i in range(size):
        count, missing = cells[used[i]], used[i] - last - 1
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
    return _write_counts(keys, np.ones(len(keys), np.int64), low, data, at)


@compiled
def _write_counts(keys: Whole, counts: Whole, low: Int, data: Bytes, at: Int) -> Int:
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
