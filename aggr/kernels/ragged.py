"""Ragged rows: an Arrow list column as one flat numpy array and the lengths of its rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels import compute as pc


class Ragged(NamedTuple):
    """``n`` rows of varying length, end to end.

    ``lengths`` has shape (n,); ``values`` holds the rows one after the other; a null row is an empty one.
    """

    lengths: NDArray[np.int64]
    values: NDArray[Any]

    @classmethod
    def of(cls, lists: pa.ListArray) -> Ragged:
        """Read a list column without nulls inside its lists."""
        if lists.null_count:
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        else:
            lengths = np.diff(lists.offsets.to_numpy())
        return cls(lengths.astype(np.int64), lists.flatten().to_numpy())

    def to_arrow(self) -> pa.ListArray:
        """Write a list column."""
        offsets = np.zeros(len(self.lengths) + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError("too many buckets in one batch of states; use smaller batches")
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(self.values))

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each row begins in ``values``, shape (n,)."""
        return np.cumsum(self.lengths) - self.lengths

    def first_last(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The first and the last value of each row, 0 of an empty one, each of shape (n,)."""
        holds, first = self.lengths > 0, self.starts
        ends = np.zeros((2, len(first)), self.values.dtype)
        ends[:, holds] = self.values[first[holds]], self.values[(first + self.lengths)[holds] - 1]
        return ends[0], ends[1]

    def rows(self) -> NDArray[np.intp]:
        """The row each value belongs to, shape of ``values``."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def positions(self) -> NDArray[np.int64]:
        """The place of each value within its row, shape of ``values``."""
        return np.arange(len(self.values)) - np.repeat(self.starts, self.lengths)
