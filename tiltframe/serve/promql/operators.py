"""Operators: arithmetic and comparisons of matching values at a moment, and set operations on series.

left  {host="a"}  ─┐  matched by labels,      one value of each side at most
right {host="a"}  ─┘  moment by moment        in a group of equal labels
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import Floats, Scalar, Vector
from tiltframe.serve.promql.metrics import NAME, Grouping, Labels, Matcher, identity, labels_text

Operation: TypeAlias = Callable[[Any, Any], Any]

ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "^": np.power}
ARITHMETIC |= {"atan2": np.arctan2}
COMPARISONS = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal}
COMPARISONS |= {">": np.greater, ">=": np.greater_equal}
SET_OPERATORS = ("and", "or", "unless")


def combined(
    operator: str, left: Scalar | Vector, right: Scalar | Vector, as_bool: bool, grouping: Grouping
) -> Scalar | Vector:
    """Apply an operator. A comparison keeps the values for which it is true. With ``as_bool`` it returns 0 or 1
    instead.

    Series of two vectors match if the labels that the grouping keeps are equal. Matching series are combined moment by
    moment. Raise `Unanswerable` if several series of a side match at one moment.
    """
    filters = operator in COMPARISONS and not as_bool
    operate: Operation = (ARITHMETIC | COMPARISONS)[operator]
    if isinstance(left, Vector) and isinstance(right, Vector):
        return _matched(operate, left, right, filters=filters, grouping=grouping)
    with np.errstate(all="ignore"):
        values = operate(_numbers(left), _numbers(right))
    vector = left if isinstance(left, Vector) else right
    if not isinstance(vector, Vector):
        scalar: Scalar = values.astype(np.float64)
        return scalar
    if filters:
        return Vector(vector.series, vector.values, vector.present & values)
    return Vector(vector.series, values.astype(np.float64), vector.present).unnamed()


def _numbers(side: Scalar | Vector) -> Floats:
    return side.values if isinstance(side, Vector) else side


def _matched(operate: Operation, left: Vector, right: Vector, *, filters: bool, grouping: Grouping) -> Vector:
    """Apply an operator to each left value and the right value that matches it at its moment.

    As in Prometheus, a left value that the comparison removes does not count as a match.
    """
    ids, groups = grouping.groups([*left.series, *right.series])
    on_left = ids[: len(left.series)]
    on_right = ids[len(left.series) :]
    # There are matches only at moments at which a left value exists.
    asked_moments = left.present.any(axis=0)
    right = Vector(right.series, right.values, right.present & asked_moments)
    _check_one(right, on_right, groups, "right")
    right_values, right_present = right.by_group(on_right, len(groups))
    rows = np.flatnonzero(np.isin(on_left, on_right))
    left = left.chosen(rows)
    on_left = on_left[rows]
    with np.errstate(all="ignore"):
        values = operate(left.values, right_values[on_left])
    present = left.present & right_present[on_left]
    if filters:
        present &= values
    result = Vector(left.series, left.values if filters else values.astype(np.float64), present)
    _check_one(result, on_left, groups, "left")
    return result.relabelled([_labels_of_match(labels, grouping, filters) for labels in left.series])


def _labels_of_match(labels: Labels, grouping: Grouping, filters: bool) -> dict[str, str]:
    """Return the labels of a result. A filtering comparison keeps the metric's name, unless the name is excluded from
    matching.
    """
    if filters and grouping.without:
        return {label: text for label, text in labels.items() if label not in grouping.labels}
    kept_labels = grouping.kept_labels(labels)
    return kept_labels if filters else {label: text for label, text in kept_labels.items() if label != NAME}


def _check_one(vector: Vector, ids: NDArray[np.intp], groups: Sequence[Labels], side: str) -> None:
    """Raise `Unanswerable` if two series of a group have a value at the same moment."""
    clash = vector.clash(ids, len(groups))
    if clash is not None:
        raise Unanswerable(
            f"several series on the {side} side have the labels {labels_text(identity(groups[clash]))} at one moment, "
            "and series are matched one to one; aggregate that side, or match on more labels"
        )


def united(operator: str, left: Vector, right: Vector, grouping: Grouping) -> Vector:
    """Return the left values with a match on the right (``and``), the left values without a match (``unless``), or the
    values of both sides (``or``).

    Any number of series may match any number of other series.
    """
    ids, labels = grouping.groups([*left.series, *right.series])
    on_left, on_right = ids[: len(left.series)], ids[len(left.series) :]
    if operator == "or":
        return _together(left, _with_mask(right, ~_groups_present(left, on_left, len(labels))[on_right]))
    matched = _groups_present(right, on_right, len(labels))[on_left]
    return _with_mask(left, matched if operator == "and" else ~matched)


def absent(vector: Vector, matchers: tuple[Matcher, ...]) -> Vector:
    """Return 1 at the moments at which there is no value.

    The labels come from ``=`` matchers. A second matcher of the same label removes it, as in Prometheus.
    """
    series: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in matchers:
        if matcher.label == NAME:
            continue
        if matcher.regex or matcher.negated or matcher.label in seen:
            series.pop(matcher.label, None)
        else:
            series[matcher.label] = matcher.text
            seen.add(matcher.label)
    none = ~np.logical_or.reduce(vector.present)[None, :]
    return Vector([{label: text for label, text in series.items() if text}], np.ones(none.shape), none)


def _groups_present(vector: Vector, ids: NDArray[np.intp], groups: int) -> NDArray[np.bool_]:
    present = np.zeros((groups, vector.present.shape[1]), np.bool_)
    np.logical_or.at(present, ids, vector.present)
    return present


def _with_mask(vector: Vector, mask: NDArray[np.bool_]) -> Vector:
    present = vector.present & mask
    return Vector(vector.series, vector.values, present).chosen(np.flatnonzero(present.any(axis=1)))


def _together(left: Vector, right: Vector) -> Vector:
    """Concatenate series. Combine series with the same labels into one. Such series have no moment in common."""
    both = Vector(
        [*left.series, *right.series],
        np.concatenate([left.values, right.values]),
        np.concatenate([left.present, right.present]),
    )
    return both.relabelled(both.series)
