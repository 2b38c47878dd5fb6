"""Rows of OTLP metrics as a table. A column has the type that it has in the store. If the store has no type for the
column, the column has the type of the values in the messages, so that a text such as "12" is text and not a number.

If a value does not fit the type of its column, its row is rejected, and the other rows are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from aggr.extend.arguments import shown
from aggr.extend.tables import key_type, plain_keys
from tiltframe import TiltFrame
from tiltframe.store import FrameStore

_TIME = pa.timestamp("us", "UTC")
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_COLUMN = re.compile(r"[A-Za-z_][\w.]*")
_EXACT = 2**53  # doubles represent all whole numbers up to this one exactly


def table_from_rows(rows: Sequence[dict[str, Any]], store: FrameStore, rejections: list[str]) -> pa.Table:
    """Return a table of the columns that the store's frame reads. A column is null in the rows that lack it.

    Rows with a value that does not fit its column are left out. One message for each OpenTelemetry data point with
    such rows is added to ``rejections``.
    """
    frame = store.frame
    present_columns = dict.fromkeys(name for row in rows for name in row)
    missing = [name for name in frame.may_read() if name not in present_columns and _is_column(name, frame)]
    columns = frame.columns_in([*present_columns, *missing])
    values = {name: [row.get(name) for row in rows] for name in columns}
    schema = _schema(values, store)
    converted_columns: dict[str, list[Any]] = {}
    problems: dict[int, str] = {}
    for field in schema:
        if field.name == frame.time:
            converted_columns[field.name] = values[field.name]
            continue
        converted_columns[field.name] = [
            _convert(value, field, row, problems) for row, value in enumerate(values[field.name])
        ]
    points = {_point_of(rows[row]): (rows[row]["metric"], problem) for row, problem in problems.items()}
    rejections += [f"the metric {shown(metric)}: {problem}" for metric, problem in points.values()]
    types = [pa.string() if field.name == frame.time else field.type for field in schema]
    arrays = [pa.array(converted_columns[name], dtype) for name, dtype in zip(schema.names, types, strict=True)]
    table = pa.table(arrays, names=schema.names)
    if problems:
        table = table.take(pa.array([row for row in range(len(rows)) if row not in problems], pa.int64()))
    return table.set_column(0, schema.field(0), table.column(0).cast(_TIME))


def _point_of(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a key that is equal for all rows of the same OpenTelemetry data point: the names and values of a row,
    except ``value`` and ``weight``. The rows of one data point of a histogram differ only in these two.
    """
    return tuple((name, value) for name, value in row.items() if name not in ("value", "weight"))


def _is_column(name: str, frame: TiltFrame) -> bool:
    """Return whether ``name``, which the frame may read, is the name of a column and not an expression of columns."""
    return name in plain_keys(frame.keyed_by) or _COLUMN.fullmatch(name) is not None


def _schema(values: dict[str, list[Any]], store: FrameStore) -> pa.Schema:
    """Return a schema for the columns in ``values``, a dict of column name → values. The type of a column comes from
    the store's keys and states or, if these do not determine the type, from the values. A column of integers and
    doubles has the type double. Other columns of mixed types are text.
    """
    frame = store.frame
    fields = [pa.field(name, _TIME if name == frame.time else _type_of(column)) for name, column in values.items()]
    schema = store.with_stored_types(pa.schema(fields), change_numbers=True)
    if store.schema is None:
        return schema
    schema = _with_whole_numbers(schema, store)
    for name in plain_keys(frame.keyed_by):
        index = schema.get_field_index(name)
        if index >= 0:
            schema = schema.set(index, pa.field(name, key_type(store.schema.field(name).type)))
    return schema


def _with_whole_numbers(schema: pa.Schema, store: FrameStore) -> pa.Schema:
    """Return ``schema`` with integers in place of doubles in the columns for which the store has states of integers.
    Rows with a fraction in such a column are then rejected.
    """
    fields_without_doubles = [
        field.with_type(pa.null()) if pa.types.is_floating(field.type) else field for field in schema
    ]
    stored_schema = store.with_stored_types(pa.schema(fields_without_doubles))
    fields = [
        field if pa.types.is_null(stored_field.type) else stored_field
        for field, stored_field in zip(schema, stored_schema, strict=True)
    ]
    return pa.schema(fields)


def _type_of(values: Sequence[Any]) -> pa.DataType:
    types = {type(value) for value in values if value is not None}
    if not types:
        return pa.null()
    if len(types) == 1:
        return _TYPES[types.pop()]
    return pa.float64() if types == {int, float} else pa.string()


def _convert(value: Any, field: pa.Field, row: int, problems: dict[int, str]) -> Any:
    """Return a value converted to the type of its column, ``field``. If it cannot be converted exactly, return None,
    and add a message to ``problems`` under ``row``, the index of the row.
    """
    if value is None or _TYPES[type(value)] == field.type:
        return value
    converted: Any = None
    if pa.types.is_string(field.type):
        converted = str(value).lower() if isinstance(value, bool) else repr(value)
    elif pa.types.is_integer(field.type):
        converted = _as_whole(value, field.type)
    elif pa.types.is_floating(field.type):
        converted = _as_double(value)
    else:
        converted = _as_other(value, field.type)
    if converted is None:
        problems[row] = (
            f"{field.name} has the value {shown(value)}, and the store needs a value of type {field.type}; send values "
            "of this type"
        )
    return converted


def _as_whole(value: Any, dtype: pa.DataType) -> int | None:
    """Return a value as an integer, or None if it is not a whole number in the range of the integer type ``dtype``."""
    integer = None
    if isinstance(value, float) and value.is_integer():
        integer = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        integer = value
    elif isinstance(value, str) and re.fullmatch("-?[1-9][0-9]{0,18}|0", value):
        integer = int(value)
    signed = pa.types.is_signed_integer(dtype)
    bits = dtype.bit_width - signed
    fits = integer is not None and (-(2**bits) if signed else 0) <= integer < 2**bits
    return integer if fits else None


def _as_double(value: Any) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) <= _EXACT else None
    return value if isinstance(value, float) else None


def _as_other(value: Any, dtype: pa.DataType) -> Any:
    try:
        return pa.scalar(value).cast(dtype).as_py()
    except (pa.ArrowException, ValueError, TypeError):
        return None
