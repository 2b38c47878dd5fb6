"""Cells: what an expression is over series and moments, states as long as they can be merged, then values; operators.

           moments ──▶
series   ┌──┬──┬──┬──┐     A cell without an answer is absent, as where a series has no window.
  │      ├──┼──┼──┼──┤
  ▼      └──┴──┴──┴──┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import made_here
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.metrics import HISTOGRAM, NAME, SUM, Grouping, Matcher, identity

Floats = NDArray[np.float64]
Scalar: TypeAlias = Floats  # shape (moments,)

ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "^": np.power}
ARITHMETIC |= {"atan2": np.arctan2}
COMPARISONS = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal}
COMPARISONS |= {">": np.greater, ">=": np.greater_equal}
SET_OPERATORS = ("and", "or", "unless")


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


def combined(
    operator: str, left: Scalar | Vector, right: Scalar | Vector, as_bool: bool, grouping: Grouping
) -> Scalar | Vector:
    """Apply an operator; a comparison of a vector keeps the values for which it is true, or ``as_bool`` gives 0 and 1.

    Series of two vectors are matched by the labels that the grouping keeps; raises `Unanswerable` if several match.
    """
    filters = operator in COMPARISONS and not as_bool
    kept, present = left, None
    if isinstance(left, Vector) and isinstance(right, Vector):
        there = _once(right, grouping, "right")
        here = {key: i for key, i in _once(left, grouping, "left").items() if key in there}
        rows, others = list(here.values()), [there[key] for key in here]
        series: list[Mapping[str, str]] = [dict(key) for key in here]
        if filters and grouping.without:  # then the name stays
            series = [{k: v for k, v in left.series[i].items() if k not in grouping.labels} for i in rows]
        kept, right = left.chosen(rows), right.chosen(others)
        present, left, right = kept.present & right.present, kept.values, right.values
        kept = Vector(series, left, present)
    elif isinstance(left, Vector):
        kept, left = left if filters else left.unnamed(), left.values
    elif isinstance(right, Vector):
        kept, right = right if filters else right.unnamed(), right.values
    operate: Callable[[Any, Any], Any] = (ARITHMETIC | COMPARISONS)[operator]
    with np.errstate(all="ignore"):
        values = operate(left, right)
    if not isinstance(kept, Vector):
        scalar: Scalar = values.astype(np.float64)
        return scalar
    if filters:
        return Vector(kept.series, kept.values, kept.present & values)
    return Vector(kept.series, values.astype(np.float64), kept.present)


def _once(vector: Vector, grouping: Grouping, side: str) -> dict[tuple[tuple[str, str], ...], int]:
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    for i, labels in enumerate(vector.series):
        key = identity(grouping.kept(labels))
        if key in numbers:
            texts = ", ".join(f'{name}="{text}"' for name, text in key)[:100]
            raise Unanswerable(
                f"several series on the {side} side have the labels {{{texts}}}, and series are matched one to one; "
                "aggregate that side, or match on more labels"
            )
        numbers[key] = i
    return numbers


def united(operator: str, left: Vector, right: Vector, grouping: Grouping) -> Vector:
    """Keep values of the left that have a match on the right (``and``) or none (``unless``), or add the right's others.

    Any number of series match any number.
    """
    ids, labels = grouping.groups([*left.series, *right.series])
    on_left, on_right = ids[: len(left.series)], ids[len(left.series) :]
    if operator == "or":
        return _together(left, _kept(right, ~_groups_present(left, on_left, len(labels))[on_right]))
    matched = _groups_present(right, on_right, len(labels))[on_left]
    return _kept(left, matched if operator == "and" else ~matched)


def absent(vector: Vector, matchers: tuple[Matcher, ...]) -> Vector:
    """Give 1 at the moments at which there is no value; labels are those that matchers name once, and by ``=``."""
    named = [matcher.label for matcher in matchers]
    series = {
        matcher.label: matcher.text
        for matcher in matchers
        if not (matcher.regex or matcher.negated) and named.count(matcher.label) == 1 and matcher.label != NAME
    }
    none = ~np.logical_or.reduce(vector.present)[None, :]
    return Vector([{label: text for label, text in series.items() if text}], np.ones(none.shape), none)


def _groups_present(vector: Vector, ids: NDArray[np.intp], groups: int) -> NDArray[np.bool_]:
    present = np.zeros((groups, vector.present.shape[1]), np.bool_)
    np.logical_or.at(present, ids, vector.present)
    return present


def _kept(vector: Vector, mask: NDArray[np.bool_]) -> Vector:
    present = vector.present & mask
    return Vector(vector.series, vector.values, present).chosen(np.flatnonzero(present.any(axis=1)))


def _together(left: Vector, right: Vector) -> Vector:
    """Put series below each other; those of the same labels, which have no moment in common, become one."""
    places = {identity(labels): i for i, labels in enumerate(left.series)}
    rows = np.array([places.setdefault(identity(labels), len(places)) for labels in right.series], np.intp)
    values, present = (
        np.concatenate([column, np.zeros((len(places) - len(column), column.shape[1]), column.dtype)])
        for column in (left.values, left.present)
    )
    series = [*left.series, *(dict(labels) for labels in list(places)[len(left.series) :])]
    for row, its_values, its_moments in zip(rows, right.values, right.present, strict=True):
        values[row, its_moments], present[row, its_moments] = its_values[its_moments], True
    return Vector(series, values, present)
