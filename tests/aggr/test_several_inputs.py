"""Functions of several inputs: arg_min, arg_max and weighted_avg, compared with a naive evaluation, fractions and
DuckDB.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Function, Groups
from aggr.fields import ADD
from aggr.state import State
from aggr.tables.identify import function_of
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

RNG = np.random.default_rng(11)


def with_nulls(values, share=0.1):
    return pa.array([None if RNG.random() < share else v for v in values])


def pairs(n=400, groups=7):
    table = pa.table(
        {
            "g": RNG.integers(0, groups, n),
            "v": with_nulls([f"v{i}" for i in RNG.integers(0, 50, n)]),
            "b": with_nulls([float(b) for b in RNG.integers(-9, 9, n)]),
        }
    )
    return table, Groups.of(table["g"].to_numpy(), groups)


@pytest.mark.parametrize("name", ["arg_min", "arg_max"])
def test_the_value_of_the_extreme_row(name):
    table, groups = pairs()
    function = aggr.get(name)()
    states = function.reduce([table["v"].combine_chunks(), table["b"].combine_chunks()], groups)
    best = min if name == "arg_min" else max
    for group, result in enumerate(function.finish(states).to_pylist()):
        rows = [r for r in table.to_pylist() if r["g"] == group and r["v"] is not None and r["b"] is not None]
        assert result == best((r["b"], r["v"]) for r in rows)[1]


@pytest.mark.parametrize("name", ["arg_min", "arg_max"])
def test_duckdb_agrees_where_there_are_no_ties(name):
    n = 500
    rows = pa.table(
        {"g": RNG.integers(0, 5, n), "v": with_nulls(RNG.integers(0, 99, n).tolist()), "b": RNG.permutation(n)}
    )
    function = aggr.get(name)()
    states = function.reduce(
        [rows["v"].combine_chunks(), rows["b"].combine_chunks()], Groups.of(rows["g"].to_numpy(), 5)
    )
    expected_rows = duckdb.sql(f"SELECT {name}(v, b) FROM rows GROUP BY g ORDER BY g").fetchall()
    assert function.finish(states).to_pylist() == [row[0] for row in expected_rows]


def exact_weighted(rows):
    total = sum((Fraction(w) for _, w in rows), Fraction(0))
    return None if not total else float(sum(Fraction(x) * Fraction(w) for x, w in rows) / total)


@pytest.mark.parametrize("seed", range(20))
def test_weighted_means_are_correctly_rounded(seed):
    rng = np.random.default_rng(seed)
    n = 60
    x = rng.normal(size=n) * 10.0 ** rng.integers(-200 if seed % 2 else -3, 90 if seed % 2 else 9, n)
    w = rng.normal(size=n) * 10.0 ** rng.integers(-12, 12, n) if seed % 3 else rng.integers(-5, 5, n).astype(float)
    ids = rng.integers(0, 4, n)
    states = aggr.WeightedAvg().reduce([pa.array(x), pa.array(w)], Groups.of(ids, 5))
    expected = [exact_weighted([(x[i], w[i]) for i in np.flatnonzero(ids == g)]) for g in range(5)]
    assert aggr.WeightedAvg().finish(states).to_pylist() == expected
    parts = pa.concat_arrays(
        [aggr.WeightedAvg().reduce([pa.array([a]), pa.array([b])], Groups.single(1)) for a, b in zip(x, w, strict=True)]
    )
    merged = aggr.WeightedAvg().merge(parts, Groups.of(ids, 5))
    assert aggr.WeightedAvg().finish(merged).to_pylist() == expected


def test_weighted_means_of_whole_numbers_and_decimals():
    x = pa.array([2**62, -(2**61) + 1, 3], pa.int64())
    w = pa.array(["0.25", "1.50", "-0.75"]).cast(pa.decimal128(6, 2))
    states = aggr.WeightedAvg().reduce([x, w], Groups.single(3))
    rows = list(zip(x.to_pylist(), w.to_pylist(), strict=True))
    assert aggr.WeightedAvg().finish(states).to_pylist() == [exact_weighted(rows)]
    states = aggr.WeightedAvg().reduce([w, x], Groups.single(3))
    assert aggr.WeightedAvg().finish(states).to_pylist() == [exact_weighted([(b, a) for a, b in rows])]


@pytest.mark.parametrize(
    ("x", "w", "expected"),
    [
        ([math.inf, 1.0], [1.0, 1.0], math.inf),
        ([math.inf, 1.0], [-2.0, 1.0], math.inf),  # -inf over a negative weight
        ([math.inf, -math.inf], [1.0, 1.0], math.nan),
        ([math.inf, 1.0], [0.0, 1.0], math.nan),
        ([1.0, 2.0], [math.inf, 1.0], math.nan),
        ([math.nan, 2.0], [1.0, 1.0], math.nan),
        ([1.0, 2.0], [1.0, -1.0], None),
        ([1.0, None], [None, 1.0], None),
        ([5.0, None], [2.0, 1.0], 5.0),
    ],
)
def test_special_weights_and_values(x, w, expected):
    states = aggr.WeightedAvg().reduce([pa.array(x, pa.float64()), pa.array(w, pa.float64())], Groups.single(2))
    assert repr(aggr.WeightedAvg().finish(states).to_pylist()) == repr([expected])


def test_in_frames_and_calls():
    rows = pa.table({"ts": [0, 1, 70_000], "host": ["a", "b", "c"], "ms": [5.0, 1.0, 9.0], "n": [1, 3, 2]})
    measures = {
        "fastest": aggr.arg_min("host", by="ms"),
        "slowest": aggr.arg_max("host", "ms"),
        "mean": aggr.weighted_avg("ms", weight="n"),
        "where": aggr.weighted_avg("ms", "n", where="host <> 'a'"),
    }
    frame = TiltFrame(["1m", "1h"], "ts", measures)
    hour = finish(rollup(rows, frame), frame).slice(2, 1).select(list(measures)).to_pylist()
    assert hour == [{"fastest": "b", "slowest": "c", "mean": 26 / 6, "where": 21 / 5}]
    assert pickle.loads(pickle.dumps(frame)) == frame
    for measure in measures.values():
        assert aggr.from_description(measure.describe()) == measure
    assert measure_from("weighted_avg(ms, n)") == measure_from("weighted_avg(ms, weight='n')") == measures["mean"]
    assert measure_from("arg_min(host, by=ms)") == measures["fastest"]


@dataclass(frozen=True)
class Halves(State):
    name = "both"

    @property
    def fields(self):
        return {"twice": ADD}

    def reduce_values(self, values):
        twice = 1 + values.array.field("extra").is_valid().to_numpy(zero_copy_only=False)
        return {"twice": pa.array(np.bincount(values.groups.ids, twice, values.groups.n).astype(np.int64))}


@dataclass(frozen=True)
class Both(Function):
    """Rows in which the second input is null count half as much."""

    name, keeps, returns, guarantee = "both", "two counts", "int64", "exact"
    inputs = ("value", "extra")
    own_state = Halves()

    def drop_null(self, values):
        return values.filter(values.array.field("value").is_valid().to_numpy(zero_copy_only=False))

    def finish_states(self, states):
        return states.field("twice")


def test_a_function_says_which_nulls_it_tolerates():
    states = Both().reduce([pa.array([1, None, 3]), pa.array([None, 2, 3])], Groups.single(3))
    assert Both().finish(states).to_pylist() == [3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aggr.Measure(aggr.ArgMin(), "x"), "arg_min needs by=, the column of its input 'by'"),
        (
            lambda: aggr.Measure(aggr.WeightedAvg(), "x", None, ("",)),
            "weight=, the column of weight, must be a name or an expression",
        ),
        (lambda: aggr.Measure(aggr.Sum(), "x", None, ("y",)), "one column for each input: value; got 2 columns"),
        (
            lambda: aggr.ArgMin().reduce([pa.array([1])], Groups.single(1)),
            "values must be one array for each input, value and by; got 1 arrays",
        ),
        (lambda: aggr.ArgMin().reduce(pa.array([1]), Groups.single(1)), "takes a struct of value and by"),
        (lambda: aggr.WeightedAvg().reduce([pa.array(["a"]), pa.array([1])], Groups.single(1)), "of type string"),
    ],
)
def test_wrong_inputs_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_states_say_whose_they_are():
    def named(word):
        @dataclass(frozen=True)
        class NamedFunction(aggr.PerGroup):
            name, keeps, returns, guarantee = word, "a sum", "int64", "exact"
            state_kind = result_kind = pa.int64()

            def start(self):
                return 0

            def add(self, state, value):
                return state + value

            def combine(self, a, b):
                return a + b if word == "adding" else max(a, b)

            def result(self, state):
                return state

        return NamedFunction

    adding, other = named("adding"), named("also")
    for function in (other, adding):
        aggr.register(function)
    try:
        states = adding().reduce(pa.array([1, 2]), Groups.each(2))
        assert function_of(states) == adding()
        with pytest.raises(ValueError, match="these are states of adding, not of also"):
            other().merge(states, Groups.single(2))
        both = pa.concat_arrays([states, other().reduce(pa.array([5]), Groups.single(1))])
        with pytest.raises(ValueError, match="states of adding and states of also cannot be merged"):
            function_of(both)
    finally:
        aggr.unregister("adding")
        aggr.unregister("also")
    with pytest.raises(TypeError, match=r"these are states of 'adding', which is not registered here|no registered"):
        function_of(states)


def test_functions_that_share_a_state_read_each_others():
    values = pa.array([1.0, 2.0, 6.0])
    sums, variances = (f.reduce(values, Groups.single(3)) for f in (aggr.Avg(), aggr.Stdev()))
    assert function_of(sums) == aggr.Sum()
    assert [f.finish(sums).to_pylist() for f in (aggr.Sum(), aggr.Avg(), aggr.Count())] == [[9.0], [3.0], [3]]
    assert [f.finish(variances).to_pylist() for f in (aggr.Sum(), aggr.Avg(), aggr.Var())] == [[9.0], [3.0], [7.0]]
    with pytest.raises(ValueError, match=r"no field|these are states of sum, not of var"):
        aggr.Var().finish(sums)
