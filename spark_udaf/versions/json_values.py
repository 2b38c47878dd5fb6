"""Values as JSON text, which Spark writes and reads without loss. Functions that receive pandas columns use this form.

In pandas, null and NaN in a column of doubles are the same value, integers become doubles if the column has nulls, and
instants have no zone. As text, all values arrive unchanged: whole numbers of any size, NaN and infinities, decimals,
instants in UTC, binary values, structs and lists. A value ``x`` is written as ``{"v": x}``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

_OPTIONS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_INTERVAL = re.compile(r"INTERVAL '(-?)(\d+) (\d+):(\d+):(\d+)(?:\.(\d+))?' DAY TO SECOND")
_NOT_FINITE = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


def column_to_json(column: Column) -> Column:
    """Return a Column with the values of ``column`` as JSON text. The type of the values must be one that Spark can
    write as JSON.
    """
    return F.to_json(F.struct(column.alias("v")), _OPTIONS)


def column_from_json(text: Column, dtype: DataType) -> Column:
    """Return a Column of the type ``dtype``, read from texts that `array_to_json` has returned. Any other text fails
    the job.
    """
    options = _OPTIONS | {"mode": "FAILFAST"}
    return F.from_json(text, StructType([StructField("v", dtype)]), options).getField("v")


def array_from_json(texts: Sequence[str | None], dtype: pa.DataType) -> pa.Array:
    """Return an array of a type, with one value for each text that `column_to_json` has written."""
    list_text = ",".join("null" if text is None else text for text in texts)
    rows = json.loads(f"[{list_text}]", parse_float=str)
    return _read([None if row is None else row.get("v") for row in rows], dtype)


def array_to_json(values: pa.Array) -> list[str]:
    """Return each value of an array as a JSON text, in the form that `column_from_json` reads."""
    convert = _writer(values.type)
    # If an array has an offset, its buffers begin before its first value. `_with_lossless_times` reads the buffers of
    # lists from their beginning, so the values are first copied to new buffers by `take`.
    if values.offset:
        values = values.take(pa.array(np.arange(len(values))))
    return [json.dumps({"v": None if value is None else convert(value)}) for value in _plain_values(values)]


def _read(items: list[Any], dtype: pa.DataType) -> pa.Array:
    if pa.types.is_list(dtype):
        return _read_lists(items, dtype)
    if pa.types.is_struct(dtype):
        children = [_read([None if item is None else item.get(f.name) for item in items], f.type) for f in dtype]
        mask = pa.array([item is None for item in items], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    if pa.types.is_timestamp(dtype):
        return pa.array(items, pa.string()).cast(dtype)
    if pa.types.is_date(dtype):
        return pa.array(items, pa.string()).cast(dtype)
    convert = _reader(dtype)
    return pa.array([None if item is None else convert(item) for item in items], dtype)


def _read_lists(items: list[Any], dtype: pa.DataType) -> pa.Array:
    lengths = [0 if item is None else len(item) for item in items]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int32)]).astype(np.int32)
    values = _read([value for item in items if item is not None for value in item], dtype.value_type)
    mask = pa.array([item is None for item in items], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask).cast(dtype)


def _reader(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that converts a JSON value to a Python value of an Arrow type that is not nested."""
    if pa.types.is_floating(dtype):
        return float
    if pa.types.is_decimal(dtype):
        return Decimal
    if pa.types.is_binary(dtype):
        return base64.b64decode
    if pa.types.is_duration(dtype):
        return _interval_micros
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype) or pa.types.is_string(dtype):
        return lambda value: value
    if pa.types.is_null(dtype):
        return lambda value: None
    raise TypeError(f"a function on this version of PySpark cannot read a column of type {dtype}; cast it to string")


def _interval_micros(text: str) -> int:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"cannot read the interval {text!r}; an interval must have the form INTERVAL '1 02:03:04.5' DAY TO SECOND"
        )
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total_seconds = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    micros = total_seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _plain_values(values: pa.Array) -> list[Any]:
    """Return the values of an array as Python values. Times become texts, and intervals become whole microseconds,
    so that no value is rounded.
    """
    return list(_with_lossless_times(values).to_pylist())


def _with_lossless_times(values: pa.Array) -> pa.Array:
    """Return the array with times and dates as text and intervals as whole microseconds, also inside nested values."""
    dtype = values.type
    if pa.types.is_timestamp(dtype):
        time_format = "%Y-%m-%dT%H:%M:%S" + ("" if dtype.tz is None else "Z")
        return pc.strftime(values.cast(pa.timestamp("us", dtype.tz and "UTC")), time_format)
    if pa.types.is_duration(dtype):
        return values.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_date(dtype):
        return values.cast(pa.string())
    if pa.types.is_struct(dtype):
        children = [_with_lossless_times(child) for child in values.flatten()]
        return pa.StructArray.from_arrays(children, [f.name for f in dtype], mask=values.is_null())
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        offsets = values.offsets.cast(pa.int64())
        return pa.LargeListArray.from_arrays(offsets, _with_lossless_times(values.values), mask=values.is_null())
    return values


def _writer(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that converts a Python value from `_plain_values` to a JSON value."""
    if pa.types.is_floating(dtype):
        return _write_float
    if pa.types.is_decimal(dtype):
        return str
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype) or pa.types.is_fixed_size_binary(dtype):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_duration(dtype):
        return _interval_text
    if pa.types.is_map(dtype):
        convert = _nullable(_writer(dtype.item_type))
        return lambda pairs: {str(key): convert(value) for key, value in pairs}
    if pa.types.is_struct(dtype):
        field_writers = {f.name: _nullable(_writer(f.type)) for f in dtype}
        return lambda value: {name: write(value[name]) for name, write in field_writers.items()}
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        convert_element = _nullable(_writer(dtype.value_type))
        return lambda values: [convert_element(value) for value in values]
    return lambda value: value


def _nullable(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _write_float(value: float) -> Any:
    return "NaN" if value != value else _NOT_FINITE.get(value, value)


def _interval_text(micros: int) -> str:
    total_seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, seconds = divmod(total_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if micros < 0 else ""
    return f"INTERVAL '{sign}{days} {hours:02}:{minutes:02}:{seconds:02}.{fraction:06}' DAY TO SECOND"
