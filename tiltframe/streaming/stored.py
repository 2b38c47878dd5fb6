"""Tables that are stored as bytes with a checksum. The bytes are fetched and decoded when the table is first used.

The checksum is verified first, because Arrow does not check the lengths in an IPC stream: reading damaged bytes could
read outside of the buffer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tiltframe.parameter_names import by_caller

# zstd at level 1 reduces the size to about a third.
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)


@dataclass(eq=False)
class StoredTable:
    """A table that is stored as an Arrow IPC stream. The bytes are fetched when they are first used.

    ``size`` is the length in bytes, ``checksum`` the CRC-32 of the bytes, and ``fetch`` a function that returns them.
    """

    size: int
    checksum: int
    fetch: Callable[[], bytes | memoryview]

    @classmethod
    def encode(cls, table: pa.Table) -> StoredTable:
        """Encode a table, and return it as a stored table whose bytes are in memory."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table.combine_chunks())
        data = memoryview(sink.getvalue())
        return cls.in_memory(data, zlib.crc32(data))

    @classmethod
    def in_memory(cls, data: memoryview, checksum: int) -> StoredTable:
        """Return a stored table for an Arrow IPC stream in memory. ``checksum`` is its CRC-32."""
        return cls(len(data), checksum, lambda: data)

    @cached_property
    def data(self) -> bytes | memoryview:
        """The bytes of the Arrow IPC stream. Raises ``ValueError`` if their size or checksum is wrong."""
        data = self.fetch()
        if len(data) != self.size or zlib.crc32(data) != self.checksum:
            raise not_a_saved_state("the checksum does not match the bytes")
        return data

    @cached_property
    def table(self) -> pa.Table:
        """The decoded table. Raises ``ValueError`` if the bytes are damaged or are not an Arrow IPC stream."""
        try:
            return pa.ipc.open_stream(pa.py_buffer(self.data)).read_all()
        except (pa.ArrowException, OSError) as error:
            raise not_a_saved_state(str(error).splitlines()[0]) from None


def not_a_saved_state(why: str) -> ValueError:
    """Return the error for bytes that are not a saved state of open windows. ``why`` is the reason in the message."""
    advice = by_caller("name a file that --state wrote", "pass bytes that OpenWindows.to_ipc wrote")
    return ValueError(f"this is not a saved state of open windows ({why}); {advice}")
