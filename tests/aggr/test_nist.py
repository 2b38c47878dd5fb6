"""NIST's Statistical Reference Datasets: certified values to their 15 digits, and every pair of columns by fractions.

Data: https://www.itl.nist.gov/div898/strd/ (in the public domain): Norris, Longley, Filip, NumAcc1 to NumAcc4.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from tests.aggr.test_exact_family import of_one, of_two

NORRIS = """0.1 0.2 338.8 337.4 118.1 118.2 888.0 884.6 9.2 10.1 228.1 226.5 668.5 666.3 998.5 996.3 449.1 448.6 778.9
777.0 559.2 558.2 0.3 0.4 0.1 0.6 778.1 775.5 668.8 666.9 339.3 338.0 448.9 447.5 10.8 11.6 557.7 556.0 228.3 228.1
998.0 995.8 888.8 887.6 119.6 120.2 0.3 0.3 0.6 0.3 557.6 556.8 339.3 339.1 888.0 887.2 998.5 999.0 778.9 779.0 10.2
11.1 117.6 118.3 228.9 229.2 668.4 669.1 449.2 448.9 0.2 0.5"""
LONGLEY = """60323 83.0 234289 2356 1590 107608 1947 61122 88.5 259426 2325 1456 108632 1948
60171 88.2 258054 3682 1616 109773 1949 61187 89.5 284599 3351 1650 110929 1950
63221 96.2 328975 2099 3099 112075 1951 63639 98.1 346999 1932 3594 113270 1952
64989 99.0 365385 1870 3547 115094 1953 63761 100.0 363112 3578 3350 116219 1954
66019 101.2 397469 2904 3048 117388 1955 67857 104.6 419180 2822 2857 118734 1956
68169 108.4 442769 2936 2798 120445 1957 66513 110.8 444546 4681 2637 121950 1958
68655 112.6 482704 3813 2552 123366 1959 69564 114.2 502601 3931 2514 125368 1960
69331 115.7 518173 4806 2572 127852 1961 70551 116.9 554894 4007 2827 130081 1962"""
FILIP = """0.8116 -6.860120914 0.9072 -4.324130045 0.9052 -4.358625055 0.9039 -4.358426747 0.8053 -6.955852379
0.8377 -6.661145254 0.8667 -6.355462942 0.8809 -6.118102026 0.7975 -7.115148017 0.8162 -6.815308569 0.8515 -6.519993057
0.8766 -6.204119983 0.8885 -5.853871964 0.8859 -6.109523091 0.8959 -5.79832982 0.8913 -5.482672118 0.8959 -5.171791386
0.8971 -4.851705903 0.9021 -4.517126416 0.909 -4.143573228 0.9139 -3.709075441 0.9199 -3.499489089 0.8692 -6.300769497
0.8872 -5.953504836 0.89 -5.642065153 0.891 -5.031376979 0.8977 -4.680685696 0.9035 -4.329846955 0.9078 -3.928486195
0.7675 -8.56735134 0.7705 -8.363211311 0.7713 -8.107682739 0.7736 -7.823908741 0.7775 -7.522878745 0.7841 -7.218819279
0.7971 -6.920818754 0.8329 -6.628932138 0.8641 -6.323946875 0.8804 -5.991399828 0.7668 -8.781464495 0.7633 -8.663140179
0.7678 -8.473531488 0.7697 -8.247337057 0.77 -7.971428747 0.7749 -7.676129393 0.7796 -7.352812702 0.7897 -7.072065318
0.8131 -6.774174009 0.8498 -6.478861916 0.8741 -6.159517513 0.8061 -6.835647144 0.846 -6.53165267 0.8751 -6.224098421
0.8856 -5.910094889 0.8919 -5.598599459 0.8934 -5.290645224 0.894 -4.974284616 0.8957 -4.64454848 0.9047 -4.290560426
0.9129 -3.885055584 0.9209 -3.408378962 0.9219 -3.13200249 0.7739 -8.726767166 0.7681 -8.66695597 0.7665 -8.511026475
0.7703 -8.165388579 0.7702 -7.886056648 0.7761 -7.588043762 0.7809 -7.283412422 0.7961 -6.995678626 0.8253 -6.691862621
0.8602 -6.392544977 0.8809 -6.067374056 0.8301 -6.684029655 0.8664 -6.378719832 0.8834 -6.065855188 0.8898 -5.752272167
0.8964 -5.132414673 0.8963 -4.811352704 0.9074 -4.098269308 0.9119 -3.66174277 0.9228 -3.2644011"""


def columns(text: str, count: int) -> list[list[str]]:
    words = text.split()
    return [words[at::count] for at in range(count)]


def powers_of_x() -> list[list[str]]:
    y, x = columns(FILIP, 2)
    return [y, *([repr(float(Fraction(value) ** power)) for value in x] for power in range(1, 11))]


SETS = {"Norris": columns(NORRIS, 2), "Longley": columns(LONGLEY, 7), "Filip": powers_of_x()}


def read(function: aggr.Function, *given: list[str]) -> float:
    arrays = [pa.array([float(value) for value in column]) for column in given]
    states = function.reduce(arrays if len(arrays) > 1 else arrays[0], Groups.single(len(given[0])))
    return function.finish(states)[0].as_py()


def digits(value: float) -> str:
    return f"{value:.14e}"


def regression(y: list[Fraction], given: list[list[Fraction]]) -> list[Fraction]:
    """Solve the normal equations by fractions."""
    rows = [[Fraction(1)] * len(y), *given]
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
    y, *given = [[Fraction(value) for value in column] for column in SETS["Longley"]]
    intercept, first, *_, last = regression(y, given)
    certified = (-3482258.63459582, 15.0618722713733, 1829.15146461355)
    assert [digits(float(b)) for b in (intercept, first, last)] == [*map(digits, certified)]
    y, x = [[Fraction(value) for value in column] for column in columns(FILIP, 2)]
    fitted = regression(y, [[value**power for value in x] for power in range(1, 11)])
    assert [digits(float(b)) for b in fitted[::10]] == [*map(digits, (-1467.48961422980, -0.402962525080404e-04))]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("function", ["covar", "corr", "slope", "intercept", "r2"])
def test_every_pair_of_columns_is_correctly_rounded(function, name):
    for y, x in combinations(SETS[name], 2):
        assert read(aggr.get(function)(), y, x) == of_two(function, [*map(float, y)], [*map(float, x)])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("function", ["skewness", "kurtosis"])
def test_every_column_is_correctly_rounded(function, name):
    for x in SETS[name]:
        assert read(aggr.get(function)(), x) == of_one(function, [*map(float, x)], False)


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
        given, groups = values.to_pylist(), Groups.single(len(values))
        found = [f.finish(f.reduce(values, groups))[0].as_py() for f in (aggr.Avg(), aggr.Stdev())]
        fractions = [Fraction(value) for value in given]
        exact = sum(fractions) / len(fractions)
        square = sum((x - exact) ** 2 for x in fractions) / (len(fractions) - 1)
        assert found[0] == float(exact)
        assert abs(Fraction(found[1]) ** 2 / square - 1) < Fraction(1, 2**51)
        assert kind == pa.float64() or found == [mean, stdev]
