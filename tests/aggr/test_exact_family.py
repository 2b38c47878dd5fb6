"""Covariance, correlation, regression, skewness and kurtosis are correctly rounded for every split of the rows, as
fractions are.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.exact.rounding import fraction
from aggr.exact.row_sums import sum_powers
from aggr.exact.superaccumulator import Limbs
from aggr.groups.numbers import Numbers
from benchmarks.by_fractions import exact_pair_statistic, exact_statistic

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
DATA_SETS = int(os.environ.get("TILTFRAME_TRIALS", 60))

Draw = Callable[[random.Random], object]
COLUMNS: dict[str, tuple[pa.DataType, Draw]] = {
    "normal": (pa.float64(), lambda r: r.gauss(0, 1)),
    "far from 0": (pa.float64(), lambda r: 1e9 + r.random()),
    "of all sizes": (pa.float64(), lambda r: r.uniform(-1, 1) * 10.0 ** r.randint(-300, 300)),
    "of single precision": (pa.float32(), lambda r: float(np.float32(r.gauss(0, 1)))),
    "of 64 bits": (pa.int64(), lambda r: r.randint(-(2**63), 2**63 - 1)),
    "few": (pa.int8(), lambda r: r.randint(-3, 3)),
    "money": (pa.decimal128(10, 2), lambda r: Decimal(r.randint(-(10**6), 10**6)).scaleb(-2)),
    "of 38 digits": (pa.decimal128(38, 20), lambda r: Decimal(r.randint(-(10**37), 10**37)).scaleb(-20)),
    "the smallest and the greatest": (pa.float64(), lambda r: r.choice([5e-324, -5e-324, 0.0, 1.7e308, 1e-320])),
    "constant": (pa.float64(), lambda r: 7.25),
}


CASES = [
    *[(aggr.Covar(ddof), lambda y, x, d=ddof: exact_pair_statistic("covar", y, x, d)) for ddof in (0, 1)],
    *[(aggr.get(n)(), lambda y, x, n=n: exact_pair_statistic(n, y, x)) for n in ("corr", "slope", "intercept", "r2")],
    *[(aggr.Skewness(s), lambda y, x, s=s: exact_statistic("skewness", x, s)) for s in (False, True)],
    *[(aggr.Kurtosis(s), lambda y, x, s=s: exact_statistic("kurtosis", x, s)) for s in (False, True)],
]


def states_of(function, y: pa.Array, x: pa.Array, groups: Groups) -> pa.StructArray:
    return function.reduce([y, x] if len(function.inputs) == 2 else x, groups)


@pytest.mark.parametrize(("function", "oracle"), CASES, ids=lambda case: repr(case) if hasattr(case, "name") else "")
def test_results_are_correctly_rounded_and_splits_change_no_bit(function, oracle):
    draws = random.Random(SEED)
    for trial in range(DATA_SETS):
        n = draws.choice([1, 2, 3, 4, 5, 8, 40])
        (yt, draw_y), (xt, draw_x) = (COLUMNS[draws.choice(list(COLUMNS))] for _ in range(2))
        y, x = [draw_y(draws) for _ in range(n)], [draw_x(draws) for _ in range(n)]
        columns = pa.array(y, yt), pa.array(x, xt)
        unsplit = states_of(function, *columns, Groups.single(n))
        parts = states_of(function, *columns, Groups.of([draws.randrange(3) for _ in range(n)], 3))
        assert function.merge(parts, Groups.single(3)).equals(unsplit), (SEED, trial)
        assert repr(function.finish(unsplit).to_pylist()) == repr([oracle(y, x)]), (SEED, trial, n, yt, xt)


@pytest.mark.slow
def test_many_groups_at_once():
    rng = np.random.default_rng(SEED)
    ids, y, x = rng.integers(0, 500, 3000), rng.normal(size=3000), rng.normal(1e6, 1, 3000)
    groups = Groups.of(ids, 500)
    for function, oracle in CASES:
        results = function.finish(states_of(function, pa.array(y), pa.array(x), groups)).to_pylist()
        own = [(y[ids == group].tolist(), x[ids == group].tolist()) for group in range(500)]
        expected = [oracle(*rows) if rows[0] else None for rows in own]
        assert repr(results) == repr(expected), (SEED, function)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_special_value_makes_nan_and_null_skips_the_row(bad):
    y, x = pa.array([1.0, 2.0, 4.0, None, 3.0]), pa.array([1.0, 3.0, 2.0, 5.0, None])
    for function, oracle in CASES:
        rows = ([1.0, 2.0, 4.0], [1.0, 3.0, 2.0]) if len(function.inputs) == 2 else ([], [1.0, 3.0, 2.0, 5.0])
        assert function.finish(states_of(function, y, x, Groups.single(5))).to_pylist() == [oracle(*rows)]
        if len(function.inputs) == 2:
            poisoned = states_of(function, pa.array([1.0, bad, 0.0]), pa.array([0.0, 0.0, 2.0]), Groups.single(3))
            assert math.isnan(function.finish(poisoned).to_pylist()[0])
        poisoned = states_of(function, pa.array([1.0, 2.0, 5.0, 7.0]), pa.array([1.0, bad, 2.0, 9.0]), Groups.single(4))
        assert math.isnan(function.finish(poisoned).to_pylist()[0])
        assert function.finish(function.zero(1, poisoned_type(function))).to_pylist() == [None]


def poisoned_type(function) -> pa.DataType:
    double = pa.float64()
    return pa.struct([(name, double) for name in function.inputs]) if len(function.inputs) == 2 else double


def test_one_state_serves_all_functions_of_two_columns():
    measures = {name: aggr.caller(name)("price", x="area") for name in ("covar", "corr", "slope", "intercept", "r2")}
    from aggr.tables.state_plan import plan_state_columns

    assert len(plan_state_columns(measures)) == 1
    moments = {"a": aggr.skewness("x"), "b": aggr.kurtosis("x"), "c": aggr.avg("x"), "d": aggr.stdev("x")}
    assert len(plan_state_columns(moments)) == 1


def test_powers_of_wide_decimals_are_summed_in_slices(monkeypatch):
    monkeypatch.setattr("aggr.exact.row_sums._ROWS_OF_PARTS", 7)
    rng = random.Random(SEED)
    numbers = [rng.randrange(-(2**126), 2**126) for _ in range(50)]
    parts = [np.array([float((x >> shift) & 0xFFFFFFFF) * 2.0**shift for x in numbers]) for shift in (0, 32, 64)]
    parts.append(np.array([float(x >> 96) * 2.0**96 for x in numbers]))
    for degree in (3, 4):
        groups = Groups.of([i % 3 for i in range(50)], 3)
        sums = Limbs.of_arrow(sum_powers([Numbers(part, groups) for part in parts], degree))
        for group in range(3):
            top, exponent = fraction(sums, group)
            assert Fraction(top) * Fraction(2) ** exponent == sum(x**degree for x in numbers[group::3]), (SEED, degree)


@pytest.mark.parametrize(
    ("field", "value"),
    [("yx", 10**6), ("yy", 0), ("xx", -1), ("count", 0), ("y", 10**9), ("special", 8)],
)
def test_sums_that_no_rows_have_are_refused(field, value):
    function = aggr.Corr()
    states = function.reduce([pa.array([1.0, 2.0]), pa.array([3.0, 5.0])], Groups.single(2))
    columns = {f.name: states.field(f.name) for f in states.type}
    if field in ("count", "special"):
        columns[field] = pa.array([value], columns[field].type)
    else:
        columns[field] = aggr.Sum().reduce(pa.array([float(value)]), Groups.single(1)).field("sum")
    with pytest.raises(DamagedState, match="contradict"):
        function.finish(pa.StructArray.from_arrays(list(columns.values()), names=list(columns)))


def test_what_scipy_and_numpy_lose_is_there():
    """Offsets of 1e9: the naive formulas of doubles lose all digits."""
    x = 1e9 + np.arange(100.0)
    y = 2 * x + np.where(np.arange(100) % 2, 1.0, -1.0)
    exact = exact_pair_statistic("corr", y.tolist(), x.tolist())
    states = aggr.Corr().reduce([pa.array(y), pa.array(x)], Groups.single(100))
    assert aggr.Corr().finish(states).to_pylist() == [exact]
    naive = (np.mean(x * y) - x.mean() * y.mean()) / math.sqrt(max(np.mean(x * x) - x.mean() ** 2, 1e-300))
    assert not math.isclose(naive, exact, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aggr.covar("a"), "missing a required argument: 'x'"),
        (lambda: aggr.covar("a", "b", ddof=-1), "ddof must be a whole number of at least 0"),
        (lambda: aggr.skewness("a", sample=1), "sample must be True or False; got 1"),
        (lambda: aggr.Corr().reduce([pa.array(["a"]), pa.array([1])], Groups.single(1)), "of type string"),
        (lambda: aggr.Kurtosis().reduce(pa.array([True]), Groups.single(1)), "cast it to an integer"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
