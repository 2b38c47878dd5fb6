"""Lists of at most one value: in SQL, ``array_compact(array(x))`` passes a column exactly on every
version of PySpark.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def single_values(lists: pa.Array) -> pa.Array:
    """Return the value of each list, and null for an empty or null list. Raise ``TypeError`` for longer lists."""
    offsets = lists.offsets.to_numpy()
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > 1:
        raise TypeError("lists cannot be aggregated; explode the list, or write array_compact(array(x))")
    return lists.values.take(pa.array(offsets[:-1], mask=lengths == 0))
