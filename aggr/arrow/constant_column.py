"""Constant columns: what repeats in every state of a column, such as its function's name and its parameters."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

_MOST = 2**31 - 1  # what offsets of texts reach


def is_constant(column: pa.Array, one: pa.Array) -> bool:
    """Say whether a column is known to hold one value, that of ``one``, in every row, to the bit: by its bytes at once.

    False if it is not known: for another type, no rows, nulls, and what is neither text nor one number of whole
    bytes.

    >>> is_constant(pa.array([7, 7]), pa.array([7])), is_constant(pa.array(["a", "b"]), pa.array(["a"]))
    (True, False)
    """
    if column.type != one.type or column.null_count or one.null_count or not len(column):
        return False
    if pa.types.is_string(column.type):
        return _texts(column, one[0].as_buffer())
    try:
        width = column.type.byte_width
    except ValueError:
        return False
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
        return False
    first = column.offset * width
    given = column.buffers()[1][first : first + len(column) * width]
    return _repeats(given, one.buffers()[1][one.offset * width : (one.offset + 1) * width])


def _texts(column: pa.Array, text: pa.Buffer) -> bool:
    """Say whether texts all have these bytes: as many each, and one after the other."""
    _, places, texts = column.buffers()
    rows, width, begin = len(column), text.size, 4 * column.offset
    first = int.from_bytes(places[begin : begin + 4], sys.byteorder, signed=True)
    last = first + rows * width
    if not width or first < 0 or last > min(texts.size, _MOST):
        return False
    even = pa.py_buffer(np.arange(first, last + 1, width, dtype=np.int32))
    return bool(places[begin : begin + 4 * (rows + 1)] == even) and _repeats(texts[first:last], text)


def _repeats(given: pa.Buffer, one: pa.Buffer) -> bool:
    """Say whether bytes are others, repeated: each then is the one that stands so far before it."""
    width = one.size
    return bool(given[:width] == one and given[width:] == given[: given.size - width])
