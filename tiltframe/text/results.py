"""Results as text: JSON and cells of CSV. All times are written as ISO 8601, in the time zone of their column."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.iso8601 import duration_text
from aggr.python_objects import python_objects

_EXACT = 2**53  # doubles represent whole numbers up to this one exactly


def json_lines(table: pa.Table) -> str:
    """Return every row of a table of results as a JSON object on a separate line. Values may be lists and records.

    Times and durations are in ISO 8601. Whole numbers have all their digits; a program that reads them as doubles
    rounds those beyond 2^53. Decimals, NaN and infinities are text. Bytes are written as hexadecimal digits. Maps are
    objects.

    >>> print(json_lines(pa.table({"n": [2**63 - 1], "x": [math.nan]})), end="")
    {"n": 9223372036854775807, "x": "NaN"}
    """
    rows = zip(*map(python_values, table.columns), strict=True)
    return "".join(json_text(dict(zip(table.column_names, row, strict=True))) + "\n" for row in rows)


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column as Python objects. Maps are dictionaries whose keys are text. Times and durations
    with a fraction of a microsecond are ISO 8601 text.

    >>> python_values(pa.array([[(3, 0.5)], []], pa.map_(pa.int64(), pa.float64())))
    [{'3': 0.5}, {}]
    """
    values = python_objects(column)
    return [_with_dictionaries(value, column.type) for value in values] if _has_map(column.type) else values


def _has_map(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_map(dtype)) or any(_has_map(dtype.field(i).type) for i in range(dtype.num_fields))


def _with_dictionaries(value: Any, dtype: pa.DataType) -> Any:
    """Return a value of the Arrow type ``dtype`` with maps as dictionaries. Arrow returns maps as lists of pairs."""
    if value is None or not pa.types.is_nested(dtype):
        return value
    if pa.types.is_map(dtype):
        return {_key_text(key): _with_dictionaries(item, dtype.item_type) for key, item in value}
    if pa.types.is_struct(dtype):
        return {field.name: _with_dictionaries(value[field.name], field.type) for field in dtype}
    return [_with_dictionaries(part, dtype.value_type) for part in value]


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(json_value(key))


def json_text(value: Any) -> str:
    """Return the JSON text of a value of a result."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def iso_times(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of timestamps as ISO 8601 texts, with the offset of the column's time zone if it has one.

    >>> iso_times(pa.chunked_array([pa.array([0, 500_000], pa.timestamp("us", "UTC"))])).to_pylist()
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z']
    >>> iso_times(pa.chunked_array([pa.array([0], pa.timestamp("us", "Asia/Tokyo"))])).to_pylist()
    ['1970-01-01T09:00:00+09:00']
    """
    texts = pc.strftime(times, "%Y-%m-%dT%H:%M:%S" if times.type.tz is None else "%Y-%m-%dT%H:%M:%S%z")
    texts = pc.replace_substring_regex(texts, r"\.0+([+-]|$)", r"\1")
    texts = pc.replace_substring_regex(texts, r"([+-]\d\d)(\d\d)$", r"\1:\2")
    return pc.replace_substring_regex(texts, r"\+00:00$", "Z")


def csv_cells(flat: pa.Table) -> pa.Table:
    """Return a table whose columns can be written as CSV. Timestamps become ISO 8601 text, lists and maps JSON, and
    bytes hexadecimal digits.
    """
    for i, field in enumerate(flat.schema):
        if pa.types.is_timestamp(field.type):
            texts = iso_times(flat.column(i))
        elif pa.types.is_nested(field.type):
            values = python_values(flat.column(i))
            texts = pa.array([None if value is None else json_text(value) for value in values], pa.string())
        elif any(test(field.type) for test in (pa.types.is_binary, pa.types.is_fixed_size_binary)):
            texts = pa.array([json_value(v) for v in flat.column(i).to_pylist()], pa.string())
        else:
            continue
        flat = flat.set_column(i, field.name, texts)
    return flat


def json_rows(table: pa.Table) -> str:
    """Return rows as JSON objects, separated by commas, for programs that read all numbers as doubles.

    The form is that of `json_lines`, except that whole numbers beyond 2^53 are text.

    >>> print(json_rows(pa.table({"n": [2**53 + 1, 7, None], "x": [0.5, -math.inf, None]})))
    {"n": "9007199254740993", "x": 0.5}, {"n": 7, "x": "-Infinity"}, {"n": null, "x": null}
    """
    columns = [_for_doubles(column) for column in table.columns]
    rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)[1:-1]


def _for_doubles(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as objects for `json.dumps`. Whole numbers beyond 2^53 become text. Values are
    converted one by one only if the column has values that JSON cannot represent.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return iso_times(column).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        simple = pc.all(pc.is_finite(column), min_count=0).as_py()
    elif pa.types.is_integer(kind):
        extremes = pc.min_max(column)
        simple = all(abs(end.as_py() or 0) <= _EXACT for end in (extremes["min"], extremes["max"]))
    else:
        simple = pa.types.is_string(kind) or pa.types.is_boolean(kind)
    values = python_values(column)
    return values if simple else [json_value(value, _EXACT) for value in values]


def json_value(value: Any, exact: int | None = None) -> Any:
    """Return a value as an object for `json.dumps`. Values that JSON cannot represent become text, and so do whole
    numbers above ``exact`` or below -``exact``. Other values are returned unchanged.
    """
    if isinstance(value, dict):
        return {name: json_value(v, exact) for name, v in value.items()}
    if isinstance(value, list):
        return [json_value(v, exact) for v in value]
    if exact is not None and isinstance(value, int) and abs(value) > exact:
        return str(value)
    if isinstance(value, dt.date):
        text = value.isoformat()
        return f"{text[:-6]}Z" if isinstance(value, dt.datetime) and text.endswith("+00:00") else text
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.timedelta):
        return duration_text(value // dt.timedelta(microseconds=1), digits=6)
    return str(value) if isinstance(value, Decimal | dt.time) else value
