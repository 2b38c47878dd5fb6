"""Reference values of statistics, computed exactly with fractions and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction


def nearest_double(x: Fraction) -> float:
    """Return the double nearest to a fraction, or an infinity if the fraction is larger than all doubles."""
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def signed_root(x: Fraction, sign: Fraction) -> float:
    """Return the square root of ``x``, computed to 400 decimal digits and rounded to a double, with the sign of
    ``sign``.
    """
    with localcontext(prec=400):
        number = float((Decimal(x.numerator) / Decimal(x.denominator)).sqrt())
    return math.copysign(number, 1 if sign >= 0 else -1)


def mean_of(values: Sequence[float]) -> Fraction:
    """Return the exact mean of the values."""
    return sum(map(Fraction, values), Fraction()) / len(values)


def deviations(values: Sequence[float]) -> list[Fraction]:
    """Return the exact difference of each value from the mean of all values."""
    mean = mean_of(values)
    return [value - mean for value in map(Fraction, values)]


def exact_pair_statistic(name: str, ys: Sequence[float], xs: Sequence[float], ddof: int = 1) -> float | None:
    """Return an exact statistic of pairs of numbers, rounded once, or None if it is undefined. ``name`` is "covar"
    or "corr", or one of "slope", "intercept" and "r2" for the regression of y on x.
    """
    n = len(ys)
    y = deviations(ys)
    x = deviations(xs)
    yx = sum((a * b for a, b in zip(y, x, strict=True)), Fraction())
    yy = sum((a * a for a in y), Fraction())
    xx = sum((b * b for b in x), Fraction())
    if name == "covar":
        return nearest_double(yx / (n - ddof)) if n > ddof else None
    if name == "corr":
        return signed_root(yx * yx / (yy * xx), yx) if yy and xx else None
    if not xx:
        return None
    if name == "r2":
        return nearest_double(yx * yx / (yy * xx)) if yy else 1.0
    return nearest_double(yx / xx if name == "slope" else mean_of(ys) - yx / xx * mean_of(xs))


def exact_statistic(name: str, xs: Sequence[float], sample: bool) -> float | None:
    """Return the exact "skewness" or excess "kurtosis" of numbers, rounded once, or None if it is undefined. If
    ``sample`` is true, return the estimate for the population from which the numbers are a sample.
    """
    n = len(xs)
    x = deviations(xs)
    second, third, fourth = (sum((v**power for v in x), Fraction()) / n for power in (2, 3, 4))
    if not second or (sample and n < (3 if name == "skewness" else 4)):
        return None
    if name == "skewness":
        square = third**2 / second**3 * (Fraction(n * (n - 1), (n - 2) ** 2) if sample else 1)
        return signed_root(square, third)
    excess = fourth / second**2 - 3
    return nearest_double(Fraction(n - 1, (n - 2) * (n - 3)) * ((n + 1) * excess + 6) if sample else excess)
