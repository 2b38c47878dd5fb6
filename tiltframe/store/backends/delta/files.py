"""Data files: write and read the Parquet files of a store in a folder or an object store.

Most files contain states of one level; such a file is called a part of the store. The other files contain records:
pairs of a name and a text, such as the last commit number of each writer (see
`tiltframe.store.backends.delta.records`).
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from aggr.arrow.normalize import one_array
from aggr.arrow.versions import has_page_checksums
from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of
from tiltframe.names import END, START
from tiltframe.ranges import Range
from tiltframe.regular_files import kind_unless_file
from tiltframe.store.backends.delta.cached_rows import (
    Column,
    Columns,
    cache_columns,
    cache_written,
    cached_columns,
    column_of,
    forget_written,
    is_small,
)
from tiltframe.store.backends.delta.constant_fields import ConstantFields
from tiltframe.store.backends.delta.file_cache import CACHE, FileVersion, version_of
from tiltframe.store.backends.delta.row_groups import split_into_row_groups
from tiltframe.store.backends.key_bounds import KeyBound
from tiltframe.store.backends.protocol import Part
from tiltframe.store.backends.stored_types import cast_stored, stored, stored_schema
from tiltframe.store.log.errors import DamagedStore
from tiltframe.store.log.manifest import Manifest
from windows import TimeWindow

# This package names a data file by a random number and the checksum of the file's footer, both in hexadecimal digits.
# The pattern matches such names.
_OWN_NAME = re.compile(r"/[0-9a-f]{32}-([0-9a-f]{8,})\.parquet$")
PAGE_CHECKS = {"page_checksum_verification": True} if has_page_checksums() else {}
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False, **PAGE_CHECKS)
)

# The memory that the footer of an open file takes, divided by the size of the footer in the file. The number was
# measured. It is large because the statistics in the footer are decoded.
_FOOTER_MEMORY_FACTOR = 20


class _BytesWriter:
    """A file object through which Arrow writes a new file of an object store. It converts Arrow's buffers to bytes,
    because deltalake requires bytes.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        written: int = self._file.write(bytes(data))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _ObjectStore(DeltaStorageHandler):
    """The file system of the objects below a path of an object store."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(_BytesWriter(self._handler.open_output_stream(path, metadata)), mode="w")


def open_file_system(path: str, options: Sequence[tuple[str, str]]) -> fs.FileSystem:
    """Return a file system whose root is ``path``, a folder or a URI for deltalake."""
    if "://" not in path:
        return _open_local_folder(path)
    return fs.PyFileSystem(_ObjectStore(path, dict(options)))


@lru_cache(maxsize=16)
def _open_local_folder(path: str) -> fs.SubTreeFileSystem:
    return fs.SubTreeFileSystem(path, fs.LocalFileSystem())


def write_states(
    states: pa.Table, level: TimeWindow, manifest: Manifest, folder: fs.FileSystem, subfolder: str
) -> tuple[str, int]:
    """Write states and the ends of their windows to a new file. Return its name and its size in bytes.

    Values are written in their stored types, and rows in the order of `split_into_row_groups`. Columns that the store
    does not have are left out. ``folder`` is the file system of the store, and ``subfolder`` is the folder, in this
    file system, in which the file is written. The rows of small files are also kept in the cache.
    """
    keys = manifest.frame.keys
    columns = {START: states.column(START).cast(INSTANT)}
    columns[END] = pa.array(level.ends(instants_of(states))).cast(INSTANT)
    for name in manifest.columns.names[1:]:
        if name in states.column_names or name in keys:
            columns[name] = stored(one_array(states.column(name)))
    rows = pa.table(columns)
    constants = ConstantFields.find(rows)
    rows, sizes = split_into_row_groups(rows, keys, constants)
    # Statistics are not written for columns of states, because these statistics would be too large.
    columns_with_statistics = [
        START,
        *(path for key in keys for path in column_paths(key, rows.schema.field(key).type)),
    ]
    name, size = write_file(
        rows, columns_with_statistics, folder=folder, subfolder=subfolder, sizes=sizes, constants=constants
    )
    if isinstance(folder, fs.SubTreeFileSystem):
        schema = pa.schema([field for field in manifest.columns if field.name in rows.column_names])
        cache_written(version_of(name, folder), cast_to_schema(rows, schema))
    return name, size


def column_paths(name: str, dtype: pa.DataType) -> list[str]:
    """Return the names under which Parquet stores a column. For a struct, these are the paths of its innermost fields.

    >>> column_paths("tags", pa.struct({"host": pa.string(), "at": pa.struct({"row": pa.int64()})}))
    ['tags.host', 'tags.at.row']
    """
    if not pa.types.is_struct(dtype):
        return [name]
    return [path for field in dtype for path in column_paths(f"{name}.{field.name}", field.type)]


def write_file(
    rows: pa.Table,
    columns_with_statistics: Sequence[str],
    folder: fs.FileSystem,
    subfolder: str,
    sizes: Sequence[int] | None = None,
    constants: ConstantFields | None = None,
) -> tuple[str, int]:
    """Write rows to a new file in the subfolder ``subfolder`` of ``folder``. Return the path of the file relative to
    ``folder``, and the size of the file in bytes.

    The columns ``columns_with_statistics`` are written with their minimum and maximum per row group. A field of a
    struct is named by its path, such as ``tags.host``. ``sizes`` are the numbers of rows of the row groups; by default
    there is one row group. ``constants`` are the constant fields of ``rows``; by default, they are searched for.
    """
    # If ``rows`` were read from another file, their metadata may contain the constant fields of that other file.
    rows = rows.replace_schema_metadata(None)
    buffer = pa.BufferOutputStream()
    # Columns of states have no dictionary encoding, because it costs more time than it saves.
    statistics_columns = list(columns_with_statistics)
    options: dict[str, Any] = {
        "compression": "zstd",
        "write_statistics": statistics_columns,
        "use_dictionary": statistics_columns,
    }
    if has_page_checksums():
        options["write_page_checksum"] = True
    with pq.ParquetWriter(buffer, rows.schema, **options) as writer:
        at = 0
        for size in sizes or [rows.num_rows]:
            writer.write_table(rows.slice(at, size), row_group_size=max(size, 1))
            at += size
        # pyarrow has ``add_key_value_metadata`` since version 16.
        if hasattr(writer, "add_key_value_metadata"):
            writer.add_key_value_metadata((ConstantFields.find(rows) if constants is None else constants).to_metadata())
    data = buffer.getvalue()
    name = f"{subfolder}/{uuid.uuid4().hex}-{_footer_checksum(pa.BufferReader(data)):08x}.parquet"
    folder.create_dir(subfolder)
    try:
        with folder.open_output_stream(name) as file:
            file.write(data)
    # The file may be incomplete, for example because the disk is full or the user pressed Ctrl-C, so it is deleted.
    except BaseException:
        with suppress(OSError):
            folder.delete_file(name)
        raise
    return name, data.size


def _footer_checksum(file: pa.NativeFile) -> int:
    """Return a checksum of a Parquet file's footer, or -1 if the file is too short to have one. Parquet has checksums
    for pages, but not for the footer.
    """
    size = file.size()
    length = int.from_bytes(file.read_at(8, max(size - 8, 0))[:4], "little")
    begin = size - 8 - length
    return zlib.crc32(file.read_at(size - begin, begin)) if begin >= 4 else -1


def _check_file(name: str, folder: fs.FileSystem) -> None:
    """Raise `DamagedStore` if a data file is not a regular file, or if its footer has changed since it was written.
    Raise ``FileNotFoundError`` if the file is missing.
    """
    if not isinstance(folder, fs.SubTreeFileSystem):  # Object stores verify their files themselves.
        return
    if problem := kind_unless_file(folder.base_path + name):
        raise DamagedStore(
            f"the store is damaged: {folder.base_path}{name} is {problem}, not a regular file; restore it from a backup"
        )
    # If another program has written the file, the name contains no checksum, and there is no match.
    own_name_match = _OWN_NAME.search(name)
    with folder.open_input_file(name) as file:
        if own_name_match and f"{_footer_checksum(file):08x}" != own_name_match.group(1):
            raise DamagedStore(
                f"the store is damaged: the file {folder.base_path}{name} has changed since it was written; restore it "
                "from a backup"
            )


def copy_file(name: str, folder: fs.FileSystem) -> str:
    """Copy a data file, and return the name of the copy. If the name of the file contains a checksum of its footer, the
    name of the copy contains the same checksum.
    """
    subfolder, _, file = name.rpartition("/")
    copy_name = (
        f"{subfolder}/{uuid.uuid4().hex}{file[32:]}"
        if _OWN_NAME.search(name)
        else f"{subfolder}/{uuid.uuid4().hex}.parquet"
    )
    folder.copy_file(name, copy_name)
    return copy_name


def forget_files(names: Iterable[str], folder: fs.FileSystem) -> None:
    """Remove files from the cache, because they are no longer part of the store. Only files of local folders are in the
    cache.
    """
    if not isinstance(folder, fs.SubTreeFileSystem):
        return
    for name in names:
        with suppress(OSError):
            version = version_of(name, folder)
            CACHE.forget(version)
            forget_written(version)


def read_file(name: str, folder: fs.FileSystem) -> pa.Table:
    """Return all rows of a data file."""
    _check_file(name, folder)
    return ds.dataset([name], None, _FORMAT, folder).to_table()


def read_files(
    parts: Sequence[tuple[Part, Range]], folder: fs.FileSystem, schema: pa.Schema, bounds: Sequence[KeyBound] = ()
) -> pa.Table:
    """Return rows with the columns of ``schema``: for each pair of a part and a range, the rows of the part whose
    windows start in the range. Rows that ``bounds`` exclude are left out.

    Raise ``FileNotFoundError`` if a file is missing, and `DamagedStore` if the files do not have the number of rows
    that the log states.
    """
    whole_parts: list[Part] = []
    partial_parts: dict[Range, list[Part]] = {}
    for part, span in parts:
        (
            whole_parts
            if span[0] <= part.first_start and part.last_start < span[1]
            else partial_parts.setdefault(span, [])
        ).append(part)
    tables = [_read(whole_parts, folder, schema=schema, span=None, bounds=bounds)]
    tables += [
        _read(parts_of_span, folder, schema=schema, span=span, bounds=bounds)
        for span, parts_of_span in partial_parts.items()
    ]
    return pa.concat_tables(tables)


def _bound_condition(bound: KeyBound) -> pc.Expression:
    key = pc.field(bound.key)
    limits = list[pc.Expression]()
    if bound.low is not None:
        limits.append(key >= bound.low)
    if bound.high is not None:
        limits.append(key <= bound.high)
    if bound.values is not None:
        limits.append(reduce(or_, (key == value for value in bound.values)))
    return reduce(and_, limits)


def _span_condition(span: Range) -> pc.Expression:
    low, high = (pa.scalar(at, INSTANT) for at in span)
    return (pc.field(START) >= low) & (pc.field(START) < high)


def open_file(version: FileVersion, folder: fs.FileSystem) -> ds.ParquetFileFragment:
    """Return an open data file with its footer. The file is taken from the cache if the cache contains this version."""
    fragment: ds.ParquetFileFragment | None = CACHE.get(version)
    if fragment is not None:
        return fragment
    _, name, _, _ = version
    _check_file(name, folder)
    fragment = _FORMAT.make_fragment(name, folder)
    fragment.ensure_complete_metadata()
    if isinstance(folder, fs.SubTreeFileSystem):
        CACHE.put(version, fragment, _FOOTER_MEMORY_FACTOR * int(fragment.metadata.serialized_size), [version])
    return fragment


def _read(
    parts: Sequence[Part], folder: fs.FileSystem, schema: pa.Schema, span: Range | None, bounds: Sequence[KeyBound]
) -> pa.Table:
    """Read the files of parts, and return the rows whose windows start in ``span``, or all rows if ``span`` equals
    None. Rows that ``bounds`` exclude are left out. Raise `DamagedStore` if the files do not have as many rows as the
    log states.
    """
    if not parts:
        return schema.empty_table()
    versions = [version_of(part.name, folder) for part in parts]
    # Only local files are read one by one. Files of object stores are read as a dataset, which sends several requests
    # at a time.
    is_local = isinstance(folder, fs.SubTreeFileSystem)
    if is_local and not bounds:
        tables = _read_parts(parts, versions, folder, schema=schema, span=span)
        if tables is not None:
            return pa.concat_tables(tables)
    fragments = [open_file(version, folder) for version in versions]
    read_schema = stored_schema(schema)
    for bound in bounds:
        if bound.key not in read_schema.names:
            read_schema = read_schema.append(pa.field(bound.key, bound.dtype))
    files = ds.FileSystemDataset(fragments, read_schema, _FORMAT, folder)
    conditions = [*([] if span is None else [_span_condition(span)]), *(_bound_condition(bound) for bound in bounds)]
    rows = files.to_table(columns=schema.names, filter=reduce(and_, conditions) if conditions else None)
    # The number of rows in the files is compared with the number in the log. If conditions have filtered ``rows``, the
    # number of rows in the files is read from the footers of the files.
    row_count = files.count_rows() if conditions else rows.num_rows
    if row_count != sum(part.rows for part in parts):
        raise lost_rows_error(parts, row_count)
    return cast_to_schema(rows, schema)


def _read_parts(
    parts: Sequence[Part],
    versions: Sequence[FileVersion],
    folder: fs.FileSystem,
    schema: pa.Schema,
    span: Range | None,
) -> list[pa.Table] | None:
    """Return a table for each part: its rows whose windows start in ``span``, or all its rows if ``span`` equals None.
    Columns of small files are taken from the cache. Return None if a file lacks a column of ``schema``, or has it in
    another type.
    """
    columns = {column_of(field): field for field in schema}
    files = list[_PartFile]()
    for part, version in zip(parts, versions, strict=True):
        cached = cached_columns(version) if is_small(version) else {}
        missing = pa.schema([field for column, field in columns.items() if column not in cached])
        fragment = open_file(version, folder) if missing.names else None
        if fragment is not None and not has_columns(fragment, stored_schema(missing)):
            return None
        files.append(_PartFile(part, version=version, cached=cached, missing=missing, fragment=fragment))
    return [rows_in_span(file.read(folder, schema, columns, span), span) for file in files]


class _PartFile(NamedTuple):
    """The file of a part. ``cached`` contains its columns that are in the cache, and ``missing`` is the schema of the
    columns that must be read. ``fragment`` is the open file, or None if no column must be read.
    """

    part: Part
    version: FileVersion
    cached: Columns
    missing: pa.Schema
    fragment: ds.ParquetFileFragment | None

    def read(self, folder: fs.FileSystem, schema: pa.Schema, columns: Iterable[Column], span: Range | None) -> pa.Table:
        """Return the rows of the file with the columns of a schema. Rows outside ``span`` may be left out. Columns that
        are read from a small file are added to the cache.
        """
        if self.fragment is None:
            return pa.table([self.cached[column] for column in columns], schema=schema)
        span_to_read = None if is_small(self.version) else span
        read_schema = stored_schema(self.missing)
        rows = _read_directly(self.part, self.fragment, folder, read_schema=read_schema, span=span_to_read)
        rows = cast_to_schema(rows, self.missing)
        if not is_small(self.version):
            return rows
        # The columns in ``self.cached`` are added again, because another query may have removed them from the cache
        # meanwhile.
        all_columns = {**self.cached, **cache_columns(self.version, rows)}
        return pa.table([all_columns[column] for column in columns], schema=schema)


def lost_rows_error(parts: Sequence[Part], row_count: int) -> DamagedStore:
    """Return the error for parts that together have ``row_count`` rows, although the log states another number."""
    recorded = sum(part.rows for part in parts)
    files = f"the file {parts[0].name} has"
    advice = "restore it from a backup"
    if len(parts) > 1:
        files = f"{len(parts):,} files together have"
        advice = "find the damaged files with tiltframe check, and restore them from a backup"
    return DamagedStore(f"the store is damaged: {files} {row_count:,} rows, and {recorded:,} were written; {advice}")


def has_columns(fragment: ds.ParquetFileFragment, read_schema: pa.Schema) -> bool:
    """Return whether a file has all columns of a schema, in the same types. A file may lack columns that were added to
    the store later, and other programs may write other types.
    """
    file_schema = fragment.physical_schema
    return all(
        file_schema.get_field_index(field.name) >= 0 and file_schema.field(field.name).type == field.type
        for field in read_schema
    )


def _read_directly(
    part: Part,
    fragment: ds.ParquetFileFragment,
    folder: fs.FileSystem,
    read_schema: pa.Schema,
    span: Range | None,
) -> pa.Table:
    """Return the rows of a part whose windows start in ``span``, or all rows if ``span`` equals None. ``fragment`` is
    the file of the part, with its footer.

    Each column of the result is one array. A dataset would return one array per row group, and joining these arrays
    takes time.
    """
    if fragment.metadata.num_rows != part.rows:
        raise lost_rows_error([part], fragment.metadata.num_rows)
    needed = fragment if span is None else fragment.subset(_span_condition(span), schema=fragment.physical_schema)
    with folder.open_input_file(part.name) as source:
        file = pq.ParquetFile(source, metadata=fragment.metadata, **PAGE_CHECKS)
        constants = _constants_of(part, fragment)
        paths = [path for field in read_schema for path in constants.paths_to_read(field.name, field.type)]
        names = list(dict.fromkeys([START, *paths]))
        rows = file.read_row_groups([group.id for group in needed.row_groups], columns=names)
    rows = rows_in_span(rows, span)
    return pa.table([_complete_column(rows, field, constants) for field in read_schema], schema=read_schema)


def constant_field_problems(part: Part, folder: fs.FileSystem) -> list[str]:
    """Return a message for each constant field whose values in the file differ from the value in the file's metadata.
    Raise ``ArrowException`` or ``OSError`` if the values cannot be read.
    """
    fragment = open_file(version_of(part.name, folder), folder)
    constants = _constants_of(part, fragment)
    if not constants.values:
        return []
    with folder.open_input_file(part.name) as source:
        file = pq.ParquetFile(source, metadata=fragment.metadata, **PAGE_CHECKS)
        rows = file.read(columns=list(constants.values))
    return [f"values of {path} differ from its metadata" for path in constants.differing_paths(rows)]


def _constants_of(part: Part, fragment: ds.ParquetFileFragment) -> ConstantFields:
    """Return the constant fields of a part's file. If the name of the file shows that another program has written the
    file, its metadata is ignored: the other program may have copied the metadata of a file with other rows.
    """
    return ConstantFields.from_metadata(fragment.metadata.metadata if _OWN_NAME.search(part.name) else None)


def _complete_column(rows: pa.Table, field: pa.Field, constants: ConstantFields) -> pa.ChunkedArray | pa.Array:
    """Return a column of a file with its constant fields. ``rows`` contains the fields that were read from the file."""
    if not constants.has_constants(field.name):
        return rows.column(field.name)
    values = one_array(rows.column(field.name)) if field.name in rows.column_names else None
    return constants.complete_column(field.name, field.type, values=values, count=rows.num_rows)


def rows_in_span(rows: pa.Table, span: Range | None) -> pa.Table:
    """Return the rows whose windows start in ``span``, or all rows if ``span`` equals None."""
    if span is None:
        return rows
    starts = instants_of(rows)
    is_inside = (starts >= span[0]) & (starts < span[1])
    return rows if is_inside.all() else rows.filter(pa.array(is_inside))


def cast_to_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with their columns converted from the stored types to the types of a schema."""
    columns = [
        pa.chunked_array([cast_stored(chunk, field.type) for chunk in rows.column(field.name).chunks], field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
