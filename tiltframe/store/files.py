"""Data files: Parquet in a folder or an object store, read many at a time."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from aggr.plain import one_array
from tiltframe.frame import END, INSTANT, START
from tiltframe.store.description import Description
from tiltframe.store.stored import restored, stored, stored_schema
from tiltframe.store.tables import BUCKET, COMMIT, WRITER, Part, Range, StoreError

_GROUP_BYTES = 1 << 20  # of states in a row group, about: a range of time reads few
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
)


def data_files(path: str, options: Sequence[tuple[str, str]]) -> fs.FileSystem:
    """Open the file system under a path, a folder or what deltalake takes."""
    if "://" not in path:
        return fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    return fs.PyFileSystem(DeltaStorageHandler(path, dict(options)))


def write_file(rows: pa.Table, folder: fs.FileSystem, bucket: str, part: Part) -> Part:
    """Write rows to a file of their own; return the part with where they are and what they span."""
    group = min(max(_GROUP_BYTES * rows.num_rows // max(rows.nbytes, 1), 128), 1 << 16)
    options = {"compression": "zstd", "row_group_size": group, "write_page_checksum": True}
    held = pa.BufferOutputStream()
    pq.write_table(rows, held, **options)
    data = held.getvalue()
    name = f"{BUCKET}={bucket}/{uuid.uuid4().hex}-{_footer_checksum(pa.BufferReader(data)):08x}.parquet"
    folder.create_dir(name.split("/")[0])
    with folder.open_output_stream(name) as file:
        file.write(data)
    starts = rows.column(START).cast(pa.int64()).to_numpy()
    least, greatest = (int(starts.min()), int(starts.max())) if len(starts) else (0, 0)
    return replace(part, least=least, greatest=greatest, rows=rows.num_rows, bytes=data.size, name=name)


def _footer_checksum(file: pa.NativeFile) -> int:
    """Sum up how a Parquet file describes itself: pages have checksums, this has none."""
    size = file.size()
    length = int.from_bytes(file.read_at(8, max(size - 8, 0))[:4], "little")
    begin = size - 8 - length
    return zlib.crc32(file.read_at(size - begin, begin)) if begin >= 4 else -1


def _check_footer(name: str, folder: fs.FileSystem) -> None:
    with folder.open_input_file(name) as file:
        noted = name.removesuffix(".parquet").rpartition("-")[2]
        if f"{_footer_checksum(file):08x}" != noted:
            raise StoreError(f"the store is damaged: the file {name} is not as it was written")


def read_files(parts: Sequence[tuple[Part, Range]], folder: fs.FileSystem, schema: pa.Schema) -> pa.Table:
    """Read the rows of files whose windows start in the ranges, in types of a schema.

    Raises ``FileNotFoundError`` where a file is gone, `StoreError` where files have lost rows.
    """
    whole: list[Part] = []
    cut: dict[Range, list[Part]] = {}
    for part, span in parts:
        (whole if span[0] <= part.least and part.greatest < span[1] else cut.setdefault(span, [])).append(part)
    tables = [_read(whole, folder, schema, None)]
    if tables[0].num_rows != sum(part.rows for part in whole):
        raise StoreError("the store is damaged: files have lost rows")
    tables += [_read(mine, folder, schema, span) for span, mine in cut.items()]
    return pa.concat_tables(tables)


def _read(parts: Sequence[Part], folder: fs.FileSystem, schema: pa.Schema, span: Range | None) -> pa.Table:
    if not parts:
        return schema.empty_table()
    if isinstance(folder, fs.SubTreeFileSystem):  # object stores look after this themselves
        for part in parts:
            _check_footer(part.name, folder)
    condition = None
    if span is not None:
        low, high = (pa.scalar(at, INSTANT) for at in span)
        condition = (pc.field(START) >= low) & (pc.field(START) < high)
    files = ds.dataset([part.name for part in parts], stored_schema(schema), _FORMAT, folder)
    rows = files.to_table(columns=schema.names, filter=condition)
    columns = [
        pa.chunked_array([restored(chunk, field.type) for chunk in rows.column(field.name).chunks], field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def stored_rows(states: pa.Table, described: Description, level: str, writer: str, commit: int) -> pa.Table:
    """Add what a file has beside states: the ends of windows, the writer and the number of its commit."""
    starts = states.column(START).cast(pa.int64()).to_numpy()
    columns = {START: states.column(START).cast(INSTANT)}
    columns[END] = pa.array(described.frame.level(level).ends(starts)).cast(INSTANT)
    columns[WRITER] = pa.repeat(pa.scalar(writer), len(starts))
    columns[COMMIT] = pa.repeat(pa.scalar(commit, pa.int64()), len(starts))
    for wanted in list(described.schema)[1:]:
        columns[wanted.name] = stored(one_array(states.column(wanted.name)))
    return pa.table(columns)


def bucket_of_file(part: Part) -> str:
    """Name the bucket that a file is in."""
    return part.name.split("/")[0].removeprefix(f"{BUCKET}=")


def reason(error: BaseException) -> str:
    """Say in one line what went wrong, and at last why."""
    lines = [line.strip(" \t↳") for line in str(error).strip().splitlines()]
    said = [line.rstrip(".:") for line in (lines[:1] + lines[-1:] if len(lines) > 1 else lines) if line]
    return ": ".join(dict.fromkeys(said)) or type(error).__name__
