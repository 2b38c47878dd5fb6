"""Names: the column that a name refers to, and the values in structs and maps at a path such as ``http.status``."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import nearest, shown
from aggr.arrow.normalize import normalize, normalized_type
from aggr.arrow.records import entry_types, is_list, is_list_of_records, look_up
from aggr.sql.column_names import column_in
from aggr.sql.entry_columns import entry_column
from aggr.sql.term import Kernel, Rows, Term, Value, apply, column
from aggr.sql.zones import UTC, in_zone


def name_of(column: exp.Column) -> str:
    """Return the full name of a column node, with its qualifiers: ``http.status``."""
    return ".".join(part.name for part in column.parts)


def entry_column_of(node: exp.Expr, names: Collection[str]) -> str | None:
    """Return the name of the entry column that a node such as ``fields[class]`` reads.

    Return None for other nodes, and if the entry column is not one of ``names``.
    """
    if not isinstance(node, exp.Bracket) or len(node.expressions) != 1:
        return None
    record = node.this
    key = node.expressions[0]
    if not isinstance(record, exp.Column) or not isinstance(key, exp.Column):
        return None
    name = entry_column(name_of(record), name_of(key))
    return name if name in names else None


def term_at_path(path: str, schema: pa.Schema, timezone: str) -> Term:
    """Return the term of the column ``path``, or of the field at this path.

    Timestamps are converted to the time zone ``timezone``. Timestamps without a zone are taken as UTC.
    """
    name = column_in(path, schema.names) or path
    dtype = normalized_type(schema.field(name).type)
    if pa.types.is_union(dtype):
        raise ValueError(
            f"the column {name!r} has type {shown(dtype)}, which conditions and expressions cannot use; leave it out"
        )
    if name == path:
        return column(name, in_zone(dtype, timezone))
    return field_of(column(name, dtype), path[len(name) + 1 :], timezone)


def field_of(term: Term, path: str, timezone: str = UTC) -> Term:
    """Return the term of the field of a struct at ``path``, or of the value of a map for a key.

    The value is null if the map does not have the key. For a list of structs, the result is a list with the value of
    the field in each element, as in Spark. If names of fields contain dots, the longest name that matches is used.
    """
    kind = term.type
    if pa.types.is_map(kind):
        key, inner_path = (path, "") if not pa.types.is_nested(kind.item_type) else path.partition(".")[::2]
        read_part = _entry(kind, key)
        inner_type = kind.item_type
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        name = max((n for n in names if path == n or path.startswith(f"{n}.")), key=len, default=None)
        if name is None:
            raise ValueError(f"there is no field {shown(path)}; {nearest(path, names)}")
        inner_type = kind.field(name).type
        inner_path = path[len(name) + 1 :]

        def read_part(value: Value) -> Value:
            return pc.struct_field(value, [name])
    elif is_list_of_records(kind) and path not in [field.name for field in kind.value_type]:
        read_part = _entry_of_list(kind, path)
        inner_type = entry_types(kind)[1]
        inner_path = ""
    elif is_list(kind) and pa.types.is_struct(kind.value_type):
        return _field_of_elements(term, path, timezone)
    else:
        raise ValueError(
            f"{shown(path)} cannot be a field, because a value of type {kind} has no fields; leave out this part of "
            "the name"
        )
    result_type = in_zone(normalized_type(inner_type), timezone)

    def kernel(value: Value) -> Value:
        inner_values = read_part(value)
        return (
            inner_values
            if isinstance(inner_values, pc.Expression | pa.Scalar)
            else normalize(inner_values).cast(result_type)
        )

    field = apply(kernel, term, kind=result_type)
    return field_of(field, inner_path, timezone) if inner_path else field


def _field_of_elements(term: Term, path: str, timezone: str) -> Term:
    """Return the term that replaces each struct in lists of structs by the value of its field at ``path``."""
    field = field_of(column("", term.type.value_type), path, timezone)

    def kernel(value: Value) -> Value:
        if isinstance(value, pc.Expression):
            raise ValueError(
                "a filter of files cannot use fields of list elements; use them in a key or a measure instead"
            )
        lists = value.cast(pa.large_list(term.type.value_field))
        elements = pa.table({"": lists.flatten()})
        offsets = pc.subtract(lists.offsets, lists.offsets[0]) if len(lists) else lists.offsets
        # `flatten` leaves out the elements that null lists may have in memory. The offsets count these elements, so the
        # offsets are computed again from the sizes of the lists.
        if lists.null_count:
            sizes = pc.fill_null(pc.list_value_length(lists), 0)
            offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
        values = field.evaluate(Rows(elements))
        field_lists = pa.LargeListArray.from_arrays(offsets, values, mask=lists.is_null())
        return field_lists.cast(pa.list_(field.type))

    return apply(kernel, term, kind=pa.list_(field.type))


def _entry_of_list(kind: pa.DataType, key: str) -> Kernel:
    typed_key = _typed_key(entry_types(kind)[0], key)

    def look_up_key(value: Value) -> Value:
        if isinstance(value, pc.Expression):
            raise ValueError(
                "a filter of files cannot look up a key in a list of records; do this in a measure instead"
            )
        return look_up(value, pa.repeat(typed_key, len(value)))

    return look_up_key


def _entry(kind: pa.DataType, key: str) -> Kernel:
    typed_key = _typed_key(kind.key_type, key)
    return lambda value: pc.map_lookup(value, typed_key, "first")


def _typed_key(key_type: pa.DataType, key: str) -> pa.Scalar:
    try:
        return pa.scalar(key).cast(key_type)
    except pa.ArrowException:
        raise ValueError(
            f"{shown(key)} cannot be a key of this map, whose keys have the type {key_type}; write a key of this type"
        ) from None
