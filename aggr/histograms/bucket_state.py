"""BucketState: the base class of states that count values in buckets.

Accessors, such as `aggr.tables.accessors.rank`, can read the states of every function whose state is a `BucketState`.
"""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa

from aggr.histograms.bucket_ranges import BucketRanges
from aggr.state import State


class BucketState(State):
    """A state that counts values in buckets, from which shares of values and ranges of values can be computed."""

    @abstractmethod
    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Return the share of values that are at most a limit.

        Parameters
        ----------
        states : column of states, shape (rows,)
            Checked states without nulls.
        value : float
            The limit, which must not be NaN.

        Returns
        -------
        array of float64, shape (rows,)
            The share is in [0, 1], or null if there are no values.
        """

    @abstractmethod
    def buckets(self, states: pa.StructArray) -> BucketRanges:
        """Return the buckets of the states as ranges of values with their counts.

        Parameters
        ----------
        states : column of states, shape (rows,)
            Checked states without nulls.

        Returns
        -------
        BucketRanges
            The ranges are sorted by state, and within a state by value. A bucket of positive values includes its upper
            edge, a bucket of negative values its lower edge.
        """
