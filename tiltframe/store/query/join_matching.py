"""Matching of a join: find the results of each row. The table of results is sorted by key and window. The results of a
row are therefore consecutive: ``count`` rows, beginning at the index ``first``.

results       key  start        row         key  range           first  count
        0     a    10:00        0           a    10:00–12:00  ─▶  0      2
        1     a    11:00        1           b    11:00–12:00  ─▶  3      0
        2     b    10:00
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize, one_array
from aggr.groups.groups import group_by
from aggr.sql.inputs import values_in
from aggr.tables.keys import key_column
from tiltframe.instants import instants_of

if TYPE_CHECKING:
    from tiltframe.store.query.join_ranges import Positions, RowRanges

_ROWS_PER_SLICE = 1 << 18


@dataclass(frozen=True)
class RowMatches:
    """The results of a join. The results of input row ``i`` are ``count[i]`` consecutive rows of ``results``, beginning
    at the index ``first[i]``.
    """

    results: pa.Table
    first: Positions
    count: Positions


def match_rows(
    key_values: Mapping[str, pa.Array],
    ranges: Sequence[RowRanges],
    tables: Iterable[pa.Table],
    schema: pa.Schema,
) -> RowMatches:
    """Return the results that belong to the rows of a join. Tables are read one after another, and results are kept
    only if their keys occur in the rows.

    ``key_values`` maps each key of the store to an array with one value per row. ``ranges`` contains the queries, each
    with its rows. ``tables`` contains the results of each query, and ``schema`` is the schema of the results.
    """
    row_count = len(next(iter(key_values.values())))
    first = np.zeros(row_count, np.int64)
    count = np.zeros(row_count, np.int64)
    used_results = [schema.empty_table()]
    offset = 0
    for ranges_read, results in zip(ranges, tables, strict=True):
        keys_of_rows = {key: values.take(pa.array(ranges_read.rows)) for key, values in key_values.items()}
        row_ids, result_ids, key_count = _ids_of_keys(keys_of_rows, results)
        is_used = np.zeros(key_count, np.bool_)
        is_used[row_ids[row_ids >= 0]] = True
        with_used_key = np.flatnonzero(is_used[result_ids])
        window_starts, position = np.unique(instants_of(results)[with_used_key], return_inverse=True)
        # One number per result. Sorting by this number sorts the results by key, then by window.
        sort_keys = result_ids[with_used_key] * (len(window_starts) + 1) + position
        order = np.argsort(sort_keys, kind="stable")
        first_sort_keys = row_ids * (len(window_starts) + 1)
        sorted_keys = sort_keys[order]
        range_first = np.searchsorted(sorted_keys, first_sort_keys + np.searchsorted(window_starts, ranges_read.low))
        range_end = np.searchsorted(sorted_keys, first_sort_keys + np.searchsorted(window_starts, ranges_read.high))
        has_key = row_ids >= 0
        numbers = ranges_read.rows[has_key]
        first[numbers] = range_first[has_key] + offset
        count[numbers] = (range_end - range_first)[has_key]
        used_results.append(results.take(pa.array(with_used_key[order])))
        offset += len(order)
    return RowMatches(pa.concat_tables(used_results).combine_chunks(), first, count)


def key_values_of(rows: pa.Table, text: str, key: str, kind: pa.DataType) -> pa.Array:
    """Return the values of ``text``, a column or expression of the rows, in the type ``kind`` of a key of the store.
    Raise ``ValueError`` if values of the two types cannot be equal, such as text and numbers.
    """
    values = one_array(values_in(text, rows))
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    values = key_column(normalize(values))
    if values.type != kind and _kind(values.type) != _kind(kind):
        raise ValueError(
            f"cannot compare the key {key}, of type {kind}, with {values.type} of the rows; cast the column of the "
            f"rows: on={{{key!r}: 'CAST({text} AS …)'}}"
        )
    return _as_key(values, kind)


def _kind(dtype: pa.DataType) -> str:
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return "number"
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return "text"
    return "timestamp" if pa.types.is_timestamp(dtype) else str(dtype)


def _ids_of_keys(keys_of_rows: Mapping[str, pa.Array], results: pa.Table) -> tuple[Positions, Positions, int]:
    """Return two arrays and a number: the integer id of the keys of each row, the integer id of the keys of each
    result, and the number of distinct ids. Equal combinations of keys have equal ids. Rows with a null key have the id
    -1, because null is not equal to any value.
    """
    rows = len(next(iter(keys_of_rows.values())))
    columns = []
    is_null = np.zeros(rows, np.bool_)
    for key, values in keys_of_rows.items():
        is_null |= values.is_null().to_numpy(zero_copy_only=False)
        result_columns = key_column(results.column(key))
        columns.append(pa.concat_arrays([values.cast(result_columns.type), result_columns]))
    groups, _ = group_by(columns, rows + results.num_rows)
    row_ids = np.where(is_null, -1, groups.ids[:rows])
    return row_ids, groups.ids[rows:].astype(np.int64), groups.n


def _as_key(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to the type of a key of the store.

    A value that this type cannot represent becomes null, which is not equal to any key.
    """
    try:
        return values.cast(kind)
    except pa.ArrowException:
        nearest_values = values.cast(kind, safe=False)
        is_same = pc.equal(nearest_values.cast(values.type, safe=False), values)
        return pc.if_else(is_same, nearest_values, pa.scalar(None, kind))


def joined_slices(
    rows: pa.Table, matches: RowMatches, names: Sequence[str], schema: pa.Schema, *, is_left: bool
) -> Iterator[pa.Table]:
    """Yield the joined rows in the order of the input rows, in tables of at most `_ROWS_PER_SLICE` rows. The joined
    rows of one input row are in the order of its results. With ``is_left``, rows without results are returned too, with
    nulls.
    """
    lengths = np.maximum(matches.count, 1) if is_left else matches.count
    row_ends = np.cumsum(lengths)
    total = int(row_ends[-1]) if len(row_ends) else 0
    results = matches.results.select(list(names))
    for low in range(0, total, _ROWS_PER_SLICE):
        high = min(low + _ROWS_PER_SLICE, total)
        first_row, last_row = np.searchsorted(row_ends, [low, high - 1], side="right")
        row_numbers = np.arange(first_row, last_row + 1)
        row_begins = row_ends[row_numbers] - lengths[row_numbers]
        joined_counts = np.minimum(row_ends[row_numbers], high) - np.maximum(row_begins, low)
        result_numbers = np.arange(low, high) + np.repeat(matches.first[row_numbers] - row_begins, joined_counts)
        is_unmatched = matches.count[row_numbers] == 0
        # There is a mask only if some rows have no results, because a mask makes `take` slower.
        without_result = None
        if is_unmatched.any():
            without_result = np.repeat(is_unmatched, joined_counts)
            result_numbers[without_result] = 0
        row_columns = _repeat_rows(rows.slice(first_row, len(row_numbers)), joined_counts)
        # The index 0 stands for a missing result. If there are no results at all, this index is out of bounds, so
        # `take` must check the indices. Otherwise all indices are valid, and a check would take a quarter of the time.
        is_checked = not results.num_rows
        result_columns = pc.take(results, pa.array(result_numbers, mask=without_result), boundscheck=is_checked)
        yield pa.Table.from_arrays([*row_columns, *result_columns.columns], schema=schema)


def _repeat_rows(rows: pa.Table, counts: Positions) -> list[pa.ChunkedArray]:
    """Return the columns of ``rows`` with row ``i`` repeated ``counts[i]`` times. If Arrow supports this for the type
    of a column, the column is run-end encoded and decoded, which takes a half to a fifth of the time of `take`.
    """
    if (counts == 0).any():  # Arrow does not accept runs of length 0
        rows = rows.take(pa.array(np.flatnonzero(counts)))
        counts = counts[counts > 0]
    numbers = np.repeat(np.arange(rows.num_rows), counts)
    # The conversion to int32 raises an error if there are too many rows. pyarrow 14 accepts only numpy arrays here.
    run_ends = pa.array(np.cumsum(counts), pa.int32()).to_numpy()
    columns = []
    for column in rows.columns:
        if _can_be_repeated(column.type) and len(numbers):
            runs = pa.RunEndEncodedArray.from_arrays(run_ends, one_array(column))
            columns.append(pa.chunked_array([pc.run_end_decode(runs)]))
        else:
            columns.append(column.take(pa.array(numbers)))
    return columns


def _can_be_repeated(dtype: pa.DataType) -> bool:
    """Return whether Arrow can decode runs of values of a type. Arrow cannot decode runs of nested types, and rejects
    date64 values that contain a time of day.
    """
    if pa.types.is_date64(dtype):
        return False
    return bool(pa.types.is_primitive(dtype) or pa.types.is_string(dtype) or pa.types.is_decimal(dtype))
