"""Operators: arithmetic and comparisons of values that match at a moment, and set operations on series.

left  {host="a"}  ─┐  matched by labels,      series with equal labels form a group; at each moment,
right {host="a"}  ─┘  moment by moment        each side has at most one value in a group
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
    """Return the result of an arithmetic operator or a comparison. A comparison returns the values for which it is
    true: the values of the vector or, if both operands are vectors, those of ``left``. If ``as_bool`` is true, the
    comparison returns 1 or 0 for each pair of values instead.

    Series of two vectors match if they have the same values of the labels that ``grouping`` keeps. At each moment, a
    left value is combined with the matching right value. Raise `Unanswerable` if several series of one side match at a
    moment.
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
    """Return a vector with the result of ``operate`` for each left value and its match: the right value at the same
    moment in a series with equal labels.

    If ``filters`` is true, the operator is a comparison, and left values for which the comparison is false are removed.
    As in Prometheus, such a left value does not count as a match.
    """
    ids, groups = grouping.groups([*left.series, *right.series])
    on_left = ids[: len(left.series)]
    on_right = ids[len(left.series) :]
    # At a moment without left values, right values are ignored, so that several matching right values are not an error.
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
    """Return the labels of a result. ``filters`` means that the operator is a comparison that removes values. Such a
    comparison keeps the name of the metric, unless ``on`` or ``ignoring`` excludes it from matching. Other operators
    remove the name.
    """
    if filters and grouping.without:
        return {label: text for label, text in labels.items() if label not in grouping.labels}
    kept_labels = grouping.kept_labels(labels)
    return kept_labels if filters else {label: text for label, text in kept_labels.items() if label != NAME}


def _check_one(vector: Vector, ids: NDArray[np.intp], groups: Sequence[Labels], side: str) -> None:
    """Raise `Unanswerable` if two series of a group have a value at the same moment. ``ids`` has the group of each
    series, and ``groups`` the labels of each group. ``side`` is the word for ``vector`` in the message, such as "left".
    """
    clash = vector.clash(ids, len(groups))
    if clash is not None:
        raise Unanswerable(
            f"several series on the {side} side have the labels {labels_text(identity(groups[clash]))} at one moment, "
            "and series are matched one to one; aggregate that side, or match on more labels"
        )


def united(operator: str, left: Vector, right: Vector, grouping: Grouping) -> Vector:
    """Return a vector: for ``and``, the left values that have a match on the right; for ``unless``, the left values
    without a match; for ``or``, the left values, and the right values without a match.

    A series may match any number of series of the other side.
    """
    ids, labels = grouping.groups([*left.series, *right.series])
    on_left, on_right = ids[: len(left.series)], ids[len(left.series) :]
    if operator == "or":
        return _together(left, _with_mask(right, ~_groups_present(left, on_left, len(labels))[on_right]))
    matched = _groups_present(right, on_right, len(labels))[on_left]
    return _with_mask(left, matched if operator == "and" else ~matched)


def absent(vector: Vector, matchers: tuple[Matcher, ...]) -> Vector:
    """Return one series whose value is 1 at the moments at which ``vector`` has no value.

    The labels of the series are those that the matchers compare with ``=``. A second matcher of the same label removes
    the label, as in Prometheus.
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
    """Return the series of both sides. Series with equal labels are combined into one; they must not have a value at
    the same moment.
    """
    both = Vector(
        [*left.series, *right.series],
        np.concatenate([left.values, right.values]),
        np.concatenate([left.present, right.present]),
    )
    return both.relabelled(both.series)
