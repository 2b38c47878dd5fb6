"""Cells: the value of an expression over series and moments, as states while they can be merged, then as numbers.

           moments ──▶
series   ┌──┬──┬──┬──┐     A cell is absent if the series has no window there, or if its windows have no value:
  │      ├──┼──┼──┼──┤     a null result is never a cell.
  ▼      └──┴──┴──┴──┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import made_here
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.metrics import (
    HISTOGRAM,
    NAME,
    SUM,
    Grouping,
    Labels,
    identity,
    labels_text,
    part_of_results,
    valued,
)

Floats = NDArray[np.float64]
Scalar: TypeAlias = Floats  # shape (moments,)


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
        """Drop the names of metrics; raises `Unanswerable` as `relabelled`."""
        series = [{label: text for label, text in labels.items() if label != NAME} for labels in self.series]
        names = {labels.get(NAME) for labels in self.series}
        return replace(self, series=series) if len(names) <= 1 else self.relabelled(series)

    def relabelled(self, series: Sequence[Labels]) -> Vector:
        """Give each series other labels; series whose labels become equal are joined.

        Raises `Unanswerable` if two of them have a value at one moment, as Prometheus does.
        """
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        ids = np.array([numbers.setdefault(identity(labels), len(numbers)) for labels in series], np.intp)
        if len(numbers) == len(series):
            return replace(self, series=series)
        clash = self.clash(ids, len(numbers))
        if clash is not None:
            text = labels_text(list(numbers)[clash])
            raise Unanswerable(
                f"several series of the result have the labels {text} at one moment, because a name of a metric or "
                "other labels are dropped; aggregate them, or keep the labels apart"
            )
        return Vector([dict(labels) for labels in numbers], *self.by_group(ids, len(numbers)))

    def chosen(self, rows: Sequence[int] | NDArray[np.intp]) -> Vector:
        """Choose series."""
        return Vector([self.series[i] for i in rows], self.values[rows], self.present[rows])

    def clash(self, ids: NDArray[np.intp], groups: int) -> int | None:
        """Return the first group in which two series have a value at one moment."""
        if len(np.unique(ids)) == len(ids):
            return None
        moments = self.present.shape[1]
        series, moment = np.nonzero(self.present)
        twice = np.flatnonzero(np.bincount(ids[series] * moments + moment, minlength=groups * moments) > 1)
        return int(twice[0]) // moments if len(twice) else None

    def by_group(self, ids: NDArray[np.intp], groups: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values and presence, shape (groups, moments), of groups of series without a clash."""
        shape = groups, self.present.shape[1]
        values: Floats = np.full(shape, np.nan)
        present = np.zeros(shape, np.bool_)
        if len(np.unique(ids)) == len(ids):
            values[ids] = self.values
            present[ids] = self.present
        else:
            series, moment = np.nonzero(self.present)
            values[ids[series], moment] = self.values[series, moment]
            present[ids[series], moment] = True
        return values, present


@dataclass(frozen=True)
class States:
    """States over series and moments."""

    series: Sequence[Mapping[str, str]]
    moments: int  # how many
    cells: NDArray[np.int64]  # the place ``series · moments + moment`` of each state, ascending
    states: pa.StructArray
    function: Function  # that merges them
    reader: Function  # that reads them; its quantiles may differ from the measure's
    path: tuple[str, ...]  # of the fields that lead to values in its results
    kind: str  # of `tiltframe.serve.promql.metrics`: which aggregation is a merge
    per: float = 1.0  # what sums are divided by, the seconds of a rate
    known_results: pa.Array | None = None  # of the reader, one for each state, if they have been computed

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
        return replace(self, series=labels, cells=cells, states=states, known_results=None)

    def read_by(self, reader: Function, path: tuple[str, ...], kind: str) -> States:
        """Read the states by another function of the same states, such as one of other quantiles."""
        return replace(self, reader=reader, path=path, kind=kind, per=1.0, known_results=None).with_values()

    def with_values(self) -> States:
        """Leave out the cells whose result is null."""
        valid, results = valued(self.states, self.reader, self.path, self.kind)
        kept_cells = np.flatnonzero(valid)
        if len(kept_cells) == len(valid):
            return replace(self, known_results=results)
        places = pa.array(kept_cells)
        return replace(
            self,
            cells=self.cells[kept_cells],
            states=self.states.take(places),
            known_results=None if results is None else results.take(places),
        )

    def values(self) -> Vector:
        """Read the values."""
        results = self.known_results
        if results is None:
            results = self.reader.finish(made_here(self.states))
        numbers = pc.cast(part_of_results(results, self.path), pa.float64(), safe=False)
        values = np.full(len(self.series) * self.moments, np.nan)
        values[self.cells] = numbers.to_numpy(zero_copy_only=False) / self.per
        present = self.present()
        return Vector(self.series, values.reshape(present.shape), present)
