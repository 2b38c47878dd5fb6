"""collect, collect_set and count_distinct, compared with DuckDB and a naive evaluation; aliases of functions."""

from __future__ import annotations

import math
from itertools import groupby

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.tables.state_plan import plan_state_columns
from tests.conftest import cases_of
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

RNG = np.random.default_rng(17)
N, GROUPS = 600, 6
ROWS = pa.table(
    {
        "g": RNG.integers(0, GROUPS - 1, N),  # the last group has no rows
        "t": pa.array([None if RNG.random() < 0.05 else int(t) for t in RNG.integers(0, 80, N)]),
        "v": pa.array([None if RNG.random() < 0.1 else f"v{v}" for v in RNG.integers(0, 40, N)]),
        "x": pa.array([None if RNG.random() < 0.1 else float(x) for x in RNG.integers(-20, 20, N)]),
    }
)
IDS = Groups.of(ROWS["g"].to_numpy(), GROUPS)


def by_duckdb(sql: str) -> list:
    """Ask DuckDB, group by group; it says null of an empty list."""
    rows = ROWS  # noqa: F841  DuckDB finds it by its name
    values_by_group = dict(duckdb.sql(f"SELECT g, {sql} FROM rows GROUP BY g").fetchall())
    return [values_by_group.get(g) or type(next(iter(values_by_group.values())))() for g in range(GROUPS)]


def parts_merged(function, columns, parts=5):
    """Reduce random parts on their own, and merge them."""
    split = np.array_split(RNG.permutation(N), parts)
    reduced = [
        function.reduce([c.take(pa.array(rows)) for c in columns], Groups(IDS.ids[rows], GROUPS)) for rows in split
    ]
    return function.merge(pa.concat_arrays(reduced), Groups(np.tile(np.arange(GROUPS), parts), GROUPS))


@pytest.mark.parametrize("column", ["v", "x"])
def test_collect_is_duckdbs_ordered_list(column):
    columns = [ROWS[name].combine_chunks() for name in (column, "t")]
    without_nulls = f"FILTER (WHERE {column} IS NOT NULL AND t IS NOT NULL)"
    ordered_lists = by_duckdb(f"list({column} ORDER BY t, {column}) {without_nulls}")
    for function, expected in (
        (aggr.Collect(), ordered_lists),
        (aggr.Collect(7, "earliest"), [values[:7] for values in ordered_lists]),
        (aggr.Collect(7, "latest"), [values[-7:] for values in ordered_lists]),
    ):
        assert function.finish(function.reduce(columns, IDS)).to_pylist() == expected
        assert function.finish(parts_merged(function, columns)).to_pylist() == expected


def naively_nested(events, sizes):
    """Nest (time, value) pairs, in their order, by windows of sizes from the coarsest."""
    if not sizes:
        return [value for _, value in events]
    return [naively_nested(list(group), sizes[1:]) for _, group in groupby(events, key=lambda e: e[0] // sizes[0])]


@pytest.mark.parametrize(("sizes", "unit"), [([7], "s"), ([3, 9], "ns"), ([2, 10, 20], "us")])
def test_lists_are_nested_by_event_time(sizes, unit):
    """Times before 1970 and empty groups too; whole and in merged parts."""
    seconds = pa.array([None if t is None else t - 40 for t in ROWS["t"].to_pylist()], pa.int64())
    columns = [ROWS["v"].combine_chunks(), seconds.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))]
    function = aggr.Collect(nested=tuple(f"{size}s" for size in sizes))
    rows = zip(ROWS["g"].to_pylist(), seconds.to_pylist(), ROWS["v"].to_pylist(), strict=True)
    complete_rows = sorted(row for row in rows if None not in row)
    expected = [naively_nested([row[1:] for row in complete_rows if row[0] == g], sizes[::-1]) for g in range(GROUPS)]
    states = function.reduce(columns, IDS)
    assert function.finish(states).to_pylist() == expected
    assert function.finish(parts_merged(function, columns)).to_pylist() == expected
    assert states.equals(aggr.Collect().reduce(columns, IDS))
    assert function.result_type(states.type) == function.finish(states).type


def test_what_cannot_nest_is_refused():
    for nested in (["1m", "10s"], ["10s", "15s"], ["1m", "1m"], "0s", "1mo", 5, [60]):
        with pytest.raises(ValueError, match="nested"):
            aggr.collect("v", nested=nested)
    with pytest.raises(TypeError, match="needs timestamps as event times; the column in by= has the type"):
        aggr.Collect(nested="1m").reduce([pa.array([1]), pa.array([1])], Groups.single(1))


@pytest.mark.parametrize("column", ["v", "x"])
def test_sets_are_duckdbs(column):
    values = ROWS[column].combine_chunks()
    states = aggr.CollectSet().reduce(values, IDS)
    without_nulls = f"FILTER (WHERE {column} IS NOT NULL)"
    assert aggr.CollectSet().finish(states).to_pylist() == by_duckdb(
        f"list(DISTINCT {column} ORDER BY {column}) {without_nulls}"
    )
    assert aggr.CountDistinct().finish(states).to_pylist() == by_duckdb(f"count(DISTINCT {column})")


def test_zeros_are_one_value_and_so_are_nan():
    other_nan = np.array([0x7FF8000000000001], np.int64).view(np.float64)[0]
    values = pa.array([0.0, -0.0, math.nan, other_nan, math.inf, -math.inf, None])
    states = aggr.CollectSet().reduce(values, Groups.single(7))
    assert repr(aggr.CollectSet().finish(states).to_pylist()) == "[[-inf, 0.0, inf, nan]]"
    assert aggr.CountDistinct().finish(states).to_pylist() == [4]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (aggr.Collect(3), r"at most max=3 values a group; one group has 4; raise max, use keep='earliest'"),
        (aggr.CollectSet(3), r"distinct values holds at most max=3 values a group; one group has 4; raise max"),
        (aggr.CountDistinct(3), r"distinct values holds at most max=3 values a group; one group has 4; raise max"),
        (
            aggr.ValueCounts(3),
            r"the map holds at most .*; raise max, count the most frequent values by frequent, or use",
        ),
    ],
)
def test_too_many_values_are_refused_by_reduce_and_merge(function, message):
    def reduced(values):
        columns = [pa.array(values)] + [pa.array(values)] * (len(function.inputs) - 1)
        return function.reduce(columns if len(columns) > 1 else columns[0], Groups.single(len(values)))

    with pytest.raises(ValueError, match=message):
        reduced([1, 2, 3, 4])
    with pytest.raises(ValueError, match=message):
        function.merge(pa.concat_arrays([reduced([1, 2]), reduced([3, 4])]), Groups.single(2))
    function.merge(pa.concat_arrays([reduced([1, 2]), reduced([3])]), Groups.single(2))


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, None, 2**31])
def test_a_bad_max_is_refused(bad):
    for call in (aggr.collect, aggr.collect_set, aggr.count_distinct):
        with pytest.raises(ValueError, match="max, the maximum number of values in a group, must be a whole number"):
            call("x", bad)


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match="keep must be one of 'all', 'earliest', 'latest'; got 'newest'"):
        aggr.collect("x", keep="newest")
    with pytest.raises(TypeError, match="types that have an order"):
        aggr.CollectSet().reduce(pa.array([[1]]), Groups.single(1))
    with pytest.raises(ValueError, match="max=5 cannot be merged or read as max=6"):
        aggr.CollectSet(6).merge(aggr.CollectSet(5).zero(1, pa.int64()), Groups.single(1))


def test_in_frames_and_calls():
    rows = pa.table({"ts": [70_000, 1, 0, 0], "host": ["c", "b", "b", "a"], "ms": [5.0, 1.0, 9.0, 9.0]})
    measures = {
        "all": aggr.collect("host"),
        "slowest_first": aggr.collect("host", by="ms"),
        "newest": aggr.collect("host", 1, keep="latest"),
        "hosts": aggr.collect_set("host"),
        "n": aggr.count_distinct("host", where="ms > 1"),
    }
    frame = TiltFrame(["1m", "1h"], "ts", measures)
    result = finish(rollup(rows, frame), frame).select(list(measures)).to_pylist()
    assert result[2] == {
        "all": ["a", "b", "b", "c"],
        "slowest_first": ["b", "c", "a", "b"],
        "newest": ["c"],
        "hosts": ["a", "b", "c"],
        "n": 3,
    }
    for measure in measures.values():
        assert aggr.from_description(measure.describe()) == measure
    assert measure_from("collect(host, 1, keep='latest')") == measures["newest"]


def test_counts_share_the_set_where_it_holds_as_many():
    shared = plan_state_columns(
        {"n": aggr.count_distinct("x"), "set": aggr.collect_set("x"), "few": aggr.count_distinct("x", 5)}
    )
    assert [c.serves for c in shared] == [("n", "set"), ("few",)]


@pytest.mark.parametrize(("alias", "name"), [("mean", "avg"), ("variance", "var"), ("stddev", "stdev")])
def test_other_names_find_the_same_functions(alias, name):
    assert aggr.get(alias) is aggr.get(name)
    assert getattr(aggr, alias)("x") == aggr.caller(alias)("x") == measure_from(f"{alias}(x)") == aggr.caller(name)("x")
    assert alias not in aggr.names()


def test_an_alias_that_is_taken_is_refused():
    class Middle(aggr.Avg):
        name = "middle"
        aliases = ("mean",)

    with pytest.raises(ValueError, match=r"the name 'mean' is already used by aggr\.functions\.moments\.Avg"):
        aggr.register(Middle)
    assert "middle" not in aggr.names()


CASES = {case["name"]: case for case in cases_of("tremor_functions.json")}


def test_tremor_collect():
    states, clock = {}, iter(range(100))
    for step in CASES["tremor-collect_merge"]["steps"]:
        if "accumulate" in step:
            values = step["accumulate"]
            columns = [pa.array(values), pa.array([next(clock) for _ in values])]
            states[step["state"]] = aggr.Collect().reduce(columns, Groups.single(len(values)))
        elif "merge_into" in step:
            both = pa.concat_arrays([states[step["merge_into"]], states[step["src"]]])
            states[step["merge_into"]] = aggr.Collect().merge(both, Groups.single(2))
        else:
            assert aggr.Collect().finish(states[step["state"]])[0].as_py() == step["emit"]


RECORDS = pa.struct([("span", pa.string()), ("x", pa.float64()), ("inner", pa.struct([("n", pa.int64())]))])


def record_rows(seed: int) -> tuple[pa.Array, pa.Array]:
    """Return times and records with nulls, NaN and both zeros; many records have the same time."""
    rng = np.random.default_rng(seed)
    numbers = [0.0, -0.0, math.nan, 1.5, None]
    records = [
        None
        if rng.random() < 0.1
        else {
            "span": [None, "a", "b"][rng.integers(3)],
            "x": numbers[rng.integers(5)],
            "inner": None if rng.random() < 0.2 else {"n": [None, 1, 2][rng.integers(3)]},
        }
        for _ in range(200)
    ]
    times = pa.array(rng.integers(0, 5, 200)).cast(pa.timestamp("s", "UTC"))
    return pa.array(records, RECORDS), times


def python_key(record: dict) -> tuple:
    """Order records field by field: null after all values, NaN after all numbers, -0.0 before 0.0."""

    def number(x):
        return (
            (1,)
            if x is None
            else (0, math.isnan(x), 0 if math.isnan(x) else x, not math.isnan(x) and not str(x).startswith("-"))
        )

    inner = record["inner"]
    return (
        (record["span"] is None, record["span"] or ""),
        number(record["x"]),
        (inner is None, (True, 0) if inner is None else (inner["n"] is None, inner["n"] or 0)),
    )


@pytest.mark.parametrize("seed", range(4))
def test_records_are_listed_by_time_and_then_field_by_field(seed):
    records, times = record_rows(seed)
    ids = Groups.of(np.random.default_rng(seed).integers(0, 3, 200), 3)
    expected = [[] for _ in range(3)]
    rows = zip(times.to_pylist(), records.to_pylist(), ids.ids.tolist(), strict=True)
    for _, record, group in sorted(
        (row for row in rows if row[1] is not None), key=lambda row: (row[0], python_key(row[1]))
    ):
        expected[group].append(record)
    for function, of_group in (
        (aggr.Collect(), lambda values: values),
        (aggr.Collect(7, "earliest"), lambda values: values[:7]),
        (aggr.Collect(7, "latest"), lambda values: values[-7:]),
    ):
        all_at_once = function.reduce([records, times], ids)
        assert repr(function.finish(all_at_once).to_pylist()) == repr([of_group(values) for values in expected])
        order = np.random.default_rng(seed + 9).permutation(200)
        parts = [
            function.reduce([column.take(pa.array(part)) for column in (records, times)], Groups(ids.ids[part], 3))
            for part in np.array_split(order, 5)
        ]
        merged = function.merge(pa.concat_arrays(parts), Groups(np.tile(np.arange(3), 5), 3))
        assert same_bits(merged, all_at_once)
        assert function.finish(merged).to_pylist().__repr__() == function.finish(all_at_once).to_pylist().__repr__()


def test_several_columns_are_a_record():
    measure = aggr.collect(["span_id", "latency ms", "http.status"])
    assert measure == aggr.collect("struct(span_id, `latency ms`, http.status)")
    assert measure_from("collect([span_id, name], max=3)") == aggr.collect(["span_id", "name"], max=3)
    rows = pa.table(
        {
            "ts": pa.array([2, 1, 3], pa.timestamp("s", "UTC")),
            "span_id": pa.array(["b", "a", "c"], pa.large_string()),
            "name": pa.array(["y", None, "x"]).dictionary_encode(),
        }
    )
    frame = TiltFrame(["1m"], "ts", {"spans": aggr.collect(["span_id", "name"])})
    (spans,) = finish(rollup(rows, frame), frame)["spans"].to_pylist()
    assert spans == [{"span_id": "a", "name": None}, {"span_id": "b", "name": "y"}, {"span_id": "c", "name": "x"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "or a list of names, such as"),
        (["a", 3], "or a list of names, such as"),
        (["a", "a"], "two parts called 'a'"),
        (["a", "tags"], "collect cannot take a column of type struct"),
    ],
)
def test_records_that_cannot_be_listed(columns, message):
    rows = pa.table({"ts": [0], "a": [1], "tags": pa.array([["x"]])})
    with pytest.raises((ValueError, TypeError), match=message):
        rollup(rows, TiltFrame(["1m"], "ts", {"r": aggr.collect(columns)}))
    with pytest.raises(ValueError, match="the column of sum must be a name or an expression"):
        aggr.sum(["a", "b"])
