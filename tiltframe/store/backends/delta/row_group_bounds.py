"""Bounds of row groups: the statistics of a file as arrays, so that a query finds the row groups that it needs without
decoding the footer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from tiltframe.event_time import INSTANT
from tiltframe.names import START
from tiltframe.ranges import Range
from tiltframe.store.backends.key_bounds import KeyBound


@dataclass(frozen=True, eq=False)
class RowGroupBounds:
    """For each row group of a file: the number of its rows, and the smallest and the largest value of some columns.

    ``lowest`` and ``highest`` have an array for each column with statistics, shape (row groups,). An entry is null if a
    row group has no statistics of the column.
    """

    row_counts: NDArray[np.int64]
    lowest: Mapping[str, pa.Array]
    highest: Mapping[str, pa.Array]

    @classmethod
    def from_footer(cls, footer: pq.FileMetaData, schema: pa.Schema, columns: Sequence[str]) -> RowGroupBounds:
        """Return the bounds of ``columns`` in a file. ``schema`` is the schema of the file. Columns that the file does
        not store as one column of plain values, such as structs, have no bounds.
        """
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
        lowest = dict[str, pa.Array]()
        highest = dict[str, pa.Array]()
        for name in columns:
            if name not in places:
                continue
            statistics = [group.column(places[name]).statistics for group in groups]
            extremes = [
                (entry.min, entry.max) if entry is not None and entry.has_min_max else (None, None)
                for entry in statistics
            ]
            dtype = schema.field(name).type
            lowest[name], highest[name] = (pa.array([pair[side] for pair in extremes], dtype) for side in (0, 1))
        row_counts = np.array([group.num_rows for group in groups], np.int64)
        return cls(row_counts, lowest, highest)

    def select_row_groups(self, span: Range | None, bounds: Sequence[KeyBound]) -> list[int]:
        """Return the indices of row groups, in ascending order. A row group is selected if it may contain rows whose
        windows start in ``span`` and whose keys lie within all ``bounds``. If ``span`` equals None, windows may start
        at any time.
        """
        is_selected = np.ones(len(self.row_counts), np.bool_)
        if span is not None and START in self.lowest:
            low, high = pa.array([span[0], span[1] - 1], pa.int64()).cast(INSTANT)
            is_selected &= self._overlaps(START, low, high)
        for bound in bounds:
            if bound.key not in self.lowest or self.lowest[bound.key].type != bound.dtype:
                continue
            is_selected &= self._overlaps(bound.key, bound.low, bound.high)
            if bound.values is not None:
                has_value = np.zeros(len(is_selected), np.bool_)
                for value in bound.values:
                    has_value |= self._overlaps(bound.key, value, value)
                is_selected &= has_value
        selected: list[int] = np.flatnonzero(is_selected).tolist()
        return selected

    def _overlaps(self, name: str, low: pa.Scalar | None, high: pa.Scalar | None) -> NDArray[np.bool_]:
        """Return, for each row group, whether it may contain values of a column between ``low`` and ``high``."""
        may_overlap = np.ones(len(self.row_counts), np.bool_)
        if low is not None:
            may_overlap &= _null_as_true(pc.greater_equal(self.highest[name], low))
        if high is not None:
            may_overlap &= _null_as_true(pc.less_equal(self.lowest[name], high))
        return may_overlap


def _null_as_true(comparison: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return the result of a comparison as a mask. Null, which stands for an unknown result, becomes true."""
    without_null = pc.fill_null(comparison, True) if comparison.null_count else comparison
    mask: NDArray[np.bool_] = without_null.to_numpy(zero_copy_only=False)
    return mask
