"""Normalized arrays: one Arrow type for values that Arrow can store in several types."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.arrow import compute as pc
from aggr.arrow import versions

# For each extension type whose storage is a number without its unit, the name of the type in messages.
_TYPES_WITHOUT_UNIT = {"pandas.period": "pandas' Period"}


def normalize(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert a column to one array of the type that `normalized_type` returns.

    Chunks are joined. Dictionaries and run-length encodings are decoded. An extension type, such as JSON or UUID,
    becomes its storage type. All texts become ``string``, and all bytes ``binary``. Decimals of up to 38 digits have
    128 bits and no negative scale. Timestamps are in UTC. Times in seconds become milliseconds, and dates are in days,
    as in Parquet. Floats of 16 bits become float32, and a column of nulls becomes float64.
    """
    values = one_array(values)
    if isinstance(values.type, pa.BaseExtensionType):
        normalized_type(values.type)
        return normalize(values.storage)
    if pa.types.is_dictionary(values.type):
        # The dictionary's values are converted first, because Arrow cannot decode a dictionary whose values are string
        # views. Polars passes strings as string views.
        decoded = normalize(values.dictionary)
        return normalize(pa.DictionaryArray.from_arrays(values.indices, decoded).dictionary_decode())
    if pa.types.is_run_end_encoded(values.type):
        return normalize(pc.run_end_decode(values))
    dtype = normalized_type(values.type)
    return values if dtype == values.type else values.cast(dtype)


def filterable(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Return a table that Arrow can filter. Columns that Arrow cannot filter are converted by `normalize`.

    Arrow cannot filter columns of string views, binary views and run-length encodings, and dictionaries of such values.
    """
    tests = (versions.is_string_view, versions.is_binary_view, pa.types.is_run_end_encoded)
    for index, field in enumerate(table.schema):
        value_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if any(test(value_type) for test in tests):
            table = versions.set_column(table, index, field.name, normalize(table.column(index)))
    return table


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. Several chunks are joined; a single chunk is not copied."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def normalized_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type to which `normalize` converts a type. Raises ``TypeError`` for pandas' Period, whose unit is lost
    in Arrow, and for decimals with a negative scale and more than 38 digits before the point.
    """
    is_a = pa.types
    if isinstance(dtype, pa.BaseExtensionType):
        if dtype.extension_name in _TYPES_WITHOUT_UNIT:
            raise TypeError(
                f"a column of {_TYPES_WITHOUT_UNIT[dtype.extension_name]} loses its unit in Arrow, where only numbers "
                "remain; convert it to text with .astype(str), or to times with .dt.start_time"
            )
        return normalized_type(dtype.storage_type)
    if is_a.is_dictionary(dtype) or is_a.is_run_end_encoded(dtype):
        return normalized_type(dtype.value_type)
    if is_a.is_large_string(dtype) or versions.is_string_view(dtype):
        return pa.string()
    if is_a.is_large_binary(dtype) or versions.is_binary_view(dtype):
        return pa.binary()
    if is_a.is_decimal(dtype):
        precision = dtype.precision - min(dtype.scale, 0)
        if precision > 38 and dtype.scale < 0:
            raise TypeError(
                f"a column of {dtype} has numbers of up to {precision} digits, more than 38; convert it to double, or "
                "to a decimal with a scale of at least 0"
            )
        scale = max(dtype.scale, 0)
        return dtype if precision > 38 else pa.decimal128(precision, scale)
    if is_a.is_timestamp(dtype):
        return pa.timestamp("ms" if dtype.unit == "s" else dtype.unit, dtype.tz and "UTC")
    if is_a.is_time32(dtype):
        return pa.time32("ms")
    if is_a.is_date64(dtype):
        return pa.date32()
    if is_a.is_float16(dtype):
        return pa.float32()
    return pa.float64() if is_a.is_null(dtype) else dtype


def zero_of(dtype: pa.DataType) -> pa.Scalar:
    """Return 0 as a scalar of a type of numbers.

    >>> zero_of(pa.decimal128(3, 2))
    <pyarrow.Decimal128Scalar: Decimal('0.00')>
    """
    # Arrow casts an integer to a decimal only if the decimal has room for all integers of the type.
    return pa.scalar(Decimal(0), dtype) if pa.types.is_decimal(dtype) else pa.scalar(0).cast(dtype)


def normalize_records(records: pa.Array) -> pa.Array:
    """Return structs whose fields are normalized, including the fields of structs inside them. Other arrays are
    returned unchanged.

    >>> normalize_records(pa.array([{"a": "x"}], pa.struct({"a": pa.large_string()}))).type
    StructType(struct<a: string>)
    """
    if not pa.types.is_struct(records.type):
        return records
    fields = [normalize_records(normalize(records.field(i))) for i in range(records.type.num_fields)]
    names = [field.name for field in records.type]
    return pa.StructArray.from_arrays(fields, names=names, mask=records.is_null())


def canonical(column: pa.Array) -> pa.Array:
    """Return a column in which every NaN has the same bits, also inside structs. All other values are unchanged, so
    -0.0 and 0.0 still differ.
    """
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    if pa.types.is_struct(column.type):
        children = [canonical(column.field(i)) for i in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())
    return column


def normalize_floats(values: pa.Array) -> pa.Array:
    """Return floats in which -0.0 is replaced by 0.0, and every NaN by a single NaN, as keys and sets require. Other
    types are returned unchanged.
    """
    return canonical(pc.add(values, pa.scalar(0, values.type))) if pa.types.is_floating(values.type) else values


def with_nulls(values: pa.Array, valid: pa.Array) -> pa.Array:
    """Return a column with as many rows as ``valid``. The values are placed, in their order, in the rows for which
    ``valid`` is true. The other rows are null.

    >>> with_nulls(pa.array(["a", "b"]), pa.array([True, False, True])).to_pylist()
    ['a', None, 'b']
    """
    if len(values) == len(valid):
        return values
    is_valid = valid.to_numpy(zero_copy_only=False)
    return values.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))


def is_number(dtype: pa.DataType) -> bool:
    """Return whether a type is numeric."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def microseconds(times: pa.Array) -> Whole:
    """Return timestamps as whole microseconds since 1970, shape (rows,). There must be no nulls.

    Nanoseconds are rounded towards the past.

    >>> microseconds(pa.array([-1, 2000], pa.timestamp("ns")))
    array([-1,  2])
    """
    if times.type.unit == "ns":  # a cast would round times before 1970 upwards
        floored: Whole = times.view(pa.int64()).to_numpy() // 1000
        return floored
    rounded: Whole = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).to_numpy()
    return rounded
