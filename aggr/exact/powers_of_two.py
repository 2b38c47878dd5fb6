"""Powers of two with fractional exponents, and logarithms, with the same bits on every machine.

numpy and the C library select their exponential functions by processor, so their results may differ in the last bit.
The functions here use only additions, multiplications and divisions, whose rounding IEEE 754 defines. `power_of_two`
and `binary_logarithm` are correctly rounded. `exp2` is correctly rounded for all but about one value in a million.

    2^x = 2^whole · 2^(step/64) · e^s        whole and step are whole numbers, |s| < 0.0055

Source: Tang, "Table-driven implementation of the exponential function in IEEE floating-point arithmetic" (1989).
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import cache

import numpy as np

from aggr.arrays import Floats, Whole
from aggr.exact.double_double import fast_two_sum, two_product

_EXACTLY = Context(prec=60)
PLACES = 53  # the number of binary places of a logarithm

_BLOCK = 1 << 14  # the number of elements per block: temporary arrays of this length fit into the cache

# The table divides the interval between two powers of two into this number of steps. The remainder of an exponent is at
# most half a step.
_STEPS = 64
# the Taylor coefficients of e^s from s^9 to s^3, for |s| up to ln 2 / 128; the next term is below 2^-96
_TAIL = [1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6]
_ERROR = 2.0**-68  # an upper bound of the relative error of `_power`; in measurements, the error was below 2^-73


def power_of_two(tops: Whole, bottom: int) -> Floats:
    """Return ``2^(top / bottom)`` for each ``top``, correctly rounded, shape (n,). The results are in [1, 2].

    Each ``top`` must be in ``[0, bottom)``, and ``bottom`` below 2^53.

    >>> power_of_two(np.array([0, 1, 2]), 4)
    array([1.        , 1.18920712, 1.41421356])
    """
    high, low = _power(tops.astype(np.float64), np.array([float(bottom)]))
    for i in np.flatnonzero((high + (low + high * _ERROR) != high) | (high + (low - high * _ERROR) != high)).tolist():
        high[i] = float(_EXACTLY.power(Decimal(2), _EXACTLY.divide(Decimal(int(tops[i])), Decimal(bottom))))
    return high


def exp2(exponents: Floats) -> Floats:
    """Return 2 to the power of each exponent, shape (n,); infinity if the power exceeds the largest double.

    >>> exp2(np.array([-1.0, 0.5, 10.0])).tolist()
    [0.5, 1.4142135623730951, 1024.0]
    """
    ln2, ln2_low, table_high, table_low = _tables()
    nearest = np.rint(exponents * _STEPS)
    step = nearest.astype(np.int64)
    # The difference has no rounding error, because the second number is 0 or nearly equal to the first (Sterbenz's
    # lemma).
    remainder = exponents - nearest / _STEPS
    s, s_low = two_product(remainder, ln2)
    s_low = s_low + remainder * ln2_low
    tail = np.zeros_like(s)
    for coefficient in _TAIL:
        tail = tail * s + coefficient
    square, square_low = two_product(s, 0.5 * s)
    high, low = fast_two_sum(s, square)
    low = low + (square_low + s_low + s * s_low + tail * s * s * s)
    begin = table_high[step % _STEPS]
    begin_low = table_low[step % _STEPS]
    product, product_low = two_product(begin, high)
    top, error = fast_two_sum(begin, product)
    top = top + (error + (product_low + begin * low + begin_low + begin_low * high))
    with np.errstate(over="ignore", under="ignore"):
        powers: Floats = np.ldexp(top, step // _STEPS)
    return powers


def binary_logarithm(numbers: Floats) -> Whole:
    """Return the binary logarithms of numbers in [1, 2) as whole numbers of units of ``2^-53``, shape (n,).

    The logarithms are correctly rounded to these units, that is, to `PLACES` binary places.

    >>> binary_logarithm(np.array([1.0, 2**0.5])) / 2**53
    array([0. , 0.5])
    """
    chunks = [_logarithm(numbers[at : at + _BLOCK]) for at in range(0, len(numbers), _BLOCK)]
    return np.concatenate([np.empty(0, np.int64), *chunks])


def _logarithm(numbers: Floats) -> Whole:
    # The last bit of log2 differs between machines, so this logarithm is only an approximation. The correction is
    # computed without log2, and rounding the corrected number gives the same result on all machines.
    approximation = np.rint(np.log2(numbers) * 2.0**PLACES)
    high, low = _power(approximation, np.array([2.0**PLACES]))
    correction = (numbers - high - low) / high * (2.0**PLACES / _tables()[0])
    units = (approximation + np.rint(correction)).astype(np.int64)
    for i in np.flatnonzero(np.abs(correction - np.rint(correction)) > 0.5 - 2.0**PLACES * 2 * _ERROR).tolist():
        exact = _EXACTLY.divide(_EXACTLY.ln(Decimal(float(numbers[i]))), _EXACTLY.ln(Decimal(2)))
        units[i] = int(_EXACTLY.multiply(exact, Decimal(1 << PLACES)).to_integral_value())
    return units


def _power(tops: Floats, bottom: Floats) -> tuple[Floats, Floats]:
    """Return ``2^(tops / bottom)`` as double-doubles: the rounded powers, and their errors.

    The powers are computed as ``2^(j / 64) · e^(r · ln 2)``. Here, j / 64 is the multiple of 1 / 64 that is nearest to
    the exponent, and r is the remainder of the exponent.
    """
    quotient = tops / bottom
    product, error = two_product(quotient, bottom)
    quotient_error = ((tops - product) - error) / bottom
    step = np.rint(quotient * _STEPS)
    ln_high, ln_low, power_high, power_low = _tables()
    remainder = quotient - step / _STEPS
    x, error = two_product(remainder, ln_high)
    x, x_low = fast_two_sum(x, error + remainder * ln_low + quotient_error * ln_high)
    square, error = two_product(x, x)
    total, total_low = fast_two_sum(x, square / 2)
    series = np.zeros(len(x))
    for factorial in (40320, 5040, 720, 120, 24, 6):
        series = 1 / factorial + x * series
    total_low += x_low + error / 2 + x * x_low + x * square * series
    base = power_high[step.astype(np.intp)]
    base_low = power_low[step.astype(np.intp)]
    product_with_base, error = two_product(base, total)
    high, low = fast_two_sum(base, product_with_base)
    return fast_two_sum(high, low + (error + base_low + base * total_low + base_low * total))


@cache
def _tables() -> tuple[Floats, Floats, Floats, Floats]:
    """Return ln 2, shape (1,), and the powers ``2^(j / 64)`` for j from 0 to 64, as double-doubles: two arrays for ln
    2, and two for the powers.
    """
    powers = [_EXACTLY.power(Decimal(2), Decimal(j) / _STEPS) for j in range(_STEPS + 1)]
    return *_double_doubles([_EXACTLY.ln(Decimal(2))]), *_double_doubles(powers)


def _double_doubles(numbers: list[Decimal]) -> tuple[Floats, Floats]:
    high = [float(number) for number in numbers]
    low = [float(_EXACTLY.subtract(number, Decimal(rounded))) for number, rounded in zip(numbers, high, strict=True)]
    return np.array(high), np.array(low)
