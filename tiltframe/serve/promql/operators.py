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


def apply_operator(
    operator: str, left: Scalar | Vector, right: Scalar | Vector, as_bool: bool, grouping: Grouping
) -> Scalar | Vector:
    """Return the result of an arithmetic operator or a comparison. A comparison returns the values for which it is
    true: the values of the vector or, if both operands are vectors, those of ``left``. If ``as_bool`` is true, the
    comparison returns 1 or 0 for each pair of values instead.

    Series of two vectors match if they have the same values of the labels that ``grouping`` keeps. At each moment, a
    left value is combined with the matching right value. Raise `Unanswerable` if several series of one side match at a
    moment.
    """
    is_filter = operator in COMPARISONS and not as_bool
    operate: Operation = (ARITHMETIC | COMPARISONS)[operator]
    if isinstance(left, Vector) and isinstance(right, Vector):
        return _apply_to_matches(operate, left, right, is_filter=is_filter, grouping=grouping)
    with np.errstate(all="ignore"):
        values = operate(_numbers(left), _numbers(right))
    vector = left if isinstance(left, Vector) else right
    if not isinstance(vector, Vector):
        scalar: Scalar = values.astype(np.float64)
        return scalar
    if is_filter:
        return Vector(vector.series, vector.values, vector.present & values)
    return Vector(vector.series, values.astype(np.float64), vector.present).without_metric_name()


def _numbers(side: Scalar | Vector) -> Floats:
    return side.values if isinstance(side, Vector) else side


def _apply_to_matches(
    operate: Operation, left: Vector, right: Vector, *, is_filter: bool, grouping: Grouping
) -> Vector:
    """Return a vector with the result of ``operate`` for each left value and its match. The match is the right value at
    the same moment in a series with the same values of the labels that ``grouping`` keeps.

    If ``is_filter`` is true, the operator is a comparison, and left values for which the comparison is false are
    removed. Raise `Unanswerable` if several left values have the same match. As in Prometheus, the removed left values
    do not count in this check.
    """
    ids, groups = grouping.groups([*left.series, *right.series])
    left_groups = ids[: len(left.series)]
    right_groups = ids[len(left.series) :]
    # At a moment without left values, right values are ignored, so that several matching right values are not an error.
    moments_with_left_values = left.present.any(axis=0)
    right = Vector(right.series, right.values, right.present & moments_with_left_values)
    _check_one_series(right, right_groups, groups, "right")
    right_values, right_present = right.combine_groups(right_groups, len(groups))
    rows = np.flatnonzero(np.isin(left_groups, right_groups))
    left = left.select_series(rows)
    left_groups = left_groups[rows]
    with np.errstate(all="ignore"):
        values = operate(left.values, right_values[left_groups])
    present = left.present & right_present[left_groups]
    if is_filter:
        present &= values
    result = Vector(left.series, left.values if is_filter else values.astype(np.float64), present)
    _check_one_series(result, left_groups, groups, "left")
    return result.with_labels([_labels_of_match(labels, grouping, is_filter) for labels in left.series])


def _labels_of_match(labels: Labels, grouping: Grouping, is_filter: bool) -> dict[str, str]:
    """Return the labels of a result. ``is_filter`` means that the operator is a comparison that removes values. Such a
    comparison keeps the name of the metric, unless ``on`` or ``ignoring`` excludes the name from matching. Other
    operators remove the name.
    """
    if is_filter and grouping.without:
        return {label: text for label, text in labels.items() if label not in grouping.labels}
    kept_labels = grouping.kept_labels(labels)
    return kept_labels if is_filter else {label: text for label, text in kept_labels.items() if label != NAME}


def _check_one_series(vector: Vector, ids: NDArray[np.intp], groups: Sequence[Labels], side: str) -> None:
    """Raise `Unanswerable` if two series of a group have a value at the same moment. ``ids`` has the group of each
    series, and ``groups`` the labels of each group. ``side`` is the word for ``vector`` in the message, such as "left".
    """
    clash = vector.find_clash(ids, len(groups))
    if clash is not None:
        raise Unanswerable(
            f"several series on the {side} side have the labels {labels_text(identity(groups[clash]))} at one moment, "
            "and series are matched one to one; aggregate that side, or match on more labels"
        )


def apply_set_operator(operator: str, left: Vector, right: Vector, grouping: Grouping) -> Vector:
    """Return a vector: for ``and``, the left values that have a match on the right; for ``unless``, the left values
    without a match; for ``or``, the left values, and the right values without a match.

    A series may match any number of series of the other side.
    """
    ids, labels = grouping.groups([*left.series, *right.series])
    left_groups = ids[: len(left.series)]
    right_groups = ids[len(left.series) :]
    if operator == "or":
        return _concatenate(left, _with_mask(right, ~_presence_by_group(left, left_groups, len(labels))[right_groups]))
    matched = _presence_by_group(right, right_groups, len(labels))[left_groups]
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
    is_absent = ~np.logical_or.reduce(vector.present)[None, :]
    return Vector([{label: text for label, text in series.items() if text}], np.ones(is_absent.shape), is_absent)


def _presence_by_group(vector: Vector, ids: NDArray[np.intp], groups: int) -> NDArray[np.bool_]:
    present = np.zeros((groups, vector.present.shape[1]), np.bool_)
    np.logical_or.at(present, ids, vector.present)
    return present


def _with_mask(vector: Vector, mask: NDArray[np.bool_]) -> Vector:
    present = vector.present & mask
    return Vector(vector.series, vector.values, present).select_series(np.flatnonzero(present.any(axis=1)))


def _concatenate(left: Vector, right: Vector) -> Vector:
    """Return the series of both sides. Series with equal labels are combined into one; they must not have a value at
    the same moment.
    """
    vector = Vector(
        [*left.series, *right.series],
        np.concatenate([left.values, right.values]),
        np.concatenate([left.present, right.present]),
    )
    return vector.with_labels(vector.series)
