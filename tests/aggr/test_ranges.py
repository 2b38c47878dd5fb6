"""States of ranges of rows have the bits of merging each range alone, for every function."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.fields import Counts
from aggr.function import input_rule
from aggr.functions.exact_family import SumsState
from aggr.groups.groups import Groups
from aggr.tables.ranges import merge_runs, scan

VALUES = pa.array([float(v) if v % 7 else None for v in np.random.default_rng(3).integers(1, 99, 200).tolist()])


def inputs(function, n):
    rule = input_rule(function, function.inputs[0])
    if not rule.allows(VALUES.type):
        numbers = VALUES.slice(0, n).cast(pa.int64())
        return numbers if rule.allows(pa.int64()) else pc.equal(pc.bit_wise_and(numbers, 1), 1)
    if len(function.inputs) == 1:
        return VALUES.slice(0, n)
    other = pa.array(np.random.default_rng(n).integers(0, 9, n), pa.int64())
    further = [other.cast(pa.timestamp("us", "UTC")) if role == "time" else other for role in function.inputs[1:]]
    return pa.StructArray.from_arrays([VALUES.slice(0, n), *further], names=list(function.inputs))


def naive(function, values, first, last):
    states = [function.reduce(values.slice(a, b - a), Groups.single(b - a)) for a, b in zip(first, last, strict=True)]
    return pa.concat_arrays([function.zero(1, values.type) if not len(s) else s for s in states])


def by_runs(function, values, first, last):
    """Reduce the rows between two successive starts or ends of ranges to one state, and merge the states of each
    range.
    """
    cuts = np.union1d(first, last)
    runs = np.arange(max(len(cuts) - 1, 0))
    rows = values.slice(cuts[0], cuts[-1] - cuts[0]) if len(cuts) else values.slice(0, 0)
    states = function.reduce(rows, Groups.of(np.repeat(runs, np.diff(cuts)), len(runs)))
    return merge_runs(function, states, np.searchsorted(cuts, first), np.searchsorted(cuts, last))


def shapes(n):
    at = np.arange(1, n + 1)
    return {
        "running": (np.zeros(n, np.int64), at),
        "sliding 5": (np.maximum(at - 5, 0), at),
        "sliding 1": (at - 1, at),
        "disjoint": (np.arange(0, n, 7), np.minimum(np.arange(0, n, 7) + 7, n)),
        "apart": (np.arange(0, n - 9, 9), np.arange(0, n - 9, 9) + 4),
        "hopping": (np.arange(0, n - 12, 3), np.arange(0, n - 12, 3) + 12),
        "empty": (at - 1, at - 1),
        "none": (at[:0], at[:0]),
    }


@pytest.mark.parametrize("shape", list(shapes(9)))
@pytest.mark.parametrize("name", aggr.names())
def test_every_function_over_every_shape(name, shape):
    function, n = aggr.get(name)(), 61
    first, last = shapes(n)[shape]
    values = inputs(function, n)
    if len(first):
        assert same_bits(by_runs(function, values, first, last), naive(function, values, first, last))
    else:
        assert len(by_runs(function, values, first, last)) == 0


@pytest.mark.slow
@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_random_ranges(steps, spare):
    first, last = np.cumsum([[a, b] for a, b in steps] or np.zeros((0, 2)), axis=0).astype(np.int64).T
    last = np.maximum.accumulate(np.maximum(first, last)) if len(first) else last
    n = int(last.max(initial=0)) + spare
    values = pa.array(np.random.default_rng(n).normal(size=n))
    for function in (aggr.Sum(), aggr.Last(), aggr.Dds()):
        rows = values
        if function.name == "last":
            rows = pa.StructArray.from_arrays([values, pa.array(np.arange(n))], names=["value", "time"])
        result = by_runs(function, rows, first, last)
        if len(first):
            assert same_bits(result, naive(function, rows, first, last))


def test_a_scan_merges_each_state_with_those_before_it():
    segments = np.repeat([0, 1, 4], [5, 1, 8])
    states = aggr.Sum().reduce(pa.array(np.arange(14)), Groups.each(14))
    expected = [*np.cumsum(np.arange(5)), 5, *np.cumsum(np.arange(6, 14))]
    assert aggr.Sum().finish(scan(aggr.Sum(), states, segments)).to_pylist() == expected


def test_no_row_is_reduced_twice_and_merges_do_not_grow_with_the_window():
    merged = []

    class Watched(Counts):
        def merge(self, column, groups):
            merged.append(len(column))
            return super().merge(column, groups)

    class WatchedState(SumsState):
        @property
        def fields(self):
            return {**super().fields, "count": Watched()}

    class Counting(aggr.Sum):
        own_state = WatchedState("sum", {"sum": "value"})

    at, totals = np.arange(1, 4097), []
    for size in (10, 1000):
        merged.clear()
        by_runs(Counting(), pa.array(np.arange(4096)), np.maximum(at - size, 0), at)
        totals.append(sum(merged))
    assert totals[1] <= 1.2 * totals[0] <= 14 * 4096
