"""Queries of closed windows only: partial windows are removed before the latest window is selected."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest

import aggr
from spark_udaf.store.options import from_options, to_options
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store import Expired

pytestmark = pytest.mark.store
MINUTE = dt.timedelta(minutes=1)
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
OPTIONS = [{}, {"latest": True}, {"fill": "zero"}, {"edges": "1h"}, {"edges": "1h", "latest": True}]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    draws = random.Random(7)
    times = [START + dt.timedelta(seconds=draws.randrange(3 * 86_400)) for _ in range(300)]
    hosts = draws.choices("abc", k=300)
    values = [float(draws.randrange(9)) for _ in times]
    rows = pa.table({"ts": pa.array(times), "host": hosts, "value": values})
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "rise": aggr.increase("value")}, keys=["host"])
    store = FrameStore(tmp_path_factory.mktemp("closed") / "store", frame)
    store.append_rows(rows, writer="test", commit=0)
    return store


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("per", ["1m", "10m", "1h"])
def test_closed_windows_are_those_that_are_not_partial(store, per, options):
    now = START + dt.timedelta(days=2, minutes=17, seconds=20)
    of_all = dict(options)
    is_latest = of_all.pop("latest", False)
    expected = [row for row in store.query(per, now=now, **of_all).to_pylist() if row["window_end"] <= now]
    if is_latest:
        last = {row["host"]: row["window_start"] for row in sorted(expected, key=lambda row: row["window_start"])}
        expected = [row for row in expected if row["window_start"] == last[row["host"]]]
    closed = store.query(per, now=now, closed=True, **options).to_pylist()
    assert sorted(closed, key=str) == sorted(expected, key=str)
    assert closed
    assert len(closed) < store.query(per, now=now, **of_all).num_rows


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tasks_of_spark_read_the_same(store, options):
    now = START + dt.timedelta(days=2, minutes=17, seconds=20)
    query = Query("1m", now=now, closed=True, **options)
    planned, _ = from_options(to_options(store.uri, query, None))
    partitions = planned.partitions(20)
    assert (len(partitions) > 1) == (not {"latest", "fill"} & options.keys())
    results = [row for partition in partitions for row in planned.read(partition).to_pylist()]
    expected = store.query("1m", now=now, closed=True, **options).to_pylist()
    assert sorted(results, key=str) == sorted(expected, key=str)


def test_a_window_whose_begin_has_expired_is_not_closed(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "store", frame, retention={"1m": "90m"})
    times = [START + minute * MINUTE for minute in range(240)]
    store.append_rows(pa.table({"ts": times}), writer="test", commit=0)
    store.expire(now=START + 240 * MINUTE)
    with pytest.warns(Expired):
        starts = store.query("40m", now=START + 235 * MINUTE, closed=True).column("window_start").to_pylist()
    assert starts == [START + 120 * MINUTE, START + 160 * MINUTE]  # 1m is kept from 2:00 on, and 3:20 to 4:00 is open


def test_the_query_travels():
    query = Query("1h", closed=True)
    assert Query.from_json(query.to_json()) == query
    assert query.describe() == {"per": "1h", "closed": True}
    with pytest.raises(ValueError, match="closed must be True or False"):
        Query("1h", closed="yes")
