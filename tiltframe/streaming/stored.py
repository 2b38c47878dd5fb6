"""Stored tables: tables as bytes with a checksum. Stored tables are fetched and read when they are first needed.

Arrow trusts the lengths in a stream, so it must never read damaged bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

# This compression reduces the size to about a third.
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)


@dataclass(eq=False)
class StoredTable:
    """A table as an Arrow IPC stream of known size and CRC-32. The table is fetched when it is first needed."""

    size: int
    checksum: int
    fetch: Callable[[], bytes | memoryview]

    @classmethod
    def of(cls, table: pa.Table) -> StoredTable:
        """Convert a table to a stored table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table.combine_chunks())
        data = memoryview(sink.getvalue())
        return cls.at(data, zlib.crc32(data))

    @classmethod
    def at(cls, data: memoryview, checksum: int) -> StoredTable:
        """Return a stored table for bytes that are already in memory."""
        return cls(len(data), checksum, lambda: data)

    @cached_property
    def data(self) -> bytes | memoryview:
        """The bytes; reading them raises ``ValueError`` if they have changed since they were written."""
        data = self.fetch()
        if len(data) != self.size or zlib.crc32(data) != self.checksum:
            raise refused("its checksum does not match its bytes")
        return data

    @cached_property
    def table(self) -> pa.Table:
        """The table; reading it raises ``ValueError`` for the same reason as ``data``."""
        try:
            return pa.ipc.open_stream(pa.py_buffer(self.data)).read_all()
        except (pa.ArrowException, OSError) as error:
            raise refused(str(error).splitlines()[0]) from None


def refused(why: str) -> ValueError:
    """Return the error for data that is not a saved state of open windows."""
    return ValueError(f"this is not a saved state of open windows ({why}); pass bytes that OpenWindows.to_ipc wrote")
