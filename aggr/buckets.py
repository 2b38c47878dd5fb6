"""Buckets: sparse histograms over whole-number keys, the part that HdrHistogram and DDSketch share.

One column holds a histogram a row, as runs of neighbouring keys, in increasing order:

    keys     7  8  9        40              counts   5  1  2        3
    state    starts = [7, 40]   lengths = [3, 1]   counts = [5, 1, 2, 3]

No count is 0 and no two runs touch, so equal histograms have equal bits. A sketch of dense data costs 8 bytes a
bucket, one of scattered data 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.fields import add
from aggr.groups import Groups
from aggr.ragged import Ragged

BUCKETS_TYPE = pa.struct(
    [("starts", pa.list_(pa.int32())), ("lengths", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))]
)

_CACHED = 1 << 17  # buckets handled at once, to stay in the cache


@dataclass(frozen=True, slots=True)
class Buckets:
    """The field of a state that holds histograms.

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
        if not len(keys):
            return _empty(groups.n)
        wide = keys.astype(np.int64, copy=False)
        grid = Grid.over(wide, wide, groups, self.most)
        cells = grid.cells(wide, groups)
        if grid.is_dense(len(cells)):
            return grid.to_arrow(np.bincount(cells, minlength=grid.size))
        return grid.to_arrow_sparse(np.sort(cells), None)

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add the histograms of each group."""
        runs, starts = Ragged.of(column.field("starts"))
        if not len(starts):
            return _empty(groups.n)
        ends = starts.astype(np.int64) + Ragged.of(column.field("lengths")).values - 1
        grid = Grid.over(starts.astype(np.int64), ends, Groups(np.repeat(groups.ids, runs), groups.n), self.most)
        buckets = len(column.field("counts").flatten())
        if grid.is_dense(buckets):
            totals = np.zeros(grid.size, np.int64)
            step = max(1, _CACHED * len(column) // buckets)
            for at in range(0, len(column), step):  # what is read and added stays in the cache
                cells, counts = grid.read(column.slice(at, step), groups.ids[at : at + step])
                np.add.at(totals, cells, counts)
            return grid.to_arrow(totals)
        cells, counts = grid.read(column, groups.ids)
        order = np.argsort(cells, kind="stable")
        return grid.to_arrow_sparse(cells[order], counts[order])


@dataclass(frozen=True, slots=True)
class Grid:
    """All groups' keys as cells of one line: group after group, ``span`` keys each, the lowest being ``low``."""

    low: int
    span: int
    n: int
    floor: NDArray[np.int64] | None

    @classmethod
    def over(cls, lows: NDArray[np.int64], highs: NDArray[np.int64], groups: Groups, most: int | None) -> Grid:
        """Span keys from ``lows`` to ``highs``, the lowest of each group lifted so that ``most`` keys are left."""
        low, high = int(lows.min()), int(highs.max())
        floor = None
        if most is not None and high - low >= most:
            highest = np.full(groups.n, low, np.int64)
            np.maximum.at(highest, groups.ids, highs)
            floor = highest - most + 1
        return cls(low, high - low + 1, groups.n, floor)

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.span * self.n

    def is_dense(self, entries: int) -> bool:
        """Say whether an array of all cells is worth its memory."""
        return self.size <= max(8 * entries, _CACHED)

    def cells(self, keys: NDArray[np.int64], groups: Groups) -> NDArray[np.int64]:
        """Find the cell of each key."""
        if self.floor is not None:
            keys = np.maximum(keys, self.floor[groups.ids])
        cells = groups.ids * self.span
        cells += keys
        cells -= self.low
        return cells

    def read(self, column: pa.StructArray, ids: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read the buckets of a column as cells and counts."""
        every = Histograms.of(column)
        return self.cells(every.keys, Groups(np.repeat(ids, every.sizes), self.n)), every.counts

    def to_arrow(self, totals: NDArray[np.int64]) -> pa.StructArray:
        """Write the histograms from the totals of all cells."""
        used = np.flatnonzero(totals != 0)  # many times as fast as of the numbers themselves
        return self._write(used, totals[used])

    def to_arrow_sparse(self, cells: NDArray[np.int64], counts: NDArray[np.int64] | None) -> pa.StructArray:
        """Write the histograms from ordered cells, each with its count, or 1 each."""
        first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
        totals = np.diff(np.append(first, len(cells))) if counts is None else np.add.reduceat(counts, first)
        return self._write(cells[first], totals)

    def _write(self, used: NDArray[np.int64], totals: NDArray[np.int64]) -> pa.StructArray:
        edges = np.arange(self.n + 1) * self.span
        sizes = np.diff(np.searchsorted(used, edges))
        return Histograms(sizes, used - np.repeat(edges[:-1] - self.low, sizes), totals).to_arrow()


@dataclass(frozen=True, slots=True)
class Histograms:
    """``n`` histograms read from a column: ``sizes`` buckets each, their ``keys`` and ``counts`` end to end."""

    sizes: NDArray[np.int64]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.StructArray) -> Histograms:
        """Read a column of `BUCKETS_TYPE`."""
        sizes, counts = Ragged.of(column.field("counts"))
        starts, lengths = (Ragged.of(column.field(name)).values for name in ("starts", "lengths"))
        jumps = np.ones(len(counts), np.int64)  # keys as a running sum of steps: 1 within a run
        if len(starts):
            at = np.cumsum(lengths, dtype=np.int64) - lengths
            jumps[at[0]] = starts[0]
            jumps[at[1:]] = starts[1:].astype(np.int64) - (starts[:-1] + lengths[:-1] - 1)
        return cls(sizes, np.cumsum(jumps), counts)

    def to_arrow(self) -> pa.StructArray:
        """Write a column of `BUCKETS_TYPE`."""
        ends = np.cumsum(self.sizes)
        fresh = np.ones(len(self.keys) + 1, np.bool_)
        np.not_equal(self.keys[1:], self.keys[:-1] + 1, out=fresh[1:-1])
        fresh[ends - self.sizes] = True
        at = np.flatnonzero(fresh[:-1])
        runs = np.diff(np.searchsorted(at, np.append(0, ends)))
        lengths = np.diff(np.append(at, len(self.keys)))
        columns = [
            Ragged(runs, self.keys[at].astype(np.int32)).to_arrow(),
            Ragged(runs, lengths.astype(np.int32)).to_arrow(),
            Ragged(self.sizes, self.counts).to_arrow(),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(BUCKETS_TYPE))

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


def _empty(n: int) -> pa.StructArray:
    """Make ``n`` histograms without values."""
    none = np.zeros(0, np.int64)
    return Histograms(np.zeros(n, np.int64), none, none).to_arrow()
