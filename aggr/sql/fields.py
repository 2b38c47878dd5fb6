"""Fields: what a path such as ``http.status`` finds in a struct or a map."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arguments import nearest, shown
from aggr.kernels.normalize import normalize, normalized_type
from aggr.sql.term import Kernel, Term, Value, apply
from aggr.sql.zones import in_zone


def field_of(term: Term, path: str, timezone: str) -> Term:
    """Find a field of a struct by its path, or the value of a key of a map; a key that is not there gives null.

    A name with dots in it is found as well: the longest that the struct has is taken.
    """
    kind = term.type
    if pa.types.is_map(kind):
        key, rest = (path, "") if not pa.types.is_nested(kind.item_type) else path.partition(".")[::2]
        found, inner = _entry(kind, key), kind.item_type
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        name = max((n for n in names if path == n or path.startswith(f"{n}.")), key=len, default=None)
        if name is None:
            raise ValueError(f"there is no field {shown(path)}; {nearest(path, names)}")
        found, inner, rest = _field(name), kind.field(name).type, path[len(name) + 1 :]
    else:
        raise ValueError(f"{shown(path)} is no field of a value of type {kind}, which has none")
    plain = in_zone(normalized_type(inner), timezone)

    def kernel(value: Value) -> Value:
        part = found(value)
        return part if isinstance(part, pc.Expression | pa.Scalar) else normalize(part).cast(plain)

    part = apply(kernel, term, kind=plain)
    return field_of(part, rest, timezone) if rest else part


def _field(name: str) -> Kernel:
    return lambda value: pc.struct_field(value, [name])


def _entry(kind: pa.DataType, key: str) -> Kernel:
    try:
        wanted = pa.scalar(key).cast(kind.key_type)
    except pa.ArrowException:
        raise ValueError(f"{shown(key)} is no key of a map by {kind.key_type}") from None
    return lambda value: pc.map_lookup(value, wanted, "first")
