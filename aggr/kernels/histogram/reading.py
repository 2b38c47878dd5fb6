"""Reading histograms: what a column of them tells, in one pass over the bytes of each, without listing its buckets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels.damage import checked_type
from aggr.kernels.histogram.column import HISTOGRAM_TYPE, MOST, Histograms, Whole
from aggr.kernels.jit import Int, compiled
from aggr.kernels.leb128 import Bytes, advance, get_number, of_arrow

Floats = NDArray[np.float64]


class Packed(NamedTuple):
    """``n`` histograms as a column holds them, known to be sound: `aggr.kernels.histogram.column.check_histograms`.

    ``low`` are the lowest keys, ``totals`` how many values each counts, shape (n,); the counts of row ``i`` are
    ``data[places[i]:places[i + 1]]``.
    """

    low: NDArray[np.int32]
    totals: Whole
    data: Bytes
    places: Whole

    @classmethod
    def of(cls, column: pa.StructArray) -> Packed:
        """Show a column of `aggr.kernels.histogram.column.HISTOGRAM_TYPE` that has been checked.

        Raises ``OverflowError`` where a histogram counts beyond int64.
        """
        column = checked_type(column, HISTOGRAM_TYPE)
        totals = column.field("total").to_numpy()
        if len(totals) and totals.max() == MOST:  # as a total beyond int64 is written
            totals = Histograms.of(column).totals()
        return cls(column.field("low").to_numpy(), totals, *of_arrow(column.field("counts")))

    def keys_at(self, ranks: Whole) -> Whole:
        """Find the keys of the values at some ranks, counted from 0 in key order, in each histogram.

        ``ranks`` has shape (asked, n) and never goes down from one to the next that is asked; so have the keys. A
        rank outside ``[0, total)`` gives some key or 0, for the caller to mask.
        """
        return _keys_at(self.low, self.data, self.places, ranks)

    def up_to(self, key: int) -> Whole:
        """Count the values of each histogram whose key is at most ``key``, shape (n,)."""
        return _up_to(self.low, self.data, self.places, key)

    def entries(self) -> int:
        """Bound the buckets of one histogram from above."""
        return int(np.diff(self.places).max(initial=0))


@compiled
def _keys_at(low: NDArray[np.int32], data: Bytes, places: Whole, ranks: Whole) -> Whole:
    asked, n = ranks.shape
    keys = np.zeros((asked, n), np.int64)
    for row in range(n):
        key, seen, at, end, found = np.int64(low[row]), np.int64(0), places[row], places[row + 1], 0
        while at < end and found < asked:
            number, at = next_number(data, at, end)
            seen += max(number, 0)
            while found < asked and ranks[found, row] < seen:
                keys[found, row] = key
                found += 1
            key += advance(number)
    return keys


@compiled
def _up_to(low: NDArray[np.int32], data: Bytes, places: Whole, last: int) -> Whole:
    counts = np.zeros(len(low), np.int64)
    for row in range(len(low)):
        key, at, end = np.int64(low[row]), places[row], places[row + 1]
        while at < end and key <= last:
            number, at = next_number(data, at, end)
            counts[row] += max(number, 0)
            key += advance(number)
    return counts


@compiled
def next_number(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read the number at a place of sound counts; return it and the place after it."""
    number: Int = np.int64(data[at])
    if number < 128:  # most are one byte
        return (number >> 1) ^ -(number & 1), at + 1
    return get_number(data, at, end)
