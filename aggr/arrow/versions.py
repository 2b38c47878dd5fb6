"""Features of the installed pyarrow that older supported versions lack, and their replacements.

Clusters bring their own pyarrow, from version 14 on. No other module of `aggr`, `windows` and `tiltframe` checks the
version of pyarrow. This module does not compare version numbers either: it tests whether a feature exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from typing import Any, TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def _is_never_true(dtype: pa.DataType) -> bool:
    """Return False. This function stands for a predicate such as ``pa.types.is_string_view`` if the installed pyarrow
    lacks the type, because no column can then have this type.
    """
    return False


def _predicate(name: str) -> Callable[[pa.DataType], bool]:
    predicate: Callable[[pa.DataType], bool] = getattr(pa.types, name, _is_never_true)
    return predicate


# the predicates for views, such as `pa.types.is_string_view`, exist from pyarrow 16 on
is_string_view = _predicate("is_string_view")
is_binary_view = _predicate("is_binary_view")
is_list_view = _predicate("is_list_view")
is_large_list_view = _predicate("is_large_list_view")


@cache
def has_page_checksums() -> bool:
    """Return whether pyarrow can write checksums of pages into Parquet files, and verify them when it reads the files.
    This needs pyarrow 15 or newer.
    """
    from pyarrow import parquet

    return "page_checksum_verification" in signature(parquet.ParquetFile.__init__).parameters


@cache
def has_json_stream() -> bool:
    """Return whether JSON lines can be read batch by batch. This needs ``pyarrow.json.open_json`` of pyarrow 20 or
    newer.
    """
    from pyarrow import json

    return hasattr(json, "open_json")


def whole_bytes(dtype: pa.DataType) -> int | None:
    """Return the number of bytes of each value of a type. Return None if the values have different sizes, like texts,
    or if a value does not have a whole number of bytes, like a boolean.

    >>> whole_bytes(pa.int32()), whole_bytes(pa.bool_()), whole_bytes(pa.string())
    (4, None, None)
    """
    try:
        bits = int(dtype.bit_width)
    except ValueError:
        return None
    return None if bits % 8 else bits // 8  # `dtype.byte_width` is 0 for booleans before pyarrow 17


def to_fixed_size_binary(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Convert binary values of equal length to ``dtype``, a fixed-size binary type. pyarrow 14 lacks this cast, so the
    values are then converted one by one.

    >>> to_fixed_size_binary(pa.array([b"ab", None]), pa.binary(2)).type
    FixedSizeBinaryType(fixed_size_binary[2])
    """
    try:
        return values.cast(dtype)
    except pa.ArrowNotImplementedError:
        return pa.array(values.to_pylist(), dtype)


def set_column(rows: Rows, place: int, name: str, values: pa.Array) -> Rows:
    """Return rows in which the column at index ``place`` is replaced by ``values``, under the name ``name``.

    Batches of pyarrow 14 lack the method ``set_column``.

    >>> set_column(pa.RecordBatch.from_pydict({"a": [1], "b": [2]}), 1, "c", pa.array([3])).to_pylist()
    [{'a': 1, 'c': 3}]
    """
    if hasattr(rows, "set_column"):
        return rows.set_column(place, name, values)
    fields = [*rows.schema]
    fields[place] = pa.field(name, values.type)
    columns = rows.columns
    columns[place] = values
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def append_column(rows: Rows, field: str | pa.Field, values: pa.Array) -> Rows:
    """Return rows with ``values`` as an additional last column. ``field`` is the name of this column, or its Arrow
    field.

    Batches of pyarrow 14 lack the method ``append_column``.

    >>> append_column(pa.RecordBatch.from_pydict({"a": [1]}), "b", pa.array([2])).to_pylist()
    [{'a': 1, 'b': 2}]
    """
    if hasattr(rows, "append_column"):
        return rows.append_column(field, values)
    new_field = pa.field(field, values.type) if isinstance(field, str) else field
    return pa.RecordBatch.from_arrays([*rows.columns, values], schema=rows.schema.append(new_field))


def rename_columns(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return a batch whose columns have new names. Batches of pyarrow 14 lack the method ``rename_columns``.

    >>> rename_columns(pa.RecordBatch.from_pydict({"a": [1]}), ["b"]).to_pylist()
    [{'b': 1}]
    """
    if hasattr(batch, "rename_columns"):
        return batch.rename_columns(names)
    fields = [field.with_name(name) for field, name in zip(batch.schema, names, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields, batch.schema.metadata))


def open_stream(data: Any) -> pa.RecordBatchReader:
    """Return a reader of an object with the method ``__arrow_c_stream__``.

    With pyarrow 14 and 15, the method ``to_arrow`` of polars is used, because the stream of polars contains string
    views, which these versions cannot read.
    """
    if type(data).__module__.startswith("polars.") and not hasattr(pa, "string_view"):
        table = data.to_arrow()
        is_dictionary = pa.types.is_dictionary
        fields = [f.with_type(f.type.value_type) if is_dictionary(f.type) else f for f in table.schema]
        return table.cast(pa.schema(fields)).to_reader()
    if hasattr(pa.RecordBatchReader, "from_stream"):  # `from_stream` exists from pyarrow 15 on
        return pa.RecordBatchReader.from_stream(data)
    return pa.RecordBatchReader._import_from_c_capsule(data.__arrow_c_stream__())
