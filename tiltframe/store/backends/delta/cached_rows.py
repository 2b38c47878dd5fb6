"""Cached rows: the rows of small files, kept in memory with one array per column.

Each commit adds small files. The process that writes a small file keeps its rows, so that later queries and compactions
of this process do not read the file. Columns that were read from other small files are in the cache of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tiltframe.store.backends.cache_memory import cache_memory
from tiltframe.store.backends.delta.file_cache import CACHE, FileCache, FileVersion

# The name of a column, and its type as text.
Column: TypeAlias = tuple[str, str]
Columns: TypeAlias = Mapping[Column, pa.ChunkedArray]

# Files of at most this number of bytes are small: their rows are kept in memory. Reading such a file takes about a
# millisecond, for any number of rows.
_MAX_FILE_BYTES = 1 << 16
# The maximum memory of the rows that this process keeps after it has written them, in bytes: for one file, and for all
# files together. The limits are low, because tasks of batch jobs write many files that they do not read.
_MAX_BYTES_OF_WRITTEN_FILE = 1 << 17
_MAX_WRITTEN_BYTES = 1 << 24
# The memory of an Arrow array in addition to its values, in bytes, as measured. A struct consists of several arrays.
_BYTES_PER_ARRAY = 512
# the rows that this process has written, by file
_WRITTEN = FileCache(lambda: min(_MAX_WRITTEN_BYTES, cache_memory() // 8))


def is_small(version: FileVersion) -> bool:
    """Return whether a file is small, so that its rows are kept in memory. A pipe or a folder has no size, and is not
    small.
    """
    size = version[2]
    return size is not None and size <= _MAX_FILE_BYTES


def column_of(field: pa.Field) -> Column:
    """Return the name and the type of a column. The type is returned as text, because Arrow treats two types of structs
    as equal if they differ only in the names of fields.
    """
    return field.name, str(field.type)


def cached_columns(version: FileVersion) -> Columns:
    """Return the columns of a file that are in memory, as name and type → values."""
    # The cache of files comes first. The rows that this process has written do not contain columns that were added to
    # the store after the file was written, and the cache of files may contain them.
    columns: Columns | None = CACHE.get((version, "rows")) or _WRITTEN.get(version)
    return columns or {}


def cache_columns(version: FileVersion, rows: pa.Table) -> Columns:
    """Add the columns of ``rows`` to the columns of a file that are in memory, and return all columns of the file that
    are in memory. ``rows`` has all rows of the file.
    """
    columns = {**cached_columns(version), **_columns_of(rows)}
    CACHE.put((version, "rows"), columns, memory_of(columns.values()), [version])
    return columns


def cache_written(version: FileVersion, rows: pa.Table) -> None:
    """Keep the rows of a file that this process has written, if the file is small."""
    if is_small(version) and rows.nbytes <= _MAX_BYTES_OF_WRITTEN_FILE:
        # The rows are copied, because ``rows`` may be a slice, which would keep the complete table in memory.
        columns = _columns_of(rows.take(pa.array(np.arange(rows.num_rows))))
        _WRITTEN.put(version, columns, memory_of(columns.values()), [version])


def forget_written(version: FileVersion) -> None:
    """Remove the rows of a file that this process has written from memory."""
    _WRITTEN.forget(version)


def _columns_of(rows: pa.Table) -> Columns:
    return dict(zip(map(column_of, rows.schema), rows.columns, strict=True))


def memory_of(columns: Iterable[pa.ChunkedArray]) -> int:
    """Return the memory that columns take, in bytes: their values, and the overhead of each Arrow array. Each column
    must have one chunk.
    """
    return sum(column.nbytes + _BYTES_PER_ARRAY * _count_arrays(column.type) for column in columns)


def _count_arrays(dtype: pa.DataType) -> int:
    """Return the number of arrays in an array of a type: itself and all its children.

    >>> _count_arrays(pa.struct([("n", pa.int64()), ("digits", pa.list_(pa.int64()))]))
    4
    """
    return 1 + sum(_count_arrays(dtype.field(i).type) for i in range(dtype.num_fields))
