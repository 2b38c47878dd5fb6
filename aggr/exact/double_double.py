"""Double-doubles: the exact sum or product of two doubles, represented by the rounded double and its error.

Sources: Dekker, "A floating-point technique for extending the available precision" (1971); Veltkamp's split, therein;
Knuth, "The Art of Computer Programming", volume 2, for sums.
"""

from __future__ import annotations

from aggr.arrays import Floats


def fast_two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sums ``a + b`` and their exact errors (Dekker). ``|a| >= |b|`` must hold for each sum."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sums ``a + b`` and their exact errors (Knuth)."""
    s = a + b
    b_part = s - a
    return s, (a - (s - b_part)) + (b - b_part)


def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded products ``a · b`` and their exact errors (Dekker). No intermediate result may over- or
    underflow.
    """
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return p, a_high * b_high - p + a_high * b_low + a_low * b_high + a_low * b_low


def _split(x: Floats) -> tuple[Floats, Floats]:
    """Return two halves of each double, of 26 bits each, whose sum is the double (Veltkamp)."""
    c = x * 134217729.0  # the factor 2^27 + 1 of Veltkamp's split
    high = c - (c - x)
    return high, x - high
