"""Arrow values as Python objects, without a loss of nanoseconds."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as is_a

from aggr.iso8601 import duration_text


def python_objects(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, which are the same whether or not pandas is installed.

    The result is that of ``to_pylist``, except for types with the unit nanoseconds. Python's datetime, time and
    timedelta have only microseconds. Values with a fraction of a microsecond are returned as ISO 8601 text.
    ``to_pylist`` would truncate such times of day. It would return such timestamps and durations as objects of pandas,
    or raise an error if pandas is not installed.

    >>> times = pa.array([1_000, 1_001], pa.timestamp("ns", "UTC"))
    >>> [str(value) for value in python_objects(times)]
    ['1970-01-01 00:00:00.000001+00:00', '1970-01-01T00:00:00.000001001Z']
    """
    if not _has_nanoseconds(column.type):
        values: list[Any] = column.to_pylist()
        return values
    convert = partial(_to_object, dtype=column.type)
    return list(map(convert, column.cast(_replace_nanoseconds(column.type)).to_pylist()))


def _has_nanoseconds(dtype: pa.DataType) -> bool:
    if is_a.is_dictionary(dtype) or is_a.is_fixed_size_list(dtype):
        return _has_nanoseconds(dtype.value_type)
    if is_a.is_nested(dtype):
        return any(_has_nanoseconds(dtype.field(i).type) for i in range(dtype.num_fields))
    return _is_temporal(dtype) and dtype.unit == "ns"


def _is_temporal(dtype: pa.DataType) -> bool:
    return bool(is_a.is_timestamp(dtype) or is_a.is_time(dtype) or is_a.is_duration(dtype))


def _replace_nanoseconds(dtype: pa.DataType) -> pa.DataType:
    """Return ``dtype`` with int64 in place of all types with the unit nanoseconds, also inside nested types.

    A dictionary type is replaced by the type of its values.
    """
    if is_a.is_dictionary(dtype):
        return _replace_nanoseconds(dtype.value_type)
    if is_a.is_struct(dtype):
        return pa.struct([field.with_type(_replace_nanoseconds(field.type)) for field in dtype])
    if is_a.is_map(dtype):
        return pa.map_(_replace_nanoseconds(dtype.key_type), _replace_nanoseconds(dtype.item_type))
    if is_a.is_fixed_size_list(dtype):
        return pa.list_(_replace_nanoseconds(dtype.value_type), dtype.list_size)
    if is_a.is_list(dtype) or is_a.is_large_list(dtype):
        kind = pa.list_ if is_a.is_list(dtype) else pa.large_list
        return kind(dtype.value_field.with_type(_replace_nanoseconds(dtype.value_type)))
    return pa.int64() if _has_nanoseconds(dtype) else dtype


def _to_object(value: Any, dtype: pa.DataType) -> Any:
    """Return a value of a column of the type ``dtype`` as a Python object.

    The column was cast to ``_replace_nanoseconds(dtype)``, so that ``value`` has integers in place of times with
    nanoseconds. They are converted here.
    """
    if value is None or not _has_nanoseconds(dtype):
        return value
    if is_a.is_dictionary(dtype):
        return _to_object(value, dtype.value_type)
    if is_a.is_struct(dtype):
        return {field.name: _to_object(value[field.name], field.type) for field in dtype}
    if is_a.is_map(dtype):
        return [(_to_object(key, dtype.key_type), _to_object(item, dtype.item_type)) for key, item in value]
    if is_a.is_nested(dtype) or is_a.is_fixed_size_list(dtype):
        return [_to_object(part, dtype.value_type) for part in value]
    micros, nanoseconds = divmod(value, 1000)
    if is_a.is_duration(dtype):
        return duration_text(value, digits=9) if nanoseconds else dt.timedelta(microseconds=micros)
    microsecond_type = pa.timestamp("us", dtype.tz) if is_a.is_timestamp(dtype) else pa.time64("us")
    time = pa.scalar(micros, microsecond_type).as_py()
    if not nanoseconds:
        return time
    clock, fraction, offset = time.isoformat(timespec="microseconds").partition(f".{time.microsecond:06}")
    return f"{clock}{fraction}{nanoseconds:03}{'Z' if offset == '+00:00' else offset}"
