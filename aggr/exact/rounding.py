"""Results of exact sums, correctly rounded once: sums, quotients, variances and roots.

Each result is first computed as a double-double (about 100 bits), for all groups at once. If both ends of its error
interval round to the same double, that double is the correctly rounded result (Ziv's test, 1991). The few remaining
results, which include exact ties, are computed with Python integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Flags, Floats, Whole
from aggr.compiling.jit import compiled
from aggr.exact.double_double import fast_two_sum, two_product, two_sum
from aggr.exact.superaccumulator import BITS, Limbs

# A bound of the relative error of every double-double in this module. An exact sum is first cut to its four highest
# digits in base 2^32, which leaves an error of at most 2^-95. A quotient of two such numbers has an error of at most
# 2^-94, and each operation on double-doubles adds less than 2^-100. The bound is 64 times 2^-94, to be safe.
_MAX_RELATIVE_ERROR = 2.0**-88
# Results below 2^-960 are computed with integers. Doubles below 2^-1022 have fewer bits, so that `ldexp` would round
# the rounded result again. The limit -960 is higher than -1022, to be safe.
_MIN_EXPONENT = -960
_WORDS = 4  # the number of 32-bit digits of a 128-bit integer


class Pair(NamedTuple):
    """Double-doubles times powers of two: ``(high + low) · 2^exponent``, each field of shape (n,)."""

    high: Floats
    low: Floats
    exponent: Whole

    def take(self, rows: Whole) -> Pair:
        """Return the pairs at the indices ``rows``."""
        return Pair(self.high[rows], self.low[rows], self.exponent[rows])


def quotient(limbs: Limbs, *divisors: Whole, scale: int = 0, root: bool = False) -> Floats:
    """Return the rounded ``number / (divisors · 10^scale)``, or its square root; infinity beyond the largest double.

    Parameters
    ----------
    limbs : Limbs
        The digits of ``n`` numbers, which must not be negative for the root.
    *divisors : arrays of int64, shape (n,)
        Positive numbers.
    scale : int
        The number of decimal places of the numbers in ``limbs``, at least 0.
    root : bool
        Whether to return the square root of the quotient.
    """
    high, low, exponent, exact = _leading_digits(*limbs.parts)
    number = Pair(high, low, exponent)
    pair = number
    for divisor in divisors:
        pair = _divide_by(pair, _integer_pair(divisor))
    if scale:
        pair = _divide_by(pair, _single_integer_pair(10**scale))
    round_exactly = root_of if root else ratio

    def compute_exactly(i: int) -> float:
        return round_exactly(*fraction(limbs, i), math.prod(int(divisor[i]) for divisor in divisors) * 10**scale)

    def are_exact(rows: Whole) -> Flags:
        return exact[rows] & _are_quotients_exact(number.take(rows), [divisor[rows] for divisor in divisors])

    if root or scale:
        return _round_pairs(_root(pair) if root else pair, compute_exactly)
    return _round_pairs(pair, compute_exactly, are_exact)


def ratios(numerators: Limbs, denominators: Limbs, scale: int = 0, root: bool = False) -> Floats:
    """Return the rounded ``numerator / (denominator · 10^scale)``, or its square root, of exact numbers.

    The result for a denominator of 0 is NaN. For the root, numerators must not be negative, and denominators must be
    positive.
    """
    is_zero = denominators.signs() == 0
    divisors = leading_digits(denominators)

    def compute_exactly(i: int) -> float:
        numerator, exponent = fraction(numerators, i)
        denominator, other_exponent = fraction(denominators, i)
        sign = -1 if denominator < 0 else 1
        round_exactly = root_of if root else ratio
        if denominator == 0:
            return math.nan
        return round_exactly(sign * numerator, exponent - other_exponent, sign * denominator * 10**scale)

    pair = _divide_by(leading_digits(numerators), (np.where(is_zero, 1.0, divisors.high), divisors.low))
    if scale:
        pair = _divide_by(pair, _single_integer_pair(10**scale))
    high = np.where(is_zero, np.nan, pair.high + 0.0)  # 0 divided by a negative number is -0.0; adding 0.0 gives 0.0
    pair = Pair(high, pair.low, pair.exponent - divisors.exponent)
    return _round_pairs(_root(pair) if root else pair, compute_exactly)


def ratio(numerator: int, exponent: int, denominator: int = 1) -> float:
    """Return the correctly rounded ``numerator · 2^exponent / denominator``; infinity beyond the largest double."""
    numerator, denominator = (
        (numerator << exponent, denominator) if exponent >= 0 else (numerator, denominator << -exponent)
    )
    try:
        return numerator / denominator  # Python rounds the quotient of two integers correctly
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def root_of(numerator: int, exponent: int, denominator: int = 1) -> float:
    """Return the correctly rounded square root of ``numerator · 2^exponent / denominator``."""
    # The quotient is shifted so that it has at least 140 bits. Its root then has at least 70 bits, which are more than
    # the 53 bits of the result. The exponent of the quotient must be even, because the root halves it.
    shift = max(0, 140 + denominator.bit_length() - numerator.bit_length())
    shift += (exponent - shift) % 2
    quotient, remainder = divmod(numerator << shift, denominator)
    root = math.isqrt(quotient)
    sticky = int(root * root != quotient or remainder != 0)
    return ratio(2 * root + sticky, (exponent - shift) // 2 - 1)


def whole_number(limbs: Limbs, i: int) -> int:
    """Return the exact number at index ``i`` as an integer. The number must be whole."""
    significand, exponent = fraction(limbs, i)
    return significand << exponent if exponent >= 0 else significand >> -exponent


def fraction(limbs: Limbs, i: int) -> tuple[int, int]:
    """Return the exact number at index ``i``, ``significand · 2^exponent``, as the pair ``(significand, exponent)``."""
    significand = 0
    for digit in limbs.digits[limbs.places[i] : limbs.places[i + 1]][::-1].tolist():
        significand = (significand << BITS) + digit
    return significand, BITS * int(limbs.low[i])


def _round_pairs(
    pair: Pair, compute_exactly: Callable[[int], float], are_exact: Callable[[Whole], Flags] | None = None
) -> Floats:
    """Return double-doubles rounded to doubles, shape (n,).

    A pair is uncertain if its error is so large that the exact number could round to either of two doubles. The result
    for an uncertain pair is ``compute_exactly(index)``. If ``are_exact`` is passed, it receives the indices of the
    uncertain pairs, and returns a mask that is True for a pair without error. ``compute_exactly`` is not called for
    pairs without error. Tiny results, and results that are not finite, are always computed by ``compute_exactly``.
    """
    high, low, exponent = pair
    margin = np.abs(high) * _MAX_RELATIVE_ERROR
    with np.errstate(over="ignore"):
        result: Floats = np.ldexp(high, exponent)
    is_uncertain = (high + (low + margin) != high) | (high + (low - margin) != high)
    if are_exact is not None and is_uncertain.any():
        rows = np.flatnonzero(is_uncertain)
        is_uncertain[rows] = ~are_exact(rows)
    is_uncertain |= (high != 0) & (np.frexp(high)[1] + exponent < _MIN_EXPONENT)
    is_uncertain |= ~np.isfinite(high)
    for i in np.flatnonzero(is_uncertain).tolist():
        result[i] = compute_exactly(i)
    return result


def leading_digits(limbs: Limbs) -> Pair:
    """Return each number, cut to its four leading digits, which have at least 97 bits.

    The exponent of a returned pair is the exponent of the fourth digit.
    """
    return Pair(*_leading_digits(*limbs.parts)[:3])


@compiled
def _leading_digits(digits: NDArray[np.int32], places: Whole, low: Whole) -> tuple[Floats, Floats, Whole, Flags]:
    """Return the three fields of the `Pair` that `leading_digits` returns, and a mask of the pairs that equal their
    numbers. A pair equals its number if the number has at most three digits. The parameters are `Limbs.parts`.
    """
    n = len(low)
    high = np.zeros(n)
    residual = np.zeros(n)
    exponent = np.zeros(n, np.int64)
    exact = np.zeros(n, np.bool_)
    for i in range(n):
        first = places[i]
        top = places[i + 1] - 1
        total = 0.0
        error = 0.0
        scale = 2.0 ** (3 * BITS)
        exact[i] = top - first < 3  # three digits have 96 bits, so that two doubles with 53 bits each represent them
        for step in range(4):
            if top - step >= first:
                added = digits[top - step] * scale
                new_total = total + added
                rounded_part = new_total - total
                error += (total - (new_total - rounded_part)) + (added - rounded_part)
                total = new_total
                scale = scale * 2.0**-BITS
        new_total = total + error
        high[i], residual[i], exponent[i] = new_total, error - (new_total - total), BITS * (top - first - 3 + low[i])
    return high, residual, exponent, exact


def _divide_by(pair: Pair, divisor: tuple[Floats, Floats]) -> Pair:
    """Return pairs divided by double-doubles ``(high, low)`` other than 0. A divisor consists of two doubles, because
    one double cannot represent all integers above 2^53 and powers of ten above 10^22.
    """
    high, low, exponent = pair
    estimate = high / divisor[0]
    product, error = two_product(estimate, divisor[0])
    remainder = ((high - product) - error) + low - estimate * divisor[1]
    return Pair(*fast_two_sum(estimate, remainder / divisor[0]), exponent)


def _are_quotients_exact(pair: Pair, divisors: Sequence[Whole]) -> Flags:
    """Return a mask of the pairs whose quotient from `_divide_by` is known to have no error, shape (n,).

    The mask is valid only for pairs without an error of their own. ``divisors`` are arrays of positive integers. The
    divisor of a pair is the product of its integers in these arrays.

    Means of few numbers are often exactly halfway between two doubles. If the double-double of such a mean has no
    error, it can be rounded correctly without the slower computation with Python integers.
    """
    exact = np.ones(len(pair.high), np.bool_)
    for divisor in divisors:
        divisor_high, divisor_low = _integer_pair(divisor)
        quotient = _divide_by(pair, (divisor_high, divisor_low))
        high_product, high_error = two_product(quotient.high, divisor_high)
        low_product, low_error = two_product(quotient.low, divisor_high)
        # pair.high - high_product is exact, because the two are nearly equal (Sterbenz's lemma)
        left, left_error = two_sum(pair.high - high_product, -high_error)
        right, right_error = two_sum(low_product, -pair.low)
        exact &= (divisor_low == 0) & (low_error == 0) & (left_error == 0) & (right_error == 0) & (left == right)
        pair = quotient
    return exact


def _root(pair: Pair) -> Pair:
    """Return the square roots of pairs that are positive or exactly zero."""
    odd = pair.exponent % 2
    high = pair.high * (1.0 + odd)
    low = pair.low * (1.0 + odd)
    root = np.sqrt(np.maximum(high, 0.0))
    square, error = two_product(root, root)
    remainder = ((high - square) - error) + low
    correction = np.divide(remainder, 2.0 * root, out=np.zeros_like(root), where=root > 0)
    return Pair(*fast_two_sum(root, correction), (pair.exponent - odd) // 2)


def _integer_pair(values: Whole) -> tuple[Floats, Floats]:
    high = values.astype(np.float64)
    # The conversion may round up to 2^63, which does not fit int64. The largest double below 2^63 is then used, and the
    # second returned array has the difference.
    near = np.minimum(high, 2.0**63 - 1024)
    return near, (values - near.astype(np.int64)).astype(np.float64)


def _single_integer_pair(value: int) -> tuple[Floats, Floats]:
    high = float(value)
    return np.array([high]), np.array([float(value - int(high))])


def as_integers(limbs: Limbs, low_bound: int, high_bound: int) -> tuple[NDArray[np.uint64], Whole, Flags]:
    """Return whole numbers as integers of 128 bits, and a mask of the numbers in ``[low_bound, high_bound]``.

    The integers are two arrays: the lower 64 bits, and the upper 64 bits. All results have the shape (n,).
    """
    low, high = _lower_128_bits(*limbs.parts)
    with np.errstate(over="ignore"):  # a number beyond the largest double is beyond the bounds too
        approximations = np.ldexp(*leading_digits(limbs)[::2])
    # The lower bound is negative and the upper bound positive, so that multiplying both by 0.999 gives a narrower
    # range. The relative error of an approximation is at most 2^-88. A number is therefore in the range if its
    # approximation is in the narrower range. All other numbers are compared exactly.
    is_in_range = (approximations > low_bound * 0.999) & (approximations < high_bound * 0.999)
    for i in np.flatnonzero(~is_in_range).tolist():
        is_in_range[i] = low_bound <= whole_number(limbs, i) <= high_bound
    return low, high, is_in_range


@compiled
def _lower_128_bits(digits: NDArray[np.int32], places: Whole, low: Whole) -> tuple[NDArray[np.uint64], Whole]:
    """Return the lower 128 bits of whole numbers in two's complement: the lower 64 bits, and the upper 64 bits.

    Each result has the shape (n,). The parameters are `Limbs.parts`.
    """
    n = len(low)
    lower = np.zeros(n, np.uint64)
    upper = np.zeros(n, np.int64)
    words = np.zeros(_WORDS, np.int64)
    for i in range(n):
        for level in range(_WORDS):
            index = places[i] + level - low[i]
            words[level] = digits[index] if places[i] <= index < places[i + 1] else 0
        borrow = np.int64(0)
        for level in range(_WORDS):
            total = words[level] + borrow
            borrow = total >> BITS
            words[level] = total - (borrow << BITS)
        lower[i] = np.uint64(words[0] | (words[1] << BITS))
        upper[i] = words[2] | (words[3] << BITS)
    return lower, upper
