"""Merging: merge the states of many parts into the windows of a level, and write the merged states as a few parts.

A part consists of states of one level that were written together. Memory is bounded, because only some windows are read
at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from tiltframe.merged_windows import merge_level
from tiltframe.ranges import EVER, Range, difference
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.log.snapshot import Part, PartRanges, pieces_within
from windows import TimeWindow

if TYPE_CHECKING:
    from tiltframe.store.log.manifest import Manifest

# The approximate number of rows of states that are merged at once. At a few kilobytes per row, this many rows take a
# few hundred megabytes.
ROWS_AT_ONCE = 100_000
# A compaction of small parts merges at least `_MIN_SMALL_PARTS` parts of a group. It leaves out a part that has more
# than `_SIZE_RATIO` times the rows of all smaller parts together.
_MIN_SMALL_PARTS = 4
_SIZE_RATIO = 4


class Reader(Protocol):
    """An object that reads parts, such as a backend."""

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str]) -> pa.Table:
        """Return, for each pair of a part and a range, the rows of the part whose windows start in the range."""


class Writer(Protocol):
    """An object that writes parts: a backend or a transaction. An uncommitted transaction discards its parts."""

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states as parts of a level, and return the parts."""


def write_merged(
    reader: Reader, writer: Writer, manifest: Manifest, *, level: TimeWindow, part_ranges: PartRanges
) -> list[Part]:
    """Merge the states in ranges of parts, write the merged states as parts of ``level`` through ``writer``, and return
    the new parts. The parts to merge belong to ``level`` or to a finer level. Only some windows are read at a time.
    """
    columns = manifest.schema.names[1:]
    parts = list[Part]()
    for pieces in split_by_windows(part_ranges, level):
        states = reader.read(pieces, columns)
        if states.num_rows:
            parts += writer.write(level, merge_level(states, manifest.frame, level, nulls_are_unknown=True))
    return parts


def write_without_range(
    reader: Reader,
    writer: Writer,
    manifest: Manifest,
    *,
    level: TimeWindow,
    parts: Sequence[Part],
    removed_range: Range,
) -> list[Part]:
    """Write the states of parts of a level again through ``writer``, without the windows that start in the range
    ``removed_range``. Return the new parts.
    """
    pieces = [(part, span) for part in parts for span in difference([part.range], [removed_range])]
    return write_merged(reader, writer, manifest, level=level, part_ranges=pieces)


def split_by_windows(
    part_ranges: PartRanges, level: TimeWindow, rows_at_once: int | None = None
) -> Iterator[PartRanges]:
    """Split ranges of parts by time, and yield them in groups of about ``rows_at_once`` rows, by default
    `ROWS_AT_ONCE`. All rows of a window of ``level`` are in the same group.
    """
    rows_at_once = ROWS_AT_ONCE if rows_at_once is None else rows_at_once
    if not part_ranges:
        return
    if _rows(part_ranges) <= rows_at_once:
        yield sorted(part_ranges, key=itemgetter(1))
        return
    for pieces in _join_groups(without_common_windows(part_ranges, level), rows_at_once):
        if _rows(pieces) > 2 * rows_at_once:
            yield from _by_fewer_windows(pieces, level, rows_at_once)
        else:
            yield pieces


def without_common_windows(part_ranges: PartRanges, level: TimeWindow) -> Iterator[PartRanges]:
    """Divide ranges of parts into groups, in order of time. Ranges of different groups have no windows in common. The
    groups are as small as possible. No range is split, so a row group of a file is rarely read for several groups.
    """
    in_order = sorted(part_ranges, key=itemgetter(1))
    ranges = np.array([span for _, span in in_order], np.int64)
    starts = level.starts(ranges[:, 0])
    latest_ends = np.maximum.accumulate(level.ends(ranges[:, 1] - 1))
    edges = [0, *(np.flatnonzero(starts[1:] >= latest_ends[:-1]) + 1).tolist(), len(in_order)]
    return (in_order[first:last] for first, last in pairwise(edges))


def _join_groups(groups: Iterable[PartRanges], rows_at_once: int) -> Iterator[PartRanges]:
    """Join successive groups that together have at most ``rows_at_once`` rows."""
    joined: PartRanges = []
    row_count = 0
    for group in groups:
        group_rows = _rows(group)
        if joined and row_count + group_rows > rows_at_once:
            yield joined
            joined = []
            row_count = 0
        joined.extend(group)
        row_count += group_rows
    if joined:
        yield joined


def _by_fewer_windows(part_ranges: PartRanges, level: TimeWindow, rows_at_once: int) -> Iterator[PartRanges]:
    """Split ranges of parts that have too many rows, and yield them in groups of fewer windows."""
    windows = level.starts_between(min(low for _, (low, _) in part_ranges), max(high for _, (_, high) in part_ranges))
    windows_at_once = max(1, len(windows) * rows_at_once // _rows(part_ranges))
    edges = [EVER[0], *windows[windows_at_once::windows_at_once].tolist(), EVER[1]]
    for span in pairwise(edges):
        pieces = pieces_within(part_ranges, span)
        if pieces:
            yield pieces


def _rows(part_ranges: PartRanges) -> int:
    return sum(part.rows for part, _ in part_ranges)


def groups_to_compact(parts: Sequence[Part], level: TimeWindow, before: int = EVER[1]) -> Iterator[list[Part]]:
    """Yield groups of at least two parts of a level that a compaction can replace by fewer parts. The parts of a group
    are in the same bucket, and their windows end at or before ``before``, in microseconds UTC.
    """
    if not parts:
        return
    is_closed_by_part = level.ends(np.array([part.last_start for part in parts], np.int64)) <= before
    buckets = bucket_of(level).starts(np.array([part.first_start for part in parts], np.int64))
    groups: dict[int, list[Part]] = {}
    for part, is_closed, bucket in zip(parts, is_closed_by_part, buckets, strict=True):
        if is_closed:
            groups.setdefault(int(bucket), []).append(part)
    for group in groups.values():
        yield from (cluster for cluster in _parts_to_merge(group) if len(cluster) > 1)


def select_small_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the small parts of a group from `groups_to_compact`. Parts that have many more rows than all smaller
    parts together are left out. Return no parts if fewer than `_MIN_SMALL_PARTS` parts remain.

    The largest part that is returned has at most `_SIZE_RATIO` times the rows of all smaller parts together. A larger
    part is therefore merged only after its group has received enough rows in small parts. Log-structured merge trees
    choose parts in this way ("size-tiered compaction"). Both the number of parts and the number of times that a row is
    written stay logarithmic in the number of commits.
    """
    ascending = sorted(parts, key=lambda part: (part.rows, part.name))
    rows = np.array([part.rows for part in ascending])
    is_similar = rows[1:] <= _SIZE_RATIO * np.cumsum(rows)[:-1]
    count = int(np.flatnonzero(is_similar)[-1]) + 2 if is_similar.any() else 0
    return ascending[:count] if count >= _MIN_SMALL_PARTS else []


def _parts_to_merge(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Divide the parts of a bucket into groups. Parts whose times overlap are in the same group. Parts that do not
    overlap are in the same group only if the group has at most `ROWS_AT_ONCE` rows.
    """
    cluster: list[Part] = []
    for part in sorted(parts, key=lambda part: part.first_start):
        is_apart = cluster and part.first_start > max(other.last_start for other in cluster)
        if is_apart and sum(other.rows for other in [*cluster, part]) > ROWS_AT_ONCE:
            yield cluster
            cluster = []
        cluster.append(part)
    yield cluster
