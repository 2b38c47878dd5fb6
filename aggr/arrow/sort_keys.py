"""Sort keys: int64 keys with the order of Arrow values, so that one loop can find the minimum and the maximum of values
of any type.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Floats, Whole
from aggr.arrow import compute as pc

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max


def order_keys(values: pa.Array) -> Whole:
    """Return int64 keys that have the same order as the values, shape (rows,). There must be no nulls.

    Values with equal bits have equal keys.

    The order of floats is that of Spark: NaN is greater than all numbers, and all NaN are equal. In addition, ``-0.0``
    sorts before ``0.0``, so that the minimum of both zeros does not depend on the order of rows. Strings are compared
    by code point, and binary values by byte. Records are compared field by field, with null after all values. The keys
    of records, decimals, strings and binary values are ranks among the values of this call, and cannot be compared with
    keys of another call.

    >>> order_keys(pa.array([2.0, -1.0, float("nan")])).argsort()
    array([1, 0, 2])
    """
    dtype = values.type
    keys: Whole
    if pa.types.is_struct(dtype):
        keys = _record_keys(values)
    elif pa.types.is_floating(dtype):
        keys = _float_keys(values.to_numpy().astype(np.float64, copy=False))
    elif pa.types.is_uint64(dtype):
        keys = (values.to_numpy() ^ np.uint64(1 << 63)).view(np.int64)
    elif pa.types.is_integer(dtype) or pa.types.is_boolean(dtype):
        keys = values.to_numpy(zero_copy_only=False).astype(np.int64)
    elif pa.types.is_temporal(dtype):
        width = pa.int64() if dtype.bit_width == 64 else pa.int32()
        keys = values.view(width).to_numpy().astype(np.int64)
    else:
        encoded = values.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keys = rank[encoded.indices.to_numpy()]
    return keys


def has_order(dtype: pa.DataType) -> bool:
    """Return whether values of this type can be compared by `order_keys`."""
    is_a = pa.types
    tests = (
        *(is_a.is_integer, is_a.is_floating, is_a.is_boolean, is_a.is_date, is_a.is_timestamp, is_a.is_time),
        *(is_a.is_duration, is_a.is_decimal, is_a.is_string, is_a.is_binary, is_a.is_fixed_size_binary),
    )
    return any(test(dtype) for test in tests)


def is_ordered_record(dtype: pa.DataType) -> bool:
    """Return whether a type is a record with at least one field, and each of its fields either has an order or is an
    ordered record itself.

    >>> is_ordered_record(pa.struct({"a": pa.int64()})), is_ordered_record(pa.struct({"a": pa.list_(pa.int64())}))
    (True, False)
    """
    if not pa.types.is_struct(dtype) or not dtype.num_fields:
        return False
    return all(has_order(field.type) or is_ordered_record(field.type) for field in dtype)


def _record_keys(records: pa.StructArray) -> Whole:
    """Return the rank of each record among all records, shape (rows,). Equal records have the same rank."""
    parts: list[Whole] = []
    for i in range(records.type.num_fields):
        field = records.field(i)
        is_null = field.is_null().to_numpy(zero_copy_only=False)
        keys = np.zeros(len(field), np.int64)
        keys[~is_null] = order_keys(field.drop_null())
        parts += [is_null.astype(np.int64), keys]
    order = np.lexsort(parts[::-1])
    is_new = np.zeros(len(order), np.bool_)
    for part in parts:
        is_new[1:] |= part[order[1:]] != part[order[:-1]]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _float_keys(values: Floats) -> Whole:
    """Return an int64 key for each float, in the order of the floats, shape (rows,). All NaN have the same key."""
    keys = values.view(np.int64).copy()
    keys ^= (keys >> 63) & HIGHEST
    nan = np.isnan(values)
    if nan.any():
        keys[nan] = HIGHEST - 1
    return keys
