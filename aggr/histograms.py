"""Histograms: whole-number keys and how often each occurs, a column of them a row.

A state holds a histogram's lowest key and its highest, how many values it counts, and the counts of the keys from the
one to the other in the bytes of `aggr.zigzag`.

    keys     7  8  9        40              counts   5  1  2        3
    state    low = 7   high = 40   total = 11   counts = 5  1  2  -30  3  (5 bytes)

The first count and the last are not 0, and what lies between is written in one way only, so equal histograms have equal
bits. A small count costs a byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import zigzag
from aggr.compiled import Int, compiled
from aggr.fields import add
from aggr.groups import Groups
from aggr.ragged import Ragged

HISTOGRAM_TYPE = pa.struct([("low", pa.int32()), ("high", pa.int32()), ("total", pa.int64()), ("counts", pa.binary())])

Whole = NDArray[np.int64]

DAMAGED = "a damaged state: the counts of its buckets break off, or do not end where they should"

MOST = np.int64(np.iinfo(np.int64).max)


class Histograms(NamedTuple):
    """``n`` histograms: ``sizes`` buckets each, shape (n,), their ``keys`` and ``counts``, above 0, end to end."""

    sizes: Whole
    keys: Whole
    counts: Whole

    @classmethod
    def of(cls, column: pa.StructArray) -> Histograms:
        """Read a column of `HISTOGRAM_TYPE`; a damaged one raises ``ValueError``."""
        low, high = (column.field(name).to_numpy().astype(np.int64) for name in ("low", "high"))
        found, ends, broken = zigzag.read(low, column.field("counts"))
        held = cls(*found)
        if broken.any() or (ends != np.where(held.sizes > 0, high + 1, low)).any():
            raise ValueError(DAMAGED)
        return held

    def to_arrow(self) -> pa.StructArray:
        """Write a column of `HISTOGRAM_TYPE`; a total beyond int64 is written as the greatest int64."""
        low, high, totals = _ends(*self)
        return column_of(low, high, totals, zigzag.write(low, *self))

    def rows(self) -> NDArray[np.intp]:
        """The histogram each bucket belongs to."""
        return Ragged(self.sizes, self.keys).rows()

    def totals(self) -> NDArray[np.int64]:
        """Count all values of each histogram, shape (n,)."""
        return add(self.counts, Groups(self.rows(), len(self.sizes)))

    def up_to(self, key: int) -> NDArray[np.int64]:
        """Count the values of each histogram whose key is at most ``key``, shape (n,)."""
        return add(np.where(self.keys <= key, self.counts, 0), Groups(self.rows(), len(self.sizes)))

    def key_at(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the key of the value at a rank, counted from 0 in key order, in each histogram.

        ``ranks`` has shape (n,); a rank outside ``[0, total)`` gives some key or 0, for the caller to mask.
        """
        if not len(self.keys):
            return np.zeros(len(self.sizes), np.int64)
        until = np.cumsum(self.counts)
        ends = np.cumsum(self.sizes)
        before = np.append(0, until)[ends - self.sizes]
        bucket = np.searchsorted(until, before + ranks, side="right")
        keys: NDArray[np.int64] = self.keys[np.minimum(bucket, len(self.keys) - 1)]
        return keys


def column_of(low: Whole, high: Whole, totals: Whole, counts: pa.BinaryArray) -> pa.StructArray:
    """Make a column of `HISTOGRAM_TYPE`."""
    columns = [pa.array(low.astype(np.int32)), pa.array(high.astype(np.int32)), pa.array(totals), counts]
    return pa.StructArray.from_arrays(columns, fields=list(HISTOGRAM_TYPE))


@compiled
def capped(total: Int, count: Int) -> Int:
    """Add a count to a total, at most up to the greatest int64."""
    return total + count if total <= MOST - count else MOST


@compiled
def _ends(sizes: Whole, keys: Whole, counts: Whole) -> tuple[Whole, Whole, Whole]:
    """Find the lowest and the highest key of each histogram, 0 of an empty one, and its total."""
    low, high, totals = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    at = 0
    for row in range(len(sizes)):
        if sizes[row]:
            low[row], high[row] = keys[at], keys[at + sizes[row] - 1]
        for _ in range(sizes[row]):
            totals[row] = capped(totals[row], counts[at])
            at += 1
    return low, high, totals
