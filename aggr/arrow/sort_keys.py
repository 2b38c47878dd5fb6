"""Sort keys: map any Arrow values to int64 keys of the same order, so that one loop finds the minimum and maximum of
any type.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Floats, Whole
from aggr.arrow import compute as pc

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max


def order_keys(values: pa.Array) -> Whole:
    """Map values without nulls to int64 keys of the same order. Values with equal bits have equal keys.

    The order of floats is that of Spark: NaN is greater than all numbers, and all NaN are equal. In addition, ``-0.0``
    sorts before ``0.0``, so that the minimum of both does not depend on the order of rows. Strings compare by code
    point, bytes by byte. Keys of values without a fixed width are ranks, and are only comparable within one call.

    >>> order_keys(pa.array([2.0, -1.0, float("nan")])).argsort()
    array([1, 0, 2])
    """
    dtype = values.type
    keys: Whole
    if pa.types.is_floating(dtype):
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


def _float_keys(values: Floats) -> Whole:
    """Convert the bits of IEEE floats to integers of the same order, with one key for all NaN."""
    keys = values.view(np.int64).copy()
    keys ^= (keys >> 63) & HIGHEST
    nan = np.isnan(values)
    if nan.any():
        keys[nan] = HIGHEST - 1
    return keys
