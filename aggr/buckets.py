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

from aggr.compiled import compiled
from aggr.fields import add
from aggr.groups import Groups
from aggr.ragged import Ragged

BUCKETS_TYPE = pa.struct(
    [("starts", pa.list_(pa.int32())), ("lengths", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))]
)

_CACHED = 1 << 17  # cells that stay in the cache
_NO_KEY = 1 << 62

Whole = NDArray[np.int64]
Counts = NDArray[np.int32]


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
        grid = Grid.over(*_reach(keys, groups.ids, groups.n), self.most)
        if grid.is_dense(len(keys)):
            return grid.of_totals(_tally(keys, groups.ids, grid.low, grid.origin, grid.size))
        return grid.of_cells(np.sort(_cells(keys, groups.ids, grid.low, grid.origin)), None)

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add the histograms of each group."""
        runs, starts = Ragged.of(column.field("starts"))
        lengths, counts = (Ragged.of(column.field(name)).values for name in ("lengths", "counts"))
        grid = Grid.over(*_reach_of_runs(runs, starts, lengths, groups.ids, groups.n), self.most)
        read = (runs, starts, lengths, groups.ids, grid.low, grid.origin)
        if grid.is_dense(len(counts)):
            return grid.of_totals(_add_runs(*read, counts, grid.size))
        cells = _cells_of_runs(*read, len(counts))
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
        return Histograms(*_used(totals, np.count_nonzero(totals), self.base, self.low)).to_arrow()

    def of_cells(self, cells: Whole, counts: Whole | None) -> pa.StructArray:
        """Write the histograms from ordered cells, each with its count, or 1 each."""
        first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
        totals = np.diff(np.append(first, len(cells))) if counts is None else np.add.reduceat(counts, first)
        sizes = np.diff(np.searchsorted(cells[first], self.base))
        return Histograms(sizes, cells[first] - np.repeat(self.origin, sizes), totals).to_arrow()


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
def _tally(keys: NDArray[np.integer], ids: NDArray[np.intp], low: Whole, origin: Whole, size: int) -> Counts:
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


@compiled
def _reach_of_runs(
    runs: Whole, starts: NDArray[np.int32], lengths: NDArray[np.int32], ids: NDArray[np.intp], n: int
) -> tuple[Whole, Whole]:
    """Find the least and the greatest key of each group of histograms."""
    low, high = np.full(n, _NO_KEY), np.full(n, -_NO_KEY)
    end = 0
    for row in range(len(runs)):
        first, end, group = end, end + runs[row], ids[row]
        if first < end:
            low[group] = min(low[group], starts[first])
            high[group] = max(high[group], starts[end - 1] + lengths[end - 1] - 1)
    return low, high


@compiled
def _add_runs(
    runs: Whole,
    starts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    ids: NDArray[np.intp],
    low: Whole,
    origin: Whole,
    counts: Whole,
    size: int,
) -> Whole:
    """Add up the counts of each cell."""
    totals = np.zeros(size, np.int64)
    run, at = 0, 0
    for row in range(len(runs)):
        group = ids[row]
        for _ in range(runs[row]):
            for key in range(starts[run], starts[run] + lengths[run]):
                totals[origin[group] + max(key, low[group])] += counts[at]
                at += 1
            run += 1
    return totals


@compiled
def _cells_of_runs(
    runs: Whole,
    starts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    ids: NDArray[np.intp],
    low: Whole,
    origin: Whole,
    buckets: int,
) -> Whole:
    """Find the cell of each bucket."""
    cells = np.empty(buckets, np.int64)
    run, at = 0, 0
    for row in range(len(runs)):
        group = ids[row]
        for _ in range(runs[row]):
            for key in range(starts[run], starts[run] + lengths[run]):
                cells[at] = origin[group] + max(key, low[group])
                at += 1
            run += 1
    return cells


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
        runs, starts, lengths = _runs(self.sizes, self.keys)
        columns = [
            Ragged(runs, starts).to_arrow(),
            Ragged(runs, lengths).to_arrow(),
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


@compiled
def _used(totals: NDArray[np.integer], used: int, base: Whole, low: Whole) -> tuple[Whole, Whole, Whole]:
    """Read the ``used`` cells that are not 0: how many each group has, their keys and their totals."""
    sizes, keys, counts = np.zeros(len(low), np.int64), np.empty(used + 1, np.int64), np.empty(used + 1, np.int64)
    at = 0
    for group in range(len(low)):
        first = at
        for cell in range(base[group], base[group + 1]):
            keys[at] = low[group] + cell - base[group]  # overwritten by the next, where this one is empty
            counts[at] = totals[cell]
            at += totals[cell] != 0
        sizes[group] = at - first
    return sizes, keys[:used], counts[:used]


@compiled
def _runs(sizes: Whole, keys: Whole) -> tuple[Whole, Counts, Counts]:
    """Find the runs of neighbouring keys: how many each histogram has, where they start and how long they are."""
    runs, ends = np.zeros(len(sizes), np.int64), np.empty(len(keys) + 1, np.int32)
    run, at = 0, 0
    for row in range(len(sizes)):
        first, before = at, run
        for _ in range(sizes[row]):
            run += at == first or keys[at] != keys[at - 1] + 1
            at += 1
            ends[run] = at  # overwritten by the next key, where that goes on with the run
        runs[row] = run - before
    ends[0] = 0
    starts, lengths = np.empty(run, np.int32), np.empty(run, np.int32)
    for i in range(run):
        starts[i] = keys[ends[i]]
        lengths[i] = ends[i + 1] - ends[i]
    return runs, starts, lengths
