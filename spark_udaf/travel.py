"""Travel: states packed for a shuffle, every list of whole numbers as two columns of bytes.

The JVM copies bytes at once, but lists element by element; and a sketch is mostly lists, of mostly small counts.

    list<int64>  [5, 700, 1]       small  05 ff 01       large  bc 02 00 00 00 00 00 00

A number that does not fit into a quarter or an eighth of its width is marked, and stands among the large ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.plain import one_array
from aggr.ragged import Ragged

_NARROW: dict[pa.DataType, np.dtype[Any]] = {pa.int64(): np.dtype(np.uint8), pa.int32(): np.dtype(np.int16)}
_PACKED = pa.struct([("small", pa.binary()), ("large", pa.binary())])


def packed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a table of a schema has when packed."""
    return pa.schema([pa.field(f.name, _packed_type(f.type)) for f in schema])


def pack(table: pa.Table) -> pa.Table:
    """Turn lists of int32 and int64 into bytes, at any depth of structs; they must not be null."""
    columns = [_pack(one_array(column)) for column in table.columns]
    return pa.table(columns, schema=packed_schema(table.schema))


def unpack(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Turn bytes back into the lists that ``schema`` has; columns it does not name are left out."""
    columns = [_unpack(one_array(table.column(f.name)), f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _is_packed(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and kind.value_type in _NARROW


def _packed_type(kind: pa.DataType) -> pa.DataType:
    if _is_packed(kind):
        return _PACKED
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _packed_type(f.type)) for f in kind])
    return kind


def _pack(array: pa.Array) -> pa.Array:
    kind = array.type
    if _is_packed(kind):
        return _pack_lists(Ragged.of(array), _NARROW[kind.value_type])
    if pa.types.is_struct(kind):
        return _struct([_pack(child) for child in array.flatten()], _packed_type(kind), array)
    return array


def _unpack(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if _is_packed(kind):
        return _unpack_lists(array, kind.value_type)
    if pa.types.is_struct(kind):
        parts = dict(zip([f.name for f in array.type], array.flatten(), strict=True))
        return _struct([_unpack(parts[f.name], f.type) for f in kind], kind, array)
    return array if array.type == kind else array.cast(kind)


def _struct(children: list[pa.Array], kind: pa.StructType, like: pa.StructArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=like.is_null() if like.null_count else None)


def _mark(narrow: np.dtype[Any]) -> int:
    """Return the narrow number that stands for a large one: 255, or -32,768."""
    return int(np.iinfo(narrow).max if narrow.kind == "u" else np.iinfo(narrow).min)


def _pack_lists(lists: Ragged, narrow: np.dtype[Any]) -> pa.StructArray:
    small = lists.values.astype(narrow)
    large = (small != lists.values) | (small == _mark(narrow))
    ends = np.cumsum(lists.lengths)
    before = np.append(0, np.cumsum(large))
    counts = before[ends] - before[ends - lists.lengths]
    small[large] = _mark(narrow)
    columns = [_binary(small, lists.lengths), _binary(lists.values[large], counts)]
    return pa.StructArray.from_arrays(columns, fields=list(_PACKED))


def _unpack_lists(array: pa.StructArray, kind: pa.DataType) -> pa.ListArray:
    wide, narrow = kind.to_pandas_dtype(), _NARROW[kind]
    small, lengths = _numbers(array.field("small"), narrow)
    large, _ = _numbers(array.field("large"), np.dtype(wide))
    values = small.astype(wide)
    if len(large):
        values[small == _mark(narrow)] = large
    return Ragged(lengths, values).to_arrow()


def _binary(values: NDArray[Any], lengths: NDArray[np.int64]) -> pa.BinaryArray:
    offsets = np.append(0, np.cumsum(lengths)) * values.itemsize
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError("too many buckets in one batch of states; use smaller batches")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _numbers(column: pa.BinaryArray, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read bytes as numbers, end to end, and how many each row has."""
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return np.zeros(0, kind), np.zeros(len(column), np.int64)
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    bytes_ = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    aligned = bytes_ if bytes_.ctypes.data % kind.itemsize == 0 else bytes_.copy()
    return aligned.view(kind), np.diff(places) // kind.itemsize
