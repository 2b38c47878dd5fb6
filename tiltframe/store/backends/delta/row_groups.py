"""Row groups: the order of the rows in a file. With this order, queries for a range of time or for few keys skip most
of the file.

The rows are divided into ranges of time, and the rows of each range into ranges of keys. Each range of keys is a row
group of Parquet, in which rows are sorted by keys, then time:

    range of time 1                         range of time 2
    keys a–c │ keys d–f │ … │ keys x–z      keys a–c │ keys d–f │ …

Parquet stores the minimum and maximum of each column of a row group. A query for one key reads one row group of each
range of time. A query for one moment reads the row groups of one range of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.normalize import one_array
from aggr.groups.groups import group_by
from tiltframe.instants import instants_of
from tiltframe.store.backends.delta.constant_fields import ConstantFields

# the approximate bytes of states in a row group; smaller row groups would be slower to read, because each one takes
# some time for every column
_GROUP_BYTES = 1 << 20
# the approximate minimum and the approximate maximum number of rows in a row group; in smaller row groups, the metadata
# would be larger than the rows
_MIN_ROWS = 512
_MAX_ROWS = 1 << 16
_KEY_RANGES = 8  # the maximum number of ranges of keys, and therefore of row groups, in a range of time


def split_into_row_groups(rows: pa.Table, keys: Sequence[str], constants: ConstantFields) -> tuple[pa.Table, list[int]]:
    """Return the rows of a file in the order in which they are written, and the number of rows of each row group. There
    is at least one row group. ``constants`` are the constant fields of ``rows``.
    """
    count = rows.num_rows
    groups = max(min(-(-rows.nbytes // _GROUP_BYTES), count // _MIN_ROWS), count // _MAX_ROWS, 1)
    if groups == 1:
        return rows, [count]
    key_groups, _ = group_by([one_array(rows.column(name)) for name in keys], count)
    key_ranges = min(_KEY_RANGES, key_groups.n, groups)
    starts = instants_of(rows)
    time_range_of_row = _time_ranges(starts, groups // key_ranges)
    order = np.lexsort((starts, key_groups.ids, time_range_of_row))
    time_range_of_row = time_range_of_row[order]
    ids = key_groups.ids[order]
    edges = [*np.flatnonzero(np.diff(time_range_of_row, prepend=-1)).tolist(), count]
    sizes = [size for first, last in pairwise(edges) for size in _group_sizes(ids[first:last], key_ranges).tolist()]
    return constants.reorder(rows, pa.array(order)), sizes


def _time_ranges(starts: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Divide rows into ``count`` ranges of time with about equal numbers of rows, and return the index of the range of
    each row. ``starts`` has the start of each row's window. Rows of the same window are in the same range.
    """
    edges = np.sort(starts)[np.arange(1, count) * len(starts) // count]
    range_numbers: NDArray[np.intp] = np.searchsorted(edges, starts, side="right")
    return range_numbers


def _group_sizes(ids: NDArray[np.intp], key_ranges: int) -> NDArray[np.int64]:
    """Divide the rows of a range of time into row groups, and return the number of rows of each row group. ``ids`` has
    an integer id of each row's keys, in ascending order.

    There are about ``key_ranges`` row groups of about equal size. The rows of a key are in several row groups only if
    the key has more rows than an average row group.
    """
    targets = np.arange(1, key_ranges) * len(ids) // key_ranges
    begins = np.searchsorted(ids, ids[targets], side="left")
    next_begins = np.searchsorted(ids, ids[targets], side="right")
    nearest_cuts = np.where(targets - begins <= next_begins - targets, begins, next_begins)
    is_large_key = next_begins - begins > len(ids) // key_ranges
    cuts = np.unique(np.concatenate([[0], np.where(is_large_key, targets, nearest_cuts), [len(ids)]]))
    sizes: NDArray[np.int64] = np.diff(cuts)
    return sizes
