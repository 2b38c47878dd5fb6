"""Plain arrays: one form for the many in which Arrow can hold the same values."""

from __future__ import annotations

import pyarrow as pa


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Give one array of a plain type.

    Chunks are joined and dictionaries decoded; strings and bytes have one type each; decimals have 128 bits and no
    negative scale; timestamps are in UTC; times of day and timestamps in milliseconds or finer, dates in days, as
    Parquet keeps them; floats have 32 or 64 bits, and a
    column of nothing but nulls counts as floats.
    """
    values = one_array(values)
    if pa.types.is_dictionary(values.type):
        return plain(values.dictionary_decode())
    kind = plain_type(values.type)
    return values if kind == values.type else values.cast(kind)


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Join chunks, without a copy where there is but one."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type that stands for a type; types without one stand for themselves."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.string()
    if is_a.is_large_binary(kind) or is_a.is_binary_view(kind):
        return pa.binary()
    if is_a.is_decimal(kind):
        precision, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
        return kind if precision > 38 else pa.decimal128(precision, scale)
    if is_a.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz and "UTC")
    if is_a.is_time32(kind):
        return pa.time32("ms")
    if is_a.is_date64(kind):
        return pa.date32()
    if is_a.is_float16(kind):
        return pa.float32()
    return pa.float64() if is_a.is_null(kind) else kind
