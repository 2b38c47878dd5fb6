"""Constant fields: fields of states that have the same value in all rows of a file, such as the name of the function or
the accuracy of a sketch. About half of the columns in a file of states are constant. Their values are also written to
the metadata of the file. Readers create these columns from the metadata, which is faster than reading them.

    tiltframe.constants    a table of one row, as an Arrow stream in Base64:  p.function = "dds", p.version = 3, …

The columns are in the file too, for other programs. A field is named by its path, such as ``p.sum.exponent``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from aggr.arrow.constant_column import is_constant, repeat_value
from aggr.arrow.normalize import one_array

# The name of the entry with the values of the constant fields, in the metadata of a file.
METADATA_KEY = b"tiltframe.constants"
# The minimum number of rows of a file whose constant fields are written to its metadata. In smaller files, reading the
# columns costs less than finding the constant ones.
_MIN_ROWS = 10_000


@dataclass(frozen=True)
class ConstantFields:
    """The values of the constant fields of a file, as path → array of one value."""

    values: Mapping[str, pa.Array]
    # the paths of all columns and structs that contain constant fields
    parents: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        split_paths = [path.split(".") for path in self.values]
        parents = {".".join(names[:length]) for names in split_paths for length in range(1, len(names))}
        object.__setattr__(self, "parents", frozenset(parents))

    @classmethod
    def find(cls, rows: pa.Table) -> ConstantFields:
        """Return the constant fields of rows. There are none if there are fewer than `_MIN_ROWS` rows, or if a name
        contains a dot, which would make the paths of fields ambiguous.
        """
        if rows.num_rows < _MIN_ROWS or _has_name_with_dot(rows.schema):
            return cls({})
        return cls(
            {
                path: field_values.slice(0, 1)
                for name in rows.column_names
                for path, field_values in _innermost_fields(name, one_array(rows.column(name)))
                if _has_only(field_values, field_values.slice(0, 1))
            }
        )

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> ConstantFields:
        """Return the constant fields in the metadata of a file. There are none if another program or an earlier version
        has written the file.
        """
        text = (metadata or {}).get(METADATA_KEY)
        if text is None:
            return cls({})
        table = pa.ipc.open_stream(base64.b64decode(text)).read_all()
        return cls({name: one_array(table.column(name)) for name in table.column_names})

    def to_metadata(self) -> dict[str, str]:
        """Return the metadata entry with the constant fields, for the file to which their rows are written. Without
        constant fields, return an empty dict.
        """
        if not self.values:
            return {}
        sink = pa.BufferOutputStream()
        table = pa.table(dict(self.values))
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return {METADATA_KEY.decode(): base64.b64encode(sink.getvalue()).decode()}

    def reorder(self, rows: pa.Table, order: pa.Array) -> pa.Table:
        """Return ``rows``, which have these constant fields, in another order. Constant fields are not copied.

        ``order`` has the index of each row, once.
        """
        columns = {name: self._reorder(name, one_array(rows.column(name)), order) for name in rows.column_names}
        return pa.table(columns, rows.schema)

    def _reorder(self, path: str, values: pa.Array, order: pa.Array) -> pa.Array:
        if path in self.values:
            return values
        if path not in self.parents:
            return values.take(order)
        children = [
            self._reorder(f"{path}.{child.name}", values.field(position), order)
            for position, child in enumerate(values.type)
        ]
        return pa.StructArray.from_arrays(children, fields=list(values.type))

    def has_constants(self, name: str) -> bool:
        """Return whether the column ``name`` is constant, or has constant fields."""
        return name in self.values or name in self.parents

    def paths_to_read(self, name: str, dtype: pa.DataType) -> list[str]:
        """Return the paths of the fields of a column that must be read, because they are not constant.

        >>> dtype = pa.struct({"function": pa.string(), "count": pa.int64()})
        >>> ConstantFields({"n.function": pa.array(["count"])}).paths_to_read("n", dtype)
        ['n.count']
        >>> ConstantFields({}).paths_to_read("n", dtype)
        ['n']
        """
        if name in self.values:
            return []
        if name not in self.parents:
            return [name]
        return [path for child in dtype for path in self.paths_to_read(f"{name}.{child.name}", child.type)]

    def complete_column(self, name: str, dtype: pa.DataType, *, values: pa.Array | None, count: int) -> pa.Array:
        """Return the complete column ``name``, from the fields that were read and the constant fields.

        ``values`` is the column as read from the file, with the fields of `paths_to_read`, or None if no field was
        read. ``count`` is the number of rows.
        """
        if name in self.values:
            return repeat_value(self.values[name], count)
        if values is not None and name not in self.parents:
            return values
        children = []
        for child in dtype:
            is_read = values is not None and values.type.get_field_index(child.name) >= 0
            read_values = values.field(child.name) if values is not None and is_read else None
            children.append(self.complete_column(f"{name}.{child.name}", child.type, values=read_values, count=count))
        return pa.StructArray.from_arrays(children, fields=list(dtype))

    def differing_paths(self, rows: pa.Table) -> list[str]:
        """Return the paths of the constant fields whose values in ``rows`` differ from the values of this object.
        Fields that ``rows`` lacks are included.
        """
        read_fields = dict(
            path_and_values
            for name in rows.column_names
            for path_and_values in _innermost_fields(name, one_array(rows.column(name)))
        )
        return [
            path
            for path, value in self.values.items()
            if path not in read_fields or not _has_only(read_fields[path], value)
        ]


def _has_name_with_dot(fields: Iterable[pa.Field]) -> bool:
    return any(
        "." in child.name or (pa.types.is_struct(child.type) and _has_name_with_dot(child.type)) for child in fields
    )


def _innermost_fields(name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the path and the values of each innermost field of a column. A struct with nulls is left out, because the
    values of its fields do not show in which rows the struct itself is null.
    """
    if not pa.types.is_struct(values.type):
        yield name, values
    elif not values.null_count:
        for position, child in enumerate(values.type):
            yield from _innermost_fields(f"{name}.{child.name}", values.field(position))


def _has_only(values: pa.Array, value: pa.Array) -> bool:
    """Return whether each of ``values`` has the same bits as the single value of ``value``, or is null like it. Return
    False for values whose bits are not compared here, such as lists and decimals.
    """
    if value.null_count:
        return bool(values.null_count == len(values))
    dtype = values.type
    is_compared = (
        pa.types.is_integer(dtype)
        or pa.types.is_float32(dtype)
        or pa.types.is_float64(dtype)
        or pa.types.is_string(dtype)
        or pa.types.is_binary(dtype)
    )
    return is_compared and is_constant(values, value)
