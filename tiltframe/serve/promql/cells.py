"""Cells: what an expression is over series and moments; states as long as they can be merged, then values.

           moments ──▶
series   ┌──┬──┬──┬──┐     A cell without an answer is absent, as where a series has no window.
  │      ├──┼──┼──┼──┤
  ▼      └──┴──┴──┴──┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import made_here
from tiltframe.serve.promql.labels import NAME, Grouping
from tiltframe.serve.promql.metrics import HISTOGRAM, SUM

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Vector:
    """Values, shape (series, moments), and which of them are present; the labels of series differ."""

    series: Sequence[Mapping[str, str]]
    values: Floats
    present: NDArray[np.bool_]

    @classmethod
    def empty(cls, moments: int) -> Vector:
        """Make one without series."""
        return cls([], np.zeros((0, moments)), np.zeros((0, moments), np.bool_))

    def unnamed(self) -> Vector:
        """Drop the names of metrics."""
        return replace(self, series=[{k: v for k, v in each.items() if k != NAME} for each in self.series])

    def chosen(self, rows: Sequence[int] | NDArray[np.intp]) -> Vector:
        """Choose series."""
        return Vector([self.series[i] for i in rows], self.values[rows], self.present[rows])


@dataclass(frozen=True)
class States:
    """States over series and moments."""

    series: Sequence[Mapping[str, str]]
    moments: int  # how many
    cells: NDArray[np.int64]  # the place ``series · moments + moment`` of each state, ascending
    states: pa.StructArray
    function: Function  # that merges them
    reader: Function  # that reads them, perhaps by other quantiles than the measure's
    path: tuple[str, ...]  # of the fields that lead to values in its results
    kind: str  # of `tiltframe.serve.promql.metrics`: which aggregation is a merge
    per: float = 1.0  # what sums are divided by, the seconds of a rate

    @property
    def merged_by(self) -> str:
        """The aggregation that merges them."""
        return SUM if self.kind == HISTOGRAM else self.kind

    def present(self) -> NDArray[np.bool_]:
        """Say which cells there are, shape (series, moments)."""
        mask = np.zeros(len(self.series) * self.moments, np.bool_)
        mask[self.cells] = True
        return mask.reshape(len(self.series), self.moments)

    def merged(self, grouping: Grouping) -> States:
        """Merge series: the very states that their rows would have given together."""
        ids, labels = grouping.groups(self.series)
        row, moment = np.divmod(self.cells, self.moments)
        cells, groups = np.unique(ids[row] * self.moments + moment, return_inverse=True)
        states = self.function.merge(made_here(self.states), Groups.of(groups, len(cells))).states
        return replace(self, series=labels, cells=cells, states=states)

    def values(self) -> Vector:
        """Read the values: where a state has none, its cell is absent."""
        results = self.reader.finish(made_here(self.states))
        if self.path:
            results = pc.struct_field(results, list(self.path))
        valid = results.is_valid().to_numpy(zero_copy_only=False)
        values, present = np.full(self.present().shape, np.nan), self.present()
        values.flat[self.cells] = pc.cast(results, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        present.flat[self.cells[~valid]] = False
        return Vector(self.series, values if self.per == 1.0 else values / self.per, present)
