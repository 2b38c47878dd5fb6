"""Buckets: the field of a state that holds histograms over whole-number keys, which HdrHistogram and DDSketch share.

All groups' keys are laid out on one line of cells, which are counted; where keys lie so far apart that there would be
many more cells than keys, the cells that keys fall into are sorted instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.compiled import compiled
from aggr.groups import Groups
from aggr.histograms import DAMAGED, Histograms, capped, column_of
from aggr.zigzag import FAR, Bytes, get_number, of_arrow, put_number, room_for, to_arrow

_CACHED = 1 << 17  # cells that stay in the cache
_NO_KEY = 1 << 62

Whole = NDArray[np.int64]


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
        grid = Grid.over(*_reach(keys, groups.ids, groups.n), self.most)
        if grid.is_dense(len(keys)):
            return grid.of_totals(_tally(keys, groups.ids, grid.low, grid.origin, grid.size))
        cells = np.sort(_cells(keys, groups.ids, grid.low, grid.origin))
        return grid.of_cells(cells, np.ones(len(cells), np.int64))

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add the histograms of each group."""
        low, high, totals = (column.field(name).to_numpy().astype(np.int64) for name in ("low", "high", "total"))
        held = totals > 0
        ends = np.append(low[held], high[held])
        grid = Grid.over(*_reach(ends, np.tile(groups.ids[held], 2), groups.n), self.most)
        data, places = of_arrow(column.field("counts"))
        if grid.is_dense(len(data)):
            rows = np.argsort(groups.ids, kind="stable")
            until = np.append(0, np.cumsum(groups.counts()))
            *written, broken = _merged(rows, until, low, totals, data, places, grid.low, grid.base)
            if broken:
                raise ValueError(DAMAGED)
            return _column(*written)
        sizes, keys, counts = Histograms.of(column)
        cells = _cells(keys, np.repeat(groups.ids, sizes), grid.low, grid.origin)
        order = np.argsort(cells, kind="stable")
        return grid.of_cells(cells[order], counts[order])


@dataclass(frozen=True, slots=True)
class Grid:
    """All groups' keys as cells of one line: each group's from its ``low`` key on, ``base[g]`` to ``base[g + 1]``."""

    low: Whole
    base: Whole

    @classmethod
    def over(cls, low: Whole, high: Whole, most: int | None) -> Grid:
        """Span each group's keys, the lowest lifted so that ``most`` are left; no cells for a group without keys."""
        if most is not None:
            low = np.maximum(low, high - most + 1)
        base = np.zeros(len(low) + 1, np.int64)
        np.cumsum(np.maximum(high - low + 1, 0), out=base[1:])
        return cls(low, base)

    @property
    def size(self) -> int:
        """The number of cells."""
        return int(self.base[-1])

    @property
    def origin(self) -> Whole:
        """The cell that each group's key 0 would have, shape (groups,)."""
        return self.base[:-1] - self.low

    def is_dense(self, entries: int) -> bool:
        """Say whether an array of all cells is worth its memory."""
        return self.size <= max(8 * entries, _CACHED)

    def of_totals(self, totals: NDArray[np.integer]) -> pa.StructArray:
        """Write the histograms from the totals of all cells."""
        return _column(*_written(totals, self.low, self.base))

    def of_cells(self, cells: Whole, counts: Whole) -> pa.StructArray:
        """Write the histograms from ordered cells, each with its count."""
        first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
        used = cells[first]
        sizes = np.diff(np.searchsorted(used, self.base))
        return Histograms(sizes, used - np.repeat(self.origin, sizes), np.add.reduceat(counts, first)).to_arrow()


@compiled
def _reach(keys: NDArray[np.integer], ids: NDArray[np.intp], n: int) -> tuple[Whole, Whole]:
    """Find the least and the greatest key of each group."""
    low, high = np.full(n, _NO_KEY), np.full(n, -_NO_KEY)
    for i in range(len(keys)):
        group = ids[i]
        low[group] = min(low[group], keys[i])
        high[group] = max(high[group], keys[i])
    return low, high


@compiled
def _tally(
    keys: NDArray[np.integer], ids: NDArray[np.intp], low: Whole, origin: Whole, size: int
) -> NDArray[np.int32]:
    """Count the keys of each cell; the rows of one reduction are fewer than 2^31."""
    totals = np.zeros(size, np.int32)
    for i in range(len(keys)):
        group = ids[i]
        totals[origin[group] + max(keys[i], low[group])] += 1
    return totals


@compiled
def _cells(keys: NDArray[np.integer], ids: NDArray[np.intp], low: Whole, origin: Whole) -> Whole:
    """Find the cell of each key."""
    cells = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        cells[i] = origin[ids[i]] + max(keys[i], low[ids[i]])
    return cells


def _column(low: Whole, high: Whole, totals: Whole, data: Bytes, offsets: Whole) -> pa.StructArray:
    return column_of(low, high, totals, to_arrow(data, offsets))


@compiled
def _written(totals: NDArray[np.integer], low: Whole, base: Whole) -> tuple[Whole, Whole, Whole, Bytes, Whole]:
    """Write the cells of each group: its lowest key and its highest, its total, its counts as bytes and their ends."""
    n, used, most, widest = len(low), 0, 0, 0
    for cell in range(len(totals)):
        used += totals[cell] != 0
        most |= totals[cell]
    for group in range(n):
        widest = max(widest, base[group + 1] - base[group])
    data, offsets = np.empty(used * room_for(most) + 2, np.uint8), np.zeros(n + 1, np.int64)
    lows, highs, sums = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    held = np.empty(widest + 1, np.int64)
    at = 0
    for group in range(n):
        cells = totals[base[group] : base[group + 1]]
        at, least, greatest, sums[group] = _write_cells(cells, held, data, at)
        if sums[group]:
            lows[group], highs[group] = low[group] + least, low[group] + greatest
        offsets[group + 1] = at
    return lows, highs, sums, data[:at].copy(), offsets


@compiled
def _write_cells(totals: NDArray[np.integer], held: Whole, data: Bytes, at: int) -> tuple[int, int, int, int]:
    """Write the cells of one group; return the place after, the first and the last cell that is not 0, and the sum."""
    used, total = 0, 0
    for cell in range(len(totals)):
        held[used] = cell  # overwritten by the next, where this one is empty
        used += totals[cell] != 0
    last = held[0] - 1
    for i in range(used):
        count, missing = np.int64(totals[held[i]]), held[i] - last - 1
        last = held[i]
        total = capped(total, count)
        if count < 64 and missing < 64:  # a byte each, and no branches: gaps come as chance has them
            data[at] = (2 * missing - 1) & -(missing > 1)
            at += missing != 0
            data[at] = 2 * count
            at += 1
        else:
            if missing:
                at = put_number(data, at, -missing if missing > 1 else 0)
            at = put_number(data, at, count)
    return at, held[0], last, total


@compiled
def _merged(
    rows: NDArray[np.intp],
    until: Whole,
    first: Whole,
    totals: Whole,
    data: Bytes,
    places: NDArray[np.int32],
    low: Whole,
    base: Whole,
) -> tuple[Whole, Whole, Whole, Bytes, Whole, bool]:
    """Merge the histograms of each group, ``rows[until[g]:until[g + 1]]``; say as well whether any are damaged."""
    n, widest, broken = len(low), 0, False
    for group in range(n):
        widest = max(widest, base[group + 1] - base[group])
    # sums need no more bytes than what is summed, and before each count may be a gap
    out, offsets = np.empty(6 * len(data) + 2, np.uint8), np.zeros(n + 1, np.int64)
    lows, highs, sums = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    line, held = np.zeros(widest, np.int64), np.empty(widest + 1, np.int64)
    at = 0
    for group in range(n):
        begin, end, span = until[group], until[group + 1], base[group + 1] - base[group]
        row = rows[begin] if begin < end else -1
        if end - begin == 1 and span and first[row] == low[group]:  # alone, and nothing to fold
            for place in range(places[row], places[row + 1]):
                out[at] = data[place]
                at += 1
            lows[group], highs[group], sums[group] = low[group], low[group] + span - 1, totals[row]
        elif span:
            cells = line[:span]
            for i in range(begin, end):
                row = rows[i]
                broken |= not _add_to(cells, first[row] - low[group], data, places[row], places[row + 1])
            at, least, greatest, sums[group] = _write_cells(cells, held, out, at)
            lows[group], highs[group] = low[group] + least, low[group] + greatest
            cells[:] = 0
        offsets[group + 1] = at
    return lows, highs, sums, out[:at].copy(), offsets, broken


@compiled
def _add_to(cells: Whole, cell: int, data: Bytes, at: int, end: int) -> bool:
    """Add a histogram whose lowest key has this cell, to the first one what lies before it; False if it is damaged."""
    while at < end:
        number = np.int64(data[at])
        if number < 128:  # most are one byte
            number = (number >> 1) ^ -(number & 1)
            at += 1
        else:
            number, at = get_number(data, at, end)
        if at < 0 or cell >= len(cells):
            return False
        cells[max(cell, 0)] += max(number, 0)
        cell += max(-max(number, -FAR), 1)
    return True
