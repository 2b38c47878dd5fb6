"""Travel: states packed for a shuffle, every list of numbers as the bytes it has in memory.

The JVM copies bytes at once, and lists element by element; a sketch is mostly lists. Both directions copy nothing
in Python: the column only gets other offsets.

    list<int64>  [5, 1]            binary  05 00 00 00 00 00 00 00 01 00 …
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.plain import one_array


def packed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a table of a schema has when packed."""
    return pa.schema([pa.field(f.name, _packed_type(f.type)) for f in schema])


def pack(table: pa.Table) -> pa.Table:
    """Turn lists of numbers into bytes, at any depth of structs."""
    columns = [_pack(one_array(column)) for column in table.columns]
    return pa.table(columns, schema=packed_schema(table.schema))


def unpack(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Turn bytes back into the lists that ``schema`` has; columns it does not name are left out."""
    columns = [_unpack(one_array(table.column(f.name)), f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _packed_type(kind: pa.DataType) -> pa.DataType:
    if _is_numbers(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _packed_type(f.type)) for f in kind])
    return kind


def _is_numbers(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type) and not pa.types.is_boolean(kind.value_type)
    )


def _pack(array: pa.Array) -> pa.Array:
    kind = array.type
    if _is_numbers(kind):
        # flatten() leaves out what lies outside a slice, as well as values behind nulls
        values, width = array.flatten(), kind.value_type.bit_width // 8
        if array.null_count:
            raise ValueError("a state has a null list; states come from zero, reduce or merge")
        offsets = array.offsets.to_numpy().astype(np.int64)
        offsets = (offsets - offsets[0]) * width
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError("too many buckets in one batch of states; use smaller batches")
        data = values.buffers()[1]
        if data is not None:
            data = data.slice(values.offset * width, len(values) * width)
        return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets.astype(np.int32)), data])
    if pa.types.is_struct(kind):
        children = [_pack(child) for child in array.flatten()]
        valid = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(_packed_type(kind)), mask=valid)
    return array


def _unpack(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if _is_numbers(kind):
        width = kind.value_type.bit_width // 8
        _, offsets, data = array.buffers()
        starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1] if len(array) else None
        if starts is None:
            return pa.array([], kind)
        data = pa.py_buffer(b"") if data is None else data.slice(int(starts[0]), int(starts[-1] - starts[0]))
        if data.address % width:  # an IPC message aligns columns, a slice need not
            data = pa.py_buffer(data.to_pybytes())
        values = pa.Array.from_buffers(kind.value_type, data.size // width, [None, data])
        places = pa.py_buffer((starts - starts[0]) // width)
        return pa.Array.from_buffers(kind, len(array), [None, places], children=[values])
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        parts = dict(zip([f.name for f in array.type], array.flatten(), strict=True))
        children = [_unpack(parts[name], f.type) for name, f in zip(names, kind, strict=True)]
        valid = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=valid)
    return array if array.type == kind else array.cast(kind)
