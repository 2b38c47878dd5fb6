"""Compare two columns of results row by row. The comparison uses operations on whole columns, and works for any nested
type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array


def equal_rows(before: pa.Table, after: pa.Table, columns: Sequence[str]) -> Flags:
    """Return a mask of the rows in which two tables of the same length have equal values. Null equals null, and NaN
    equals NaN.

    >>> before, after = pa.table({"n": [1, None, 3]}), pa.table({"n": [1, None, 4]})
    >>> equal_rows(before, after, ["n"])
    array([ True,  True, False])
    """
    equal = np.ones(after.num_rows, np.bool_)
    for name in columns:
        equal &= _equal(one_array(before.column(name)), one_array(after.column(name)))
    return equal


def _equal(before: pa.Array, after: pa.Array) -> Flags:
    """Return a mask of the rows in which two columns of the same type and length have equal values."""
    dtype = after.type
    if pa.types.is_map(dtype):
        return _equal(_entries(before), _entries(after))
    valid_before, valid_after = (column.is_valid().to_numpy(zero_copy_only=False) for column in (before, after))
    equal: Flags = valid_before == valid_after
    if pa.types.is_struct(dtype):
        for old, new in zip(before.flatten(), after.flatten(), strict=True):
            equal &= _equal(old, new)
        return equal
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return equal & _equal_lists(before, after)
    values = pc.equal(before, after).fill_null(True)
    equal &= values.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(dtype):
        both_nan = pc.and_(pc.is_nan(before), pc.is_nan(after)).fill_null(False)
        equal |= both_nan.to_numpy(zero_copy_only=False)
    return equal


def _equal_lists(before: pa.Array, after: pa.Array) -> Flags:
    """Return a mask of the rows in which two columns of lists have equal elements in the same order. A null list equals
    an empty list here; the caller compares the nulls.
    """
    lengths_before, lengths_after = (
        pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False) for column in (before, after)
    )
    equal: Flags = lengths_before == lengths_after
    compared = np.flatnonzero(equal & (lengths_before > 0))
    if len(compared):
        rows = pa.array(compared)
        elements = _equal(before.take(rows).flatten(), after.take(rows).flatten())
        counts = lengths_before[compared]
        equal[compared] = np.logical_and.reduceat(elements, np.cumsum(counts) - counts)
    return equal


def _entries(column: pa.MapArray) -> pa.ListArray:
    """Convert a column of maps to a column of lists of structs with the fields ``key`` and ``value``."""
    if column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    return pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null())
