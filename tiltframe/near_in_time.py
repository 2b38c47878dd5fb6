"""Unordered rows: if the batches of a stream cover the same times, the rows are partitioned by time before they are
reduced.

Without this partitioning, each batch would have a few rows of every group. Merging the states of the batches would then
take longer than reducing the rows. Rows are therefore buffered, and yielded one range of time after another.
Databases call this one-pass radix partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.groups.groups import Groups
from aggr.groups.numbers import sort_by_group
from aggr.tables.partial_aggregation import joined_batches
from tiltframe.event_time import event_times

# the number of ranges of time, which have equal lengths; the groups of one range should fit into the processor's cache
PARTS = 64
_INTEGERS = {32: pa.int32(), 64: pa.int64()}
Span = tuple[int, int]  # a range of time: its first and its last time, in microseconds


def partition_by_time(
    batches: Iterable[pa.RecordBatch],
    time: str,
    has_small_groups: Callable[[pa.RecordBatch], bool],
    max_buffered_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows, with rows of similar times close together.

    Batches are yielded unchanged until the times of two consecutive batches overlap, as `_overlap_mostly` defines it.
    ``has_small_groups`` is then called with the second batch. If it returns true, the rows of both batches and of all
    later ones are partitioned: up to ``max_buffered_bytes`` bytes are buffered, and then yielded as one batch per range
    of time. If it returns false, all further batches are yielded unchanged. A batch for which `_span_of` returns None
    is never partitioned.
    """
    batches = iter(batches)
    waiting: list[pa.RecordBatch] = []  # the previous batch, which is yielded after the comparison with the next batch
    span: Span | None = None
    for batch in batches:
        batch_span = _span_of(batch, time)
        if span is not None and batch_span is not None and _overlap_mostly(span, batch_span):
            all_batches = chain(waiting, [batch], batches)
            yield from (
                _partition_rows(all_batches, time, batch_span, max_buffered_bytes)
                if has_small_groups(batch)
                else all_batches
            )
            return
        yield from waiting
        waiting = [batch]
        span = batch_span
    yield from waiting


def _partition_rows(
    batches: Iterable[pa.RecordBatch], time: str, span: Span, max_buffered_bytes: int
) -> Iterator[pa.RecordBatch]:
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(PARTS)]
    buffered_bytes = 0
    for batch in batches:
        if _span_of(batch, time) is None:
            yield batch
            continue
        groups = Groups.of(_part_of(event_times(batch.column(time), time), span), PARTS)
        columns = [_sort_by_group(column, groups) for column in batch.columns]
        ordered = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        for rows, start, end in zip(parts, groups.offsets[:-1].tolist(), groups.offsets[1:].tolist(), strict=True):
            if start < end:
                rows.append(ordered.slice(start, end - start))
        buffered_bytes += batch.nbytes
        if buffered_bytes >= max_buffered_bytes:
            yield from _join_ranges(parts)
            parts = [[] for _ in range(PARTS)]
            buffered_bytes = 0
    yield from _join_ranges(parts)


def _join_ranges(parts: list[list[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each range of time as one batch, so that all buffered rows of a group are reduced together."""
    return chain.from_iterable(joined_batches(part).to_batches() for part in parts if part)


def _span_of(batch: pa.RecordBatch, time: str) -> Span | None:
    """Return the first and the last time of a batch, in microseconds UTC, or None if the batch must not be partitioned
    by time.

    It must not be partitioned if it is empty, or if its times contain null or are not timestamps. A batch with a
    dictionary that is large compared with its rows must not be partitioned either, because the dictionary would be
    repeated for each range of time.
    """
    column = batch.column(time)
    if not batch.num_rows or column.null_count or not pa.types.is_timestamp(column.type):
        return None
    dictionaries = (column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type))
    if any(len(dictionary) * PARTS > batch.num_rows for dictionary in dictionaries):
        return None
    times = event_times(column, time)
    return int(times.min()), int(times.max())


def _sort_by_group(column: pa.Array, groups: Groups) -> pa.Array:
    """Return the values of a column, sorted by group. ``groups`` has the group of each value. Numbers and times are
    sorted by a compiled loop, which needs a fifth of the time of Arrow's ``take``. All other types are sorted by
    ``take``.
    """
    dtype = column.type
    if pa.types.is_dictionary(dtype) and not column.null_count:
        return pa.DictionaryArray.from_arrays(
            _sort_by_group(column.indices, groups), column.dictionary, ordered=dtype.ordered
        )
    plain = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_timestamp(dtype)
    integer_type = _INTEGERS.get(dtype.bit_width) if plain and not column.null_count else None
    if integer_type is None:
        return column.take(pa.array(groups.rows_by_group))
    return pa.array(sort_by_group(column.view(integer_type).to_numpy(), groups.ids, groups.offsets)).view(dtype)


def _overlap_mostly(span: Span, other: Span) -> bool:
    """Return whether the intersection of two ranges is longer than half of the range that contains both."""
    return 2 * (min(span[1], other[1]) - max(span[0], other[0])) > max(span[1], other[1]) - min(span[0], other[0])


def _part_of(times: NDArray[np.int64], span: Span) -> NDArray[np.intp]:
    """Return the index of the part of ``span`` that contains each time, from 0 to `PARTS` - 1. The parts are of equal
    length. A time outside ``span`` belongs to the first or the last part.
    """
    part = (times.astype(np.float64) - span[0]) * (PARTS / (span[1] - span[0]))
    return np.clip(part, 0, PARTS - 1, out=part).astype(np.intp)
