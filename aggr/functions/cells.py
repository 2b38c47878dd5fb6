"""Cells: so many counts side by side in every state, each of which adds up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.arrow.normalize import one_array
from aggr.fields import Field
from aggr.groups.groups import Groups
from aggr.groups.numbers import sum_by_group
from aggr.values import Values

_CELLS_TYPE = pa.list_(pa.int64())


@dataclass(frozen=True)
class Cells(Field):
    """The field of a state that holds counts, a list of ``size`` of them; the identity is as many zeros."""

    size: int

    def count(self, values: Values, cells: Whole) -> pa.ListArray:
        """Count the rows of each group that fall into each cell, of numbers in [0, size), by their weights."""
        groups = Groups(values.groups.ids * self.size + cells, values.groups.n * self.size)
        return self._lists(Values(values.array, groups, values.weights).counts)

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        ids = groups.ids[:, np.newaxis] * self.size + np.arange(self.size)
        return self._lists(
            sum_by_group(one_array(column).flatten().to_numpy(), Groups(ids.ravel(), groups.n * self.size))
        )

    def subtract(self, column: pa.ListArray, gone: pa.ListArray) -> pa.ListArray:
        return self._lists((self.numbers(column) - self.numbers(gone)).ravel())  # what is below 0 is no sound state

    def row_counts(self, column: pa.ListArray) -> Whole:
        counts: Whole = self.numbers(column).sum(axis=1)
        return counts

    def numbers(self, column: pa.ListArray) -> Whole:
        """Return the counts of each state, shape (states, size)."""
        counts: Whole = column.flatten().to_numpy()
        return counts.reshape(-1, self.size)

    def _lists(self, counts: Whole) -> pa.ListArray:
        offsets = np.arange(0, len(counts) + 1, self.size, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts))

    def check(self, column: pa.Array) -> None:
        if not pa.types.is_list(column.type):
            raise DamagedState(f"has type {column.type}, not {_CELLS_TYPE}")
        column = field_of_type(column, _CELLS_TYPE)
        counts = column.flatten()
        if (pc.list_value_length(column).to_numpy() != self.size).any():
            raise DamagedState(f"holds other than {self.size} counts")
        if len(counts) and (least := pc.min(counts).as_py()) < 0:
            raise DamagedState(f"counts {least}")
