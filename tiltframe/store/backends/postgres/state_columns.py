"""Flat columns: convert states, which are nested structs, to one column for each innermost field, and back.

    latency {count, positive {starts}}   ──▶   "latency.count"   "latency.positive.starts"

A struct is read as null if all its fields are null. A struct that is not null but has only null fields therefore cannot
be written, and raises an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend.arguments import shown
from aggr.extend.columns import one_array, to_fixed_size_binary
from tiltframe.store.backends import StoreError

_MAX_IDENTIFIER_BYTES = 63  # the maximum bytes of an identifier; PostgreSQL silently truncates longer ones

_SQL_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): 'text COLLATE "C"',
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
}


def column_name(name: str) -> str:
    """Return the name of the column for a key or for a field of a state, such as ``latency.count``. A name that is too
    long for PostgreSQL is shortened and ends in a hash that makes it unique.

    >>> column_name("latency.count")
    'latency.count'
    >>> column_name("é" * 40)
    'éééééééééééééééééééééééé~84fe2e03d50d'
    """
    text = name.encode()
    if len(text) <= _MAX_IDENTIFIER_BYTES:
        return name
    return f"{text[:49].decode(errors='ignore')}~{hashlib.sha256(text).hexdigest()[:12]}"


def sql_type(dtype: pa.DataType, name: str) -> str:
    """Return PostgreSQL's type for a column of the Arrow type ``dtype``; raise `StoreError` if PostgreSQL lacks it."""
    if pa.types.is_list(dtype) and not pa.types.is_nested(dtype.value_type):
        element = sql_type(dtype.value_type, name)
        return element.replace("text", "text[]") if element.startswith("text") else f"{element}[]"
    if pa.types.is_fixed_size_binary(dtype):
        return "bytea"
    if pa.types.is_decimal128(dtype):
        return "numeric"
    if dtype not in _SQL_TYPES:
        raise StoreError(
            f"PostgreSQL cannot store {name!r}, whose type is {shown(dtype)}; use a Delta store (a folder)"
        )
    return _SQL_TYPES[dtype]


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the table that `flatten` returns. Raise `StoreError` if a type cannot be stored, or if two
    columns would have the same name.

    >>> flat_schema(pa.schema([("k", pa.string()), ("s", pa.struct([("n", pa.int64())]))])).names
    ['k', 's.n']
    """
    fields: dict[str, pa.Field] = {}
    for field in schema:
        for name, dtype in _leaf_types(field.name, field.type):
            column = column_name(name)
            sql_type(dtype, name)
            if column in fields:
                raise StoreError(f"PostgreSQL would need two columns called {column!r}; rename a key or a measure")
            fields[column] = pa.field(column, dtype)
    return pa.schema(list(fields.values()))


def flatten(table: pa.Table) -> pa.Table:
    """Return a table in which each struct is replaced by one column for each of its innermost fields. `unflatten`
    returns the original table with the same bits.

    >>> flatten(pa.table({"k": ["a", "b"], "s": [{"a": 1, "in": {"low": 2}}, None]})).to_pydict()
    {'k': ['a', 'b'], 's.a': [1, None], 's.in.low': [2, None]}
    """
    schema = flat_schema(table.schema)
    leaves = [a for field, c in zip(table.schema, table.columns, strict=True) for a in _leaves(field.name, c)]
    return pa.table(leaves, schema=schema)


def unflatten(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Undo `flatten`: return the table from which `flatten` has computed ``table``. ``schema`` is the schema of the
    result. Columns that do not belong to this schema are left out.
    """
    return pa.table([_unflatten_column(table, field.name, field.type) for field in schema], schema=schema)


def _leaf_types(name: str, dtype: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if not pa.types.is_struct(dtype):
        yield name, dtype
        return
    if not dtype.num_fields:
        raise StoreError(
            f"PostgreSQL cannot store the column {name!r}, because it is a struct without fields; use a Delta store (a "
            "folder)"
        )
    for field in dtype:
        yield from _leaf_types(f"{name}.{field.name}", field.type)


def _leaves(name: str, column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of the innermost fields of a column, or the column itself if it is not a struct. Raise
    `StoreError` if a struct that is not null has only null fields.
    """
    values = one_array(column)
    if not pa.types.is_struct(values.type):
        yield values
        return
    leaves: list[pa.Array] = []
    for field, child in zip(values.type, values.flatten(), strict=True):
        leaves.extend(_leaves(f"{name}.{field.name}", child))
    if (_valid(values) & ~_any_valid(leaves)).any():
        raise StoreError(
            f"PostgreSQL cannot store {name!r}, because it contains a struct whose fields are all null, "
            f"which PostgreSQL cannot distinguish from null; use a Delta store (a folder)"
        )
    yield from leaves


def _unflatten_column(table: pa.Table, name: str, dtype: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(dtype):
        values = one_array(table.column(column_name(name)))
        return to_fixed_size_binary(values, dtype) if pa.types.is_fixed_size_binary(dtype) else values.cast(dtype)
    children = [_unflatten_column(table, f"{name}.{field.name}", field.type) for field in dtype]
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=pa.array(~_any_valid(children)))


def _any_valid(arrays: list[pa.Array]) -> NDArray[np.bool_]:
    valid = _valid(arrays[0])
    for array in arrays[1:]:
        valid = valid | _valid(array)
    return valid


def _valid(values: pa.Array) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid
