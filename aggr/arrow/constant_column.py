"""Constant columns: fields with the same value in every state of a column, such as the name and the parameters of the
function. They are created, and recognized by their bytes.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from aggr.arrow import versions

_MAX_OFFSET = 2**31 - 1  # the largest offset of a text in an Arrow column


def is_constant(column: pa.Array, scalar_column: pa.Array) -> bool:
    """Return whether each row of ``column`` has the same bits as the single row of ``scalar_column``.

    The result is also False for columns whose bytes cannot be compared: columns of different types, columns without
    rows or with nulls, and columns of types other than text, bytes and numbers of whole bytes.

    >>> is_constant(pa.array([7, 7]), pa.array([7])), is_constant(pa.array(["a", "b"]), pa.array(["a"]))
    (True, False)
    """
    if column.type != scalar_column.type or column.null_count or scalar_column.null_count or not len(column):
        return False
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _is_repeated_text(column, scalar_column[0].as_buffer())
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
        return False
    width = versions.whole_bytes(column.type)
    if width is None:
        return False
    start = column.offset * width
    content = column.buffers()[1][start : start + len(column) * width]
    return _is_repeated_pattern(
        content, scalar_column.buffers()[1][scalar_column.offset * width : (scalar_column.offset + 1) * width]
    )


def repeat_value(scalar_column: pa.Array, count: int) -> pa.Array:
    """Return a column with ``count`` copies of the single value of ``scalar_column``. For texts and most numbers, this
    is several times as fast as ``pa.repeat``.

    >>> repeat_value(pa.array(["a"]), 2).to_pylist()
    ['a', 'a']
    """
    dtype = scalar_column.type
    if not count:
        return scalar_column.slice(0, 0)
    if scalar_column.null_count:
        return pa.nulls(count, dtype)
    if pa.types.is_string(dtype):
        text = scalar_column[0].as_buffer()
        if text.size * count <= _MAX_OFFSET:
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(text.size)
            return pa.Array.from_buffers(
                dtype, count, [None, pa.py_buffer(offsets), pa.py_buffer(text.to_pybytes() * count)]
            )
    elif pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        width = dtype.bit_width // 8
        bits = np.frombuffer(scalar_column.buffers()[1], f"u{width}", 1, scalar_column.offset * width)
        return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(np.repeat(bits, count))])
    return pa.repeat(scalar_column[0], count)


def _is_repeated_text(column: pa.Array, text: pa.Buffer) -> bool:
    """Return whether each text in a column consists of the bytes ``text``."""
    _, offsets, texts = column.buffers()
    rows = len(column)
    width = text.size
    first_offset_byte = 4 * column.offset
    start = int.from_bytes(offsets[first_offset_byte : first_offset_byte + 4], sys.byteorder, signed=True)
    end = start + rows * width
    size = 0 if texts is None else texts.size  # A column in which each text is empty may have no buffer of texts.
    if start < 0 or end > min(size, _MAX_OFFSET):
        return False
    expected_offsets = pa.py_buffer(start + width * np.arange(rows + 1, dtype=np.int32))
    if offsets[first_offset_byte : first_offset_byte + 4 * (rows + 1)] != expected_offsets:
        return False
    return not width or _is_repeated_pattern(texts[start:end], text)


def _is_repeated_pattern(content: pa.Buffer, pattern: pa.Buffer) -> bool:
    """Return whether bytes consist of repetitions of a pattern.

    Each byte is compared with the byte that is ``pattern.size`` bytes before it.
    """
    width = pattern.size
    return bool(content[:width] == pattern and content[width:] == content[: content.size - width])
