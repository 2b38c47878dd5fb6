"""time_weighted_avg, integral, duration_in: values count by how long they last, until the next point of their group.

step      a value lasts until the next point          linear    a value moves to the next one on a straight line
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.duration import SECOND, read_length
from aggr.exact.expression import ExactNumbers
from aggr.exact.number_columns import kept_type, scale_of, with_special
from aggr.exact.row_sums import sum_products
from aggr.exact.superaccumulator import Limbs
from aggr.exact.weights import float_parts
from aggr.functions.event_lists import Series, SeriesFunction
from aggr.groups.numbers import Numbers, sum_by_group
from aggr.input_types import ORDERED, SUMMABLE
from aggr.values import Values

METHODS = ("step", "linear")


@dataclass(frozen=True)
class Integral(SeriesFunction):
    """Take the area under a column over time, from its first point to its last.

    Parameters
    ----------
    method : "step" or "linear"
        Whether a value lasts until the next point, or moves to it on a straight line. It only reads.
    unit : str
        Of time: of watts, ``"1h"`` makes watt hours. It only reads.
    max, keep : as for `points`

    Raises
    ------
    ValueError
        If ``method`` is another word, ``unit`` no length of time, ``max`` no whole number from 1, or ``keep`` another
        word.

    Examples
    --------
    >>> from aggr import integral
    >>> integral("watts", unit="1h")
    integral('watts', unit='1h')
    """

    method: str = "step"
    unit: str = "1s"

    name, state_name = "integral", "collect"
    takes = SUMMABLE
    returns = "float64; null where no time passes between its points"
    guarantee = "correctly rounded; times count in microseconds"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_method(self.method)
        read_length(self.unit, "unit")

    def read(self, series: Series) -> pa.Array:
        lasted = sum_by_group(series.gaps, series.groups)
        divisors = np.full(len(lasted), read_length(self.unit, "unit"))
        return pa.array(_area(series, self.method, divisors), mask=lasted == 0)


@dataclass(frozen=True)
class TimeWeightedAvg(SeriesFunction):
    """Take the mean of a column over the time from its first point to its last: each value counts by how long it lasts.

    Parameters
    ----------
    method : "step" or "linear"
        Whether a value lasts until the next point, or moves to it on a straight line. It only reads.
    max, keep : as for `points`

    Raises
    ------
    ValueError
        If ``method`` is another word, or as `points` does.

    Examples
    --------
    >>> from aggr import time_weighted_avg
    >>> time_weighted_avg("temperature", "linear")
    time_weighted_avg('temperature', method='linear')
    """

    method: str = "step"

    name, state_name = "time_weighted_avg", "collect"
    takes = SUMMABLE
    returns = "float64; null where no time passes between its points"
    guarantee = "correctly rounded; times count in microseconds"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_method(self.method)

    def read(self, series: Series) -> pa.Array:
        lasted = sum_by_group(series.gaps, series.groups)
        return pa.array(_area(series, self.method, np.maximum(lasted, 1)), mask=lasted == 0)


@dataclass(frozen=True)
class DurationIn(SeriesFunction):
    """Sum the seconds that a column has one value, each time from the point that has it until the next point.

    Parameters
    ----------
    state : a value of the column's type
        Which one, such as ``"running"`` or True. It only reads.
    max, keep : as for `points`

    Raises
    ------
    ValueError
        If ``max`` is no whole number from 1, or ``keep`` another word.
    TypeError
        When it is read, if ``state`` is no value of the column's type.

    Examples
    --------
    >>> from aggr import duration_in
    >>> duration_in("status", "running")
    duration_in('status', state='running')
    """

    state: bool | int | float | str = True

    name, state_name = "duration_in", "collect"
    takes = ORDERED
    returns = "float64, seconds; null where there is nothing"
    guarantee = "exact to the microsecond, then rounded once"

    def read(self, series: Series) -> pa.Array:
        try:
            wanted = pa.scalar(self.state, series.values.type)
        except (pa.ArrowException, TypeError, ValueError):
            if not len(series.values):  # as where only the type of the result is asked for
                return pa.nulls(len(series.lengths), pa.float64())
            raise TypeError(
                f"duration_in was asked for {shown(self.state)} of a column of type {series.values.type}; "
                "give a value of that type"
            ) from None
        same = pc.equal(series.values, wanted).to_numpy(zero_copy_only=False)
        lasted = sum_by_group(np.where(same, series.gaps, 0), series.groups)
        return pa.array(lasted / SECOND, mask=series.lengths == 0)


def _area(series: Series, method: str, divisors: np.ndarray) -> np.ndarray:
    """Sum each value times how long it lasts, in microseconds, and divide; NaN and infinities that last win."""
    gaps, halves = series.gaps, 1
    if method == "linear":  # half of the time since the last point, and half of that to the next
        gaps, halves = gaps + np.append(0, gaps)[:-1], 2
    lasting = gaps > 0
    values = Values(series.values, series.groups).filter(lasting)
    weights = [Numbers(part, values.groups) for part in float_parts(gaps[lasting])]
    scale = scale_of(kept_type(series.values.type))
    areas = ExactNumbers(Limbs.of_arrow(sum_products(values.parts, weights)), scale)
    special = np.zeros(values.groups.n, np.int8)
    if values.special is not None:
        np.bitwise_or.at(special, values.groups.ids, values.special)
    return with_special(areas.over_integers(divisors, np.full(len(divisors), halves)), special)


def _check_method(method: str) -> None:
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {shown(method)}")
