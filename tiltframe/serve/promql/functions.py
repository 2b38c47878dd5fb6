"""Functions and aggregations: what each reads of merged states, or makes of values; others are refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggr.asked_quantiles import label
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import Floats, States, Vector
from tiltframe.serve.promql.metrics import AVG, GAUGE, HISTOGRAM, LAST, MAX, MIN, SUM, Grouping
from windows.timezone import Instants

RATE, COUNTING = "rate", ("rate", "increase")
QUANTILE_OVER_TIME, HISTOGRAM_QUANTILE = "quantile_over_time", "histogram_quantile"
HISTOGRAM_FUNCTIONS = (HISTOGRAM_QUANTILE, "histogram_avg", "histogram_count", "histogram_sum")
_PARTS = {"count": SUM, "sum": SUM, "min": MIN, "max": MAX, "avg": AVG}  # of a histogram, and how each merges
OVER_TIME: Mapping[str, tuple[str, ...]] = {  # by the kind of metric
    SUM: (*COUNTING, "sum_over_time"),
    **{kind: (f"{kind}_over_time",) for kind in (MIN, MAX, AVG, LAST)},
    GAUGE: (),
    HISTOGRAM: (*COUNTING, *(f"{part}_over_time" for part in _PARTS), QUANTILE_OVER_TIME),
}
_UFUNCS: dict[str, tuple[np.ufunc, float]] = {  # what values are gathered by, and what begins
    "sum": (np.add, 0.0),
    "avg": (np.add, 0.0),
    "min": (np.fmin, np.nan),
    "max": (np.fmax, np.nan),
    "count": (np.add, 0.0),
}
AGGREGATIONS = tuple(_UFUNCS)
RANKED = ("topk", "bottomk")
SUBQUERY_FUNCTIONS = tuple(f"{name}_over_time" for name in ("sum", "avg", "count", "min", "max"))


def check_over_time(name: str, kind: str, text: str) -> None:
    """Raise `Unanswerable` unless a function of ranges is a merge of the states of a metric of this kind."""
    if name not in OVER_TIME[kind]:
        raise Unanswerable(
            f"{name}({text}) is no merge of states; of this metric these are: {', '.join(OVER_TIME[kind]) or 'none'}; "
            "of the values of windows write a subquery, [1h:1m]"
        )


def merges(aggregation: str, function: str, kind: str) -> bool:
    """Say whether an aggregation of what a function reads of ranges is a merge of the states."""
    part = function.removesuffix("_over_time")
    return aggregation == (kind if kind != HISTOGRAM else SUM if part in COUNTING else _PARTS.get(part))


def over_time(name: str, states: States, span: int, quantile: float | None, text: str) -> States | Vector:
    """Apply a function that `check_over_time` allows to states merged over ranges of a length in microseconds."""
    if quantile is not None:
        return quantile_of(states, quantile)
    if name == RATE:
        return replace(states, per=span / 1e6)
    if states.kind == HISTOGRAM and name not in COUNTING:
        return part_of(states, name.removesuffix("_over_time"), text)
    return states


def part_of(states: States, part: str, text: str) -> States:
    """Read a part of histograms: count, sum, min, max or avg."""
    field, kind = "mean" if part == "avg" else part, _PARTS[part]
    if field not in [each.name for each in states.reader.result_type(states.states.type)]:
        raise Unanswerable(f"{text} keeps no {part}: its states are those of {states.reader.name}")
    return replace(states, path=(field,), kind=kind, per=states.per if kind == SUM else 1.0)


def quantile_of(states: States, quantile: float) -> Vector | States:
    """Read a quantile of histograms, as the sketch has it; below 0 and above 1 it is infinite, as in Prometheus."""
    if 0.0 <= quantile <= 1.0:
        reader = replace(states.reader, quantiles=(quantile,))  # type: ignore[call-arg]
        return replace(states, reader=reader, path=("quantiles", label(quantile)), kind=GAUGE, per=1.0)
    beyond = math.nan if math.isnan(quantile) else math.copysign(math.inf, quantile)
    return Vector(states.series, np.full(states.present().shape, beyond), states.present())


def aggregated(name: str, vector: Vector, grouping: Grouping) -> Vector:
    """Aggregate by ``sum``, ``avg``, ``min``, ``max`` or ``count``."""
    ids, labels = grouping.groups(vector.series)
    counts = _gathered(np.add, 0.0, vector.present, ids, len(labels))
    if name == "count":
        return Vector(labels, counts, counts > 0)
    ufunc, begin = _UFUNCS[name]
    values = _gathered(ufunc, begin, np.where(vector.present, vector.values, begin), ids, len(labels))
    return Vector(labels, _mean(values, counts) if name == "avg" else values, counts > 0)


def _mean(sums: Floats, counts: Floats) -> Any:
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _gathered(ufunc: np.ufunc, begin: float, cells: NDArray[Any], ids: NDArray[np.intp], groups: int) -> Any:
    values = np.full((groups, cells.shape[1]), begin)
    ufunc.at(values, ids, cells)
    return values


def quantile(vector: Vector, grouping: Grouping, q: float) -> Vector:
    """Find the quantile of the values in each group, between two of them as Prometheus has it."""
    ids, labels = grouping.groups(vector.series)
    counts = _gathered(np.add, 0.0, vector.present, ids, len(labels))
    values = np.full(counts.shape, np.nan if np.isnan(q) else np.copysign(np.inf, q))
    for group in range(len(labels)) if 0 <= q <= 1 else ():
        rows = np.flatnonzero(ids == group)
        ordered = np.sort(np.where(vector.present[rows], vector.values[rows], np.nan), axis=0)  # absent ones are last
        last = np.maximum(counts[group] - 1, 0)
        low, weight = np.divmod(q * last, 1)
        at, moments = low.astype(np.int64), np.arange(len(low))
        after = np.minimum(at + 1, last).astype(np.int64)
        values[group] = ordered[at, moments] * (1 - weight) + ordered[after, moments] * weight
    return Vector(labels, values, counts > 0)


def ranked(name: str, vector: Vector, grouping: Grouping, k: float) -> Vector:
    """Keep the k greatest (``topk``) or least (``bottomk``) values of each group and moment; NaN comes last."""
    ids, _ = grouping.groups(vector.series)
    values = -vector.values if name == "topk" else vector.values
    order = np.lexsort((values, ~vector.present), axis=0)
    order = np.take_along_axis(order, np.argsort(ids[order], axis=0, kind="stable"), axis=0)
    sizes = np.bincount(ids, minlength=1)
    rank = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    among = np.zeros_like(vector.present)
    np.put_along_axis(among, order, np.broadcast_to((rank < np.trunc(k))[:, None], order.shape), axis=0)
    kept = Vector(vector.series, vector.values, vector.present & among)
    rows = order[:, 0] if order.shape[1:] == (1,) else np.arange(len(ids))  # at one moment in the order of values
    return kept.chosen(rows[kept.present[rows].any(axis=1)])


def steps_before(moments: Instants, span: int, step: int) -> Instants:
    """List the multiples of a step in the ranges ``(t - span, t]`` before moments, ascending.

    >>> steps_before(np.array([100]), 30, 10)
    array([ 80,  90, 100])
    """
    return np.arange((int(moments[0]) - span) // step + 1, int(moments[-1]) // step + 1) * step


def reduced(name: str, vector: Vector, steps: Instants, moments: Instants, span: int) -> Vector:
    """Reduce the values of each range, over all series and moments at once, one step of the range after the other."""
    kind = name.removesuffix("_over_time")
    ufunc, begin = _UFUNCS[kind]
    first, last = (np.searchsorted(steps, at, "right") for at in (moments - span, moments))
    shape = (len(vector.series), len(moments))
    values: Floats = np.full(shape, begin)
    counts = np.zeros(shape)
    for back in range(int((last - first).max(initial=0))):
        at = np.minimum(first + back, len(steps) - 1)
        present = vector.present[:, at] & (first + back < last)
        if kind != "count":
            values = np.where(present, ufunc(values, vector.values[:, at]), values)
        counts += present
    if kind == "count":
        return Vector(vector.series, counts, counts > 0)
    return Vector(vector.series, _mean(values, counts) if kind == "avg" else values, counts > 0)
