"""Stored types: conversion of states and keys to types that Delta Lake and PostgreSQL support, and back.

Delta Lake and PostgreSQL do not have unsigned integers, times of day, durations and nanoseconds. Such values are stored
in other types that represent them exactly.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def stored_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are stored; supported types are returned unchanged.

    >>> stored_type(pa.struct([("greatest", pa.uint64()), ("at", pa.timestamp("ns"))]))
    StructType(struct<greatest: decimal128(20, 0), at: int64>)
    """
    is_a = pa.types
    if is_a.is_struct(dtype):
        return pa.struct([field.with_type(stored_type(field.type)) for field in dtype])
    if is_a.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(stored_type(dtype.value_type)))
    if dtype in _UNSIGNED:
        return _UNSIGNED[dtype]
    if is_a.is_time(dtype) or is_a.is_duration(dtype) or (is_a.is_timestamp(dtype) and dtype.unit == "ns"):
        return pa.int64()
    if is_a.is_timestamp(dtype):
        return pa.timestamp("us", dtype.tz and "UTC")
    return pa.string() if is_a.is_decimal256(dtype) else dtype


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the stored types of its fields."""
    return pa.schema([pa.field(field.name, stored_type(field.type)) for field in schema])


def stored(values: pa.Array) -> pa.Array:
    """Return an array converted to the type in which it is stored."""
    return cast_stored(values, stored_type(values.type))


def cast_stored(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Return an array converted to the type ``to``, either from an original type to its stored type, or from a stored
    type to the original one. The fields of a struct and the elements of a list are converted one by one, because Arrow
    cannot convert some of them within a nested type.
    """
    # Nested types are always converted, because Arrow treats two nested types as equal even if their field names
    # differ.
    if values.type == to and not pa.types.is_nested(to):
        return values
    if pa.types.is_struct(to):
        nulls = pc.is_null(values) if values.null_count else None
        children = [cast_stored(values.field(i), to.field(i).type) for i in range(to.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=nulls)
    if pa.types.is_list(to):
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        offsets = np.append(0, np.cumsum(lengths.to_numpy())).astype(np.int32)
        nulls = pc.is_null(values) if values.null_count else None
        return pa.ListArray.from_arrays(offsets, cast_stored(values.flatten(), to.value_type), to, mask=nulls)
    # Values are converted through int32, because Arrow converts time32 only from and to integers of 32 bits, and the
    # stored type has 64 bits.
    if pa.types.is_time32(values.type) or pa.types.is_time32(to):
        return values.cast(pa.int32()).cast(to)
    return values.cast(to)
