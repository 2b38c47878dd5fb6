"""BucketState: a state that counts values in buckets, which several accessors read."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa

from aggr.histograms.bucket_ranges import BucketRanges
from aggr.state import State


class BucketState(State):
    """A state that counts values in buckets; ranks and lists of the buckets can be read from it."""

    @abstractmethod
    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Read the share of values that are at most a limit.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null, and checked.
        value : float
            The limit; not NaN.

        Returns
        -------
        array of float64, shape (rows,)
            In [0, 1]; null if there are no values.
        """

    @abstractmethod
    def buckets(self, states: pa.StructArray) -> BucketRanges:
        """List the ranges of values that states count.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null, and checked.

        Returns
        -------
        BucketRanges
            Sorted by state, and ascending within a state. A bucket includes its upper edge, a negative one its lower
            edge.
        """
