"""From exact sums to results that are rounded once, correctly: sums, quotients, variances, roots.

Each result is first computed as a double-double (about 100 bits, all groups at once). Where both ends of its
error interval round to the same double, that double is the correctly rounded result (Ziv's test, 1991).
The few others, exact ties among them, are decided by Python's whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggr.kernels.jit import Int, compiled
from aggr.kernels.superaccumulator import BITS, HALF, Limbs

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# Bounds the relative error of every double-double below. Cutting a number off after four digits leaves 2^-95 of it, a
# quotient of two such numbers is off by 2^-94, and each operation adds less than 2^-100: 2^-88 is 64 times as much.
_SAFE = 2.0**-88
_LEAST = -960  # well above 2^-1022, below which `ldexp` would round again: smaller results are left to whole numbers
_WORDS = 4  # digits of a whole number of 128 bits


class Pair(NamedTuple):
    """Double-doubles times a power of two: ``(high + low) · 2^exponent``, each field of shape (n,)."""

    high: Floats
    low: Floats
    exponent: NDArray[np.int64]


def rounded(limbs: Limbs) -> Floats:
    """Round exact numbers to the nearest doubles, ties to even; beyond the largest double, infinity."""
    return _decide(_pair(limbs), lambda i: ratio(*_fraction(limbs, i)))


def quotient(limbs: Limbs, divisors: NDArray[np.int64], scale: int = 0) -> Floats:
    """Round ``number / (divisor · 10^scale)``, divisors positive."""
    return _decide(
        _divide(_pair(limbs), divisors, scale),
        lambda i: ratio(*_fraction(limbs, i), int(divisors[i]) * 10**scale),
    )


def ratios(tops: Limbs, bottoms: Limbs, scale: int = 0) -> Floats:
    """Round ``top / (bottom · 10^scale)``, both exact; a bottom of 0 gives NaN."""
    nothing = bottoms.signs() == 0
    by = _pair(bottoms)

    def exactly(i: int) -> float:
        (top, low), (bottom, other) = _fraction(tops, i), _fraction(bottoms, i)
        sign = -1 if bottom < 0 else 1
        return ratio(sign * top, low - other, sign * bottom * 10**scale) if bottom else math.nan

    pair = _divide_by(_pair(tops), (np.where(nothing, 1.0, by.high), by.low))
    if scale:
        pair = _divide_by(pair, _whole_pair_of(10**scale))
    return _decide(Pair(np.where(nothing, np.nan, pair.high), pair.low, pair.exponent - by.exponent), exactly)


def variance(sums: Limbs, squares: Limbs, counts: NDArray[np.int64], ddof: int, scale: int, root: bool) -> Floats:
    """Round the variance, or its root, from exact sums: ``(n·Σx² − (Σx)²) / (n·(n − ddof))``.

    Parameters
    ----------
    sums, squares : Limbs
        Σx and Σx² of ``n`` groups.
    counts : array of int64, shape (n,)
        Each greater than ``ddof``.
    ddof : int
        Taken from the count in the divisor.
    scale : int
        Decimal places: the values are ``x / 10^scale``.
    root : bool
        Ask for the standard deviation.
    """

    def exactly(i: int) -> float:
        total, low = _fraction(sums, i)
        square, low_square = _fraction(squares, i)
        n, exponent = int(counts[i]), min(2 * low, low_square)
        top = n * (square << (low_square - exponent)) - (total * total << (2 * low - exponent))
        return (root_of if root else ratio)(top, exponent, n * (n - ddof) * 100**scale)

    spread = Limbs(*_spreads(*_parts(sums), *_parts(squares), counts))
    pair = _divide(_divide(_pair(spread), counts, 2 * scale), counts - ddof, 0)
    return _decide(_root(pair) if root else pair, exactly)


def ratio(top: int, exponent: int, bottom: int = 1) -> float:
    """Round ``top · 2^exponent / bottom`` correctly; beyond the largest double, infinity."""
    top, bottom = (top << exponent, bottom) if exponent >= 0 else (top, bottom << -exponent)
    try:
        return top / bottom  # Python divides whole numbers with one correct rounding
    except OverflowError:
        return math.inf if top > 0 else -math.inf


def root_of(top: int, exponent: int, bottom: int = 1) -> float:
    """Round the square root of ``top · 2^exponent / bottom`` correctly."""
    shift = max(0, 140 + bottom.bit_length() - top.bit_length())  # 140 bits or more, so that the root has 70 of them
    shift += (exponent - shift) % 2
    whole, remainder = divmod(top << shift, bottom)
    root = math.isqrt(whole)
    sticky = int(root * root != whole or remainder != 0)
    return ratio(2 * root + sticky, (exponent - shift) // 2 - 1)


def whole_number(limbs: Limbs, i: int) -> int:
    """Read number ``i`` as a whole number; it must be one."""
    top, exponent = _fraction(limbs, i)
    return top << exponent if exponent >= 0 else top >> -exponent


def _fraction(limbs: Limbs, i: int) -> tuple[int, int]:
    """Read number ``i`` exactly, as ``(top, exponent)`` of ``top · 2^exponent``."""
    top = 0
    for digit in limbs.digits[limbs.places[i] : limbs.places[i + 1]][::-1].tolist():
        top = (top << BITS) + digit
    return top, BITS * int(limbs.low[i])


def _decide(pair: Pair, exactly: Callable[[int], float]) -> Floats:
    """Round double-doubles, and ask for the exact result where their error leaves a doubt."""
    high, low, exponent = pair
    margin = np.abs(high) * _SAFE
    with np.errstate(over="ignore"):
        result: Floats = np.ldexp(high, exponent)
    doubt = (high + (low + margin) != high) | (high + (low - margin) != high)
    doubt |= (high != 0) & (np.frexp(high)[1] + exponent < _LEAST)
    doubt |= ~np.isfinite(high)
    for i in np.flatnonzero(doubt).tolist():
        result[i] = exactly(i)
    return result


def _parts(limbs: Limbs) -> tuple[NDArray[np.int32], Whole, Whole]:
    return limbs.digits, limbs.places, limbs.low


def _pair(limbs: Limbs) -> Pair:
    """Take the four leading digits of each number, 97 bits and more, scaled so that the fourth counts ones."""
    return Pair(*_leading(*_parts(limbs)))


@compiled
def _leading(digits: NDArray[np.int32], places: Whole, low: Whole) -> tuple[Floats, Floats, Whole]:
    n = len(low)
    high, rest, exponent = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    for i in range(n):
        first, top = places[i], places[i + 1] - 1
        total, error, scale = 0.0, 0.0, 2.0 ** (3 * BITS)
        for step in range(4):
            if top - step >= first:
                added = digits[top - step] * scale
                after = total + added
                shown = after - total
                error += (total - (after - shown)) + (added - shown)
                total, scale = after, scale * 2.0**-BITS
        after = total + error
        high[i], rest[i], exponent[i] = after, error - (after - total), BITS * (top - first - 3 + low[i])
    return high, rest, exponent


def _divide(pair: Pair, divisors: NDArray[np.int64], scale: int) -> Pair:
    """Divide by ``divisor · 10^scale``; divisors above 2^53 and powers above 10^22 are double-doubles too."""
    pair = _divide_by(pair, _whole_pair(divisors))
    return _divide_by(pair, _whole_pair_of(10**scale)) if scale else pair


def _divide_by(pair: Pair, divisor: tuple[Floats, Floats]) -> Pair:
    """Divide by double-doubles, none of them 0."""
    high, low, exponent = pair
    first = high / divisor[0]
    times, error = two_product(first, divisor[0])
    rest = ((high - times) - error) + low - first * divisor[1]
    return Pair(*fast_two_sum(first, rest / divisor[0]), exponent)


def _root(pair: Pair) -> Pair:
    """Take the square root; only a rounding-free zero or a positive number comes in."""
    odd = pair.exponent % 2
    high, low = pair.high * (1.0 + odd), pair.low * (1.0 + odd)
    root = np.sqrt(np.maximum(high, 0.0))
    times, error = two_product(root, root)
    rest = ((high - times) - error) + low
    correction = np.divide(rest, 2.0 * root, out=np.zeros_like(root), where=root > 0)
    return Pair(*fast_two_sum(root, correction), (pair.exponent - odd) // 2)


def _whole_pair(values: NDArray[np.int64]) -> tuple[Floats, Floats]:
    high = values.astype(np.float64)
    near = np.minimum(high, 2.0**62)
    return near, (values - near.astype(np.int64)).astype(np.float64)


def _whole_pair_of(value: int) -> tuple[Floats, Floats]:
    high = float(value)
    return np.array([high]), np.array([float(value - int(high))])


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Add exactly: the rounded sum and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Add exactly where ``|a| >= |b|`` (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Multiply exactly: the rounded product and its error (Dekker); nothing may over- or underflow."""
    p = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return p, a_high * b_high - p + a_high * b_low + a_low * b_high + a_low * b_low


def _split(x: Floats) -> tuple[Floats, Floats]:
    """Split into halves of 26 bits (Veltkamp)."""
    c = x * 134217729.0  # 2^27 + 1
    high = c - (c - x)
    return high, x - high


@compiled
def _spreads(
    digits: NDArray[np.int32],
    places: Whole,
    low: Whole,
    square_digits: NDArray[np.int32],
    square_places: Whole,
    square_low: Whole,
    counts: Whole,
) -> tuple[NDArray[np.int32], Whole, Whole]:
    """Compute ``n·Σx² − (Σx)²`` of each group exactly, as the digits, places and lowest levels of `Limbs`."""
    n = len(counts)
    first, room = np.zeros(n, np.int64), np.zeros(n + 1, np.int64)
    for i in range(n):
        size, square_size = places[i + 1] - places[i], square_places[i + 1] - square_places[i]
        first[i] = min(2 * low[i], square_low[i])
        room[i + 1] = room[i] + max(2 * (low[i] + size), square_low[i] + square_size) - first[i] + 3
    cells = np.zeros(room[n], np.int64)
    for i in range(n):
        high = ((counts[i] >> (BITS - 1)) + 1) >> 1  # and the lower digit, between -2^31 and 2^31
        count = counts[i] - (high << BITS)
        at = room[i] + square_low[i] - first[i]
        for j in range(square_places[i], square_places[i + 1]):
            _add_product(cells, at, np.int64(square_digits[j]) * count)
            _add_product(cells, at + 1, np.int64(square_digits[j]) * high)
            at += 1
        at = room[i] + 2 * low[i] - first[i]
        for j in range(places[i], places[i + 1]):
            for k in range(places[i], places[i + 1]):
                _add_product(cells, at + j + k - 2 * places[i], -np.int64(digits[j]) * np.int64(digits[k]))
    balanced, until, used = np.empty(len(cells), np.int32), np.zeros(n + 1, np.int64), np.int64(0)
    for i in range(n):
        carry, end = np.int64(0), used
        for j in range(room[i], room[i + 1]):
            total = cells[j] + carry
            carry = (total + HALF) >> BITS
            balanced[used] = total - (carry << BITS)
            used += 1
            if balanced[used - 1]:
                end = used
        used = end  # without the zeros above
        until[i + 1] = used
    return balanced[:used].copy(), until, first


@compiled
def _add_product(cells: Whole, at: Int, product: Int) -> None:
    """Add a product of two balanced digits as two digits."""
    carry = (product + HALF) >> BITS
    cells[at] += product - (carry << BITS)
    cells[at + 1] += carry


def as_integers(limbs: Limbs, least: int, most: int) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.bool_]]:
    """Read whole numbers as 128-bit two's complement halves.

    Returns
    -------
    low : array of uint64, shape (n,)
    high : array of int64, shape (n,)
    fits : array of bool, shape (n,)
        Whether the number lies in ``[least, most]``, themselves within 127 bits.
    """
    low, high = _words(*_parts(limbs))
    with np.errstate(over="ignore"):  # beyond all doubles is beyond the ends too
        near = np.ldexp(*_pair(limbs)[::2])
    # off by 2^-88 at most: a number within 99.9 % of both ends fits, and the others are compared exactly
    fits = (near > least * 0.999) & (near < most * 0.999)
    for i in np.flatnonzero(~fits).tolist():
        fits[i] = least <= whole_number(limbs, i) <= most
    return low, high, fits


@compiled
def _words(digits: NDArray[np.int32], places: Whole, low: Whole) -> tuple[NDArray[np.uint64], Whole]:
    """Read the lower 128 bits of whole numbers, as two's complement halves."""
    n = len(low)
    lower, upper = np.zeros(n, np.uint64), np.zeros(n, np.int64)
    words = np.zeros(_WORDS, np.int64)
    for i in range(n):
        for level in range(_WORDS):
            place = places[i] + level - low[i]
            words[level] = digits[place] if places[i] <= place < places[i + 1] else 0
        borrow = np.int64(0)
        for level in range(_WORDS):
            total = words[level] + borrow
            borrow = total >> BITS
            words[level] = total - (borrow << BITS)
        lower[i] = np.uint64(words[0] | (words[1] << BITS))
        upper[i] = words[2] | (words[3] << BITS)
    return lower, upper
