"""Shifting: the keys of histograms moved to the right, each by its own number of bits; those that meet are one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.histograms.column import Histograms


def shifted(column: pa.StructArray, shifts: Whole) -> pa.StructArray:
    """Shift the keys of each histogram; raises ``OverflowError`` if a count grows beyond int64.

    >>> column = Histograms(np.array([3]), np.array([-1, 0, 1]), np.array([1, 2, 3])).to_arrow()
    >>> Histograms.of(shifted(column, np.array([1])))
    Histograms(sizes=array([2]), keys=array([-1,  0]), counts=array([1, 5]))
    """
    given = Histograms.of(column)
    rows = given.rows()
    keys = given.keys >> shifts[rows]
    first = np.flatnonzero(np.append(len(keys) > 0, (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])))
    counts = np.add.reduceat(given.counts, first) if len(first) else given.counts
    if (counts < 0).any():
        raise OverflowError("a count grew beyond int64")
    return Histograms(np.bincount(rows[first], minlength=len(column)), keys[first], counts).to_arrow()
