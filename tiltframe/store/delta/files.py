"""Data files: Parquet in a folder or an object store, read many at a time."""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from aggr.arguments import because
from aggr.kernels.normalize import one_array
from tiltframe.frame import END, INSTANT, START
from tiltframe.level_chain import instants_of
from tiltframe.names import BUCKET, COMMIT, WRITER
from tiltframe.regular_files import not_a_file
from tiltframe.store.core.backend import Part, Range, StoreError
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.narrowing import KeyBound
from tiltframe.store.core.stored_types import restored, stored, stored_schema
from tiltframe.store.delta.durable import sync_written
from tiltframe.store.delta.layout import laid_out

_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
)


class _Written:
    """A new file of an object store, which takes bytes; Arrow hands its own buffers over."""

    def __init__(self, file: Any) -> None:
        """Note where it goes."""
        self._file = file

    def write(self, data: Any) -> int:
        """Write what is there so far."""
        written: int = self._file.write(bytes(data))
        return written

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the store."""
        return getattr(self._file, name)


class _Objects(DeltaStorageHandler):
    """The objects under a path."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        """Open a new object."""
        return pa.PythonFile(_Written(self._handler.open_output_stream(path, metadata)), mode="w")


def data_files(path: str, options: Sequence[tuple[str, str]]) -> fs.FileSystem:
    """Open the file system under a path, a folder or what deltalake takes."""
    if "://" not in path:
        return fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    return fs.PyFileSystem(_Objects(path, dict(options)))


def write_file(
    rows: pa.Table, keys: Sequence[str], folder: fs.FileSystem, bucket: str, part: Part, durable: bool = False
) -> Part:
    """Write rows to a file of their own, laid out by time and keys; return the part, with its name and what it spans.

    What is written to a folder ``durable`` is on the disk then.
    """
    rows, sizes = laid_out(rows, keys)
    held = pa.BufferOutputStream()
    told = [START, *keys]  # statistics of states would be the larger part of what describes a row group
    options = {"compression": "zstd", "write_page_checksum": True, "write_statistics": told}
    with pq.ParquetWriter(held, rows.schema, **options) as writer:
        at = 0
        for size in sizes:
            writer.write_table(rows.slice(at, size), row_group_size=max(size, 1))
            at += size
    data = held.getvalue()
    name = f"{BUCKET}={bucket}/{uuid.uuid4().hex}-{_footer_checksum(pa.BufferReader(data)):08x}.parquet"
    folder.create_dir(name.split("/")[0])
    try:
        with folder.open_output_stream(name) as file:
            file.write(data)
    except BaseException:  # a full disk, Ctrl-C
        with suppress(OSError):
            folder.delete_file(name)
        raise
    if durable and isinstance(folder, fs.SubTreeFileSystem):
        sync_written(folder.base_path, name)
    starts = instants_of(rows)
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


def read_files(
    parts: Sequence[tuple[Part, Range]], folder: fs.FileSystem, schema: pa.Schema, bounds: Sequence[KeyBound] = ()
) -> pa.Table:
    """Read the rows of files whose windows start in the ranges, in types of a schema; bounds leave others out.

    Raises ``FileNotFoundError`` where a file is gone, `StoreError` where files have lost rows.
    """
    whole: list[Part] = []
    cut: dict[Range, list[Part]] = {}
    for part, span in parts:
        (whole if span[0] <= part.least and part.greatest < span[1] else cut.setdefault(span, [])).append(part)
    found = [_read(whole, folder, schema, None, bounds)]
    found += [_read(mine, folder, schema, span, bounds) for span, mine in cut.items()]
    return pa.concat_tables(found)


def _within(bound: KeyBound) -> pc.Expression:
    """Write a bound so that Arrow leaves out row groups by it."""
    key, ends = pc.field(bound.key), list[pc.Expression]()
    if bound.low is not None:
        ends.append(key >= bound.low)
    if bound.high is not None:
        ends.append(key <= bound.high)
    if bound.values is not None:
        ends.append(reduce(or_, (key == value for value in bound.values)))
    return reduce(and_, ends)


def _between(span: Range) -> pc.Expression:
    low, high = (pa.scalar(at, INSTANT) for at in span)
    return (pc.field(START) >= low) & (pc.field(START) < high)


def _read(
    parts: Sequence[Part],
    folder: fs.FileSystem,
    schema: pa.Schema,
    span: Range | None,
    bounds: Sequence[KeyBound],
) -> pa.Table:
    if not parts:
        return schema.empty_table()
    if isinstance(folder, fs.SubTreeFileSystem):  # object stores look after this themselves
        for part in parts:
            if problem := not_a_file(folder.base_path + part.name):
                raise StoreError(f"the store is damaged: {folder.base_path}{part.name} is {problem}, not a file")
            _check_footer(part.name, folder)
    kept = stored_schema(schema)
    for bound in bounds:
        if bound.key not in kept.names:
            kept = kept.append(pa.field(bound.key, bound.dtype))
    files = ds.dataset([part.name for part in parts], kept, _FORMAT, folder)
    conditions = [*([] if span is None else [_between(span)]), *(_within(bound) for bound in bounds)]
    rows = files.to_table(columns=schema.names, filter=reduce(and_, conditions) if conditions else None)
    there = files.count_rows() if conditions else rows.num_rows  # counted by what describes the files
    if there != sum(part.rows for part in parts):
        raise StoreError("the store is damaged: files have lost rows")
    columns = [
        pa.chunked_array([restored(chunk, field.type) for chunk in rows.column(field.name).chunks], field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def stored_rows(states: pa.Table, described: Manifest, level: str, writer: str, commit: int) -> pa.Table:
    """Add what a file has beside states: the ends of windows, the writer and the number of its commit."""
    starts = instants_of(states)
    columns = {START: states.column(START).cast(INSTANT)}
    columns[END] = pa.array(described.frame.level(level).ends(starts)).cast(INSTANT)
    columns[WRITER] = pa.repeat(pa.scalar(writer), len(starts))
    columns[COMMIT] = pa.repeat(pa.scalar(commit, pa.int64()), len(starts))
    for wanted in list(described.columns)[1:]:
        if wanted.name in states.column_names or wanted.name in described.frame.keys:
            columns[wanted.name] = stored(one_array(states.column(wanted.name)))
    return pa.table(columns)


def bucket_of_file(part: Part) -> str:
    """Name the bucket that a file is in."""
    return part.name.split("/")[0].removeprefix(f"{BUCKET}=")


_LONGEST = 150  # characters of a line: Delta Lake quotes whole schemas
_TRACE = re.compile(r"at \./|[0-9]+: ")


def reason(error: BaseException) -> str:
    """Say in one line what went wrong, and at last why."""
    text = because(error) if isinstance(error, OSError) and error.errno is not None else str(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours of a terminal
    text = re.sub(r"^Kernel error: ", "its log is damaged: ", text)  # what reads the log calls itself a kernel
    text = re.sub(r'Os \{[^}]*message: "([^"]*)" \}', r"\1", re.sub(r"Generic (\w+ )?error(: |\n)", "", text))
    lines = [line.strip(" \t↳") for line in text.strip().splitlines()]
    lines = [line for line in lines if not _TRACE.match(line)] or lines  # where in Delta Lake it was
    lines = [re.sub(r":? ?ParsedLogPath \{.*", "", line) for line in lines]
    lines = [line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…" for line in lines]
    said = [line.rstrip(".:") for line in (lines[:1] + lines[-1:] if len(lines) > 1 else lines) if line]
    return ": ".join(dict.fromkeys(said)) or type(error).__name__
