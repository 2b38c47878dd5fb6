"""geometric_mean and harmonic_mean, compared with logarithms of sixty digits and with fractions."""

from __future__ import annotations

import math
import os
import random
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.exact.powers_of_two import PLACES, binary_logarithm

TRIALS = int(os.environ.get("TRIALS", 60))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
EXACTLY = Context(prec=60, Emin=-9999, Emax=9999)
BOUND = Fraction(1, 1 << 51)
GEOMETRIC, HARMONIC = aggr.GeometricMean(), aggr.HarmonicMean()


def mean(function: aggr.Function, values: list, kind: pa.DataType | None = None) -> float | None:
    (result,) = function.finish(
        function.reduce(pa.array(values, kind or pa.float64()), Groups.single(len(values)))
    ).to_pylist()
    return result


def geometric(values: list[float]) -> Fraction:
    logarithms = [EXACTLY.ln(Decimal(value)) for value in values]
    total = Decimal(0)
    for logarithm in logarithms:
        total = EXACTLY.add(total, logarithm)
    return Fraction(EXACTLY.exp(EXACTLY.divide(total, Decimal(len(values)))))


def harmonic(values: list[float]) -> Fraction:
    return len(values) / sum(1 / Fraction(value) for value in values)


def drawn(draws: random.Random) -> list[float]:
    kind = draws.choice(["near one", "any", "rates", "tiny", "huge"])
    makes = {
        "near one": lambda: 1 + draws.uniform(-1e-9, 1e-9),
        "any": lambda: math.ldexp(1 + draws.random(), draws.randrange(-1060, 1023)),
        "rates": lambda: draws.choice([60.0, 40.0, 0.1, draws.random()]),
        "tiny": lambda: draws.randrange(1, 10**6) * 5e-324,
        "huge": lambda: draws.uniform(1e307, 1.7e308),
    }
    return [makes[kind]() or 1.0 for _ in range(draws.choice([1, 2, 3, 50]))]


def test_means_are_within_their_bound():
    print("seed", SEED)
    draws = random.Random(SEED)
    for _ in range(TRIALS):
        values = drawn(draws)
        for function, exactly in ((GEOMETRIC, geometric), (HARMONIC, harmonic)):
            expected, result = exactly(values), mean(function, values)
            smallest_double = Fraction(5e-324)  # a result below the normal doubles is within one of the least
            assert abs(Fraction(result) - expected) <= max(expected * BOUND, smallest_double), (SEED, function, values)


def test_logarithms_are_rounded_to_their_last_place():
    edges = [1.0, 1 + 2**-52, 2 - 2**-52, math.sqrt(2), 1.5]
    numbers = np.array([*edges, *(1 + np.random.default_rng(SEED).random(20 * TRIALS))])
    places = [EXACTLY.divide(EXACTLY.ln(Decimal(float(x))), EXACTLY.ln(Decimal(2))) * (1 << PLACES) for x in numbers]
    assert binary_logarithm(numbers).tolist() == [int(place.to_integral_value()) for place in places]


def test_a_logarithm_does_not_depend_on_that_of_the_machine(monkeypatch):
    numbers = 1 + np.random.default_rng(3).random(100_000)
    here, log2 = binary_logarithm(numbers), np.log2
    monkeypatch.setattr(np, "log2", lambda x: log2(x) + 2.0**-50)
    assert binary_logarithm(numbers).tolist() == here.tolist()


@pytest.mark.parametrize(
    ("values", "results"),
    [
        ([2.0, 8.0], (4.0, 3.2)),
        ([3.0] * 7, (3.0, 3.0)),
        ([0.0, 3.0], (0.0, 0.0)),
        ([math.inf, 1.0], (math.inf, 2.0)),
        ([math.inf], (math.inf, math.inf)),
        ([0.0, math.inf], (math.nan, 0.0)),
        ([math.nan, 1.0], (math.nan, math.nan)),
        ([-1.0, 1.0], (math.nan, math.nan)),
        ([None], (None, None)),
        ([], (None, None)),
    ],
)
def test_special_values(values, results):
    assert repr((mean(GEOMETRIC, values), mean(HARMONIC, values))) == repr(results)


def test_numbers_of_other_types_and_weights():
    assert mean(GEOMETRIC, [1, 2, 4], pa.int64()) == 2.0
    assert mean(HARMONIC, [Decimal("0.50"), Decimal("1.50")], pa.decimal128(9, 2)) == 0.75
    for function in (GEOMETRIC, HARMONIC):
        values, weights = pa.array([0.3, 7.0, 1e300]), pa.array([3, 0, 1])
        repeated = pa.array([0.3] * 3 + [1e300])
        assert function.reduce(values, Groups.single(3), weights).equals(function.reduce(repeated, Groups.single(4)))
