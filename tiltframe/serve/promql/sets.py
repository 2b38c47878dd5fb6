"""Set operators between vectors, moment by moment: which values stay, by the labels that are matched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltframe.serve.promql.cells import Vector
from tiltframe.serve.promql.labels import NAME, Grouping, Matcher, identity

SET_OPERATORS = ("and", "or", "unless")


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
