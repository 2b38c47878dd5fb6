"""Names: the column that a name reads, and the values in structs and maps at a path such as ``http.status``."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import nearest, shown
from aggr.arrow.normalize import normalize, normalized_type
from aggr.sql.term import Kernel, Term, Value, apply, column
from aggr.sql.zones import in_zone


def column_in(name: str, names: Collection[str]) -> str | None:
    """Return the column that a name reads: the column of this name, or the column that contains it as a field.

    Parameters
    ----------
    name : str
        Such as ``http.status``.
    names : collection of str
        The names of the existing columns.

    Returns
    -------
    str or None
        None if neither exists.

    Examples
    --------
    >>> column_in("http.status", ["http", "ms"]), column_in("ms", ["ms"]), column_in("http.status", ["ms"])
    ('http', 'ms', None)
    """
    while name not in names:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def name_of(column: exp.Column) -> str:
    """Return the name of a column as written, including the parts before its last dot."""
    return ".".join(part.name for part in column.parts)


def named(path: str, schema: pa.Schema, timezone: str) -> Term:
    """Make the term of a column, or of a field of a column; times are read in a time zone."""
    name = column_in(path, schema.names) or path
    dtype = normalized_type(schema.field(name).type)
    if pa.types.is_union(dtype):
        raise ValueError(f"the column {name!r} has type {shown(dtype)}, which conditions and expressions cannot read")
    if name == path:
        return column(name, in_zone(dtype, timezone))
    return _field(column(name, dtype), path[len(name) + 1 :], timezone)


def _field(term: Term, path: str, timezone: str) -> Term:
    """Return the term of a struct's field by its path, or of the value of a map's key; null if the key does not exist.

    Names of fields may contain dots: the longest name that the struct has is used.
    """
    kind = term.type
    if pa.types.is_map(kind):
        key, inner_path = (path, "") if not pa.types.is_nested(kind.item_type) else path.partition(".")[::2]
        part, inner = _entry(kind, key), kind.item_type
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        name = max((n for n in names if path == n or path.startswith(f"{n}.")), key=len, default=None)
        if name is None:
            raise ValueError(f"there is no field {shown(path)}; {nearest(path, names)}")
        inner, inner_path = kind.field(name).type, path[len(name) + 1 :]

        def part(value: Value) -> Value:
            return pc.struct_field(value, [name])
    else:
        raise ValueError(f"{shown(path)} is not a field: a value of type {kind} has no fields")
    plain = in_zone(normalized_type(inner), timezone)

    def kernel(value: Value) -> Value:
        inside = part(value)
        return inside if isinstance(inside, pc.Expression | pa.Scalar) else normalize(inside).cast(plain)

    field = apply(kernel, term, kind=plain)
    return _field(field, inner_path, timezone) if inner_path else field


def _entry(kind: pa.DataType, key: str) -> Kernel:
    try:
        typed_key = pa.scalar(key).cast(kind.key_type)
    except pa.ArrowException:
        raise ValueError(f"{shown(key)} is not a key of a map: its keys are of type {kind.key_type}") from None
    return lambda value: pc.map_lookup(value, typed_key, "first")
