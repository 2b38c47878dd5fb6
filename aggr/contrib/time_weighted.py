"""time_weighted_avg, integral, duration_in: each value is weighted by its duration until the next point of its group.

step      a value lasts until the next point          linear    values between two points lie on a straight line
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.contrib.constants import is_nan, values_of_type
from aggr.extend import ExactNumbers, Limbs, Numbers, Values, sum_products
from aggr.extend.arguments import SECOND, read_length, shown
from aggr.extend.columns import compute as pc
from aggr.extend.columns import sum_by_group
from aggr.extend.exact import float_parts, kept_type, scale_of, with_special
from aggr.extend.lists import ORDERED_AT_TIMES, Series, SeriesFunction

METHODS = ("step", "linear")


@dataclass(frozen=True)
class Integral(SeriesFunction):
    """Compute the area under a column over time, from its first point to its last.

    Parameters
    ----------
    method : "step" or "linear"
        "step" if a value lasts until the next point, "linear" if values between two points lie on a straight line. This
        parameter affects only results, not states.
    unit : str
        The unit of time. For watts, ``"1h"`` gives watt hours. This parameter affects only results, not states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``method`` or ``keep`` is not an allowed value, ``unit`` is not a length of time, or ``max`` is not a
        whole number of at least 1.

    Examples
    --------
    >>> from aggr import integral
    >>> integral("watts", unit="1h")
    integral('watts', unit='1h')
    """

    method: str = "step"
    unit: str = "1s"

    name = "integral"
    is_amount = True
    reads_neighbours = True
    returns = "float64; null if no time passes from the first point to the last"
    guarantee = "correctly rounded; times have a resolution of microseconds"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_method(self.method)
        read_length(self.unit, "unit")

    def read(self, series: Series) -> pa.Array:
        durations = sum_by_group(series.gaps, series.groups)
        divisors = np.full(len(durations), read_length(self.unit, "unit"))
        return pa.array(_area(series, self.method, divisors), mask=durations == 0)


@dataclass(frozen=True)
class TimeWeightedAvg(SeriesFunction):
    """Compute the mean of a column over the time from its first point to its last. Each value is weighted by its
    duration.

    Parameters
    ----------
    method : "step" or "linear"
        "step" if a value lasts until the next point, "linear" if values between two points lie on a straight line. This
        parameter affects only results, not states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``method`` is not an allowed value, and for the same reasons as `points`.

    Examples
    --------
    >>> from aggr import time_weighted_avg
    >>> time_weighted_avg("temperature", "linear")
    time_weighted_avg('temperature', method='linear')
    """

    method: str = "step"

    name = "time_weighted_avg"
    reads_neighbours = True
    returns = "float64; null if no time passes from the first point to the last"
    guarantee = "correctly rounded; times have a resolution of microseconds"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_method(self.method)

    def read(self, series: Series) -> pa.Array:
        durations = sum_by_group(series.gaps, series.groups)
        return pa.array(_area(series, self.method, np.maximum(durations, 1)), mask=durations == 0)


@dataclass(frozen=True)
class DurationIn(SeriesFunction):
    """Sum the seconds during which a column has a certain value. A point with the value counts until the next point.

    Parameters
    ----------
    state : a value of the column's type
        The value to look for, such as ``"running"`` or True, but not NaN. This parameter affects only results, not
        states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``state`` is NaN, ``max`` is not a whole number of at least 1, or ``keep`` is not an allowed value.
    TypeError
        When the result is read: if ``state`` is not a value of the column's type.

    Examples
    --------
    >>> from aggr import duration_in
    >>> duration_in("status", "running")
    duration_in('status', state='running')
    """

    state: bool | int | float | str = True

    name = "duration_in"
    is_amount = True
    reads_neighbours = True
    takes = ORDERED_AT_TIMES
    returns = "float64, seconds; null if there are no values"
    guarantee = "exact to the microsecond, then rounded once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_nan(self.state):
            raise ValueError("state must not be NaN, which does not equal any value; pass another value")

    def read(self, series: Series) -> pa.Array:
        try:
            state = values_of_type([self.state], series.values.type)[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # If there are no points, ``self.state`` need not fit the type of the column. There are no points, for
            # example, if only the type of the result is computed.
            if not len(series.values):
                return pa.nulls(len(series.lengths), pa.float64())
            raise TypeError(
                f"duration_in looks for the state {shown(self.state)} in a column of type "
                f"{series.values.type}; pass a state of that type"
            ) from None
        is_state = pc.equal(series.values, state).to_numpy(zero_copy_only=False)
        durations = sum_by_group(np.where(is_state, series.gaps, 0), series.groups)
        return pa.array(durations / SECOND, mask=series.lengths == 0)


def _area(series: Series, method: str, divisors: np.ndarray) -> np.ndarray:
    """Return the area under the values of each group, in values times microseconds, divided by ``divisors``.

    NaN and infinities that last for 0 microseconds are ignored.
    """
    special = np.zeros(len(divisors), np.int8)
    if method == "step":
        return with_special(_weighted_sums(series, series.gaps, special).over_integers(divisors), special)
    gaps = series.gaps.copy()
    for points in series.crossing_points:
        gaps[points[points >= 0]] = 0
    # By the trapezoidal rule, twice the weight of a point is the time since the previous point plus the time to the
    # next.
    doubled_weights = gaps + np.append(0, gaps)[:-1]
    area = _weighted_sums(series, doubled_weights, special)
    span = ExactNumbers.of(np.ones_like(divisors))
    for points in series.crossing_points:
        if (points >= 0).any():
            part, length = _trapezoids(series, points, special)
            area = area * length + part * span
            span = span * length
    return with_special(area.over(span * ExactNumbers.of(divisors) * 2), special)


def _trapezoids(series: Series, points: np.ndarray, special: np.ndarray) -> tuple[ExactNumbers, ExactNumbers]:
    """Return the area under the line between two consecutive points of each group, as two exact numbers: 2n times the
    area, and n, the microseconds between the two points.

    Only the area within the window counts. ``points`` has the index of the first of the two points for each group. The
    index -1 means that a group has no such points. The two numbers of this group are then 0 and 1.

    If the values are a at time 0 and b at time n, the area between the times l and h is
    (h - l) · (a·(2n - l - h) + b·(l + h)) / 2n. ``special`` is described in `_weighted_sums`.
    """
    groups = np.flatnonzero((points >= 0) & (series.gaps[points] > 0))
    begin = series.times[points[groups]]
    end = series.times[points[groups] + 1]
    low = series.clipped_times[points[groups]] - begin
    high = series.clipped_times[points[groups] + 1] - begin
    weights = np.zeros(len(series.times), np.int64)
    weights[points[groups]] = 2 * (end - begin) - low - high
    left = _weighted_sums(series, weights, special)
    weights[points[groups]], weights[points[groups] + 1] = 0, low + high
    right = _weighted_sums(series, weights, special)
    widths = np.zeros(len(points), np.int64)
    lengths = np.ones(len(points), np.int64)
    widths[groups], lengths[groups] = high - low, end - begin
    return (left + right) * ExactNumbers.of(widths), ExactNumbers.of(lengths)


def _weighted_sums(series: Series, weights: np.ndarray, special: np.ndarray) -> ExactNumbers:
    """Return the exact sum of the values of each group, each multiplied by its weight in ``weights``.

    NaN and infinities with a weight above 0 are not summed. Their flags are added to ``special``, which has the flags
    of each group.
    """
    has_weight = weights > 0
    values = Values(series.values, series.groups).filter(has_weight)
    parts = [Numbers(part, values.groups) for part in float_parts(weights[has_weight])]
    if values.special is not None:
        np.bitwise_or.at(special, values.groups.ids, values.special)
    scale = scale_of(kept_type(series.values.type))
    return ExactNumbers(Limbs.of_arrow(sum_products(values.parts, parts)), scale)


def _check_method(method: str) -> None:
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {shown(method)}")
