"""Parameters of functions: stored as columns of states, described as plain data, and written as text.

Parameters on which a state depends are stored with the state, as a column of their Arrow type. A description contains
them as JSON values. A call contains decimals and times as text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import MISSING, Field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import frozen as frozen
from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.constant_column import repeat_value

# for each tag in a description: the type of the value, the conversion to text, and the conversion from text
_TEXTS: dict[str, tuple[type, Any, Any]] = {
    "$decimal": (Decimal, str, Decimal),
    "$timestamp": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "$date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "$time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "$microseconds": (dt.timedelta, lambda span: span // dt.timedelta(microseconds=1), lambda n: dt.timedelta(0, 0, n)),
    "$hex": (bytes, bytes.hex, bytes.fromhex),
}


def repeated(name: str, value: Any, dtype: pa.DataType, n: int) -> pa.Array:
    """Return the value of the parameter ``name`` as a column of the type ``dtype`` with ``n`` equal rows.

    Raises ``TypeError`` for a value of another type.

    >>> repeated("edges", (1.0, 2.0), pa.list_(pa.float64()), 2).to_pylist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    try:
        scalar_column = pa.array([value], dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be of type {dtype}; got {shown(value)}") from None
    return repeat_value(scalar_column, n)


def distinct_values(name: str, column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the distinct values of the parameter ``name`` in ``column``, a field of states.

    For nested types and views, only the first two distinct values are returned. Raises ``ValueError`` for a column that
    cannot be cast to ``dtype``, the type of the parameter.

    >>> distinct_values("edges", pa.array([[1], [1], [2]]), pa.list_(pa.int8())).to_pylist()
    [[1], [2]]
    """
    if column.type != dtype:
        try:
            column = column.cast(dtype)
        except (pa.ArrowException, TypeError):
            raise ValueError(f"the field {name!r} has type {column.type}, not {dtype}") from None
    if not pa.types.is_nested(dtype) and not versions.is_string_view(dtype) and not versions.is_binary_view(dtype):
        return pc.unique(column)
    first_value = column.slice(0, 1)
    if len(column) < 2 or same_bits(column, pa.repeat(column[0], len(column))):
        return first_value
    other_row = next(row for row in range(1, len(column)) if not same_bits(column.slice(row, 1), first_value))
    return pa.concat_arrays([first_value, column.slice(other_row, 1)])


def describe_parameter(value: Any) -> Any:
    """Return a parameter as JSON values, from which `restore_parameter` restores it.

    >>> describe_parameter((Decimal("1.50"), None))
    [{'$decimal': '1.50'}, None]
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return describe_parameter(value.item())
    if isinstance(value, list | tuple):
        return [describe_parameter(part) for part in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: describe_parameter(part) for name, part in value.items()}
    if hasattr(value, "describe"):  # a parameter may also contain measures, as in `aggr.per`
        return value.describe()
    for tag, (dtype, write, read_text) in _TEXTS.items():
        if isinstance(value, dtype) and read_text(write(value)) == value:
            return {tag: write(value)}
    raise ValueError(
        f"a parameter cannot have the value {shown(value)}, which cannot be stored; use numbers, text, times, lists "
        "or structs"
    )


def restore_parameter(value: Any) -> Any:
    """Return the parameter whose description, from `describe_parameter`, is ``value``.

    >>> restore_parameter([{"$decimal": "1.50"}, None])
    (Decimal('1.50'), None)
    """
    if isinstance(value, list | tuple):
        return tuple(restore_parameter(part) for part in value)
    if isinstance(value, dict):
        tag, text = next(iter(value.items()), ("", None))
        if len(value) == 1 and tag in _TEXTS:
            return _TEXTS[tag][2](text)
        return {name: restore_parameter(part) for name, part in value.items()}
    return value


def parse_parameter(name: str, value: Any, dtype: pa.DataType) -> Any:
    """Return the decimal, time or duration (``'90s'``) that a text represents, also within lists and structs.

    ``name`` and ``dtype`` are the name and the type of the parameter. Values that are not text, and texts for other
    types, are returned unchanged. Raises ``ValueError`` for a text that is not a value of the type.

    >>> parse_parameter("widths", ["0.5", "2"], pa.list_(pa.decimal128(4, 1)))
    (Decimal('0.5'), Decimal('2.0'))
    """
    if isinstance(value, list | tuple) and hasattr(dtype, "value_type"):
        return tuple(parse_parameter(name, part, dtype.value_type) for part in value)
    if isinstance(value, dict) and pa.types.is_struct(dtype):
        inner = {f.name: f.type for f in dtype}
        return {key: parse_parameter(f"{name}.{key}", part, inner.get(key, pa.null())) for key, part in value.items()}
    if not isinstance(value, str) or not (pa.types.is_decimal(dtype) or pa.types.is_temporal(dtype)):
        return value
    try:
        if pa.types.is_time(dtype):
            return dt.time.fromisoformat(value)
        if pa.types.is_duration(dtype):
            return dt.timedelta(seconds=float(value.removesuffix("s")))
        return pa.scalar(value).cast(dtype).as_py()
    except (pa.ArrowException, ValueError, OverflowError):
        raise ValueError(f"{name} must be of type {dtype}; got {shown(value)}") from None


def parameter_text(value: Any) -> str:
    """Return a parameter as text in the form that users type: tuples as lists, decimals and times as text, durations in
    seconds.

    >>> parameter_text((Decimal("1.50"), True))
    "['1.50', True]"
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(parameter_text(part) for part in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {parameter_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, dt.timedelta):
        return repr(f"{value.total_seconds()!r}s")
    return repr(str(value)) if isinstance(value, Decimal | dt.date | dt.time) else repr(value)


def example_value(dtype: pa.DataType) -> Any:
    """Return an arbitrary value of a type, other than null. Return None if no value can be created.

    >>> example_value(pa.list_(pa.struct([("a", pa.string())])))
    [{'a': ''}]
    """
    if pa.types.is_map(dtype):
        return []
    if pa.types.is_struct(dtype):
        return {f.name: example_value(f.type) for f in dtype}
    if hasattr(dtype, "value_type"):
        inner = example_value(dtype.value_type)
        return inner if pa.types.is_dictionary(dtype) else [inner] * max(getattr(dtype, "list_size", 1), 0)
    if pa.types.is_temporal(dtype):
        return pa.scalar(0, pa.int64() if dtype.bit_width == 64 else pa.int32()).cast(dtype).as_py()
    for value in (0, "", b"", False):
        try:
            return pa.scalar(value, dtype).as_py()
        except (pa.ArrowException, TypeError, ValueError):
            continue
    return bytes(dtype.byte_width) if pa.types.is_fixed_size_binary(dtype) else None


def default_of(parameter: Field[Any]) -> Any:
    """Return the default of a dataclass field, or `dataclasses.MISSING` if it has none."""
    return parameter.default if parameter.default_factory is MISSING else parameter.default_factory()
