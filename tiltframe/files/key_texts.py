"""Texts in keys: dates and times in a text file stay text if they are keys, unless another type was declared.

    the column at               as timestamps     as texts
    2024-05-01 10:00:00         one group         two groups
    2024-05-01T10:00:00Z

As timestamps, different texts may be equal. Moreover, a single row that is not a time would change the type of the
column. A key that is computed from a time, such as ``date_trunc('day', at)``, still reads a timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from aggr.tables.column_uses import ColumnUses
from tiltframe.files.read_options import ReadOptions


def with_key_texts(schema: pa.Schema, time: str, uses: ColumnUses, reading: ReadOptions) -> pa.Schema:
    """Return the schema of a text file in which keys that are dates or times become text. A key is a column or a field.
    If a key is a struct, its fields that are dates or times become text.

    The column of event times, and columns and fields with a declared type, keep their types.
    """
    for column, path, is_each in uses.key_paths(schema.names):
        is_event_time = column == time and reading.time is None
        if is_event_time or column in reading.declared or path in reading.declared:
            continue
        at = schema.get_field_index(column)
        field = schema.field(at)
        inner = [name for name in path.removeprefix(column).split(".") if name]
        # fields of a struct may have declared types as well
        dtype = reading.type_of(column, with_text(field.type, inner, is_each))
        schema = schema.set(at, field.with_type(dtype))
    return schema


def with_text(dtype: pa.DataType, path: Sequence[str] = (), is_each: bool = False) -> pa.DataType:
    """Return the type ``dtype`` after the type at ``path`` is replaced by text. Only a date or a time is replaced.
    ``path`` has the names of nested fields, from the outside to the inside. In a list, the type of the elements is
    replaced.

    If the type at ``path`` is a struct, the types of all its fields are replaced in the same way, because their
    values belong to the key. If ``is_each`` is true, the key is ``each(path)``: the names of the struct's fields are
    the keys, and the types of the fields do not change.
    """
    if pa.types.is_list(dtype):
        return pa.list_(with_text(dtype.value_type, path, is_each))
    if pa.types.is_struct(dtype) and path:
        fields = [f.with_type(with_text(f.type, path[1:], is_each)) if f.name == path[0] else f for f in dtype]
        return pa.struct(fields)
    if pa.types.is_struct(dtype) and not is_each:
        return pa.struct([f.with_type(with_text(f.type, path, is_each)) for f in dtype])
    return pa.string() if pa.types.is_temporal(dtype) and not path else dtype
