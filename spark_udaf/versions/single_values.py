"""Lists of at most one value. Calls pass ``array_compact(array(x))`` to Python functions instead of ``x``, because old
versions of PySpark use pandas, which stores a plain column of whole numbers with nulls as floats.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def values_of_single_lists(lists: pa.Array) -> pa.Array:
    """Return the value of each list, and null for an empty or null list. Raise ``TypeError`` for longer lists."""
    offsets = lists.offsets.to_numpy()
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > 1:
        raise TypeError(
            "the column contains lists; use explode to aggregate their elements; to pass a scalar column x as a list, "
            "write array_compact(array(x))"
        )
    return lists.values.take(pa.array(offsets[:-1], mask=lengths == 0))
