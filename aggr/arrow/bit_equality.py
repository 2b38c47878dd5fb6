"""Bit equality: whether two columns of states have the same bits.

A NaN equals only a NaN with the same bits, and -0.0 differs from 0.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize


def same_bits(a: pa.Array, b: pa.Array) -> bool:
    """Return whether two columns have the same bits. The bits of nulls are ignored.

    >>> same_bits(pa.array([0.0]), pa.array([-0.0]))
    False
    """
    return _is_same_message(a, b) or digest(a) == digest(b)


def _is_same_message(a: pa.Array, b: pa.Array) -> bool:
    """Return whether two columns are serialized as equal Arrow messages. If so, the columns have the same bits.

    Comparing messages is faster than hashing values. The messages of columns with the same bits may still differ, for
    example in the bytes that nulls have in memory.
    """
    if not isinstance(a, pa.Array) or not isinstance(b, pa.Array) or a.type != b.type or _has_dictionary(a.type):
        return False
    message, other_message = (pa.record_batch([column], names=["column"]).serialize() for column in (a, b))
    is_equal: bool = message.equals(other_message)
    return is_equal


@lru_cache(maxsize=1024)
def _has_dictionary(dtype: pa.DataType) -> bool:
    """Return whether a type is a dictionary type or contains one.

    The Arrow message of a column with dictionaries contains only their indices. Equal messages therefore do not imply
    equal values. The result is also True for an extension type, because its storage may contain a dictionary.
    """
    if pa.types.is_dictionary(dtype) or isinstance(dtype, pa.BaseExtensionType):
        return True
    return any(_has_dictionary(dtype.field(i).type) for i in range(dtype.num_fields))


def digest(column: pa.Array | pa.ChunkedArray) -> str:
    """Return a SHA-256 hash of the bits of a column. It does not depend on chunks, slices or padding."""
    hasher = hashlib.sha256()
    for byte_piece in _pieces(normalize(column)):
        hasher.update(byte_piece)
    return hasher.hexdigest()


def _pieces(column: pa.Array) -> Iterator[bytes]:
    """Yield bytes that determine a column.

    The bytes contain the type, the length and the validity of the column and of each column nested in it, the lengths
    of lists and texts, and the values. The bytes that nulls and padding have in memory are left out.
    """
    dtype = column.type
    if pa.types.is_map(dtype):
        if column.offset:
            # The slice is copied, because Arrow cannot construct masked lists from the offsets of a slice.
            column = column.take(pa.array(range(len(column)), pa.int64()))
        entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
        column = (
            pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null()) if len(column) else pa.array([])
        )
        dtype = column.type
    is_list = pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype)
    name_unless_struct = "list" if is_list else str(dtype)
    name = "struct" if pa.types.is_struct(dtype) else name_unless_struct
    yield f"{len(column)} {name};".encode()
    is_valid = column.is_valid()
    yield np.packbits(is_valid.to_numpy(zero_copy_only=False)).tobytes()
    if pa.types.is_struct(dtype):
        for i in range(dtype.num_fields):
            yield dtype.field(i).name.encode()
            yield from _pieces(normalize(pc.struct_field(column, [i])))
        return
    column = column.drop_null() if column.null_count else column
    if is_list:
        yield pc.list_value_length(column).cast(pa.int32()).to_numpy().tobytes()
        yield from _pieces(normalize(column.flatten()))
    elif pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        yield pc.binary_length(column).to_numpy().tobytes()
        yield b"".join(column.cast(pa.binary()).to_pylist())
    elif pa.types.is_null(dtype):
        return
    elif pa.types.is_boolean(dtype):
        yield np.packbits(column.to_numpy(zero_copy_only=False)).tobytes()
    else:
        width = dtype.bit_width // 8
        data = column.buffers()[1]
        yield (data[column.offset * width : (column.offset + len(column)) * width].to_pybytes() if data else b"")
