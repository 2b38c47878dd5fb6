"""hash64: one hash of each value, even over the numbers from 0 to 2^63, by which samples of values are chosen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.arrow.row_hash import row_hashes

ALL = np.iinfo(np.int64).max  # above every hash


def hash64(*columns: pa.Array) -> Whole:
    """Hash the rows of columns, none null, to numbers from 0 to below `ALL`; equal bits of a type have equal hashes.

    >>> a, b, again = hash64(pa.array(["a", "b", "a"])).tolist()
    >>> a == again, a == b
    (True, False)
    """
    hashes: Whole = (row_hashes(columns)[0] >> np.uint64(1)).view(np.int64)
    return np.minimum(hashes, ALL - 1)
