"""Cells: the values of an expression, one for each series and moment. A moment is a time at which the expression is
evaluated. A cell contains a state until an operation needs a number; the state is then converted to a number.

           moments ──▶
series   ┌──┬──┬──┬──┐     A cell is absent if the series has no window at the moment, or if the result of its
  │      ├──┼──┼──┼──┤     windows is null.
  ▼      └──┴──┴──┴──┘
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend import Function, Groups
from aggr.extend.columns import compute as pc
from aggr.extend.tables import mark_as_checked
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.classic_buckets import LE, Bounds, bucket_counts, is_sketch
from tiltframe.serve.promql.kinds import BUCKETS, merge_of
from tiltframe.serve.promql.metrics import (
    NAME,
    Grouping,
    Labels,
    identity,
    labels_text,
    part_of_results,
    results_and_presence,
)

Floats = NDArray[np.float64]
Scalar: TypeAlias = Floats  # an array of shape (moments,): one number for each moment


@dataclass(frozen=True)
class Vector:
    """Numbers by series and moment. ``values`` and ``present`` have the shape (series, moments). ``present`` is a mask
    of the values that exist. ``series`` has the labels of each series. Two series never have equal labels.
    """

    series: Sequence[Mapping[str, str]]
    values: Floats
    present: NDArray[np.bool_]

    @classmethod
    def empty(cls, moment_count: int) -> Vector:
        """Return a vector without series, for ``moment_count`` moments."""
        return cls([], np.zeros((0, moment_count)), np.zeros((0, moment_count), np.bool_))

    def without_metric_name(self) -> Vector:
        """Return the vector without the label for the name of the metric. Raise `Unanswerable` if two series then have
        equal labels, and have a value at the same moment.
        """
        series = [{label: text for label, text in labels.items() if label != NAME} for labels in self.series]
        names = {labels.get(NAME) for labels in self.series}
        return replace(self, series=series) if len(names) <= 1 else self.with_labels(series)

    def with_labels(self, series: Sequence[Labels]) -> Vector:
        """Return the vector with the labels ``series``. Series with equal labels are combined into one.

        Like Prometheus, raise `Unanswerable` if two such series have a value at the same moment.
        """
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        ids = np.array([numbers.setdefault(identity(labels), len(numbers)) for labels in series], np.intp)
        if len(numbers) == len(series):
            return replace(self, series=series)
        clash = self.find_clash(ids, len(numbers))
        if clash is not None:
            text = labels_text(list(numbers)[clash])
            raise Unanswerable(
                f"several series of the result have the labels {text} at one moment, because the expression removes "
                "the name of the metric or other labels; aggregate the series, or keep a label that distinguishes them"
            )
        return Vector([dict(labels) for labels in numbers], *self.combine_groups(ids, len(numbers)))

    def select_series(self, rows: Sequence[int] | NDArray[np.intp]) -> Vector:
        """Return a vector of the series at the indices ``rows``."""
        return Vector([self.series[i] for i in rows], self.values[rows], self.present[rows])

    def find_clash(self, ids: NDArray[np.intp], group_count: int) -> int | None:
        """Return the first group in which two series have a value at the same moment, or None if there is no such
        group. ``ids`` has the group of each series, from 0 to ``group_count`` - 1.
        """
        if len(np.unique(ids)) == len(ids):
            return None
        moment_count = self.present.shape[1]
        series, moment = np.nonzero(self.present)
        twice = np.flatnonzero(
            np.bincount(ids[series] * moment_count + moment, minlength=group_count * moment_count) > 1
        )
        return int(twice[0]) // moment_count if len(twice) else None

    def combine_groups(self, ids: NDArray[np.intp], group_count: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Combine the series of each group. Return the values of the groups, and a mask of the values that exist, both
        of shape (group_count, moments). ``ids`` has the group of each series. Of the series in a group, at most one may
        have a value at a moment.
        """
        shape = group_count, self.present.shape[1]
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
    """States by series and moment. Aggregations of an expression can merge them, and `values` converts them to
    numbers.
    """

    series: Sequence[Mapping[str, str]]
    moment_count: int
    # the cell of each state, as the number ``i · moment_count + j``, where i is the index of the series and j the index
    # of the moment; in ascending order
    cells: NDArray[np.int64]
    states: pa.StructArray
    # the function that merges the states
    function: Function
    # the function that computes results from the states; its quantiles may differ from those of the measure
    result_function: Function
    # the path to the values in the results of ``result_function``: the names of nested fields, the outermost first
    path: tuple[str, ...]
    # a kind in `tiltframe.serve.promql.kinds`, which determines the aggregations that merge states
    kind: str
    # the number by which the results are divided: for rates, the length of the range in seconds; otherwise 1
    divisor: float = 1.0
    # if ``kind`` is `BUCKETS`, the bounds of the buckets, with one series for each bound; otherwise empty
    bounds: Bounds = field(default_factory=dict)
    # the result of ``result_function`` for each state, or None if the results were not computed yet
    known_results: pa.Array | None = None

    def can_be_merged_for(self, aggregation: str, grouping: Grouping) -> bool:
        """Return whether an aggregation of the values of series can be computed by merging the states of the series."""
        merge = merge_of(self.kind)
        return merge is not None and aggregation == merge[1] and (self.kind != BUCKETS or grouping.keeps(LE))

    @property
    def has_all_buckets(self) -> bool:
        """Whether the values are the counts of a sketch's buckets, and one of the buckets has the bound infinity. A
        quantile can then be computed.
        """
        return self.kind == BUCKETS and math.inf in self.bounds.values() and is_sketch(self.result_function)

    def present(self) -> NDArray[np.bool_]:
        """Return a mask of the cells that have a state, of shape (series, moments)."""
        mask = np.zeros(len(self.series) * self.moment_count, np.bool_)
        mask[self.cells] = True
        return mask.reshape(len(self.series), self.moment_count)

    def merged(self, grouping: Grouping) -> States:
        """Return the merged states of each group of series at each moment: the state of all rows of the group."""
        ids, labels = grouping.groups(self.series)
        row, moment = np.divmod(self.cells, self.moment_count)
        cells, groups = np.unique(ids[row] * self.moment_count + moment, return_inverse=True)
        states = self.function.merge(mark_as_checked(self.states), Groups.of(groups, len(cells))).states
        return replace(self, series=labels, cells=cells, states=states, known_results=None)

    def with_result_function(self, result_function: Function, path: tuple[str, ...], kind: str) -> States:
        """Return the same states with another ``result_function``, such as a function that computes other quantiles.
        Cells whose result is null are removed. ``path`` and ``kind`` are the new values of the attributes with these
        names.
        """
        return replace(
            self, result_function=result_function, path=path, kind=kind, divisor=1.0, known_results=None
        ).with_values()

    def with_values(self) -> States:
        """Return the states without the cells whose result is null."""
        valid, results = results_and_presence(self.states, self.result_function, self.path, self.kind)
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
        """Return the values of the states as a vector, such as means or rates."""
        if self.kind == BUCKETS:
            return self._bucket_values()
        results = self.known_results
        if results is None:
            results = self.result_function.finish(mark_as_checked(self.states))
        numbers = pc.cast(part_of_results(results, self.path), pa.float64(), safe=False)
        values = np.full(len(self.series) * self.moment_count, np.nan)
        values[self.cells] = numbers.to_numpy(zero_copy_only=False) / self.divisor
        present = self.present()
        return Vector(self.series, values.reshape(present.shape), present)

    def _bucket_values(self) -> Vector:
        """Return the number of values up to each bound, as a vector. The vector has one series for each series of the
        states and each bound.
        """
        values = np.full((len(self.series), len(self.bounds), self.moment_count), np.nan)
        row, moment = np.divmod(self.cells, self.moment_count)
        values[row, :, moment] = bucket_counts(self.states, self.result_function, self.bounds) / self.divisor
        series = [{**labels, LE: text} for labels in self.series for text in self.bounds]
        present = np.repeat(self.present(), len(self.bounds), axis=0)
        return Vector(series, values.reshape(present.shape), present)
