"""A function with accessors of its own: one file that imports public names only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.extend import INTEGERS, Buckets, Function, Groups, Histograms, Numbers, State, Values, accessor, read_accessor
from aggr.testing.laws import check
from tiltframe import TiltFrame, rollup


class DigitsState(State):
    """The number of rows of each last digit."""

    name, fields, counted_by = "last_digits", {"digits": Buckets(lowest_key=0, highest_key=9)}, ("digits",)

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        digits = Numbers(values.array.to_numpy() % 10, values.groups)
        return {"digits": self.fields["digits"].count(digits.sorted_by_group, values.groups)}


@dataclass(frozen=True)
class LastDigits(Function):
    """The number of different last digits of whole numbers."""

    name, keeps, returns, guarantee = "last_digits", "counts by last digit", "int64", "exact"
    own_state, takes = DigitsState(), INTEGERS

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return pa.array(Histograms.from_arrow(states.field("digits")).sizes)

    @accessor(pa.bool_())
    def contains(self, states: pa.StructArray, digit: int) -> pa.Array:
        """Return whether each state has a row with this last digit."""
        histograms = Histograms.from_arrow(states.field("digits"))
        has_digit = np.zeros(len(states), np.bool_)
        has_digit[histograms.rows()[histograms.keys == digit]] = True
        return pa.array(has_digit)

    @accessor(pa.int64())
    def most_rows(self, states: pa.StructArray) -> pa.Array:
        """Return the number of rows with the most frequent digit."""
        histograms = Histograms.from_arrow(states.field("digits"))
        largest_counts = np.zeros(len(states), np.int64)
        np.maximum.at(largest_counts, histograms.rows(), histograms.counts.astype(np.int64))
        return pa.array(largest_counts)


@pytest.fixture(autouse=True)
def last_digits():
    """Register the function, and return its call."""
    aggr.register(LastDigits)
    yield aggr.caller("last_digits")
    aggr.unregister(LastDigits)


def test_accessors_read_states():
    states = LastDigits().reduce(pa.array([13, 23, 9, 100]), Groups.of([0, 0, 0, 2], 4))
    states = pc.if_else(pa.array([True, True, True, False]), states, None)
    assert LastDigits().finish(states).to_pylist() == [2, 0, 1, None]
    assert read_accessor(states, "contains", 3).to_pylist() == [True, False, False, None]
    assert read_accessor(states, "most_rows").to_pylist() == [2, 0, 1, None]
    with pytest.raises(TypeError, match="contains takes these arguments after the states: digit; got 0 arguments"):
        read_accessor(states, "contains")


def test_accessors_read_the_states_of_a_frame(last_digits):
    frame = TiltFrame(["1m", "1h"], "ts", {"digits": last_digits("v")})
    rows = pa.table({"ts": [0, 1, 60_000], "v": [11, 21, 5]})
    states = rollup(rows, frame)
    merged = states.filter(pc.equal(states["level"], "1h"))
    column = merged.column(frame.states[0].name).combine_chunks()
    assert read_accessor(column, "contains", 5).to_pylist() == [True]
    assert read_accessor(column, "most_rows").to_pylist() == [2]


def test_the_function_obeys_the_laws():
    check(LastDigits(), pa.int64(), rounds=4)
