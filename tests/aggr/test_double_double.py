"""Double-doubles: the rounded sum or product of two doubles and its error, compared with fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from aggr.exact.double_double import fast_two_sum, two_product

DRAWS = np.random.default_rng(3)
A, B = DRAWS.normal(size=(2, 500)) * 2.0 ** DRAWS.integers(-60, 60, (2, 500))


def exact(pair: tuple[np.ndarray, np.ndarray]) -> list[Fraction]:
    return [Fraction(high) + Fraction(low) for high, low in zip(*(part.tolist() for part in pair), strict=True)]


def test_sums():
    greater, less = np.where(np.abs(A) >= np.abs(B), (A, B), (B, A))
    pair = fast_two_sum(greater, less)
    assert pair[0].tolist() == [float(Fraction(a) + Fraction(b)) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    assert exact(pair) == [Fraction(a) + Fraction(b) for a, b in zip(A.tolist(), B.tolist(), strict=True)]


def test_products():
    pair = two_product(A, B)
    assert pair[0].tolist() == [float(Fraction(a) * Fraction(b)) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    assert exact(pair) == [Fraction(a) * Fraction(b) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
