"""JSON lines as record batches. Versions of pyarrow before 20 can read only complete files. With these versions, each
block of lines is read as a separate file.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.json as pajson

from aggr.arrow.versions import has_json_stream
from tiltframe.files.new_fields import check_fields


class JsonBatches(Protocol):
    """Record batches of one schema, in the order of the lines."""

    schema: pa.Schema

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch; raise ``StopIteration`` at the end."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def open_json_lines(
    stream: pa.NativeFile, schema: pa.Schema | None, block_bytes: int, complete_structs: Collection[str] = ()
) -> JsonBatches:
    """Open a stream of JSON lines, which is read in blocks.

    Parameters
    ----------
    stream : pyarrow.NativeFile
        The lines, in UTF-8. A value may not contain a line break.
    schema : pyarrow.Schema or None
        The columns to read. Other columns are ignored, and missing ones are null. With None, all columns of the first
        block are read, and their types are inferred from it.
    block_bytes : int
        The size of a block, in bytes.
    complete_structs : collection of str
        Columns of ``schema``. If a struct in such a column has a field that ``schema`` lacks, `NewFields` is raised.
        Reading is slower with such columns.

    Returns
    -------
    JsonBatches
        One batch per block. Reading raises ``pyarrow.ArrowInvalid`` for a line that is not JSON or has other types.
    """
    # Arrow's reader of streams infers the types of columns and fields that ``schema`` lacks from the first block only.
    # It is therefore not used with ``complete_structs``.
    if has_json_stream() and not complete_structs:
        options = pajson.ReadOptions(block_size=block_bytes)
        batches: JsonBatches = pajson.open_json(stream, options, _parse_options(schema))
        return batches
    return _Blocks(stream, schema, block_bytes, complete_structs)


def _parse_options(schema: pa.Schema | None, reads_all: bool = False) -> pajson.ParseOptions:
    """Return options that read the columns of ``schema`` by name, so that a column may be missing in the first block.
    Without a schema, or if ``reads_all`` is true, all columns and fields are read.
    """
    unexpected_fields = "infer" if schema is None or reads_all else "ignore"
    return pajson.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior=unexpected_fields, newlines_in_values=False
    )


class _Blocks:
    """A reader that parses each block of lines as a separate file. It is used with versions of pyarrow before 20, and
    for structs that are read with all fields.
    """

    def __init__(
        self, stream: pa.NativeFile, schema: pa.Schema | None, block_bytes: int, complete_structs: Collection[str]
    ) -> None:
        self._block_bytes = block_bytes
        self._complete_structs = complete_structs
        blocks = _blocks_of_lines(stream, block_bytes)
        # For an empty stream, an empty block is parsed, which raises the same error as ``pajson.open_json``.
        self._first: pa.RecordBatch | None = self._parse_block(next(blocks, b""), schema)
        self.schema: pa.Schema = self._first.schema
        self._blocks = blocks

    def _parse_block(self, block: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
        options = pajson.ReadOptions(use_threads=False, block_size=max(self._block_bytes, len(block) + 1))
        reads_all = schema is not None and bool(self._complete_structs)
        table = pajson.read_json(io.BytesIO(block), options, _parse_options(schema, reads_all))
        if schema is not None and reads_all:
            check_fields(schema, table.schema, self._complete_structs)
            table = table.select(schema.names)
            if table.schema != schema:  # Structs in this block have additional fields, without values.
                table = pajson.read_json(io.BytesIO(block), options, _parse_options(schema))
        table = table.combine_chunks()
        batches = table.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

    def read_next_batch(self) -> pa.RecordBatch:
        if (batch := self._first) is not None:
            self._first = None
            return batch
        return self._parse_block(next(self._blocks), self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self.read_next_batch()
            except StopIteration:
                return
            yield batch


def _blocks_of_lines(stream: pa.NativeFile, block_bytes: int) -> Iterator[bytes]:
    """Yield a stream in blocks that end at the end of a line. Blocks of only white space are left out."""
    pieces: list[bytes] = []
    while chunk := stream.read(block_bytes):
        end = chunk.rfind(b"\n") + 1
        pieces.append(chunk[:end])
        if end:
            block = b"".join(pieces)
            pieces = []
            if block.strip():
                yield block
        pieces.append(chunk[end:])
    last = b"".join(pieces)
    if last.strip():
        yield last
