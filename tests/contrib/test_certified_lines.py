"""NIST's Statistical Reference Datasets: regression lines equal the certified values in 15 digits, and all pairs of
columns equal fractions.

Data: https://www.itl.nist.gov/div898/strd/ (in the public domain): Norris, Longley, Filip.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from benchmarks.by_fractions import exact_pair_statistic, exact_statistic
from benchmarks.nist import FILIP, SETS, columns


def read(function: aggr.Function, *columns: list[str]) -> float:
    arrays = [pa.array([float(value) for value in column]) for column in columns]
    states = function.reduce(arrays if len(arrays) > 1 else arrays[0], Groups.single(len(columns[0])))
    return function.finish(states)[0].as_py()


def digits(value: float) -> str:
    return f"{value:.14e}"


def regression(y: list[Fraction], regressors: list[list[Fraction]]) -> list[Fraction]:
    """Solve the normal equations by fractions."""
    rows = [[Fraction(1)] * len(y), *regressors]
    matrix = [[sum(map(Fraction.__mul__, a, b), Fraction(0)) for b in [*rows, y]] for a in rows]
    for at in range(len(matrix)):
        matrix[at] = [cell / matrix[at][at] for cell in matrix[at]]
        for other in range(len(matrix)):
            if other != at:
                factor = matrix[other][at]
                matrix[other] = [a - factor * b for a, b in zip(matrix[other], matrix[at], strict=True)]
    return [row[-1] for row in matrix]


@pytest.mark.parametrize(
    ("name", "certified"), [("intercept", -0.262323073774029), ("slope", 1.00211681802045), ("r2", 0.999993745883712)]
)
def test_norris_has_its_certified_line(name, certified):
    decimals = [pa.array(column).cast(pa.decimal128(5, 1)) for column in SETS["Norris"]]  # whose doubles are others
    function = aggr.get(name)()
    (result,) = function.finish(function.reduce(decimals, Groups.single(36))).to_pylist()
    assert digits(result) == digits(certified)


def test_the_data_are_those_that_nist_has_certified():
    y, *regressors = [[Fraction(value) for value in column] for column in SETS["Longley"]]
    intercept, first, *_, last = regression(y, regressors)
    certified = (-3482258.63459582, 15.0618722713733, 1829.15146461355)
    assert [digits(float(b)) for b in (intercept, first, last)] == [*map(digits, certified)]
    y, x = [[Fraction(value) for value in column] for column in columns(FILIP, 2)]
    fitted = regression(y, [[value**power for value in x] for power in range(1, 11)])
    assert [digits(float(b)) for b in fitted[::10]] == [*map(digits, (-1467.48961422980, -0.402962525080404e-04))]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("function", ["covar", "corr", "slope", "intercept", "r2"])
def test_every_pair_of_columns_is_correctly_rounded(function, name):
    for y, x in combinations(SETS[name], 2):
        assert read(aggr.get(function)(), y, x) == exact_pair_statistic(function, [*map(float, y)], [*map(float, x)])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("function", ["skewness", "kurtosis"])
def test_every_column_is_correctly_rounded(function, name):
    for x in SETS[name]:
        assert read(aggr.get(function)(), x) == exact_statistic(function, [*map(float, x)], False)
