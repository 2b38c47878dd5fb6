"""Subtraction gives the bits of the remaining rows, or is rejected with the name of the function and the reason."""

from __future__ import annotations

import math
import os

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import CannotSubtract, Groups
from aggr.arrow.bit_equality import same_bits
from aggr.function import input_rule
from aggr.tables.by_key import reduce_by
from aggr.tables.state_plan import plan_state_columns

TRIALS = int(os.environ.get("TRIALS", "20"))
GROUPS = {"count", "sum", "avg", "var", "stdev", "sum_of_squares", "rms", "skewness", "kurtosis", "weighted_avg"}
GROUPS |= {"geometric_mean", "harmonic_mean", "covar", "corr", "slope", "intercept", "r2", "dds", "hdr", "histogram"}
FIXED = [aggr.get(name)() for name in aggr.names() if name not in GROUPS] + [aggr.Dds(max_bins=100)]
NAN, INF = math.nan, math.inf


def state_of(function: aggr.Function, values: list) -> pa.StructArray:
    return function.reduce(pa.array(values, pa.float64()), Groups.single(len(values)))


def columns_of(rng: np.random.Generator, function: aggr.Function, rows: int) -> pa.Array:
    """Draw finite numbers of any size: whole ones from 0 for hdr, several columns for functions of several."""
    if function.name == "hdr":
        return pa.array(rng.integers(0, 10**9, rows))
    if function.name in ("geometric_mean", "harmonic_mean"):
        return pa.array(rng.random(rows) * 10.0 ** rng.integers(-200, 200, rows))
    drawn = [pa.array(rng.normal(size=rows) * 10.0 ** rng.integers(-200, 200, rows)) for _ in function.inputs]
    return drawn[0] if len(drawn) == 1 else pa.StructArray.from_arrays(drawn, names=list(function.inputs))


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_what_is_left_has_the_bits_of_its_rows(name):
    function, rng = aggr.get(name)(), np.random.default_rng(5)
    for _ in range(TRIALS):
        rows, n = int(rng.integers(3, 400)), int(rng.integers(1, 9))
        values, ids = columns_of(rng, function, rows), rng.integers(0, n, rows)
        stays = rng.random(rows) < rng.random()
        if name in ("dds", "hdr"):  # whose least and greatest value are kept
            order = np.lexsort([values.to_numpy(), ids])
            first = np.append(True, np.diff(ids[order]) != 0)
            stays[order[first | np.append(first[1:], True)]] = True
        complete, left, removed = (
            function.reduce(values.filter(pa.array(chosen)), Groups(ids[chosen], n))
            for chosen in (np.ones(rows, bool), stays, ~stays)
        )
        assert same_bits(function.subtract(complete, removed), left)


@pytest.mark.parametrize("function", FIXED, ids=repr)
def test_what_does_not_tell_what_is_left_is_refused_by_name(function):
    plain = next(kind for kind in (pa.int64(), pa.bool_()) if input_rule(function, function.inputs[0]).allows(kind))
    kinds = {role: pa.timestamp("us") if role == "time" else plain for role in function.inputs}
    state = function.zero(1, pa.struct(kinds) if len(kinds) > 1 else plain)
    with pytest.raises(TypeError, match=f"cannot be subtracted from states of {type(function).__name__}") as refused:
        function.subtract(state, state)
    assert len(str(refused.value)) <= 300


@pytest.mark.parametrize(
    ("function", "states", "removed", "reason"),
    [
        (aggr.Count(), [1.0], [1.0, 2.0], "does not contain these rows"),
        (aggr.Histogram((0, 1)), [0.5, 7.0, 8.0], [0.5, 0.25], "does not contain these rows"),
        (aggr.Sum(), [1.0, 2.0], [3.0, 4.0], "does not contain these rows"),
        (aggr.Sum(), [1.0, 3.0], [2.0, 2.5], "does not contain these rows"),  # as many, and others
        (aggr.Sum(), [1.0, NAN], [INF], "does not contain these rows"),
        (aggr.Sum(), [1.0, NAN], [NAN], "the rows to subtract contain special values"),
        (aggr.Var(), [1.0, 2.0], [100.0], "does not contain these rows"),  # squares would be negative
        (aggr.Dds(), [1.0, 2.0, 3.0], [2.5], "does not contain these rows"),
        (aggr.Dds(), [1.0, 2.0, 3.0], [0.5], "does not contain these rows"),
        (aggr.Dds(), [1.0, 2.0, 3.0], [1.0], "the rows to subtract contain the least value"),
        (aggr.Dds(), [1.0, 2.0, 3.0], [3.0], "the rows to subtract contain the greatest value"),
        (aggr.Hdr(), [1.0, 2.0, 3.0], [3.0], "the rows to subtract contain the greatest value"),
        (aggr.Hdr(), [1.0, NAN], [NAN, NAN, NAN], "does not contain these rows"),
    ],
    ids=str,
)
def test_rows_that_are_not_there_or_leave_doubt_are_refused(function, states, removed, reason):
    beside = state_of(function, [1.0, 2.0, 3.0, 4.0])
    complete, part = (pa.concat_arrays([beside, state_of(function, values)]) for values in (states, removed))
    removed = pa.concat_arrays([function.zero(1, pa.float64()), part[1:]])
    with pytest.raises(CannotSubtract, match=reason) as refused:
        function.subtract(complete, removed)
    assert refused.value.row == 1


@pytest.mark.parametrize("function", [aggr.Sum(), aggr.Dds()], ids=repr)
def test_all_of_a_state_can_be_taken_out_whatever_it_holds(function):
    state, zero = state_of(function, [NAN, INF, 1.0, 1.0, -2.0]), function.zero(1, pa.float64())
    nothing = pa.nulls(1, state.type)
    assert same_bits(function.subtract(state, state), zero)
    assert same_bits(function.subtract(nothing, nothing), zero)
    with pytest.raises(CannotSubtract, match="does not contain these rows"):
        function.subtract(nothing, state)


def table_of(rows: pa.Table) -> pa.Table:
    measures = {"n": aggr.count(), "ms": aggr.var("ms"), "p": aggr.dds("ms"), "slow": aggr.count(where="ms > 90")}
    return reduce_by(
        rows, {"host": rows["host"].combine_chunks(), "day": rows["day"].combine_chunks()}, plan_state_columns(measures)
    )


@pytest.mark.slow
def test_tables_are_subtracted_key_by_key():
    rng = np.random.default_rng(7)
    for _ in range(TRIALS):
        n = int(rng.integers(0, 300))
        rows = pa.table(
            {
                "host": pa.array(rng.choice(["a", "b", "c", None], n).tolist(), pa.string()),
                "day": pa.array(rng.integers(0, 3, n)),
                "ms": pa.array(rng.integers(1, 100, n) * 1.0),
                "user": pa.array(rng.integers(0, 9, n)),
            }
        )
        keys = [(host, day, ms) for host in ("a", "b", "c", None) for day in range(3) for ms in (0.5, 1000.0)]
        host, day, ms = (list(column) for column in zip(*keys, strict=True))
        edges = pa.table({"host": pa.array(host, pa.string()), "day": day, "ms": ms, "user": [-1] * len(ms)})
        whose, key = rng.integers(0, 9), rng.integers(0, 3)
        is_removed = np.array([user == whose for user in rows["user"].to_pylist()], bool) | (
            rows["day"].to_numpy() == key
        )
        # all of one day goes, its least and greatest values too; of others what one user did
        stay = pa.concat_tables(
            [edges.filter(pa.array(edges["day"].to_numpy() != key)), rows.filter(pa.array(~is_removed))]
        )
        removed = pa.concat_tables(
            [edges.filter(pa.array(edges["day"].to_numpy() == key)), rows.filter(pa.array(is_removed))]
        )
        everything = pa.concat_tables([table_of(stay), table_of(removed), table_of(edges.slice(0, 0))])
        remaining = aggr.subtract(everything, table_of(removed))
        assert remaining.equals(table_of(stay))
        assert same_bits(remaining["ms"], table_of(stay)["ms"])


def test_tables_name_the_measure_and_the_key():
    rows = pa.table({"host": ["a", "b"], "day": [1, 2], "ms": [1.0, 2.0]})
    with pytest.raises(CannotSubtract, match="the state at host='a', day=5: the state does not contain these rows"):
        aggr.subtract(table_of(rows), table_of(pa.table({"host": ["a"], "day": [5], "ms": [1.0]})))
    more = pa.concat_tables([rows, rows.slice(1)])
    with pytest.raises(CannotSubtract, match="p, dds at host='b', day=2: the rows to subtract contain the least value"):
        aggr.subtract(table_of(more), table_of(rows.slice(1)))
    fixed = reduce_by(
        rows, {"host": rows["host"].combine_chunks()}, plan_state_columns({"low": aggr.min("ms"), "n": aggr.count()})
    )
    with pytest.raises(TypeError, match=r"the states of low \(min\), because these states lack the data"):
        aggr.subtract(fixed, fixed)
    with pytest.raises(ValueError, match="two tables with the same columns"):
        aggr.subtract(fixed, fixed.drop_columns(["low"]))
    with pytest.raises(ValueError, match=r"gone must be a pyarrow\.Table"):
        aggr.subtract(table_of(rows), [1])
