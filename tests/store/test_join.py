"""Joins of rows with a store: statements of Siddhi, and the same results as one query per row."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store import Join

pytestmark = pytest.mark.store
SIDDHI = json.loads((Path(__file__).parents[1] / "conformance" / "siddhi.json").read_text())["cases"]
PER = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "month": "1mo", "year": "1y"}


def store_of(case, place):
    frame = TiltFrame(
        ["1s", "1m", "1h", "1d", "1mo", "1y"],
        "timestamp",
        {"avgPrice": aggr.avg("price"), "totalPrice": aggr.sum("price")},
        case["keys"],
        case["timezone"],
    )
    columns = [*case["keys"], "price", "timestamp"]
    store = FrameStore(place, frame)
    rows = pa.Table.from_pylist([{name: row[name] for name in columns} for row in case["rows"]])
    store.append_rows(rows, writer="test", commit=1)
    return store


@pytest.mark.parametrize(
    "name",
    [
        "1TestCase-incrementalStreamProcessorTest33",
        "v4.2.0-AggregationTestCase-incrementalStreamProcessorTest17",
        "SGTTimeZoneDay",
    ],
)
def test_siddhi_joins_an_input_stream(tmp_path, name):
    """``from inputStream as i join stockAggregation as s on i.symbol == s.symbol within … per i.perValue``."""
    case = next(case for case in SIDDHI if case["name"].endswith(name))
    ((level, expected),) = case["expected"].items()
    symbols = sorted({row["symbol"] for row in expected})
    start = min(row["window_start_ms"] for row in expected)
    end = max(row["window_start_ms"] for row in expected) + 1
    events = pa.table({"symbol": symbols, "start": [start] * len(symbols), "end": [end] * len(symbols)})
    events = events.append_column("perValue", pa.array([PER[level]] * len(symbols)))
    joined = store_of(case, tmp_path).join(
        events, on="row.symbol == store.symbol", within=("start", "end"), per="perValue", how="inner"
    )
    got = [row | {"window_start_ms": int(row["window_start"].timestamp() * 1000)} for row in joined.to_pylist()]
    names = list(expected[0])
    assert sorted([row[name] for name in names] for row in got) == sorted(list(row.values()) for row in expected)


FRAME = TiltFrame(
    ["1m", "1h", "1d"], "ts", {"n": aggr.count(), "total": aggr.sum("x"), "ms": aggr.dds("x", [0.5])}, ["host", "code"]
)
HOUR = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    random.seed(3)
    rows = [
        {"ts": random.randrange(72 * HOUR), "host": random.choice(["a", "b", None]), "code": i % 3, "x": i * 0.1}
        for i in range(3000)
    ]
    store = FrameStore(tmp_path_factory.mktemp("join") / "store", FRAME)
    store.append_rows(pa.Table.from_pylist(rows), writer="test", commit=1)
    return store


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"latest": True},
        {"having": "n > 5"},
        {"fill": "zero"},
        {"where": "code < 2"},
        {"timezone": "Asia/Kolkata", "where": "code < 1"},
        {"measures": {"mean": "total / n"}},
    ],
)
def test_the_results_of_a_row_are_those_of_its_query(store, how, options):
    random.seed(7)
    starts = [random.randrange(60 * 60) * HOUR // 60 for _ in range(60)]  # most are not starts of windows
    events = pa.table(
        {
            "host": [random.choice(["a", "b", "z", None]) for _ in starts],
            "number": pa.array([random.choice([0, 1, 0, 1, 2, 9]) for _ in starts], pa.int32()),
            "start": starts,
            "end": [at + random.choice([1, 5, 12]) * HOUR for at in starts],
            "size": [random.choice(["1h", "1h", "1d", "2h", "all", None]) for _ in starts],
        }
    )
    now = dt.datetime(1970, 1, 3, tzinfo=dt.UTC)
    joined = store.join(
        events, on="number = code and row.host = store.host", within=("start", "end"), per="size", how=how, now=now,
        **options,
    )  # fmt: skip
    expected = []
    for event in events.to_pylist():
        results = []
        if event["host"] is not None and event["size"] is not None:
            where = f"host = '{event['host']}' AND code = {event['number']}"
            where += f" AND {options['where']}" if "where" in options else ""
            within = (event["start"], event["end"])
            results = store.query(event["size"], within, **{**options, "where": where, "now": now}).to_pylist()
        if not results and how == "left":
            results = [{}]
        expected += [{name: (result | event).get(name) for name in joined.column_names} for result in results]
    assert joined.to_pylist() == expected
    assert joined.num_rows > 5


def test_ranges_that_overlap_are_read_once(store):
    """A range for each event costs what one query over all of them costs, and its answers are those of the rows."""
    starts = [i * HOUR // 60 for i in range(600)]
    events = pa.table({"host": ["a"] * 600, "start": starts, "end": [at + HOUR // 6 for at in starts]})
    join = Join("host", within=("start", "end"), per="1m", options={"keys": ["host"], "measures": ["n"]})
    joined = store.at().join(events, join)
    all_at_once = Query("1m", within=(0, starts[-1] + HOUR // 6), keys=["host"], measures=["n"])
    assert joined.cost == store.at().cost(all_at_once)
    counts = {(row["host"], row["window_start"]): row["n"] for row in store.ask(all_at_once).table().to_pylist()}
    for row in pa.concat_tables(joined.slices).to_pylist():
        begun = row["window_start"]
        assert begun is None or counts["a", begun] == row["n"]
        assert begun is None or row["start"] <= begun.timestamp() * 1000 < row["end"]


def test_columns_of_the_rows_are_repeated_unchanged(store):
    """Also times of day in a column of days, which Arrow would refuse when it checks the values of runs."""
    days = pa.array([86_400_000, 5], pa.int64()).view(pa.date64())
    events = pa.table({"host": ["a", "b"], "start": [0, 0], "end": [HOUR, HOUR], "day": days})
    joined = pa.concat_tables(store.at().join(events, Join("host", within=("start", "end"), per="1m")).slices)
    expected = {"a": 86_400_000, "b": 5}
    assert joined.num_rows > 2
    for host, day in zip(joined["host"].to_pylist(), joined["day"].combine_chunks().view(pa.int64()), strict=True):
        assert day.as_py() == expected[host]


def test_a_planned_join_of_pieces_is_the_join_of_all_rows(store):
    """As tasks of another engine read it: pickled, and with the types that backends store."""
    events = pa.table(
        {"host": ["a", None, "b", "z"], "code": [0, 1, 2, 0], "wait": pa.array([1, 2, 3, 4], "duration[s]")}
    )
    join = Join(["host", "code"], within="1970-01-01", per="1h", options={"measures": ["n", "total"]})
    planned = pickle.loads(pickle.dumps(store.plan_join(events.schema, join)))
    pieces = [table for table in planned.joined([events.slice(0, 1), events.slice(1)]) if table.num_rows]
    assert {table.schema for table in pieces} == {planned.schema}
    expected = store.join(events, join.on, within=join.within, per=join.per, **join.options)
    assert pa.concat_tables(pieces).to_pylist() == expected.to_pylist()
    with pytest.raises(ValueError, match="no key 'hots' to join on; did you mean 'host'"):
        store.plan_join(events.schema, Join("hots"))


def test_ranges_far_apart_are_read_apart(store):
    events = pa.table({"host": ["a", "a"], "day": ["1970-01-01 00", "1970-01-03 05"]})
    join = Join("host", within="day", per="1m", options={"keys": ["host"], "measures": ["n"]})
    assert store.at().join(events, join).cost.windows <= 122


def test_ranges_are_text_of_a_column_or_one_constant(store):
    events = pa.table({"host": ["a", "b"], "range": ["1970-01-01 **:**:**", "1970-01-02"]})
    joined = store.join(events, ["host"], within="range", per="1d", keys=["host"])
    assert [str(at.date()) for at in joined["window_start"].to_pylist()] == ["1970-01-01", "1970-01-02"]
    all_time = store.join(events, "host", keys=["host"], measures=["n"])
    assert all_time["n"].to_pylist() == [
        store.query(where=f"host = '{host}'", keys=["host"])["n"][0].as_py() for host in ("a", "b")
    ]


def test_a_number_that_the_key_does_not_have_matches_nothing(store):
    joined = store.join(pa.table({"code": [1.0, 1.5, 2.0**53, float("nan")]}), "code", keys=["code"], measures=["n"])
    assert [n is not None for n in joined["n"].to_pylist()] == [True, False, False, False]


def test_rows_without_results(store):
    no_rows = store.join(pa.table({"host": pa.array([], pa.string())}), "host", within="1970", per="1h")
    assert (no_rows.num_rows, no_rows.column_names[:3]) == (0, ["host", "level", "window_start"])
    nulls = store.join(pa.table({"host": pa.nulls(2)}), "host", within="1970", per="1h", prefix="s_")
    assert nulls["s_n"].to_pylist() == [None, None]


MISTAKES = {
    "no key": ({"on": "nope"}, "the store has no key 'nope' to join on"),
    "no column": ({"on": {"host": "nope"}}, "no column 'nope'"),
    "two ways": ({"on": "host = code"}, "write row.host = store.code"),
    "no equality": ({"on": "host = 'a' OR code = 1"}, "write equalities connected by AND"),
    "no key on either side": ({"on": "upper(host) = lower(host)"}, "one side must be a key of the store (host, code)"),
    "a key twice": ({"on": ["host", "host"]}, "twice"),
    "nothing": ({"on": []}, "name at least one key"),
    "no way": ({"on": "host", "how": "outer"}, "the parameter 'how' must be 'left' or 'inner'; got 'outer'"),
    "a limit": ({"on": "host", "limit": 5}, "a join has no parameter 'limit'"),
    "types": (
        {"on": {"code": "host"}, "prefix": "s_"},
        "cannot compare the key code, of type int64, with string of the rows",
    ),
    "one name for two": ({"on": {"code": "code"}, "per": "1h"}, "the rows have a column 'host', and so do"),
    "an empty range": (
        {"on": "host", "within": ("code", 0), "prefix": "s_"},
        "in the row with code=1, the range (1, 0) is empty",
    ),
    "three ends": ({"on": "host", "within": ("code", 0, 1), "prefix": "s_"}, "cannot read the range ('code', 0, 1)"),
    "a time": ({"on": ["host", "code"], "within": ("host", None), "per": "1h"}, "the row with host='a'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(store, mistake):
    arguments, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=re.escape(message)):
        store.join(pa.table({"host": ["a"], "code": [1]}), **arguments)
