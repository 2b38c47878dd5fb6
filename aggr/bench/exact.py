"""Exact results as references, and the errors of results relative to them.

The reference for each part of a result is a range of acceptable numbers. A quantile q of n sorted values is at the
position q · (n - 1), which usually lies between two values. The range of the quantile extends from the lower to the
higher of the two values. Some packages return one of the two values, and others interpolate between them. All such
results are accepted. The range of any other part is a single number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.bench.distributions import event_times
from aggr.bench.exact_statistics import STATISTICS, statistic
from aggr.function import Function
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups
from aggr.measure import Measure
from aggr.quantile_parameters import quantile_label
from aggr.values import Values

Ranges = Mapping[str, tuple[float, float]]
Exact = Callable[[Function, pa.Array], Ranges]
_MAX_VALUES = 10_000_000  # an exact result is computed from at most this number of values


@dataclass(frozen=True)
class PartErrors:
    """The errors of one part of a result, such as one quantile, for several groups of rows.

    Parameters
    ----------
    part : str
        The part: a quantile, the name of a field, or empty if the result is a single number.
    worst_relative, mean_relative : float
        The largest and the mean relative error of the values, over the groups.
    worst_rank : float or None
        For quantiles, the largest error of the rank, as a fraction of the number of values. None for other parts.
    """

    part: str
    worst_relative: float
    mean_relative: float
    worst_rank: float | None


def exact_of(function: Function) -> Callable[[pa.Array], Ranges] | None:
    """Return the function that computes exact results: ``function.exact`` if the function declares it, otherwise the
    computation that this module contains for a built-in function.

    Parameters
    ----------
    function : Function
        ``function.exact``, if it exists, receives the values of one group without nulls (a struct array if the function
        has several inputs). It returns a number, a sequence of numbers, or a mapping from names to numbers.

    Returns
    -------
    callable or None
        A function that computes, from the values of one group, a range for each part of the result. None if
        ``function`` does not declare ``exact``, and this module does not contain its exact computation.
    """
    declared_exact = getattr(function, "exact", None)
    if declared_exact is not None:
        return lambda values: {part: (number, number) for part, number in numbers_of(declared_exact(values)).items()}
    compute = _EXACT_COMPUTATIONS.get(function.name)
    if compute is None:
        return None
    return lambda values: compute(function, values)


def values_of(measure: Measure, table: pa.Table) -> pa.Array:
    """Return the values of a measure's inputs for one group of rows, without nulls and without weights."""
    return _values_without_nulls(measure, table).array


def repeated_values_of(measure: Measure, table: pa.Table) -> pa.Array | None:
    """Return the values of a measure's inputs for one group of rows, without nulls. A row with weight w occurs w times.
    Return None if there are then more than `_MAX_VALUES` values.
    """
    values = _values_without_nulls(measure, table)
    if values.weights is None:
        return values.array
    if float(values.weights.sum(dtype=np.float64)) > _MAX_VALUES:
        return None
    return values.array.take(pa.array(np.repeat(np.arange(len(values.array)), values.weights)))


def _values_without_nulls(measure: Measure, table: pa.Table) -> Values:
    """Return the values of a measure's inputs, and their weights, for one group of rows, without nulls."""
    times = event_times(len(table)) if EVENT_TIME in measure.function.inputs else None
    return measure.function.drop_null(measure.values(table, Groups.single(len(table)), times))


def numbers_of(result: Any) -> dict[str, float]:
    """Return the numbers in a result, by the names of its parts. If the result has a field ``quantiles``, only the
    numbers in this field are returned.

    Parameters
    ----------
    result : number, sequence, mapping or None
        A result as Arrow's ``to_pylist`` returns it, or as another package returns it.

    Returns
    -------
    dict of str to float
        Parts that are not numbers are left out.

    Examples
    --------
    >>> numbers_of({"count": 2, "quantiles": {"0.5": 1.0}}), numbers_of([1, 2]), numbers_of(3)
    ({'0.5': 1.0}, {'0': 1.0, '1': 2.0}, {'': 3.0})
    """
    if isinstance(result, Mapping):
        parts = result.get("quantiles", result)
        return {str(name): float(value) for name, value in parts.items() if _is_number(value)}
    if isinstance(result, Sequence | np.ndarray) and not isinstance(result, str | bytes):
        return {str(index): float(value) for index, value in enumerate(result) if _is_number(value)}
    return {"": float(result)} if _is_number(result) else {}


def errors_of(
    results: Sequence[Any], ranges: Sequence[Ranges], sorted_values: Sequence[np.ndarray[Any, Any] | None]
) -> list[PartErrors]:
    """Return the errors of the results of several groups, compared with the exact ranges.

    Parameters
    ----------
    results : sequence, one per group
        The results of the groups. Parts are matched with ranges by name, or by position if the names differ.
    ranges : sequence of mappings, one per group
    sorted_values : sequence of arrays or None, one per group
        The sorted values of each group, from which errors of rank are computed; None if the parts are not quantiles.

    Returns
    -------
    list of PartErrors
        One per part; empty if a result does not have as many parts as ranges.
    """
    relative_errors: dict[str, list[float]] = {}
    rank_errors: dict[str, list[float]] = {}
    for result, expected, values in zip(results, ranges, sorted_values, strict=True):
        numbers = numbers_of(result)
        if set(numbers) != set(expected):
            if len(numbers) != len(expected):
                return []
            numbers = dict(zip(expected, numbers.values(), strict=True))
        for part, (low, high) in expected.items():
            relative_errors.setdefault(part, []).append(_relative_error(numbers[part], low, high))
            if values is not None:
                rank_errors.setdefault(part, []).append(_rank_error(numbers[part], float(part), values))
    return [
        PartErrors(
            part=part,
            worst_relative=max(errors),
            mean_relative=sum(errors) / len(errors),
            worst_rank=max(rank_errors[part]) if part in rank_errors else None,
        )
        for part, errors in relative_errors.items()
    ]


def is_quantile_function(function: Function) -> bool:
    """Return whether the parts of a function's exact result are quantiles."""
    return _EXACT_COMPUTATIONS.get(function.name) is _exact_quantiles and getattr(function, "exact", None) is None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) or hasattr(value, "as_integer_ratio")


def _relative_error(number: float, low: float, high: float) -> float:
    """Return the distance of a number from the range ``low`` to ``high``, relative to the nearest end of the range.

    The error is 0 if the number lies in the range, or if the number and the range are NaN. The error is infinite if
    only the number or only the range is NaN. It is also infinite if the number lies outside the range, and the nearest
    end of the range is 0.
    """
    if math.isnan(number) or math.isnan(low):
        return 0.0 if math.isnan(number) and math.isnan(low) else math.inf
    if low <= number <= high:
        return 0.0
    nearest_edge = low if number < low else high
    return abs(number - nearest_edge) / abs(nearest_edge) if nearest_edge else math.inf


def _rank_error(number: float, quantile: float, sorted_values: np.ndarray[Any, Any]) -> float:
    """Return the difference between a quantile and the rank of ``number`` among sorted values, as a fraction of the
    number of values.

    If several values equal ``number``, then ``number`` has a range of ranks. The difference is 0.0 if ``quantile`` is
    in this range.
    """
    low = np.searchsorted(sorted_values, number, side="left") / len(sorted_values)
    high = np.searchsorted(sorted_values, number, side="right") / len(sorted_values)
    return float(max(low - quantile, quantile - high, 0.0))


def _exact_quantiles(function: Function, values: pa.Array) -> Ranges:
    sorted_values = np.sort(values.to_numpy(zero_copy_only=False))
    quantiles: Sequence[float] = getattr(function, "quantiles", ())
    ranges = {}
    for quantile in quantiles:
        position = quantile * (len(sorted_values) - 1)
        ranges[quantile_label(quantile)] = (
            float(sorted_values[math.floor(position)]),
            float(sorted_values[math.ceil(position)]),
        )
    return ranges


def _single_number(compute: Callable[[Function, list[Any]], float]) -> Exact:
    """Return an exact computation for functions whose result is a single number. ``compute`` returns this number for a
    list of values.
    """

    def ranges(function: Function, values: pa.Array) -> Ranges:
        number = compute(function, values.to_pylist())
        return {"": (number, number)}

    return ranges


def _root(fraction: Fraction) -> float:
    """Return the square root of a fraction as a double, rounded from a root with 60 decimal digits."""
    with localcontext(prec=60):
        return float((Decimal(fraction.numerator) / Decimal(fraction.denominator)).sqrt())


def _variance(function: Function, values: list[Any]) -> Fraction:
    """Return the exact variance of values. The divisor is the number of values minus the function's ``ddof``, by
    default 1.
    """
    fractions = [Fraction(value) for value in values]
    mean = sum(fractions) / len(fractions)
    squares = sum((value - mean) ** 2 for value in fractions)
    return Fraction(squares) / (len(fractions) - int(getattr(function, "ddof", 1)))


_EXACT_COMPUTATIONS: Mapping[str, Exact] = {
    **dict.fromkeys(("dds", "exponential", "hdr", "exact_quantiles"), _exact_quantiles),
    "count": _single_number(lambda _, values: float(len(values))),
    "min": _single_number(lambda _, values: float(min(values))),
    "max": _single_number(lambda _, values: float(max(values))),
    "sum": _single_number(lambda _, values: float(sum(map(Fraction, values)))),
    "avg": _single_number(lambda _, values: float(sum(map(Fraction, values)) / len(values))),
    "var": _single_number(lambda function, values: float(_variance(function, values))),
    **{name: _single_number(statistic) for name in STATISTICS},
    "stdev": _single_number(lambda function, values: _root(_variance(function, values))),
    **dict.fromkeys(
        ("approx_count_distinct", "hll", "count_distinct"),
        lambda _, values: {"": (float(len(pc.unique(values))), float(len(pc.unique(values))))},
    ),
}
