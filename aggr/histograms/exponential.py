"""Powers of two of any exponent, the same bits on every machine.

numpy and the C library choose their exponential by the processor, and may differ in the last bit. This one is made of
additions and multiplications alone, which IEEE 754 rounds in one way, and is correctly rounded but for about one value
in a million, where it is still the same everywhere.

    2^x = 2^whole · 2^(step/64) · e^s        whole and step are whole numbers, |s| < 0.0055

Source: Tang, "Table-driven implementation of the exponential function in IEEE floating-point arithmetic" (1989).
"""

from __future__ import annotations

import numpy as np

from aggr.arrays import Floats
from aggr.exact.double_double import fast_two_sum, two_product
from aggr.exact.powers_of_two import STEPS, tables

# |s| is at most ln 2 / 128, so that the first term left out, s^10/10!, is below 2^-96
_TAIL = [1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6]  # of e^s, from s^9 to s^3


def exp2(exponents: Floats) -> Floats:
    """Raise 2 to each exponent, shape (n,); infinity beyond the largest double.

    >>> exp2(np.array([-1.0, 0.5, 10.0])).tolist()
    [0.5, 1.4142135623730951, 1024.0]
    """
    ln2, ln2_low, table_high, table_low = tables()
    nearest = np.rint(exponents * STEPS)
    step = nearest.astype(np.int64)
    rest = exponents - nearest / STEPS  # exact
    s, s_low = two_product(rest, ln2)
    s_low = s_low + rest * ln2_low
    tail = np.zeros_like(s)
    for coefficient in _TAIL:
        tail = tail * s + coefficient
    square, square_low = two_product(s, 0.5 * s)
    high, low = fast_two_sum(s, square)
    low = low + (square_low + s_low + s * s_low + tail * s * s * s)
    begin, begin_low = table_high[step % STEPS], table_low[step % STEPS]
    product, product_low = two_product(begin, high)
    top, error = fast_two_sum(begin, product)
    top = top + (error + (product_low + begin * low + begin_low + begin_low * high))
    with np.errstate(over="ignore", under="ignore"):
        powers: Floats = np.ldexp(top, step // STEPS)
    return powers
