"""Possible sums: check that a count, an exact sum and a sum of squares can come from the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Floats, Whole
from aggr.compiling.jit import Int, compiled
from aggr.exact.rounding import leading_digits
from aggr.exact.superaccumulator import Limbs

# the arrays that `digits_of` returns for exact sums: their exponents, the offsets of their digits, and their digits
Sums = tuple[NDArray[np.int16], Any, NDArray[np.int32]]

_FLAGS = 7  # the flags of all special values, combined by bitwise or

# `_are_possible` multiplies the square of a sum's two highest digits by 2^(32·level), and compares the product with
# another number. ``level`` is clipped to the range from `_MIN_LEVEL` to `_MAX_LEVEL`. The square is below 2^128,
# because digits have the base 2^32. At `_MAX_LEVEL`, the product is still a finite double. At `_MIN_LEVEL`, the product
# is 0. A level outside the range would therefore give the same result of the comparison.
_MIN_LEVEL = -62
_MAX_LEVEL = 27
_SCALES = tuple(2.0 ** (32 * levels) for levels in range(_MIN_LEVEL, _MAX_LEVEL + 1))


def are_possible(
    counts: Whole, special: NDArray[np.int8], sums: Sums, squares: Sums | None, *, allows_fractions: bool
) -> bool:
    """Return whether the count and the sums of each state can come from the same numbers.

    The sums of a state without rows must be 0, the sums of whole numbers must be whole, and (Σx)² must be at most
    n·Σx². ``special`` has the flags of special values. ``squares`` may be None for states without sums of squares.
    ``allows_fractions`` is True if the numbers may have fractional digits and special values. A state that was reduced
    from rows is never rejected, because magnitudes are compared with a tolerance of 2^-30.
    """
    return bool(_are_possible(counts, special, *sums, *(squares or sums), squares is not None, allows_fractions))


def schwarz_holds(products: Limbs, left: Limbs, right: Limbs) -> bool:
    """Return whether ``(Σab)² ≤ Σa²·Σb²`` for all sums. The comparison has a tolerance of 2^-30, so that sums of actual
    rows are never rejected.
    """
    (ab, ab_power), (aa, aa_power), (bb, bb_power) = map(_float_and_power, (products, left, right))
    with np.errstate(over="ignore", under="ignore"):
        return bool((np.ldexp(ab * ab, 2 * ab_power - aa_power - bb_power) <= aa * bb * (1.0 + 2.0**-30)).all())


def _float_and_power(limbs: Limbs) -> tuple[Floats, Whole]:
    """Return an approximation ``mantissa · 2^exponent`` of each number: two arrays, each of shape (n,).

    Mantissas are below 1 in magnitude.
    """
    high, _, power = leading_digits(limbs)
    mantissas, exponents = np.frexp(high)
    return mantissas, power + exponents


@compiled
def _are_possible(
    counts: Any,
    special: Any,
    exponents: Any,
    places: Any,
    digits: Any,
    square_exponents: Any,
    square_places: Any,
    square_digits: Any,
    has_squares: bool,
    allows_fractions: bool,
) -> bool:
    """Return the result of `are_possible` for arrays that `digits_of` returned.

    If ``has_squares`` is False, the sums of squares are ignored.
    """
    for i in range(len(counts)):
        size = places[i + 1] - places[i]
        square_size = square_places[i + 1] - square_places[i]
        if special[i] < 0 or special[i] > _FLAGS or (special[i] and not allows_fractions):
            return False
        if counts[i] == 0 and (size or square_size or special[i]):
            return False
        if not allows_fractions and (exponents[i] < 0 or square_exponents[i] < 0):
            return False
        if has_squares and square_size and square_digits[square_places[i + 1] - 1] < 0:
            return False
        if has_squares and size:
            if square_size == 0:
                return False
            leading_sum, sum_level = _leading_digits(digits, places[i], places[i + 1])
            square, square_level = _leading_digits(square_digits, square_places[i], square_places[i + 1])
            level_difference = 2 * (exponents[i] + sum_level) - square_exponents[i] - square_level
            smallest_product = (
                leading_sum * leading_sum * _SCALES[max(min(level_difference, _MAX_LEVEL), _MIN_LEVEL) - _MIN_LEVEL]
            )
            # ``leading_sum`` and ``square`` consist of the two highest digits of exact sums, so that both have a
            # relative error of at most 2^-32. The square of ``leading_sum`` has twice this error. The tolerance 2^-30
            # is larger than the total of the errors.
            if smallest_product > square * counts[i] * (1.0 + 2.0**-30):
                return False
    return True


@compiled
def _leading_digits(digits: NDArray[np.int32], start: Int, end: Int) -> tuple[float, Int]:
    """Return an approximation of the sum whose digits are ``digits[start:end]``, as ``(number, position)``.

    The sum is about ``number · 2^(32 · position)``, where ``number`` consists of the two highest digits. Digits are
    ordered from the lowest to the highest.
    """
    if end - start == 1:
        return float(digits[start]), 0
    return digits[end - 1] * 2.0**32 + digits[end - 2], end - 2 - start
