"""BucketRanges: the buckets of sketches as ranges of values, each with its count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np

from aggr.arrays import Floats, Whole


class BucketRanges(NamedTuple):
    """The buckets of a column of states. Each array has the shape (buckets,).

    ``rows`` contains the row of each bucket's state, ``low`` and ``high`` contain the edges of each bucket, and
    ``counts`` contains the number of values in each bucket.
    """

    rows: Whole
    low: Floats
    high: Floats
    counts: Whole

    @classmethod
    def single(cls, counts: Whole, low: float, high: float) -> Self:
        """Return one bucket, with the edges ``low`` and ``high``, for each state whose count is above 0."""
        rows = np.flatnonzero(counts)
        return cls(rows, np.full(len(rows), low), np.full(len(rows), high), counts[rows])

    def mirrored(self) -> Self:
        """Return the buckets of the negated values, in reverse order.

        The lower edge of a bucket becomes the negated upper edge, and the upper edge the negated lower edge.
        """
        return type(self)(self.rows[::-1], -self.high[::-1], -self.low[::-1], self.counts[::-1])

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Return the buckets of all parts, sorted by state and then by value.

        The parts must be passed in ascending order of their values.
        """
        rows, low, high, counts = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return cls(rows[order], low[order], high[order], counts[order])
