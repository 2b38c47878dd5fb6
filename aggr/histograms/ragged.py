"""Ragged rows: lists of varying length as one flat array, and their lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Ids, Whole


class Ragged(NamedTuple):
    """``n`` rows of varying length, end to end.

    ``lengths`` has shape (n,); ``values`` holds the rows one after the other.
    """

    lengths: Whole
    values: NDArray[Any]

    @property
    def starts(self) -> Whole:
        """Where each row begins in ``values``, shape (n,)."""
        return np.cumsum(self.lengths) - self.lengths

    def first_last(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The first and the last value of each row, 0 of an empty one, each of shape (n,)."""
        holds, first = self.lengths > 0, self.starts
        ends = np.zeros((2, len(first)), self.values.dtype)
        ends[:, holds] = self.values[first[holds]], self.values[(first + self.lengths)[holds] - 1]
        return ends[0], ends[1]

    def rows(self) -> Ids:
        """The row each value belongs to, shape of ``values``."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)
