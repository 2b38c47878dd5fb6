"""Planned queries: their parts, read in any processes, have together the results of the complete query."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame, rollup
from tiltframe.store.backends import memory
from tiltframe.store.testing import MemoryBackend
from tiltframe.time_range import moment_or_now
from windows import hopping

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
MINUTES = [60_000 * 37 * i for i in range(500)]  # of thirteen days
QUERIES = {
    "minutes": (Query(per="1m"), 2),
    "hours of a day": (Query(per="1h", within="1970-01-02"), 1),
    "all": (Query(per="all"), 1),
    "hops": (Query(per=hopping("2h", "1h")), 1),
    "filled": (Query(per="1d", fill=True), 1),
    "latest": (Query(per="1h", latest=True), 1),
    "nothing": (Query(per="1m", within="1980-01-02"), 1),
    "half open": (Query(per="1m", within=("1970-01-05", None), having="n > 1"), 2),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = FrameStore(tmp_path_factory.mktemp("planned") / "s", FRAME)
    for number in range(3):
        rows = pa.table({"ts": MINUTES, "x": range(500), "k": ["a", "b"] * 250})
        store.append(rollup(rows, FRAME), "w", number)
    return store


@pytest.mark.parametrize("name", QUERIES)
def test_the_parts_of_a_query_are_the_whole_of_it(name, store):
    query, fewest_parts = QUERIES[name]
    plan = pickle.loads(pickle.dumps(store.plan(query)))
    parts = plan.partitions(rows=300)
    assert len(parts) >= fewest_parts
    got, want = pa.concat_tables([plan.read(part) for part in parts]), store.ask(query).table()
    assert got.schema == want.schema == plan.schema
    by = [("window_start", "ascending"), ("k", "ascending")]
    assert got.drop_columns(["partial"]).sort_by(by) == want.drop_columns(["partial"]).sort_by(by)


def test_states_are_planned_as_well(store):
    plan = store.plan(Query(per="1h"), as_states=True)
    states = pa.concat_tables([plan.read(part) for part in plan.partitions(rows=10)])
    assert states.schema == plan.schema
    assert states.num_rows == store.states("1h").num_rows


def test_a_plan_is_per_one_kind_of_window(store):
    with pytest.raises(ValueError, match="names 2 kinds of windows, which cannot be planned together"):
        store.plan(Query(per=["1m", "1h"]))


@pytest.mark.parametrize("per", ["1m", "hopping(2m, 1m)", "all"])
def test_states_that_are_read_are_checked(per):
    frame, backend = TiltFrame(["1m"], "ts", {"n": aggr.count()}), MemoryBackend()
    store = FrameStore(backend, frame)
    store.append(rollup(pa.table({"ts": [0]}), frame), "w", 1)
    assert store.query(per, measures=["n"])["n"].to_pylist()[0] == 1
    stored_rows = memory._STORES[backend.name].rows
    for name, table in stored_rows.items():
        state = {"function": "count", "version": 2, "count": 1}
        at = table.schema.get_field_index("n")
        stored_rows[name] = table.set_column(at, table.schema.field(at), pa.array([state], table.schema.field(at).type))
    with pytest.raises(ValueError, match="version 2"):
        store.query(per)


def test_now_is_the_clocks_unless_it_is_given(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_714_521_600.25)
    assert moment_or_now(None, "UTC") == 1_714_521_600_250_000
    assert moment_or_now("2024-05-01T00:00:01", "UTC") == 1_714_521_601_000_000
