"""Functions: what each reads of the merged states of a range, or of a histogram; anything else is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from aggr.asked_quantiles import label
from tiltframe.serve.promql.cells import States, Vector
from tiltframe.serve.promql.errors import Unanswerable
from tiltframe.serve.promql.metrics import AVG, GAUGE, HISTOGRAM, LAST, MAX, MIN, SUM

COUNTING = ("rate", "increase")
QUANTILE_OVER_TIME, HISTOGRAM_QUANTILE = "quantile_over_time", "histogram_quantile"
OVER_TIME: Mapping[str, tuple[str, ...]] = MappingProxyType(  # by the kind of metric
    {
        SUM: (*COUNTING, "sum_over_time"),
        MIN: ("min_over_time",),
        MAX: ("max_over_time",),
        AVG: ("avg_over_time",),
        LAST: ("last_over_time",),
        GAUGE: (),
        HISTOGRAM: (
            *COUNTING,
            *("count_over_time", "sum_over_time", "min_over_time", "max_over_time", "avg_over_time"),
            QUANTILE_OVER_TIME,
        ),
    }
)
_PARTS = {  # of a histogram's result, and how it merges
    "count": ("count", SUM),
    "sum": ("sum", SUM),
    "min": ("min", MIN),
    "max": ("max", MAX),
    "avg": ("mean", AVG),
}


def over_time(name: str, states: States, span: int, quantile: float | None, text: str) -> States | Vector:
    """Apply a function to ranges.

    Parameters
    ----------
    name : str
        ``rate``, ``increase`` or ``…_over_time``.
    states : States
        Merged over each range.
    span : int
        Length of the range, microseconds.
    quantile : float, optional
        Of ``quantile_over_time``.
    text : str
        The selector, for errors.

    Raises
    ------
    Unanswerable
        For what is no merge of the metric's states.
    """
    check_over_time(name, states.kind, text)
    if name == QUANTILE_OVER_TIME:
        assert quantile is not None
        return quantile_of(states, quantile)
    if name == "rate":
        return replace(states, per=span / 1e6)
    if states.kind == HISTOGRAM and name not in COUNTING:
        return part_of(states, name.removesuffix("_over_time"), text)
    return states


def check_over_time(name: str, kind: str, text: str) -> None:
    """Raise `Unanswerable` unless a function of ranges is a merge of the states of a metric of this kind."""
    allowed = OVER_TIME[kind]
    if name not in allowed:
        raise Unanswerable(
            f"{name}({text}) is no merge of states; of this metric these are: {', '.join(allowed) or 'none'}; of the "
            "values of windows write a subquery, [1h:1m]"
        )


def histogram_function(name: str, states: States, quantile: float | None, text: str) -> States | Vector:
    """Apply ``histogram_quantile``, ``_count``, ``_sum`` or ``_avg``; raises `Unanswerable` for no histograms."""
    if states.kind != HISTOGRAM:
        raise Unanswerable(f"{name} reads histograms, and {text} is none")
    if name == HISTOGRAM_QUANTILE:
        assert quantile is not None
        return quantile_of(states, quantile)
    return part_of(states, name.removeprefix("histogram_"), text)


def part_of(states: States, part: str, text: str) -> States:
    """Read a part of histograms: count, sum, min, max or avg."""
    field, kind = _PARTS[part]
    result = states.reader.result_type(states.states.type)
    if field not in [each.name for each in result]:
        raise Unanswerable(f"{text} keeps no {part}: its states are those of {states.reader.name}")
    return replace(states, path=(field,), kind=kind, per=states.per if kind == SUM else 1.0)


def quantile_of(states: States, quantile: float) -> Vector | States:
    """Read a quantile of histograms, as the sketch has it; below 0 and above 1 it is infinite, as in Prometheus."""
    if not 0.0 <= quantile <= 1.0:
        present = states.present()
        beyond = math.nan if math.isnan(quantile) else math.copysign(math.inf, quantile)
        return Vector(states.series, np.full(present.shape, beyond), present)
    reader = replace(states.reader, quantiles=(quantile,))  # type: ignore[call-arg]
    path = ("quantiles", label(quantile))
    assert pa.types.is_struct(reader.result_type(states.states.type))
    return replace(states, reader=reader, path=path, kind=GAUGE, per=1.0)
