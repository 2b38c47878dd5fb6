"""Layout: the order of rows in a file. Queries for a range of time, and queries for a few keys, read only a part of the
file.

    slab of time 1                    slab 2                  …
    keys a–c | keys d–f | … keys x–z  keys a–c | …               each is a row group, sorted by keys, then time

Parquet stores the minimum and maximum of each column of a row group. A key is in one row group of each slab, and a
moment is in all row groups of one slab.
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

_GROUP_BYTES = 1 << 20  # the approximate bytes of states in a row group; each row group costs time for every column
# the approximate minimum of rows in a row group; smaller groups would be mostly metadata
_FEWEST_ROWS, _MOST_ROWS = 512, 1 << 16
_SHARES = 8  # the row groups of a slab with enough keys: reading one key reads an eighth of the slab


def laid_out(rows: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Sort the rows of a file for the layout. Return the sorted rows and the sizes of the row groups, of which there is
    at least one.
    """
    count = rows.num_rows
    groups = max(min(-(-rows.nbytes // _GROUP_BYTES), count // _FEWEST_ROWS), count // _MOST_ROWS, 1)
    if groups == 1:
        return rows, [count]
    key, _ = group_by([one_array(rows.column(name)) for name in keys], count)
    shares = min(_SHARES, key.n, groups)
    starts = instants_of(rows)
    slab = _slabs(starts, groups // shares)
    order = np.lexsort((starts, key.ids, slab))
    slab, ids = slab[order], key.ids[order]
    edges = [*np.flatnonzero(np.diff(slab, prepend=-1)).tolist(), count]
    sizes = [size for first, last in pairwise(edges) for size in _cut(ids[first:last], shares).tolist()]
    return rows.take(pa.array(order)), sizes


def _slabs(starts: NDArray[np.int64], slabs: int) -> NDArray[np.intp]:
    """Return the slab of time of each row. Slabs have approximately equal numbers of rows, and never split a window."""
    edges = np.sort(starts)[np.arange(1, slabs) * len(starts) // slabs]
    slab_numbers: NDArray[np.intp] = np.searchsorted(edges, starts, side="right")
    return slab_numbers


def _cut(ids: NDArray[np.intp], shares: int) -> NDArray[np.int64]:
    """Return the places at which sorted keys are cut into groups of approximately equal size. Small keys are not
    split.
    """
    targets = np.arange(1, shares) * len(ids) // shares
    begins = np.searchsorted(ids, ids[targets], side="left")
    next_begins = np.searchsorted(ids, ids[targets], side="right")
    near = np.where(targets - begins <= next_begins - targets, begins, next_begins)
    large = next_begins - begins > len(ids) // shares
    cuts = np.unique(np.concatenate([[0], np.where(large, targets, near), [len(ids)]]))
    sizes: NDArray[np.int64] = np.diff(cuts)
    return sizes
