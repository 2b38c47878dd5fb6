"""Helpers for columns: NumPy array types, normalization of values, sort keys and hashes of values, and sums and
extremes by group.

`compute` has the functions of ``pyarrow.compute``, which it imports at the first call.

>>> import pyarrow as pa
>>> from aggr.extend.columns import compute as pc, normalize_floats, order_keys
>>> normalize_floats(pa.array([-0.0, 1.0])).to_pylist(), int(order_keys(pa.array(["b", "a", "b"])).argmin())
([0.0, 1.0], 1)
>>> pc.sum(pa.array([1, 2])).as_py()
3
"""

from aggr.arrays import Bytes, Flags, Floats, Ids, Whole
from aggr.arrow import compute
from aggr.arrow.damaged_state import field_of_type, refuse_nulls
from aggr.arrow.normalize import canonical, is_number, microseconds, normalize, normalize_floats, one_array, with_nulls
from aggr.arrow.row_hash import hash64
from aggr.arrow.sort_keys import has_order, order_keys
from aggr.arrow.versions import to_fixed_size_binary
from aggr.groups.groups import group_by
from aggr.groups.numbers import extreme_by_group, sum_by_group

__all__ = [
    "Bytes",
    "Flags",
    "Floats",
    "Ids",
    "Whole",
    "canonical",
    "compute",
    "extreme_by_group",
    "field_of_type",
    "group_by",
    "has_order",
    "hash64",
    "is_number",
    "microseconds",
    "normalize",
    "normalize_floats",
    "one_array",
    "order_keys",
    "refuse_nulls",
    "sum_by_group",
    "to_fixed_size_binary",
    "with_nulls",
]
