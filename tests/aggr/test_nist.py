"""NIST's Statistical Reference Datasets: means and deviations equal the certified values in all 15 digits.

Data: https://www.itl.nist.gov/div898/strd/ (in the public domain): NumAcc1 to NumAcc4.
"""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest

import aggr
from aggr import Groups


@pytest.mark.parametrize(
    ("middle", "low", "high", "half", "mean", "stdev"),
    [
        ("10000002", "10000001", "10000003", 1, 10000002, 1),  # NumAcc1
        ("1.2", "1.1", "1.3", 500, 1.2, 0.1),
        ("1000000.2", "1000000.1", "1000000.3", 500, 1000000.2, 0.1),
        ("10000000.2", "10000000.1", "10000000.3", 500, 10000000.2, 0.1),
    ],
)
def test_means_and_deviations_are_certified(middle, low, high, half, mean, stdev):
    text = pa.array([middle] + [low, high] * half)
    for kind in (pa.decimal128(12, 1), pa.float64()):
        values = text.cast(kind)
        numbers, groups = values.to_pylist(), Groups.single(len(values))
        results = [f.finish(f.reduce(values, groups))[0].as_py() for f in (aggr.Avg(), aggr.Stdev())]
        fractions = [Fraction(value) for value in numbers]
        exact = sum(fractions) / len(fractions)
        square = sum((x - exact) ** 2 for x in fractions) / (len(fractions) - 1)
        assert results[0] == float(exact)
        assert abs(Fraction(results[1]) ** 2 / square - 1) < Fraction(1, 2**51)
        assert kind == pa.float64() or results == [mean, stdev]
