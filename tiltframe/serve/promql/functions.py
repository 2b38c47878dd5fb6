"""The functions and aggregations of PromQL that this server evaluates, from merged states or from values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Avg, Sum
from aggr.extend import Function, Groups
from aggr.extend.arguments import quantile_label
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import Floats, States, Vector
from tiltframe.serve.promql.classic_buckets import LE
from tiltframe.serve.promql.function_table import FUNCTIONS, HISTOGRAM_READING, REMOTE_READ_ADVICE
from tiltframe.serve.promql.histogram_counts import counts_below, counts_up_to, histogram_buckets
from tiltframe.serve.promql.kinds import BUCKETS, GAUGE, HISTOGRAM, KINDS_OF_RESULTS, MERGES, PARTS_OVER_TIME, RATE, SUM
from tiltframe.serve.promql.metrics import Grouping
from windows import Instants

HISTOGRAM_QUANTILE = "histogram_quantile"
HISTOGRAM_FRACTION = "histogram_fraction"
# function of a histogram → the field of the histogram's results that the function returns
HISTOGRAM_PARTS = {"histogram_count": "count", "histogram_sum": "sum", "histogram_avg": "mean"}
HISTOGRAM_FUNCTIONS = tuple(name for name, how in FUNCTIONS.items() if how == HISTOGRAM_READING)
# the number of cells that are reduced between two checks of the deadline
_CELLS_AT_ONCE = 1_000_000
# A function that aggregates values by group. Its arguments are the values, the group of each value, and the number of
# groups. It returns one aggregate per group. The aggregate of a group without values is undefined.
_Reduction: TypeAlias = "Callable[[Floats, NDArray[np.intp], int], Floats]"


def check_range_function(name: str, kind: str, text: str) -> None:
    """Raise `Unanswerable` if the range function ``name`` cannot be computed from the merged states of a metric of this
    ``kind``. ``text`` is the selector, for the message.
    """
    if name not in MERGES[kind]:
        raise Unanswerable(
            f"{name}({text}) cannot be computed by merging windows; {REMOTE_READ_ADVICE}; for this metric, use "
            f"{' or '.join([*MERGES[kind], 'a subquery such as [1h:1m]'])}"
        )


def can_merge_states(aggregation: str, function: str, kind: str, grouping: Grouping) -> bool:
    """Return whether an aggregation of a range function, such as ``sum(rate(x[1h]))``, can be computed by merging
    states.
    """
    return MERGES[kind].get(function) == aggregation and (kind != BUCKETS or grouping.keeps(LE))


def merged_range_value(
    name: str, states: States, range_length: int, quantile: float | None, text: str
) -> States | Vector:
    """Return the value of the range function ``name``, such as ``rate``. ``states`` have been merged over each range.
    `check_range_function` must have accepted the function. ``range_length`` is the length of the ranges in
    microseconds. ``quantile`` is the argument of ``quantile_over_time``, and None for other functions.
    """
    if quantile is not None:
        return quantile_of(states, quantile)
    if name == RATE:
        return replace(states, divisor=range_length / 1e6)
    if states.kind == HISTOGRAM and name in PARTS_OVER_TIME:
        return part_of(states, PARTS_OVER_TIME[name], text)
    return states


def part_of(states: States, part: str, text: str) -> States:
    """Return the states of histograms as states of numbers. ``part`` is the number that is read from each histogram:
    count, sum, min, max or mean. Raise `Unanswerable` if the results of the histograms lack this number. ``text`` is
    the selector, for the message.
    """
    kind = KINDS_OF_RESULTS[part]
    if part not in [field_of_result.name for field_of_result in states.result_function.result_type(states.states.type)]:
        raise Unanswerable(
            f"{text} does not store its {part}, because its states are those of {states.result_function.name}; store a "
            f"further measure for the {part}"
        )
    divisor = states.divisor if kind == SUM else 1.0
    return replace(states, path=(part,), kind=kind, divisor=divisor).with_values()


def quantile_of(states: States, quantile: float) -> Vector | States:
    """Return a quantile of each histogram, computed by its sketch. As in Prometheus, the result is -inf for quantiles
    below 0, and inf for those above 1.
    """
    if 0.0 <= quantile <= 1.0:
        result_function = replace(states.result_function, quantiles=(quantile,))  # type: ignore[call-arg]
        return states.with_result_function(result_function, ("quantiles", quantile_label(quantile)), GAUGE)
    infinite = math.nan if math.isnan(quantile) else math.copysign(math.inf, quantile)
    return Vector(states.series, np.full(states.present().shape, infinite), states.present())


def fraction_of(states: States, lower: float, upper: float) -> Vector:
    """Return, for each histogram, the fraction of its values, from 0 to 1, between the bounds ``lower`` and ``upper``.
    The fraction is computed from the buckets of the sketch.

    If a bound lies inside a bucket, or at the upper end of a bucket, all values of this bucket are counted as below the
    bound.
    """
    present = states.present()
    values = np.full(present.size, np.nan)
    count, _, buckets = histogram_buckets(states.states, states.result_function)
    if lower >= upper:
        values[states.cells] = 0.0
    elif not math.isnan(lower) and not math.isnan(upper):
        below = counts_below(buckets, len(count), np.array([lower]))[:, 0]
        up_to = counts_up_to(buckets, len(count), np.array([upper]))[:, 0]
        values[states.cells] = (up_to - below) / count
    return Vector(states.series, values.reshape(present.shape), present)


def _reduce_exactly(function: Function) -> _Reduction:
    """Return a function that aggregates the values of each group with ``function``, an aggregate such as `Sum`. The
    results are exact, and are rounded once.
    """

    def reduce(values: Floats, groups: NDArray[np.intp], count: int) -> Floats:
        results = function.finish(function.reduce(pa.array(values), Groups.of(groups, count)))
        numbers: Floats = results.to_numpy(zero_copy_only=False)
        return numbers

    return reduce


def _reduce_by(extreme: np.ufunc) -> _Reduction:
    """Return a function that computes the minimum or the maximum of each group with ``extreme``, which is `numpy.fmin`
    or `numpy.fmax`. NaN is ignored unless all values of the group are NaN.
    """

    def reduce(values: Floats, groups: NDArray[np.intp], count: int) -> Floats:
        extremes = np.full(count, np.nan)
        extreme.at(extremes, groups, values)
        return extremes

    return reduce


def _count_values(values: Floats, groups: NDArray[np.intp], count: int) -> Floats:
    return np.bincount(groups, minlength=count).astype(np.float64)


# name of an aggregation that has no parameter → the function that computes it from values
REDUCTIONS: Mapping[str, _Reduction] = {
    "sum": _reduce_exactly(Sum()),
    "avg": _reduce_exactly(Avg()),
    "count": _count_values,
    "min": _reduce_by(np.fmin),
    "max": _reduce_by(np.fmax),
}
# range function of a subquery → the aggregation that combines the values at the steps of the subquery
SUBQUERY_FUNCTIONS = {f"{name}_over_time": name for name in REDUCTIONS}


def aggregate_values(name: str, vector: Vector, grouping: Grouping) -> Vector:
    """Return the ``sum``, ``avg``, ``min``, ``max`` or ``count`` of the values of each group at each moment. Sums and
    means are exact, and rounded once.
    """
    ids, labels = grouping.groups(vector.series)
    shape = len(labels), vector.present.shape[1]
    series, moments = np.nonzero(vector.present)
    cells = ids[series] * shape[1] + moments
    values = REDUCTIONS[name](vector.values[series, moments], cells, shape[0] * shape[1]).reshape(shape)
    return Vector(labels, values, _mask_of(cells, shape))


def _mask_of(cells: NDArray[np.intp], shape: tuple[int, int]) -> NDArray[np.bool_]:
    occupied = np.zeros(shape, np.bool_)
    occupied.flat[cells] = True
    return occupied


def quantile(vector: Vector, grouping: Grouping, q: float) -> Vector:
    """Return the quantile ``q`` of the values of each group at each moment. The quantile is interpolated between two
    values, as in Prometheus. NaN counts as the smallest value.
    """
    ids, labels = grouping.groups(vector.series)
    shape = len(labels), vector.present.shape[1]
    series, moments = np.nonzero(vector.present)
    cells = ids[series] * shape[1] + moments
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    if not 0 <= q <= 1:
        infinite = np.nan if np.isnan(q) else np.copysign(np.inf, q)
        return Vector(labels, np.full(shape, infinite), counts > 0)
    values = vector.values[series, moments]
    ordered = values[np.lexsort((values, ~np.isnan(values), cells))]
    first_places = (np.cumsum(counts) - counts.ravel()).reshape(shape)
    last = np.maximum(counts - 1, 0)
    low, weight = np.divmod(q * last, 1)
    below = (first_places + low.astype(np.int64))[counts > 0]
    above = (first_places + np.minimum(low + 1, last).astype(np.int64))[counts > 0]
    weight = weight[counts > 0]
    result = np.full(shape, np.nan)
    with np.errstate(invalid="ignore"):
        result[counts > 0] = ordered[below] * (1 - weight) + ordered[above] * weight
    return Vector(labels, result, counts > 0)


def select_ranked(name: str, vector: Vector, grouping: Grouping, k: float) -> Vector:
    """Return the k greatest (``topk``) or smallest (``bottomk``) values of each group at each moment. NaN is chosen
    last.

    As in Prometheus, raise `Unanswerable` if k is NaN or does not fit 64 bits.
    """
    if not -(2.0**63) <= k < 2.0**63:
        raise Unanswerable(f"{name} needs a number of series that fits 64 bits; got {k}")
    ids, _ = grouping.groups(vector.series)
    values = -vector.values if name == "topk" else vector.values
    order = np.lexsort((values, ~vector.present), axis=0)
    order = np.take_along_axis(order, np.argsort(ids[order], axis=0, kind="stable"), axis=0)
    sizes = np.bincount(ids, minlength=1)
    rank = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_selected = np.zeros_like(vector.present)
    np.put_along_axis(is_selected, order, np.broadcast_to((rank < np.trunc(k))[:, None], order.shape), axis=0)
    ranked_vector = Vector(vector.series, vector.values, vector.present & is_selected)
    # As in Prometheus, the series are sorted by value if there is a single moment.
    rows = order[:, 0] if order.shape[1:] == (1,) else np.arange(len(ids))
    return ranked_vector.select_series(rows[ranked_vector.present[rows].any(axis=1)])


def steps_before(moments: Instants, range_length: int, step: int) -> Instants:
    """Return the times of the steps of a subquery: the multiples of ``step`` from the first range to the last range, in
    ascending order. Each t in ``moments``, which must be ascending, has the range ``(t - range_length, t]``. Multiples
    between two ranges are included.

    >>> steps_before(np.array([100]), 30, 10)
    array([ 80,  90, 100])
    """
    return np.arange((int(moments[0]) - range_length) // step + 1, int(moments[-1]) // step + 1) * step


def reduce_steps(
    name: str, vector: Vector, steps: Instants, *, moments: Instants, range_length: int, deadline: Deadline
) -> Vector:
    """Return, for each series and moment t, the aggregate of the values at those ``steps`` that lie in the range ``(t -
    range_length, t]``. ``name`` is a function such as ``sum_over_time``. Only some moments are computed at a time,
    which limits the memory.
    """
    reduction = REDUCTIONS[SUBQUERY_FUNCTIONS[name]]
    first, last = (np.searchsorted(steps, at, "right") for at in (moments - range_length, moments))
    shape = len(vector.series), len(moments)
    values: Floats = np.full(shape, np.nan)
    present = np.zeros(shape, np.bool_)
    for low, high in deadline.check_each(_pieces(last - first, _CELLS_AT_ONCE // max(shape[0], 1))):
        lengths = (last - first)[low:high]
        moment = np.repeat(np.arange(high - low), lengths)
        step = np.arange(len(moment)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + first[low:high][moment]
        series, place = np.nonzero(vector.present[:, step])
        cells = series * (high - low) + moment[place]
        piece = shape[0], high - low
        numbers = reduction(vector.values[series, step[place]], cells, piece[0] * piece[1])
        values[:, low:high] = numbers.reshape(piece)
        present[:, low:high] = _mask_of(cells, piece)
    return Vector(vector.series, values, present)


def _pieces(lengths: Instants, max_steps: int) -> Iterator[tuple[int, int]]:
    """Yield groups of consecutive ranges as pairs ``(low, high)``: the group has the ranges with the indices ``low`` to
    ``high - 1``. ``lengths`` has the number of steps of each range. A group has at most ``max_steps`` steps, unless it
    is a single range.
    """
    totals = np.cumsum(lengths)
    low = 0
    while low < len(lengths):
        begin = int(totals[low] - lengths[low])
        high = max(int(np.searchsorted(totals, begin + max_steps, "right")), low + 1)
        yield low, high
        low = high
