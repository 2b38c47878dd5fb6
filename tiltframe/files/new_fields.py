"""New fields: fields of structs in JSON that first appear after the rows from which types were inferred.

    {"tags": {"host": "a"}}                 the first rows: struct<host>
    {"tags": {"host": "a", "rack": 7}}      a later row; without `rack`, both rows would have the same tags

Arrow ignores fields that its schema lacks. If a key or a measure reads a complete struct, an ignored field would make
the value of the struct wrong, without an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from aggr.arguments import listed
from tiltframe.files.key_texts import with_text


class NewFields(ValueError):
    """An error: structs in a column of later rows have fields that the first rows lack.

    ``kind`` is the type of the column in the first rows, and ``parsed`` its type in later rows.
    """

    def __init__(self, column: str, kind: pa.DataType, parsed: pa.DataType) -> None:
        """Create the error for a column."""
        super().__init__(column, kind, parsed)
        self.column = column
        self.kind = kind
        self.parsed = parsed

    def __str__(self) -> str:
        """Return the message for users, which names the fields."""
        before = set(_paths(self.column, self.kind))
        later = [path for path in _paths(self.column, with_new_fields(self.kind, self.parsed)) if path not in before]
        return (
            f"the first rows, from which types are inferred, do not have {listed(later)}; add such fields to the first "
            "row, with null if they have no value"
        )


def check_fields(schema: pa.Schema, parsed: pa.Schema, columns: Collection[str]) -> None:
    """Compare the structs in the columns ``columns`` of two schemas. Raise `NewFields` if ``parsed``, the schema of
    later rows, has a field that ``schema`` lacks. Fields of type null, which have no values, do not count.
    """
    for name in columns:
        kind = schema.field(name).type
        if name in parsed.names and with_new_fields(kind, parsed.field(name).type) != kind:
            raise NewFields(name, kind, parsed.field(name).type)


def with_new_fields(dtype: pa.DataType, parsed: pa.DataType) -> pa.DataType:
    """Return the type ``dtype`` with additional fields of structs: those fields of ``parsed`` that ``dtype`` lacks.
    ``parsed`` is the type of the same column in later rows.

    Fields without values are left out. Fields that look like dates or times are text, as in keys.

    >>> more = pa.struct({"a": pa.string(), "b": pa.timestamp("s"), "c": pa.null()})
    >>> with_new_fields(pa.struct({"a": pa.string()}), more)
    StructType(struct<a: string, b: string>)
    """
    if pa.types.is_null(dtype):
        return with_text(parsed)
    if pa.types.is_list(dtype) and pa.types.is_list(parsed):
        return pa.list_(with_new_fields(dtype.value_type, parsed.value_type))
    if not (pa.types.is_struct(dtype) and pa.types.is_struct(parsed)):
        return dtype
    later = {field.name: field.type for field in parsed}
    fields = [field.with_type(with_new_fields(field.type, later.pop(field.name, field.type))) for field in dtype]
    new_fields = [pa.field(name, with_text(kind)) for name, kind in later.items() if not pa.types.is_null(kind)]
    return pa.struct([*fields, *new_fields])


def _paths(path: str, dtype: pa.DataType) -> Iterator[str]:
    """Yield the paths of the innermost fields of a type, such as ``tags.host``. ``path`` is the path of the type."""
    if pa.types.is_list(dtype):
        yield from _paths(path, dtype.value_type)
    elif pa.types.is_struct(dtype):
        for field in dtype:
            yield from _paths(f"{path}.{field.name}", field.type)
    else:
        yield path
