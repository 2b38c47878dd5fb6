"""skewness and kurtosis: computed from exact Σx … Σx⁴ and the count, and rounded once when they are read."""

from __future__ import annotations

from dataclasses import dataclass

from aggr.extend import ExactSums, Sums
from aggr.extend.arguments import checked_truth
from aggr.extend.columns import Floats
from aggr.extend.states import MOMENTS


@dataclass(frozen=True)
class _Shape(ExactSums):
    """The base class of `Skewness` and `Kurtosis`, which are computed from exact Σx, Σx², Σx³ and Σx⁴."""

    sample: bool = False

    keeps = "exact Σx, Σx², Σx³, Σx⁴, count"
    own_state = MOMENTS

    def __post_init__(self) -> None:
        checked_truth(self.sample, "sample")


@dataclass(frozen=True)
class Skewness(_Shape):
    """Compute the skewness (third standardized moment) of a column, rounded once.

    NaN and infinities give NaN.

    Parameters
    ----------
    sample : bool
        True estimates the skewness of the population from a sample, as pandas and spreadsheets do. With False, the rows
        are the population, as in Spark. This parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``sample`` is not True or False.

    Examples
    --------
    >>> from aggr import skewness
    >>> skewness("latency_ms")
    skewness('latency_ms')
    """

    name = "skewness"
    returns = "float64; null if the column does not vary, or if there are fewer than 3 rows and the rows are a sample"

    def least_count(self) -> int:
        return 3 if self.sample else 1

    def result(self, s: Sums) -> Floats:
        n = s.n
        x = s["sum"]
        scaled_variance = s.cross("squares", "sum", "sum")
        # ``scaled_variance`` is n² times the variance.
        third = n * n * s["cubes"] - n * x * s["squares"] * 3 + x * x * x * 2
        numerator = third * third
        denominator = scaled_variance * scaled_variance * scaled_variance
        if self.sample:
            numerator = numerator * n * (s.n - 1)
            denominator = denominator * (s.n - 2) * (s.n - 2)
        return third.signs() * numerator.over(denominator, root=True)


@dataclass(frozen=True)
class Kurtosis(_Shape):
    """Compute the excess kurtosis (fourth standardized moment minus 3) of a column, rounded once.

    NaN and infinities give NaN.

    Parameters
    ----------
    sample : bool
        True estimates the kurtosis of the population from a sample, as pandas and spreadsheets do. With False, the rows
        are the population, as in Spark. This parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``sample`` is not True or False.

    Examples
    --------
    >>> from aggr import kurtosis
    >>> kurtosis("latency_ms")
    kurtosis('latency_ms')
    """

    name = "kurtosis"
    returns = "float64; null if the column does not vary, or if there are fewer than 4 rows and the rows are a sample"

    def least_count(self) -> int:
        return 4 if self.sample else 1

    def result(self, s: Sums) -> Floats:
        n = s.n
        x = s["sum"]
        scaled_variance = s.cross("squares", "sum", "sum")
        # ``scaled_variance`` is n² times the variance.
        fourth = n * n * (n * s["fourths"] - x * s["cubes"] * 4) + x * x * (n * s["squares"] * 2 - x * x) * 3
        numerator = fourth - scaled_variance * scaled_variance * 3
        denominator = scaled_variance * scaled_variance
        if self.sample:
            numerator = (numerator * (s.n + 1) + denominator * 6) * (s.n - 1)
            denominator = denominator * (s.n - 2) * (s.n - 3)
        return numerator.over(denominator)
