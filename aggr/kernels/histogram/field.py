"""Buckets: the field of a state that holds histograms over whole-number keys, which HdrHistogram and DDSketch share.

Keys are counted by `loops`; the histograms of a group are added up in a line of cells that stays in the cache, or
listed and sorted where they are far apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels.damage import DamagedState, checked_type
from aggr.kernels.groups import Groups, check_lengths
from aggr.kernels.histogram.column import (
    DAMAGED,
    HISTOGRAM_TYPE,
    MOST,
    Histograms,
    capped,
    check_histograms,
    column_of,
    long_enough,
    saturated,
    whole,
    within,
)
from aggr.kernels.histogram.loops import (
    FEW,
    SPARSE,
    Rows,
    Whole,
    Written,
    counted,
    reach,
    tallied,
    write_cells,
    write_counts,
)
from aggr.kernels.jit import Int, compiled
from aggr.kernels.leb128 import FAR, Bytes, get_number, of_arrow, to_arrow

# cells a key, up to which one line for all groups is faster than a line for each: measured, 2^18 keys of 100 groups
# take about 90 ns each both ways at 3 cells a key; with more, clearing and writing the cells outweighs the sorting
_DENSE = 3


@dataclass(frozen=True, slots=True)
class Buckets:
    """The field of a state that holds histograms, a column of `aggr.kernels.histogram.column.HISTOGRAM_TYPE`.

    Parameters
    ----------
    most : int or None
        Keep at most this many neighbouring keys: every key more than ``most - 1`` below the highest one counts
        at the lowest key kept. What is kept depends on the highest key alone, so the order of merges does not
        show.
    least, greatest : int
        What keys can be; states that have others are refused.
    wider : bool
        Take histograms of more than ``most`` keys, to fold them.
    """

    most: int | None = None
    least: int = -(2**31)
    greatest: int = 2**31 - 1
    wider: bool = False

    checks_in_merge = True

    def reduce(
        self, keys: NDArray[np.integer], groups: Groups, ends: tuple[Whole, Whole] | None = None
    ) -> pa.StructArray:
        """Count the keys of each group; keys must lie within int32.

        ``ends`` are the least and the greatest key of each group, where they are known; without keys, 1 and 0.
        """
        check_lengths(len(keys), groups, "keys")
        low, high = ends or reach(keys, groups.ids, groups.n)
        low = np.maximum(low, high - (self.most or FAR) + 1)
        base = np.append(0, np.cumsum(np.maximum(high - low + 1, 0)))
        if base[-1] <= _DENSE * len(keys):
            return _column(*tallied(keys, groups.ids, low, base))
        return _column(*counted(*groups.by_group(), keys, self.most or FAR))

    def reduce_weighted(self, keys: NDArray[np.integer], weights: Whole, groups: Groups) -> pa.StructArray:
        """Count the keys of each group, each as often as its weight, from 1, says; as `merge` of single rows."""
        ones = Histograms(np.ones(len(keys), np.int64), keys.astype(np.int64), weights)
        return self.merge(ones.to_arrow(), groups)

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add the histograms of each group.

        Raises `DamagedState`, a ``ValueError``, for what `check` refuses, and ``OverflowError`` where a
        group counts beyond int64.
        """
        check_lengths(len(column), groups, "histograms")
        column = checked_type(column, HISTOGRAM_TYPE)
        low, high, totals = (column.field(name).to_numpy() for name in ("low", "high", "total"))
        data, places = of_arrow(column.field("counts"))
        bounds = self.most or FAR, FAR if self.wider else self.most or FAR, self.least, self.greatest
        written, broken, overflown = _merged(*groups.by_group(), low, high, totals, data, places, *bounds)
        if broken:
            raise DamagedState(DAMAGED)
        if overflown:
            raise OverflowError("a count grew beyond int64")
        return _column(*written)

    def check(self, column: pa.StructArray) -> None:
        """Raise `aggr.kernels.damage.DamagedState` for histograms that this field cannot hold."""
        check_histograms(column, self.most or FAR, self.least, self.greatest)


def _column(low: Whole, high: Whole, totals: Whole, data: Bytes, offsets: Whole) -> pa.StructArray:
    return column_of(low, high, totals, to_arrow(data, offsets))


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
    widest: int,
    lowest: int,
    highest: int,
) -> tuple[Written, bool, bool]:
    """Merge the histograms of each group, which has ``rows[until[g]:until[g + 1]]``.

    Say as well whether one is damaged, and whether a count grew beyond int64.
    """
    n, broken, overflown = len(until) - 1, False, False
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # a sum takes no more bytes than what is summed, and before each may be a gap
    data, offsets = np.empty(6 * len(given) + 2, np.uint8), np.zeros(n + 1, np.int64)
    line, used = np.zeros(FEW, np.int64), np.empty(FEW + 1, np.int64)
    at = 0
    for group in range(n):
        least: Int
        greatest: Int
        least, greatest, size, only = FAR, -FAR, 0, -1
        for i in range(until[group], until[group + 1]):
            row = rows[i]
            bytes_of = places[row + 1] - places[row]
            broken |= not within(low[row], high[row], total[row], bytes_of, widest, lowest, highest)
            if total[row]:
                only = row if size == 0 else -1
                least, greatest = min(least, np.int64(low[row])), max(greatest, np.int64(high[row]))
                size += places[row + 1] - places[row]
                totals[group] = capped(totals[group], total[row])
        folded = max(least, greatest - most + 1)
        span = greatest - folded + 1
        overflown |= only < 0 and totals[group] == MOST
        if broken:
            break
        if only >= 0 and folded == least:  # alone: as it is
            broken |= not whole(low[only], high[only], total[only], given, places[only], places[only + 1])
            for place in range(places[only], places[only + 1]):
                data[at] = given[place]
                at += 1
        elif size and span > max(SPARSE * size, FEW):
            keys, counts = np.empty(size, np.int64), np.empty(size, np.int64)
            entries = 0
            for i in range(until[group], until[group + 1]):
                row = rows[i]
                if total[row]:
                    broken |= not whole(low[row], high[row], total[row], given, places[row], places[row + 1])
                if total[row] and not broken:
                    entries = _list(keys, counts, entries, np.int64(low[row]), given, places[row], places[row + 1])
            if broken:
                break
            order = np.argsort(keys[:entries])
            at = write_counts(np.maximum(keys[order], folded), counts[order], folded, data, at)
        elif size:
            if span > len(line):
                line, used = np.zeros(2 * span, np.int64), np.empty(2 * span + 1, np.int64)
            for i in range(until[group], until[group + 1]):
                row = rows[i]
                if total[row]:
                    first, until_cell = np.int64(low[row]) - folded, np.int64(high[row]) - folded + 1
                    broken |= not _add(line, first, until_cell, total[row], given, places[row], places[row + 1])
            at = write_cells(line[:span], used, data, at)
        if size:
            lows[group], highs[group] = folded, greatest
        offsets[group + 1] = at
    return (lows, highs, totals, data[:at].copy(), offsets), broken, overflown


@compiled
def _add(line: Whole, cell: Int, last: Int, total: Int, given: Bytes, at: Int, end: Int) -> bool:
    """Add a histogram to a line, from the cell of its lowest key up to ``last``; cell 0 gets what lies before it.

    False if it is damaged, as `aggr.kernels.histogram.column.whole` tells it.
    """
    seen, gap, wrong = np.uint64(0), True, False
    while at < end:
        number: Int = np.int64(given[at])
        if number < 128:  # most are one byte
            number = (number >> 1) ^ -(number & 1)
            at += 1
            count = max(number, 0)
            seen += np.uint64(count)
        else:
            number, at = get_number(given, at, end)
            if not long_enough(number, given[max(at, 1) - 1], at):
                return False
            count = max(number, 0)
            seen = saturated(seen, count)
        if cell >= last:
            return False
        wrong |= (gap & (number <= 0)) | (number == -1)
        gap = number <= 0
        line[max(cell, 0)] += count
        cell += max(-number, 1)
    return not (wrong or gap) and cell == last and saturated(seen, 0) == np.uint64(total)


@compiled
def _list(keys: Whole, counts: Whole, entries: Int, key: Int, given: Bytes, at: Int, end: Int) -> Int:
    """Append the keys and counts of a histogram that is not damaged; return how many there are then."""
    while at < end:
        number, at = get_number(given, at, end)
        if number > 0:
            keys[entries] = key
            counts[entries] = number
            entries += 1
        key += max(-number, 1)
    return entries
