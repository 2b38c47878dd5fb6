"""A plug-in that shares a state with a built-in function: one file that imports public names only."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.extend import NUMBERS, BucketState, Function, State
from aggr.extend.tables import function_of
from aggr.testing.laws import check
from tiltframe import TiltFrame, finish, rollup


@dataclass(frozen=True)
class MiddleMean(Function):
    """The mean of the middle half of the values, from the buckets of dds."""

    relative_accuracy: float = 0.01

    name, keeps, returns, guarantee = "middle_mean", "DDSketch buckets", "float64", "within α"
    takes = NUMBERS
    takes_weights = True

    @property
    def own_state(self) -> State:
        return aggr.Dds(relative_accuracy=self.relative_accuracy).own_state

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        state = self.own_state
        assert isinstance(state, BucketState)
        buckets = state.buckets(states)
        totals = np.bincount(buckets.rows, buckets.counts, len(states))
        first = totals[buckets.rows] / 4
        last = totals[buckets.rows] * 3 / 4
        last_ranks = np.cumsum(buckets.counts) - (np.cumsum(totals) - totals)[buckets.rows]
        counts = np.clip(last_ranks, first, last) - np.clip(last_ranks - buckets.counts, first, last)
        sums = np.bincount(buckets.rows, counts * buckets.high, len(states))
        return pa.array(sums / np.maximum(totals / 2, 1), mask=totals == 0)


@pytest.fixture
def middle_mean():
    """Register the function, and return its call."""
    aggr.register(MiddleMean)
    yield aggr.caller("middle_mean")
    aggr.unregister(MiddleMean)


def count_rows_within(states: pa.Array, low: float, high: float) -> list[int]:
    """Return the number of rows of each state in buckets that lie between two numbers."""
    state = function_of(states).own_state
    assert isinstance(state, BucketState)
    buckets = state.buckets(states)
    is_inside = (buckets.low >= low) & (buckets.high <= high)
    return np.bincount(buckets.rows[is_inside], buckets.counts[is_inside], len(states)).astype(int).tolist()


def test_both_functions_read_one_column(middle_mean):
    fine = middle_mean("v", relative_accuracy=0.001)
    measures = {"p": aggr.dds("v"), "m": middle_mean("v"), "fine": fine}
    frame = TiltFrame(["1m"], "ts", measures, ["host"])
    assert [column.serves for column in frame.states] == [("p", "m"), ("fine",)]
    values = [float(i % 15 + 1) for i in range(60)]
    rows = pa.table({"ts": [1000 * i for i in range(60)], "host": ["a"] * 60, "v": values})
    states = rollup(rows, frame)
    (result,) = finish(states, frame).to_pylist()
    expected = statistics.mean(sorted(values)[15:45])
    assert result["m"] == pytest.approx(expected, rel=0.02)
    assert result["fine"] == pytest.approx(expected, rel=0.002)
    column = states.column(frame.states[0].name)
    assert function_of(column) == aggr.Dds()
    assert count_rows_within(column.combine_chunks(), 0.0, 4.5) == [16]


def test_the_function_obeys_the_laws(middle_mean):
    check(MiddleMean(), pa.float64(), source=lambda size, seed: pa.array(np.arange(size) + float(seed)), rounds=4)
