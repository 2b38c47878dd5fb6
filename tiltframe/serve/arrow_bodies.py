"""Arrow streams in the bodies of requests. The size after decompression is checked before anything is decompressed.

A compressed buffer begins with its uncompressed length: 8 bytes, little-endian. The length -1 means that the buffer is
not compressed. The messages are parsed here because pyarrow does not expose these lengths. Source:
``format/Message.fbs`` of Apache Arrow, which declares the following tables. The numbers of the fields are in
parentheses.

    Message       header type (field 1), header (2)
    DictionaryBatch   data, a RecordBatch (1)
    RecordBatch   rows (0), buffers of offset and length (2), compression (3)
"""

from __future__ import annotations

import struct

import pyarrow as pa

from aggr.extend.columns import compute as pc
from tiltframe.serve.errors import Refused

# two values of ``header type``, the kind of a message
_DICTIONARY_BATCH = 2
_RECORD_BATCH = 3


def read_stream(body: bytes, max_bytes: int, name: str) -> pa.Table:
    """Return the table in an Arrow stream of limited size.

    Parameters
    ----------
    body : bytes
    max_bytes : int
        The limit that applies separately to the bytes of all buffers after decompression, the bytes of all texts after
        dictionaries are expanded, and the number of rows.
    name : str
        The name of the stream in error messages.

    Returns
    -------
    pa.Table

    Raises
    ------
    ValueError
        If the body is not an Arrow stream, or is damaged.
    Refused
        If the limit is exceeded. The status is 413.
    """
    try:
        reader = pa.ipc.open_stream(body)
        rows, size = _rows_and_bytes(body)
        _check(rows, f"rows of {name}", max_bytes)
        _check(size, f"bytes of {name} after decompression", max_bytes)
        batches = list(reader)
        for batch in batches:
            # Arrow trusts the lengths and offsets in the body, but the client may have written wrong ones.
            batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, struct.error) as error:
        raise ValueError(f"{name} must be an Arrow IPC stream: {str(error).splitlines()[0]}") from None
    expanded = sum(_expanded_bytes(column) for batch in batches for column in batch.columns)
    _check(expanded, f"bytes of {name} without dictionaries", max_bytes)
    return pa.Table.from_batches(batches, reader.schema)


def _check(count: int, quantity: str, limit: int) -> None:
    if count > limit:
        raise Refused(
            413,
            f"the request has {count:,} {quantity}, and the server's limit is {limit:,}; send less data per request",
        )


def _rows_and_bytes(body: bytes) -> tuple[int, int]:
    """Return the number of rows of all batches, and the bytes of all buffers after decompression."""
    rows = size = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        root = _Table.root(message.metadata.to_pybytes())
        kind = root.byte(1)
        header = root.table(2)
        if header is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
            continue
        batch = header if kind == _RECORD_BATCH else header.table(1)
        if batch is None:
            continue
        rows += batch.long(0)
        buffers = memoryview(message.body) if message.body is not None else memoryview(b"")
        if batch.table(3) is None:
            size += len(buffers)
        else:
            size += sum(_uncompressed_bytes(buffers, offset, length) for offset, length in batch.pairs(2))
    return rows, size


def _uncompressed_bytes(buffers: memoryview, offset: int, length: int) -> int:
    if length == 0:
        return 0
    (uncompressed_length,) = struct.unpack_from("<q", buffers, offset)
    return length - 8 if uncompressed_length == -1 else max(uncompressed_length, 0)


def _expanded_bytes(column: pa.Array) -> int:
    """Return the number of bytes that a column's texts would have without a dictionary. With a dictionary, many rows
    may refer to one long text. Return 0 if the column has no dictionary of texts, or if the number is certainly less
    than 1 MiB.
    """
    if not pa.types.is_dictionary(column.type) or not (
        pa.types.is_string(column.type.value_type) or pa.types.is_binary(column.type.value_type)
    ):
        return 0
    lengths = pc.binary_length(column.dictionary)
    longest = pc.max(lengths).as_py() or 0
    if longest * len(column) < 1 << 20:
        return 0
    total: int = pc.sum(lengths.take(column.indices).cast(pa.int64())).as_py() or 0
    return total


class _Table:
    """A table in a flatbuffer. Its fields are numbered from 0. A list, the vtable, contains the offset of each field,
    or 0 for an absent field.
    """

    def __init__(self, data: bytes, offset: int) -> None:
        """Find the vtable of the table at the byte offset ``offset``."""
        self._data = data
        self._offset = offset
        self._vtable = offset - struct.unpack_from("<i", data, offset)[0]
        (self._vtable_bytes,) = struct.unpack_from("<H", data, self._vtable)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the root table of a flatbuffer."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _field(self, number: int) -> int | None:
        at = 4 + 2 * number
        if at + 2 > self._vtable_bytes:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._vtable + at)
        return self._offset + offset if offset else None

    def byte(self, number: int) -> int:
        """Return the field ``number``, which has one byte, or 0 if it is absent."""
        offset = self._field(number)
        return 0 if offset is None else self._data[offset]

    def long(self, number: int) -> int:
        """Return the field ``number``, which has 64 bits, or 0 if it is absent."""
        offset = self._field(number)
        return 0 if offset is None else int(struct.unpack_from("<q", self._data, offset)[0])

    def table(self, number: int) -> _Table | None:
        """Return the field ``number``, which is a table, or None if it is absent."""
        offset = self._field(number)
        return None if offset is None else _Table(self._data, offset + struct.unpack_from("<I", self._data, offset)[0])

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """Return the field ``number``, a list of pairs of 64-bit integers, or an empty list if it is absent."""
        offset = self._field(number)
        if offset is None:
            return []
        begin = offset + struct.unpack_from("<I", self._data, offset)[0]
        (count,) = struct.unpack_from("<I", self._data, begin)
        return list(struct.iter_unpack("<qq", self._data[begin + 4 : begin + 4 + 16 * count]))
