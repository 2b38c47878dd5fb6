"""Reference results: statistics of one group, computed with 50 decimal digits and rounded once to a double.

Sources: the definitions in the docstrings of the functions. The skewness and the kurtosis are those of the rows, not
estimates for a population, unless the function's ``sample`` is true.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from functools import reduce
from typing import Any

from aggr.function import Function

Statistic = Callable[[Function, Sequence[Any]], float]
_DIGITS = 50


def _decimals(values: Sequence[Any]) -> list[Decimal]:
    return [Decimal(value) for value in values]


def _mean(values: Sequence[Decimal]) -> Decimal:
    return sum(values, Decimal()) / len(values)


def _deviations(values: Sequence[Decimal]) -> list[Decimal]:
    mean = _mean(values)
    return [value - mean for value in values]


def _product_sum(first: Sequence[Decimal], second: Sequence[Decimal]) -> Decimal:
    return sum(map(operator.mul, first, second), Decimal())


def _moment(values: Sequence[Decimal], power: int) -> Decimal:
    return _mean([value**power for value in values])


def _skewness(function: Function, values: Sequence[Decimal]) -> Decimal:
    deviations = _deviations(values)
    count = len(values)
    skewness = _moment(deviations, 3) / _moment(deviations, 2) ** Decimal("1.5")
    if not getattr(function, "sample", False):
        return skewness
    return skewness * Decimal(count * (count - 1)).sqrt() / (count - 2)


def _kurtosis(function: Function, values: Sequence[Decimal]) -> Decimal:
    deviations = _deviations(values)
    count = len(values)
    excess = _moment(deviations, 4) / _moment(deviations, 2) ** 2 - 3
    if not getattr(function, "sample", False):
        return excess
    return Decimal(count - 1) / ((count - 2) * (count - 3)) * ((count + 1) * excess + 6)


def _entropy(values: Sequence[Any]) -> Decimal:
    """Return the entropy of the values in bits."""
    shares = [Decimal(count) / len(values) for count in Counter(values).values()]
    return -sum((share * share.ln() for share in shares), Decimal()) / Decimal(2).ln()


PairStatistic = Callable[[Function, Sequence[Decimal], Sequence[Decimal]], Decimal]


def _pair_statistic(compute: PairStatistic, first: str, second: str) -> Statistic:
    """Return a function that applies ``compute`` to the values of the fields ``first`` and ``second`` of rows."""

    def statistic(function: Function, rows: Sequence[Any]) -> float:
        columns = ([Decimal(row[name]) for row in rows] for name in (first, second))
        return float(compute(function, *columns))

    return statistic


def _covar(function: Function, y: Sequence[Decimal], x: Sequence[Decimal]) -> Decimal:
    return _product_sum(_deviations(y), _deviations(x)) / (len(y) - int(getattr(function, "ddof", 1)))


def _corr(_: Function, y: Sequence[Decimal], x: Sequence[Decimal]) -> Decimal:
    dy = _deviations(y)
    dx = _deviations(x)
    return _product_sum(dy, dx) / (_product_sum(dy, dy) * _product_sum(dx, dx)).sqrt()


def _slope(_: Function, y: Sequence[Decimal], x: Sequence[Decimal]) -> Decimal:
    dx = _deviations(x)
    return _product_sum(_deviations(y), dx) / _product_sum(dx, dx)


def _with_decimals(compute: Callable[[Function, Sequence[Decimal]], Decimal]) -> Statistic:
    return lambda function, values: float(compute(function, _decimals(values)))


def _values_by_time(rows: Sequence[Any]) -> list[float]:
    return [row["value"] for row in sorted(rows, key=operator.itemgetter("time"))]


_STATISTICS_BY_NAME: Mapping[str, Statistic] = {
    "sum_distinct": lambda _, values: float(sum(set(_decimals(values)), Decimal())),
    "avg_distinct": lambda _, values: float(_mean(list(set(_decimals(values))))),
    "bit_and": lambda _, values: float(reduce(operator.and_, values)),
    "bit_or": lambda _, values: float(reduce(operator.or_, values)),
    "bit_xor": lambda _, values: float(reduce(operator.xor, values)),
    "bool_and": lambda _, values: float(all(values)),
    "bool_or": lambda _, values: float(any(values)),
    "range": _with_decimals(lambda _, values: max(values) - min(values)),
    "rms": _with_decimals(lambda _, values: _moment(values, 2).sqrt()),
    "sum_of_squares": _with_decimals(lambda _, values: _product_sum(values, values)),
    "geometric_mean": _with_decimals(lambda _, values: _mean([value.ln() for value in values]).exp()),
    "harmonic_mean": _with_decimals(lambda _, values: 1 / _mean([1 / value for value in values])),
    "skewness": _with_decimals(_skewness),
    "kurtosis": _with_decimals(_kurtosis),
    "entropy": lambda _, values: float(_entropy(values)),
    "covar": _pair_statistic(_covar, "y", "x"),
    "corr": _pair_statistic(_corr, "y", "x"),
    "slope": _pair_statistic(_slope, "y", "x"),
    "intercept": _pair_statistic(lambda f, y, x: _mean(y) - _slope(f, y, x) * _mean(x), "y", "x"),
    "r2": _pair_statistic(lambda f, y, x: _corr(f, y, x) ** 2, "y", "x"),
    "weighted_avg": _pair_statistic(lambda _, x, w: _product_sum(x, w) / sum(w, Decimal()), "value", "weight"),
    "first": lambda _, rows: _values_by_time(rows)[0],
    "last": lambda _, rows: _values_by_time(rows)[-1],
    "resets": lambda _, rows: float(sum(map(operator.gt, _values_by_time(rows), _values_by_time(rows)[1:]))),
}
STATISTICS = tuple(_STATISTICS_BY_NAME)


def statistic(function: Function, values: Sequence[Any]) -> float:
    """Return the reference result of a function for the values of one group.

    Parameters
    ----------
    function : Function
        A built-in function, whose name is in `STATISTICS`.
    values : sequence
        The values without nulls, at least one; for several inputs, mappings from the names of inputs to values.

    Returns
    -------
    float
    """
    with localcontext(prec=_DIGITS):
        return _STATISTICS_BY_NAME[function.name](function, values)
