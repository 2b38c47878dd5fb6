"""Operators between values: arithmetic and comparison of scalars and vectors, series matched one to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

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
    """Apply an operator; a comparison of a vector keeps the values for which it is true, or ``as_bool`` gives 0 and 1.

    Series of two vectors are matched by the labels that the grouping keeps; raises `Unanswerable` if several match.
    """
    filters = operator in COMPARISONS and not as_bool
    kept, present = left, None
    if isinstance(left, Vector) and isinstance(right, Vector):
        rows, others, series = _matched(left, right, grouping)
        if filters and grouping.without:  # then the name stays
            series = [{k: v for k, v in left.series[i].items() if k not in grouping.labels} for i in rows]
        kept, right = left.chosen(rows), right.chosen(others)
        present, left, right = kept.present & right.present, kept.values, right.values
        kept = Vector(series, left, present)
    elif isinstance(left, Vector):
        kept, left = left if filters else left.unnamed(), left.values
    elif isinstance(right, Vector):
        kept, right = right if filters else right.unnamed(), right.values
    with np.errstate(all="ignore"):
        values = (ARITHMETIC | COMPARISONS)[operator](left, right)
    if not isinstance(kept, Vector):
        scalar: Scalar = values.astype(np.float64)
        return scalar
    if filters:
        return Vector(kept.series, kept.values, kept.present & values)
    return Vector(kept.series, values.astype(np.float64), kept.present)


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
