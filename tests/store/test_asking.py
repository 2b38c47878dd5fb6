"""Queries beyond one level and one range: several levels, single times, conditions on results, and zones."""

from __future__ import annotations

import datetime as dt
import json
import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend

START = 1714521600_000  # 2024-05-01
FRAME = TiltFrame(["1m", "10m", "1h"], "ts", {"n": aggr.count(), "ms": aggr.dds("ms", [0.5, 0.99])}, ["host"])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rows = pa.table(
        {
            "ts": [START + 20_000 * i for i in range(6000)],  # 33 hours and 20 minutes
            "host": ["ab"[i % 2] for i in range(6000)],
            "ms": [float(i) for i in range(6000)],
        }
    )
    store = FrameStore(tmp_path_factory.mktemp("asking") / "store", FRAME)
    store.append(rollup(rows, FRAME), "test", 1)
    return store


def test_several_levels_one_after_the_other(store):
    both = store.query(["1h", "10m"], within="2024-05-01 07", keys=[])
    assert both.column("level").to_pylist() == ["1h"] + ["10m"] * 6
    assert both.column("n").to_pylist() == [180] + [30] * 6
    first = store.query(["1h", "10m"], order_by="n desc", limit=1)
    assert first.equals(store.query("1h", limit=1))
    with pytest.raises(ValueError, match="got an empty list"):
        store.query([])


@pytest.mark.parametrize(
    "query",
    [
        Query("1m"),
        Query("10m"),
        Query("1h"),
        Query("1d"),
        Query(["1h", "10m"]),
        Query("1m", within="2024-05-01 07:12,2024-05-01 07:13"),
        Query("1h", within="2024-05-01 07:30,2024-05-01 09:30"),
        Query("1h", within="2024-05-02 08,2024-05-03"),
        Query("1h", within="2024-05-04"),
        Query("1h", within="2024-05-02,2024-05-04", fill=True),
        Query("1d", timezone="Asia/Kolkata"),
        Query("hopping(2h, 1h)"),
        Query("hopping(1h, 10m)"),
        Query(within="2024-05-02,2024-05-04"),
    ],
)
def test_the_cost_counts_all_windows_of_contiguous_rows(store, query):
    view = store.at()
    results = view.ask(query).table().select(["level", "window_start"])
    found = {tuple(row.values()) for row in results.to_pylist()}
    assert view.cost(query).windows == len(found)


@pytest.mark.parametrize(
    ("points", "within", "level"),
    [
        (10_000, None, "1m"),
        (2000, None, "1m"),  # 33 hours and 20 minutes are exactly 2,000
        (1999, None, "10m"),
        (200, None, "10m"),
        (199, None, "1h"),
        (34, None, "1h"),
        (33, None, "1d"),
        (1, None, "1w"),
        (500, "2024-05-01 07", "1m"),
        (59, "2024-05-01 07", "10m"),
        (3, "2024-05-01 07", "1h"),
        (366, "2024", "1d"),
        (12, "2024", "1mo"),
    ],
)
def test_points_choose_the_finest_level_that_has_no_more(store, points, within, level):
    result = store.query(points=points, within=within, keys=[])
    assert set(result.column("level").to_pylist()) == {level}
    assert result.num_rows <= points


def test_points_pass_over_levels_that_have_expired(tmp_path):
    rows = pa.table({"ts": [START, START + 86_400_000], "host": ["a", "a"], "ms": [1.0, 2.0]})
    store = FrameStore(tmp_path / "store", FRAME, retention={"1m": "1h"})
    store.append(rollup(rows, FRAME), "test", 1)
    store.expire(now="2024-05-02T01:00Z")
    assert store.query(points=5000, within="2024-05-01")["level"].to_pylist() == ["10m"]
    assert store.query(points=5000, within="2024-05-02")["level"].to_pylist() == ["1m"]


def test_points_that_cannot_be(store):
    with pytest.raises(ValueError, match="contradict each other"):
        store.query("1h", points=5)
    with pytest.raises(ValueError, match="points must be a whole number of at least 1; got 0"):
        store.query(points=0)
    with pytest.raises(ValueError, match="the range has more than 3 windows even with one window per year"):
        store.query(points=3, within="2020-01-01,2030-01-01")


def test_having_is_about_results(store):
    every = store.query("1h").to_pylist()
    expected = [row for row in every if row["ms"]["quantiles"]["0.99"] > 3000 and row["host"] == "a" and row["n"] >= 90]
    assert 0 < len(expected) < len(every)
    assert store.query("1h", having="ms_p99 > 3000 AND host = 'a' AND n >= 90").to_pylist() == expected
    for having, message in (
        ("ms_p98 > 5", "having reads 'ms_p98', which is not a result; did you mean 'ms_p99'"),
        ("n > 'many'", "many"),
        (" ", "having must be a condition"),
        (5, "having must be a condition"),
    ):
        with pytest.raises(ValueError, match=message):
            store.query("1h", having=having)


def test_a_zone_for_reading(store):
    day = store.query("1h", within="2024-05-01", timezone="Asia/Tokyo", keys=[], measures=["n"])
    assert day.schema.field("window_start").type.tz == "Asia/Tokyo"
    assert [row["window_start"].isoformat() for row in day.to_pylist()][:1] == ["2024-05-01T09:00:00+09:00"]
    assert day.num_rows == 15  # the store begins at nine in Tokyo, whose day ends at 15:00 UTC
    with pytest.raises(ValueError, match="Asia/Tokio"):
        store.query("1h", timezone="Asia/Tokio")


def test_a_time_ago_is_counted_from_now(store):
    result = store.query("1h", within="-2h", now="2024-05-01T12:00Z", keys=[])
    assert [at.hour for at in result.column("window_start").to_pylist()] == [10, 11]


def test_the_command_line_asks_the_same(store, capfd):
    arguments = ["query", store.uri, "--no-keys", "--format", "json", "--flat", "--now", "2024-05-01T12:00Z"]
    status, out, err = call(capfd, *arguments, "--within", "-2h", "--per", "1h", "--per", "10m", "--having", "n > 30")
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["level"], row["n"], row["partial"]) for row in rows] == [("1h", 180, False)] * 2
    assert rows[0].keys() >= {"ms_count", "ms_p50", "ms_p99"}
    status, out, err = call(capfd, *arguments, "--points", "3", "--within", "2024-05-01 07")
    assert [json.loads(line)["level"] for line in out.splitlines()] == ["1h"]
    status, out, err = call(capfd, *arguments)
    assert status == 2
    assert "name the windows of the results" in err
    status, out, err = call(capfd, "query", store.uri, "--points", "2", "--timezone", "Asia/Tokyo", "--no-keys")
    assert status == 0
    assert "Asia/Tokyo" in out


@pytest.mark.parametrize("keys", [["host"], []])
@pytest.mark.parametrize("per", ["1m", "1h", "hopping(1h, 20m)"])
def test_the_latest_window_of_each_key(tmp_path, per, keys):
    rng = np.random.default_rng(len(per))
    last_minutes = {"a": 4000, "b": 600, None: 90}  # each key is last seen at another minute
    times_and_hosts = [
        (START + int(at) * 60_000, host) for host, end in last_minutes.items() for at in rng.integers(0, end, 40)
    ]
    rows = pa.table(
        {
            "ts": [at for at, _ in times_and_hosts],
            "host": [host for _, host in times_and_hosts],
            "ms": [1.0] * len(times_and_hosts),
        }
    )
    store = FrameStore(tmp_path / "store", FRAME)
    store.append(rollup(rows, FRAME), "test", 1)
    every = store.query(per, keys=keys)
    by = ", ".join(keys) or "1"
    expected = duckdb.from_arrow(every).query(
        "every",
        f"SELECT window_start, n FROM every QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY window_start DESC) "
        "= 1 ORDER BY window_start, n",
    )
    expected = expected.fetchall()
    result = store.query(per, keys=keys, latest=True, order_by=["window_start", "n"])
    rows_of = zip(result["window_start"].to_pylist(), result["n"].to_pylist(), strict=True)
    assert [(at.timestamp(), n) for at, n in rows_of] == [(at.timestamp(), n) for at, n in expected]
    assert len(expected) == (3 if keys else 1)
    with pytest.raises(ValueError, match="leave out one of them"):
        store.query(per, latest=True, fill=True)


@pytest.mark.parametrize(("way", "hosts"), [("", "bca"), (" desc", "acb")])
def test_nan_is_the_greatest_number_in_an_order(way, hosts):
    """As in conditions, max and top_k; null comes last in either direction."""
    rows = pa.table({"ts": [0, 1, 2, 3], "host": list("abcd"), "v": [float("nan"), 1.0, 2.0, None]})
    frame = TiltFrame(["1m"], "ts", {"m": aggr.max("v")}, ["host"])
    store = FrameStore(MemoryBackend(), frame, row_schema=rows.schema)
    store.append(rollup(rows, frame), "w", 1)
    assert store.query("1m", order_by=f"m{way}")["host"].to_pylist() == [*hosts, "d"]
    assert store.query("1m", order_by=f"m * 2{way}", limit=1)["host"].to_pylist() == [hosts[0]]


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
@pytest.mark.parametrize("within", [None, ("2024-10-25", None), (None, "2024-11-01")])
def test_points_are_the_maximum_also_of_open_ranges(timezone, within):
    """The first window of an open range may begin before the first window of the store."""
    draws = random.Random(f"{timezone} {within}")
    for _ in range(20):
        first = dt.datetime(2024, 10, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=draws.randrange(30 * 1440))
        times = [first, first + dt.timedelta(minutes=draws.choice([0, 61, 1500, 5000, 40_000, 400_000]))]
        store = FrameStore(MemoryBackend(), TiltFrame(["15m", "1h"], "ts", {"n": aggr.count()}))
        store.append_rows(pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))}), "w", 1)
        for points in (2, 3, 7):  # the range may be in two years
            result = store.query(points=points, within=within, timezone=timezone, fill=True, now="2026-01-01")
            assert result.num_rows <= points
