"""beyond="null": a group with more values than the limit has a null result, in every order of merges."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.groups.groups import Groups
from aggr.tables.identify import function_of
from aggr.tables.retention import retention
from aggr.testing.laws import check

LIMIT = 3
TIMES = pa.timestamp("us", "UTC")
EVENTS = pa.struct([("value", pa.float64()), ("time", TIMES)])
LIMITED = [name for name in aggr.names() if "beyond" in vars(aggr.get(name)())]
STATES = [aggr.Collect, aggr.CollectSet, aggr.ValueCounts, aggr.Per]


def with_limit(name: str, beyond: str = "null", limit: int = LIMIT) -> aggr.Function:
    """Make a function with a limit; the steps of a funnel must be values of the column."""
    steps = {"steps": (1.0, 2.0)} if name == "funnel" else {}
    state = {"state": 1.0} if name == "duration_in" else {}
    return aggr.get(name)(max=limit, beyond=beyond, **steps, **state)


def rows_for(function: aggr.Function, values: list[float]) -> pa.Array:
    """Make rows of some values; events have the times 0, 1, 2, … in seconds."""
    column = pa.array(values, pa.float64())
    if len(function.inputs) == 1:
        return column
    times = pa.array(np.arange(len(values)) * 1_000_000).cast(TIMES)
    return pa.StructArray.from_arrays([column, times], names=["value", "time"])


def size_of(function: aggr.Function, values: list[float]) -> int:
    """Count the values that a state stores: all events, or the distinct values."""
    return len(values) if len(function.inputs) > 1 else len(set(values))


def test_every_function_with_a_limit_of_values_is_tried():
    assert {"collect", "rate", "points", "funnel", "count_distinct", "collect_set", "mode", "per"} <= set(LIMITED)
    assert {name for name in aggr.names() if "max" in vars(aggr.get(name)())} <= set(LIMITED)


@pytest.mark.parametrize("name", LIMITED)
def test_the_result_is_null_exactly_for_groups_of_more_values_in_any_merge(name):
    function, unlimited, rng = with_limit(name), with_limit(name, "error", 10_000), random.Random(name)
    for _ in range(12):
        values = [float(rng.randrange(1, 6)) for _ in range(rng.randrange(8))]
        rows = rows_for(function, values)
        cuts = sorted(rng.randrange(len(values) + 1) for _ in range(2))
        parts = [rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]]
        rng.shuffle(parts)
        states = pa.concat_arrays([function.reduce(part, Groups.single(len(part))) for part in parts])
        first_two = function.merge(states, Groups.of([0, 0, 1], 2))
        merged = function.merge(first_two, Groups.single(2))
        expected = unlimited.finish(unlimited.reduce(rows, Groups.single(len(rows))))[0].as_py()
        if size_of(function, values) > LIMIT:
            expected = None
            assert merged.field(len(merged.type) - 1).nbytes < 64  # its values are not stored
        assert function.finish(merged)[0].as_py() == expected


@pytest.mark.parametrize("state", STATES)
def test_laws(state):
    function = state(max=2, beyond="null")
    check(function, EVENTS if state is aggr.Collect else pa.float64(), rounds=8)


@pytest.mark.parametrize("state", STATES)
def test_states_of_another_reaction_are_refused(state):
    absorbing, strict = state(max=2, beyond="null"), state(max=2)
    for written, read in [(absorbing, strict), (strict, absorbing)]:
        rows = rows_for(written, [1.0, 2.0])
        states = written.reduce(rows, Groups.single(2))
        assert function_of(states) == written
        for operation in (read.finish, lambda column, read=read: read.merge(column, Groups.single(1))):
            with pytest.raises(ValueError, match="beyond="):
                operation(states)


def test_a_null_list_in_a_state_of_the_default_is_damage():
    states = aggr.CollectSet().reduce(pa.array([1.0]), Groups.single(1))
    fields = {field.name: states.field(field.name) for field in states.type}
    fields["values"] = pa.nulls(1, states.type.field("values").type)
    damaged = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    with pytest.raises(ValueError, match="damaged"):
        aggr.CollectSet().finish(damaged)


def test_maps_inside_of_maps_have_limits_of_their_own():
    inner = aggr.count_distinct("x", max=1, beyond="null")
    function = aggr.Per({"n": inner}, max=2, beyond="null")
    kind = pa.struct([("key", pa.string()), ("of.x", pa.int64())])
    rows = pa.array([("a", 1), ("a", 2), ("b", 1), ("b", 1)], kind)
    entries = function.finish(function.reduce(rows, Groups.single(4)))[0].as_py()["entries"]
    assert entries == [{"key": "a", "n": None}, {"key": "b", "n": 1}]


def test_retention_of_a_group_beyond_the_limit_is_null():
    function = aggr.ValueCounts(max=2, beyond="null")
    few, many = (function.reduce(pa.array(values), Groups.single(len(values))) for values in (["a"], ["a", "b", "c"]))
    pairs = [retention(few, few), retention(few, many), retention(many, few)]
    assert [share[0].as_py() for share in pairs] == [1.0, None, None]


def test_words_that_are_not_allowed():
    with pytest.raises(ValueError, match="beyond must be 'error' or 'null'; got 'sample'"):
        aggr.collect("x", beyond="sample")
    with pytest.raises(ValueError, match="beyond must be 'error', 'null' or 'estimate'; got 'sample'"):
        aggr.count_distinct("x", beyond="sample")
    with pytest.raises(ValueError, match="beyond must be 'error', 'sample' or 'null'; got 'skip'"):
        aggr.per("x", beyond="skip")
    with pytest.raises(ValueError, match="with keep='latest' a state never has too many"):
        aggr.rate("x", keep="latest", beyond="null")
