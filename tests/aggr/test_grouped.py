"""Sums, minima and maxima of groups equal those that Python computes for one group after another."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.arrow.damaged_state import DamagedState
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers, sum_by_group

INT64_VALUES = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
SHAPES = st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 5, 300]))  # groups, and rows on average: few and many


def grouped(values, ids):
    rows = defaultdict(list)
    for value, group in zip(values, ids, strict=True):
        rows[group].append(value)
    return rows


def drawn(data, numbers, dtype):
    """Draw a few numbers and repeat them in random order, each with a random group; the last group has none."""
    n, rows = data.draw(SHAPES)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    distinct_values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=20)), dtype)
    return rng.choice(distinct_values, n * rows), rng.integers(0, max(n, 1), n * rows), n + 1


def order(number):
    return (number, math.copysign(1.0, number))  # -0.0 before 0.0


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_ends(data, floats):
    numbers = st.floats(allow_nan=False) if floats else INT64_VALUES
    values, ids, n = drawn(data, numbers, np.float64 if floats else np.int64)
    groups, key = Groups(ids, n), order if floats else int
    extremes, rows = Numbers(values, groups).extremes, grouped(values.tolist(), ids.tolist())
    assert extremes.empty.tolist() == [group not in rows for group in range(n)]
    for group, values_of_group in rows.items():
        assert key(extremes.low[group]) == min(map(key, values_of_group))
        assert key(extremes.high[group]) == max(map(key, values_of_group))
    if floats and len(values):
        assert Numbers(values, groups).min_max == (values.min(), values.max())


@settings(deadline=None)
@given(st.data())
def test_where_there_is_a_nan_there_are_no_ends(data):
    values, ids, n = drawn(data, st.sampled_from([1.0, -math.inf, math.nan, -math.nan]), np.float64)
    assert (Numbers(values, Groups(ids, n)).extremes is None) == bool(np.isnan(values).any())


@settings(deadline=None)
@given(st.data())
def test_sums_beyond_64_bits_are_refused(data):
    values, ids, n = drawn(data, INT64_VALUES, np.int64)
    rows = grouped(values.tolist(), ids.tolist())
    sums = [sum(rows[group]) for group in range(n)]
    if all(-(2**63) <= total < 2**63 for total in sums):
        assert sum_by_group(values, Groups(ids, n)).tolist() == sums
    else:
        with pytest.raises(OverflowError, match="exceeds int64"):
            sum_by_group(values, Groups(ids, n))


@pytest.mark.parametrize("rows", [2, 20_000])  # interpreted, and compiled
@pytest.mark.parametrize("wrong", [-1, -(2**63)])
def test_negative_counts_are_damage(rows, wrong):
    """However many are merged: one alone is checked in another place."""
    states = aggr.Count().reduce(pa.array(np.ones(rows)), Groups.each(rows)).to_pylist()
    states[-1]["count"] = wrong
    damaged = pa.array(states, aggr.Count().state_type(pa.float64()))
    for groups in (Groups.each(rows), Groups.single(rows)):
        with pytest.raises(
            DamagedState, match=f"a damaged state of count: its field 'count' contains the negative count {wrong}"
        ):
            aggr.Count().merge(damaged, groups)
