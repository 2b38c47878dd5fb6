"""Sums of numbers of similar size, which are added in registers, equal those of fractions; other sums use the general
loops.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggr.exact.fixed_point import MAX_EXPONENT_DIFFERENCE, sum_fixed_point
from aggr.exact.row_sums import sum_exactly, sum_squares
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers

SUMS = {"numbers": (sum_exactly, False), "squares": (sum_squares, True)}


def total(row: dict) -> Fraction:
    return sum((limb * Fraction(2) ** (32 * (row["exponent"] + i)) for i, limb in enumerate(row["limbs"])), Fraction(0))


def drawn(rng: np.random.Generator, lowest: int, apart: int, rows: int) -> np.ndarray:
    """Doubles of all mantissas and both signs, with exponents from ``lowest`` on, both ends among them, and zeros."""
    exponents = rng.integers(lowest, lowest + apart, rows, endpoint=True)
    exponents[:2] = lowest, lowest + apart
    signs = rng.choice([-1.0, 1.0], rows)
    signs[2:] *= rng.random(rows - 2) < 0.9
    return signs * np.ldexp(1.0 + rng.integers(0, 2**52, rows) / 2**52, exponents)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(-1030, 900), st.integers(0, MAX_EXPONENT_DIFFERENCE + 20), st.integers(1, 4))
def test_sums_are_those_of_fractions(seed, lowest, apart, n):
    rng = np.random.default_rng(seed)
    values = drawn(rng, lowest, apart, 40 * n)
    ids = np.append([0, 0], rng.integers(0, n, 40 * n - 2))
    for summed, squares in SUMS.values():
        groups = Groups.of(ids, n)
        result = summed([Numbers(values, groups)]).to_pylist()
        for group in range(n):
            powers = [Fraction(value) ** (1 + squares) for value in values[ids == group].tolist()]
            assert total(result[group]) == sum(powers, Fraction(0))
        if lowest >= -1022:  # below, doubles have fewer exponents than powers of two
            assert (sum_fixed_point(Numbers(values, groups), squares) is None) == (apart > MAX_EXPONENT_DIFFERENCE)


@pytest.mark.parametrize("name", SUMS)
def test_the_ends_of_doubles(name):
    summed, squares = SUMS[name]
    tiny, huge = 5e-324, 1.7976931348623157e308
    for few in ([tiny], [-tiny, 2.2250738585072014e-308], [huge, -1e300], [0.0, -0.0], [tiny, huge]):
        rows = [few[i % len(few)] for i in range(33)]
        (total_of_ends,) = summed([Numbers(np.array(rows), Groups.single(33))]).to_pylist()
        assert total(total_of_ends) == sum(Fraction(value) ** (1 + squares) for value in rows)


def test_many_rows_carry():
    rows, value = 1 << 20, float(2**53 - 1)
    values = np.full(rows, value)
    values[-1] = value * 2.0**-MAX_EXPONENT_DIFFERENCE
    for summed, squares in SUMS.values():
        (total_of_rows,) = summed([Numbers(values, Groups.single(rows))]).to_pylist()
        power = 1 + squares
        assert total(total_of_rows) == (rows - 1) * Fraction(value) ** power + Fraction(values[-1]) ** power


def test_few_rows_and_lengths():
    assert sum_fixed_point(Numbers(np.ones(31), Groups.of([0, 1] * 15 + [0], 2)), of_squares=False) is None
    with pytest.raises(ValueError, match="got 3 values and 40 group ids"):
        Numbers(np.ones(3), Groups.single(40))


@given(st.lists(st.integers(0, 4), max_size=50))
def test_values_in_the_order_of_their_groups(ids):
    groups, values = Groups.of(ids, 5), np.arange(len(ids)) * 0.5
    ordered, until = Numbers(values, groups).sorted_by_group, groups.offsets
    for group in range(5):
        values_of_group = [value for value, its in zip(values.tolist(), ids, strict=True) if its == group]
        assert ordered[until[group] : until[group + 1]].tolist() == values_of_group
