"""frequent: values of twice the share are always returned, and errors of counts are as rare as documented.

With ``TRIALS=1000``, more random samples are tried.
"""

from __future__ import annotations

import os
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.damaged_state import DamagedState

TRIALS = int(os.environ.get("TRIALS", 20))
SHARE = 0.01


def tail(rng: np.random.Generator, size: int, kind: str) -> np.ndarray:
    """Draw values that crowd a sketch: all different, each twice, a power law, or each a little below the share."""
    return {
        "singles": lambda: 10**6 + np.arange(size),
        "twice": lambda: 10**6 + np.arange(size) // 2,
        "power law": lambda: 10**6 + rng.zipf(1.2, size) % 10**9,
        "just below": lambda: 10**6 + np.arange(size) % max(int(1 / (0.8 * SHARE)), 1),
    }[kind]()


def adversarial(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw values of which some have just 2 % of the rows, and their times: one after the other, or in bursts."""
    size = int(rng.integers(2_000, 12_000))
    heavy = int(rng.integers(1, 46))
    rows_of_value = int(np.ceil(0.02 * size))
    light_rows = size - heavy * rows_of_value
    values = np.concatenate(
        [
            np.repeat(np.arange(heavy), rows_of_value),
            tail(rng, light_rows, rng.choice(["singles", "twice", "power law", "just below"])),
        ]
    )
    order = [np.arange(size), np.arange(size)[::-1], rng.permutation(size)][rng.integers(3)]
    values = values[order]
    times = [np.arange(size), np.arange(size) // int(rng.integers(1, 9)), rng.integers(0, size, size)][rng.integers(3)]
    return values * int(rng.choice([1, 3, 2**20])), times


def as_column(values: np.ndarray, kind: str) -> pa.Array:
    column = pa.array(values)
    return {
        "whole": lambda: column,
        "text": lambda: pa.array([f"/a/long/common/prefix/{value}" for value in values.tolist()]),
        "float": lambda: pa.array(values * 0.1),
    }[kind]()


@pytest.mark.parametrize("trial", range(TRIALS))
def test_no_value_of_twice_the_share_is_missed_however_the_rows_are_split(trial):
    rng = np.random.default_rng(trial)
    values, times = adversarial(rng)
    column, moments = as_column(values, rng.choice(["whole", "text", "float"])), pa.array(times)
    function, size = aggr.Frequent(SHARE), len(values)
    unsplit = function.reduce([column, moments], Groups.single(size))
    parts = Groups.of(rng.integers(0, 40, size) if rng.random() < 0.5 else np.arange(size) * 40 // size, 40)
    assert same_bits(function.merge(function.reduce([column, moments], parts), Groups.single(40)), unsplit)
    result = function.finish(unsplit)[0].as_py()
    listed = {entry["value"]: entry["count"] for entry in result["values"]}
    true = Counter(column.to_pylist())
    assert {value for value, count in true.items() if count >= 2 * SHARE * size} <= listed.keys()
    assert result["count"] == size
    assert all(count >= true[value] for value, count in listed.items())
    assert all(count >= SHARE * size for count in listed.values())
    assert [entry["count"] for entry in result["values"]] == sorted(listed.values(), reverse=True)


def test_counts_are_beyond_their_bound_as_seldom_as_is_said():
    """Of 4,000 candidates among 60,000 values, at most 0.7 % lie beyond overcount; all at or above the truth."""
    rng, beyond, checked = np.random.default_rng(3), 0, 0
    function = aggr.Frequent(0.05)
    for _ in range(20):
        values = np.concatenate([rng.integers(0, 60_000, 100_000), rng.integers(0, 50, 20_000)])
        states = function.reduce([pa.array(values), pa.array(np.arange(len(values)))], Groups.single(len(values)))
        entries = states.field("candidates").flatten()
        bounds = function._bounds(states.field("cells"), entries.field("value"), Groups.single(len(entries)))
        excess = bounds - np.bincount(values)[entries.field("value").to_numpy()]
        assert excess.min() >= 0
        beyond += int((excess > function.finish(states)[0].as_py()["overcount"]).sum())
        checked += len(excess)
    assert checked == 20 * 200
    assert beyond <= 0.0067 * checked


@pytest.mark.long
@pytest.mark.slow
def test_values_at_few_times_are_missed_as_often_as_is_said():
    rng, function, trials, expected, missed = np.random.default_rng(8), aggr.Frequent(0.2), 400, 0.0, 0
    for trial in range(trials):
        values = np.concatenate([np.full(1000, -1 - trial), rng.integers(0, 2**40, 3000)])
        times = np.concatenate([np.arange(1000) % 60, np.arange(3000)])  # 60 moments, of 250 that two thirds ask for
        result = function.finish(function.reduce([pa.array(values), pa.array(times)], Groups.single(4000)))[0].as_py()
        assert 0 < result["looked_at"] < 0.05
        expected += (1 - result["looked_at"]) ** 60
        missed += not result["values"]
    assert abs(missed - expected) < 4 * np.sqrt(expected), (missed, expected)


def test_few_values_are_all_found_with_duckdbs_counts():
    rng = np.random.default_rng(1)
    rows = pa.table({"g": rng.integers(0, 9, 5000), "x": rng.zipf(1.6, 5000) % 200, "t": np.arange(5000)})
    measure, groups = aggr.frequent("x", by="t", share=0.01), Groups.of(rows["g"].to_numpy(), 10)
    results = measure.function.finish(measure.reduce(rows, groups)).to_pylist()
    query = """SELECT g, x, count(*) AS n FROM rows GROUP BY g, x
        QUALIFY n >= 0.01 * sum(n) OVER (PARTITION BY g) ORDER BY g, n DESC, x"""
    expected = [[] for _ in range(10)]
    for group, value, n in duckdb.sql(query).fetchall():
        expected[group].append({"value": value, "count": n})
    assert [result["values"] for result in results] == expected
    assert {result["looked_at"] for result in results} == {1.0}
    assert results[-1] == {"count": 0, "overcount": 0, "looked_at": 1.0, "values": []}


def test_times_count_in_microseconds_and_both_zeros_are_one():
    function, single = aggr.Frequent(1.0), Groups.single(2)
    states = [
        function.reduce([pa.array([0.0, -0.0]), pa.array([1, 1]).cast(kind)], single)
        for kind in (pa.timestamp("us"), pa.timestamp("s"))
    ]
    assert function.finish(states[0])[0].as_py()["values"] == [{"value": 0.0, "count": 2}]
    assert not same_bits(*states)
    later = function.reduce([pa.array([0.0, 0.0]), pa.array([1_000_000] * 2).cast(pa.timestamp("us"))], single)
    assert same_bits(later, states[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(count=3), "cannot come from the same rows"),
        (lambda state: state["candidates"].reverse(), "not in ascending order"),
        (lambda state: state["candidates"][0].update(hash=-1), "a hash that is not from 0 to"),
        (lambda state: state["candidates"][0].update(value="b"), "not in ascending order"),
        (lambda state: state["candidates"].clear(), "cannot come from the same rows"),
        (lambda state: state["cells"].update(high=10**6), "damaged"),
    ],
)
def test_damaged_states_are_refused_by_merge_and_finish(change, message):
    function = aggr.Frequent(0.5)
    states = function.reduce([pa.array(["a", "b"]), pa.array([1, 2])], Groups.single(2))
    (state,) = states.to_pylist()
    change(state)
    damaged = pa.array([state], states.type)
    for use in (lambda: function.merge(damaged, Groups.single(1)), lambda: function.finish(damaged)):
        with pytest.raises(DamagedState, match=message):
            use()
