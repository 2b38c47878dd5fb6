"""BucketRanges: the buckets of sketches as ranges of values, each with its count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np

from aggr.arrays import Floats, Whole


class BucketRanges(NamedTuple):
    """The buckets of a column of states, shape (buckets,): the row of the state, the lower and upper edge, and the
    count.
    """

    rows: Whole
    low: Floats
    high: Floats
    counts: Whole

    @classmethod
    def single(cls, counts: Whole, low: float, high: float) -> Self:
        """Make one bucket for each state whose count is above 0."""
        rows = np.flatnonzero(counts)
        return cls(rows, np.full(len(rows), low), np.full(len(rows), high), counts[rows])

    def mirrored(self) -> Self:
        """Convert buckets of magnitudes to buckets of negative numbers, in ascending order."""
        return type(self)(self.rows[::-1], -self.high[::-1], -self.low[::-1], self.counts[::-1])

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join parts, passed in ascending order of values. The result is sorted by state, and within a state by
        value.
        """
        rows, low, high, counts = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return cls(rows[order], low[order], high[order], counts[order])
