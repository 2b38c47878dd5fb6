"""Operators between values: arithmetic and comparison of scalars and vectors, series matched one to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tiltframe.serve.promql.cells import Floats, Vector
from tiltframe.serve.promql.errors import Unanswerable
from tiltframe.serve.promql.labels import Grouping, identity

Scalar: TypeAlias = Floats  # shape (moments,)

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def combined(
    operator: str, left: Scalar | Vector, right: Scalar | Vector, as_bool: bool, grouping: Grouping
) -> Scalar | Vector:
    """Apply an operator.

    Parameters
    ----------
    operator : str
        Of `ARITHMETIC` or `COMPARISONS`.
    left, right : array of float64, shape (moments,), or Vector
    as_bool : bool
        Whether a comparison gives 0 and 1 in place of the values for which it is true.
    grouping : Grouping
        The labels by which series of two vectors are matched.

    Raises
    ------
    Unanswerable
        If several series of a side match.
    """
    if isinstance(left, Vector) and isinstance(right, Vector):
        rows, others, series = _matched(left, right, grouping)
        if operator in COMPARISONS and not as_bool and grouping.without:  # a filter: the name stays
            series = [{k: v for k, v in left.series[i].items() if k not in grouping.labels} for i in rows]
        first, second = left.chosen(rows), right.chosen(others)
        present = first.present & second.present
        return _computed(operator, first.values, second.values, first.values, present, series, as_bool)
    for vector in (left, right):
        if isinstance(vector, Vector):
            sides = [side.values if isinstance(side, Vector) else side[None, :] for side in (left, right)]
            filters = operator in COMPARISONS and not as_bool
            named = vector.series if filters else vector.unnamed().series
            return _computed(operator, sides[0], sides[1], vector.values, vector.present, named, as_bool)
    with np.errstate(all="ignore"):
        scalars: Scalar = (ARITHMETIC | COMPARISONS)[operator](left, right).astype(np.float64)
    return scalars


def _computed(
    operator: str,
    left: Floats,
    right: Floats,
    kept: Floats,
    present: NDArray[np.bool_],
    series: Sequence[Mapping[str, str]],
    as_bool: bool,
) -> Vector:
    with np.errstate(all="ignore"):
        if operator in ARITHMETIC:
            return Vector(series, ARITHMETIC[operator](left, right), present)
        true = COMPARISONS[operator](left, right)
    if as_bool:
        return Vector(series, true.astype(np.float64), present)
    return Vector(series, kept, present & true)


def _matched(left: Vector, right: Vector, grouping: Grouping) -> tuple[list[int], list[int], list[Mapping[str, str]]]:
    """Match series one to one: those of the left, those of the right, and the labels of each pair."""
    there = _once(right, grouping, "right")
    pairs = [(i, there[key], dict(key)) for key, i in _once(left, grouping, "left").items() if key in there]
    return [i for i, _, _ in pairs], [j for _, j, _ in pairs], [labels for _, _, labels in pairs]


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
