"""Cached results: results of stored rows, such as averages and quantiles of states, kept in the cache of files.

The results of a row group are computed from its states when a query needs them for the first time. Later queries take
them from the cache, together with the starts of windows and the keys, and do not read the file.

    file ──▶ row groups that a query needs ──▶ in the cache: start, keys, results per row group
                                           ──▶ others: read states ──▶ compute results ──▶ cache
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from aggr.arrays import Whole
from aggr.arrow.normalize import one_array
from tiltframe.names import START
from tiltframe.ranges import Range
from tiltframe.store.backends.delta.file_cache import CACHE, FileVersion, version_of
from tiltframe.store.backends.delta.files import (
    PAGE_CHECKS,
    cast_to_schema,
    has_columns,
    lost_rows_error,
    open_file,
    rows_in_span,
)
from tiltframe.store.backends.delta.row_group_bounds import RowGroupBounds
from tiltframe.store.backends.key_bounds import KeyBound
from tiltframe.store.backends.protocol import Part, RowFunction
from tiltframe.store.backends.stored_types import stored_schema

# The approximate number of rows whose states are in memory at the same time.
_ROWS_AT_ONCE = 1 << 17
# The memory that a cached array takes, without its values, in bytes.
_BYTES_PER_ARRAY = 512
# The memory that the bounds of one row group take for one column, in bytes.
_BYTES_PER_BOUND = 64

# The values of one column, as index of a row group → array.
Arrays: TypeAlias = Mapping[int, pa.Array]


def read_results(
    parts: Sequence[tuple[Part, Range]],
    folder: fs.SubTreeFileSystem,
    schema: pa.Schema,
    functions: Mapping[str, RowFunction],
    keys: Sequence[str],
    bounds: Sequence[KeyBound] = (),
) -> pa.Table | None:
    """Return window_start, the keys and the results of rows: for each pair of a part and a range, the rows of the part
    whose windows start in the range. Rows that ``bounds`` exclude may be left out. ``schema`` contains window_start,
    the keys and the columns of states that ``functions`` read.

    Return None if there are no row groups to read, or if a file lacks a column of ``schema`` or has it in another type.
    Raise ``FileNotFoundError`` if a file is missing, and `DamagedStore` if the files do not have the number of rows
    that the log states.
    """
    read: dict[str, RowFunction | None] = {START: None, **dict.fromkeys(keys), **functions}
    columns_with_bounds = [START, *(bound.key for bound in bounds)]
    tables = list[pa.Table]()
    for part, span in parts:
        file = _File(part, folder, schema, columns_with_bounds)
        is_whole = span[0] <= part.first_start and part.last_start < span[1]
        row_groups = file.bounds.select_row_groups(None if is_whole else span, bounds)
        if row_groups:
            rows = file.read(row_groups, read)
            if rows is None:
                return None
            tables.append(rows if is_whole else rows_in_span(rows, span))
    return pa.concat_tables(tables) if tables else None


class _File:
    """A data file of a store, with its footer and the bounds of its row groups."""

    def __init__(
        self, part: Part, folder: fs.SubTreeFileSystem, schema: pa.Schema, columns_with_bounds: Sequence[str]
    ) -> None:
        """Open the file, or take its footer from the cache."""
        self._part = part
        self._folder = folder
        self._schema = schema
        self._version: FileVersion = version_of(part.name, folder)
        self.fragment: ds.ParquetFileFragment = open_file(self._version, folder)
        footer = self.fragment.metadata
        if footer.num_rows != part.rows:
            raise lost_rows_error([part], footer.num_rows)
        cache_key = self._version, "bounds", tuple(columns_with_bounds)
        cached: RowGroupBounds | None = CACHE.get(cache_key)
        self.bounds = cached or RowGroupBounds.from_footer(footer, self.fragment.physical_schema, columns_with_bounds)
        if cached is None:
            bounds_count = footer.num_row_groups * len(columns_with_bounds)
            CACHE.put(cache_key, self.bounds, _BYTES_PER_BOUND * bounds_count + _BYTES_PER_ARRAY, [self._version])

    def read(self, row_groups: Sequence[int], read: Mapping[str, RowFunction | None]) -> pa.Table | None:
        """Return row groups as a table with the columns in ``read``. ``read`` maps the name of each column to the
        function whose results it contains, or to None if it contains stored values. Return None if some values are not
        in the cache, and the file lacks a column of the schema or has it in another type.
        """
        cache_keys = {name: (self._version, name if function is None else function) for name, function in read.items()}
        cached: dict[str, Arrays] = {name: CACHE.get(cache_key) or {} for name, cache_key in cache_keys.items()}
        missing_groups = [group for group in row_groups if any(group not in arrays for arrays in cached.values())]
        if missing_groups:
            if not has_columns(self.fragment, stored_schema(self._schema)):
                return None
            needed = {
                name: function for name, function in read.items() if not cached[name].keys() >= set(missing_groups)
            }
            for name, arrays in self._compute(missing_groups, needed).items():
                cached[name] = {**cached[name], **arrays}
                size = sum(array.nbytes + _BYTES_PER_ARRAY for array in cached[name].values())
                CACHE.put(cache_keys[name], cached[name], size, [self._version])
        chunks = {name: [arrays[group] for group in row_groups] for name, arrays in cached.items()}
        return pa.table({name: pa.chunked_array(arrays) for name, arrays in chunks.items()})

    def _compute(
        self, row_groups: Sequence[int], read: Mapping[str, RowFunction | None]
    ) -> dict[str, dict[int, pa.Array]]:
        """Read row groups of the file, and return the values of each column of ``read`` by row group. The values are
        results of the column's function, or stored values if the function equals None. About `_ROWS_AT_ONCE` rows are
        read at once.
        """
        values_by_group: dict[str, dict[int, pa.Array]] = {name: {} for name in read}
        columns = [name if function is None else function.column for name, function in read.items()]
        for batch in _batches(row_groups, self.bounds.row_counts):
            rows = self._rows(batch, columns)
            group_ends = np.cumsum(self.bounds.row_counts[batch]).tolist()
            for (name, function), column in zip(read.items(), columns, strict=True):
                stored_values = one_array(rows.column(column))
                values = stored_values if function is None else one_array(function(stored_values))
                for group, begin, end in zip(batch, [0, *group_ends[:-1]], group_ends, strict=True):
                    # The values are copied, because a slice would keep the values of all row groups in memory.
                    values_by_group[name][group] = values.take(pa.array(np.arange(begin, end)))
        return values_by_group

    def _rows(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read columns of row groups, and return them as a table with the types of the schema."""
        schema = pa.schema([self._schema.field(name) for name in dict.fromkeys(columns)])
        with self._folder.open_input_file(self._part.name) as source:
            file = pq.ParquetFile(source, metadata=self.fragment.metadata, **PAGE_CHECKS)
            return cast_to_schema(file.read_row_groups(row_groups, columns=schema.names), schema)


def _batches(row_groups: Sequence[int], row_counts: Whole) -> Iterator[list[int]]:
    """Divide row groups into lists with about `_ROWS_AT_ONCE` rows each. ``row_counts`` contains the number of rows of
    each row group.
    """
    batch = list[int]()
    count = 0
    for group in row_groups:
        if batch and count + row_counts[group] > _ROWS_AT_ONCE:
            yield batch
            batch = []
            count = 0
        batch.append(group)
        count += row_counts[group]
    if batch:
        yield batch
