"""A weighted median of one's own: one file that imports public names only."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.extend import INTEGERS, ORDERED, State, Values
from aggr.extend.lists import KeyedStates
from aggr.testing.laws import check
from tiltframe import TiltFrame, finish, rollup

MOST_WEIGHT = 2**31


@dataclass(frozen=True, eq=False)
class WeightsByValue(State):
    """The sum of the weights of each value, for at most ``max`` values."""

    max: int

    name = "weighted_median"
    parameters = {"max": pa.int64()}  # noqa: RUF012

    @property
    def map(self) -> KeyedStates:
        return KeyedStates((("weight", aggr.Sum()),), self.max, instead="round the values")

    @property
    def fields(self) -> Mapping[str, KeyedStates]:
        return {"weights": self.map}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        weights = values.field("weight").array.cast(pa.int64(), safe=False).to_numpy()
        refused = (weights < 0) | (weights > MOST_WEIGHT)
        if refused.any():
            raise ValueError(f"a weight must be a whole number from 0 to 2^31; got {weights[refused][0]}")
        keyed = self.map.group(values.field("value").array, values.groups)
        return {"weights": self.map.pack(keyed, [aggr.Sum().reduce(pa.array(weights), keyed.groups)])}


@dataclass(frozen=True)
class WeightedMedian(aggr.Function):
    """The smallest value such that the values up to it have at least half of the weight."""

    max: int = 10_000

    name, keeps = "weighted_median", "the sum of the weights of each value"
    returns, guarantee = "the type of the value; null if the weights are 0", "exact"
    inputs = ("value", "weight")
    takes = {"value": ORDERED.compared(), "weight": INTEGERS.described("Whole numbers from 0.")}  # noqa: RUF012

    @property
    def own_state(self) -> WeightsByValue:
        return WeightsByValue(self.max)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        entries, owners = self.own_state.map.finish(states.field("weights"))
        weights = entries.field("weight").to_numpy()
        totals = np.zeros(owners.n, np.int64)
        np.add.at(totals, owners.ids, weights)
        until = np.cumsum(weights) - (np.cumsum(totals) - totals)[owners.ids]
        places = np.full(owners.n, len(weights))
        np.minimum.at(
            places, owners.ids, np.where(2 * until >= totals[owners.ids], np.arange(len(weights)), len(weights))
        )
        return entries.field("key").take(pa.array(places, mask=totals == 0))

    def exact(self, rows: pa.Array) -> Any:
        pairs = sorted((row["value"], row["weight"]) for row in rows.to_pylist())
        until = list(accumulate(weight for _, weight in pairs))
        return next((value for (value, _), sum_ in zip(pairs, until, strict=True) if 2 * sum_ >= until[-1] > 0), None)


@pytest.fixture
def registered():
    aggr.register(WeightedMedian)
    yield aggr.caller("weighted_median")
    aggr.unregister("weighted_median")


@pytest.mark.slow
def test_it_obeys_the_laws():
    def source(size: int, seed: int) -> pa.Array:
        draw = random.Random(seed)
        rows = [
            {"value": draw.choice([None, 1, 2, 5, -7]), "weight": draw.choice([None, 0, 1, 3])} for _ in range(size)
        ]
        return pa.array(rows, pa.struct({"value": pa.int64(), "weight": pa.int8()}))

    check(WeightedMedian(), pa.struct({"value": pa.int64(), "weight": pa.int8()}), source=source)


def test_it_is_a_measure_of_a_frame_with_coarser_levels(registered):
    draw = random.Random(3)
    rows = [(draw.randrange(600) * 1000, draw.randrange(9), draw.randrange(4)) for _ in range(400)]
    table = pa.table(dict(zip(["ts", "x", "w"], map(list, zip(*rows, strict=True)), strict=True)))
    frame = TiltFrame(["1m", "10m"], "ts", {"m": registered("x", weight="w")})
    results = finish(rollup(table, frame), frame)
    for level, minutes in (("1m", 1), ("10m", 10)):
        expected = []
        for window in range(10 // minutes):
            inside = [row for row in rows if row[0] // (60_000 * minutes) == window]
            repeated = sorted(x for _, x, weight in inside for _ in range(weight))
            expected.append(repeated[(len(repeated) - 1) // 2])
        assert [row["m"] for row in results.to_pylist() if row["level"] == level] == expected
    with pytest.raises(ValueError, match=r"a weight must be a whole number from 0 to 2\^31; got -1"):
        rollup(pa.table({"ts": [0], "x": [1], "w": [-1]}), frame)
