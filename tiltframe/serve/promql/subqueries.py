"""Subqueries: a function of the values of an expression at the steps in ``(t - range, t]``, multiples of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiltframe.serve.promql.cells import Floats, Vector
from windows.timezone import Instants

_REDUCE: dict[str, tuple[float, Callable[[Any, Any], Any]]] = {  # what begins, and how a value is added
    "sum_over_time": (0.0, np.add),
    "avg_over_time": (0.0, np.add),
    "count_over_time": (0.0, lambda total, _: total + 1),
    "min_over_time": (np.nan, np.fmin),
    "max_over_time": (np.nan, np.fmax),
}
SUBQUERY_FUNCTIONS = tuple(_REDUCE)


def steps_before(moments: Instants, span: int, step: int) -> Instants:
    """List the multiples of a step in the ranges ``(t - span, t]`` before moments, ascending.

    >>> steps_before(np.array([100]), 30, 10)
    array([ 80,  90, 100])
    """
    return np.arange((int(moments[0]) - span) // step + 1, int(moments[-1]) // step + 1) * step


def reduced(name: str, vector: Vector, steps: Instants, moments: Instants, span: int) -> Vector:
    """Reduce the values of each range, over all series and moments at once, one step of the range after the other."""
    begin, add = _REDUCE[name]
    first, last = (np.searchsorted(steps, at, "right") for at in (moments - span, moments))
    shape = (len(vector.series), len(moments))
    values: Floats = np.full(shape, begin)
    counts = np.zeros(shape)
    for back in range(int((last - first).max(initial=0))):
        at = np.minimum(first + back, len(steps) - 1)
        present = vector.present[:, at] & (first + back < last)
        values = np.where(present, add(values, vector.values[:, at]), values)
        counts += present
    if name == "avg_over_time":
        values = np.divide(values, counts, out=np.full(shape, np.nan), where=counts > 0)
    return Vector(vector.series, values, counts > 0)
