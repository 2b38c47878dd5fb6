"""Functions: what each reads of the merged states of a range, or of a histogram; others are refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from aggr.asked_quantiles import label
from tiltframe.serve.promql.cells import States, Vector
from tiltframe.serve.promql.errors import Unanswerable
from tiltframe.serve.promql.metrics import AVG, GAUGE, HISTOGRAM, LAST, MAX, MIN, SUM

RATE, COUNTING = "rate", ("rate", "increase")
QUANTILE_OVER_TIME, HISTOGRAM_QUANTILE = "quantile_over_time", "histogram_quantile"
HISTOGRAM_FUNCTIONS = (HISTOGRAM_QUANTILE, "histogram_avg", "histogram_count", "histogram_sum")
_PARTS = {"count": SUM, "sum": SUM, "min": MIN, "max": MAX, "avg": AVG}  # of a histogram, and how each merges
OVER_TIME: Mapping[str, tuple[str, ...]] = MappingProxyType(  # by the kind of metric
    {
        SUM: (*COUNTING, "sum_over_time"),
        MIN: ("min_over_time",),
        MAX: ("max_over_time",),
        AVG: ("avg_over_time",),
        LAST: ("last_over_time",),
        GAUGE: (),
        HISTOGRAM: (*COUNTING, *(f"{part}_over_time" for part in _PARTS), QUANTILE_OVER_TIME),
    }
)


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
