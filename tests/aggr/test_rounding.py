"""Sums and means of few doubles, which often lie halfway between two doubles, are rounded to the even one."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.exact import rounding


def values_of(kind: str, count: int) -> np.ndarray:
    draws = np.random.default_rng(11)
    if kind == "alike":
        return np.round(draws.lognormal(3, 1, count), 3)
    if kind == "signed":
        return draws.normal(0, 1, count) * 2.0 ** draws.integers(-40, 40, count)
    return draws.integers(-(2**53), 2**53, count) * 2.0 ** draws.choice([-1074, -1000, -1, 0, 900, 970], count)


@pytest.mark.parametrize("kind", ["alike", "signed", "far apart"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
def test_they_are_those_of_fractions(kind, rows):
    groups = 3000
    values = values_of(kind, groups * rows)
    equal_groups = Groups(np.repeat(np.arange(groups), rows), groups)
    sums = aggr.Sum().finish(aggr.Sum().reduce(pa.array(values), equal_groups)).to_pylist()
    means = aggr.Avg().finish(aggr.Avg().reduce(pa.array(values), equal_groups)).to_pylist()
    exact = [sum(map(Fraction, group)) for group in values.reshape(groups, rows).tolist()]
    for total, mean, values_of_group in zip(sums, means, exact, strict=True):
        assert (total, mean) == (_rounded(values_of_group), _rounded(values_of_group / rows))


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@pytest.mark.parametrize("rows", [2, 3, 4, 6, 7])
def test_few_rows_need_no_whole_numbers(rows, monkeypatch):
    monkeypatch.setattr(rounding, "fraction", lambda *_: pytest.fail("decided one by one"))
    values = values_of("alike", 2000 * rows)
    assert any(float(a) + float(b) != Fraction(a) + Fraction(b) for a, b in zip(values[::2], values[1::2], strict=True))
    equal_groups = Groups(np.repeat(np.arange(2000), rows), 2000)
    for function in (aggr.Sum(), aggr.Avg()):
        function.finish(function.reduce(pa.array(values), equal_groups))


@pytest.mark.parametrize("scale", [0, 1, 2, 9, 20])
def test_means_of_decimals_at_and_beside_halfway_are_rounded_exactly(scale):
    odd = np.random.default_rng(3).integers(2**52, 2**53, 40) * 2 + 1  # such numbers are halfway between two doubles
    with localcontext(prec=60):
        values = [Decimal(int(n)) + beside * Decimal(1).scaleb(-scale) for n in odd for beside in (-1, 0, 1)]
    column, groups = pa.array(values, pa.decimal128(38, scale)), Groups(np.arange(len(values)) // 3, len(odd))
    for each in (Groups(np.arange(len(values)), len(values)), groups):
        means = aggr.Avg().finish(aggr.Avg().reduce(column, each)).to_pylist()
        exact = [[] for _ in range(each.n)]
        for value, group in zip(values, each.ids, strict=True):
            exact[group].append(Fraction(value))
        assert means == [float(sum(group) / len(group)) for group in exact]


@pytest.mark.parametrize("exponent", [-201, -200, 0, 7, 60])
@pytest.mark.parametrize("bottom", [1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_roots_beside_halfway_are_rounded_by_what_is_left(more, bottom, exponent):
    """`2^70 + 2^17` lies halfway between two doubles, and a number next to its square decides."""
    top = bottom * (2**70 + 2**17) ** 2 + more
    with localcontext(prec=200):
        root = (Decimal(top) * Decimal(2) ** exponent / bottom).sqrt()
        assert rounding.root_of(top, exponent, bottom) == float(root)
