"""Powers of two are correctly rounded, compared with exact arithmetic, at every position of an array."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from aggr.exact.powers_of_two import exp2


def test_powers_are_correctly_rounded():
    rng = np.random.default_rng(5)
    exponents = np.concatenate([rng.uniform(-1020, 1023, 1500), rng.uniform(-2, 2, 500), np.arange(-64, 65) / 32])
    powers = exp2(exponents)
    with localcontext() as context:
        context.prec = 60
        assert powers.tolist() == [float(Decimal(2) ** Decimal(x)) for x in exponents.tolist()]


def test_a_power_does_not_depend_on_its_neighbours():
    exponents = np.random.default_rng(6).uniform(-1000, 1000, 999)
    powers = exp2(exponents)
    assert powers.tolist() == [float(exp2(exponents[i : i + 1])[0]) for i in range(len(exponents))]


def test_what_does_not_fit_is_infinite_and_whole_powers_are_exact():
    assert exp2(np.array([1024.0, 5000.0])).tolist() == [np.inf, np.inf]
    assert exp2(np.arange(-1022.0, 1024.0)).tolist() == [2.0**k for k in range(-1022, 1024)]
