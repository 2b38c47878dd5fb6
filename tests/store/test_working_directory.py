"""A store in a relative folder stays in its folder when the working directory changes."""

import os

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.closed_windows import ClosedWindows

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})
ROWS = pa.table({"ts": [0, 60_000]})

CHANGES = {
    "append_rows": lambda store: store.append_rows(ROWS, "w", 2),
    "compact": lambda store: store.compact(),
    "vacuum": lambda store: store.vacuum(),
    "export": lambda store: store.export("1h"),
    "retract": lambda store: store.retract(rollup(ROWS, FRAME), "w", 2),
    "query": lambda store: store.query("1m"),
    "verify": lambda store: store.verify(),
}


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    return tmp_path


@pytest.mark.store
@pytest.mark.parametrize("operation", CHANGES)
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
def test_operations_after_a_change_of_the_working_directory(working_directory, operation, durable):
    store = FrameStore("relative", FRAME, durable=durable)
    store.append_rows(ROWS, "w", 1)
    os.chdir(working_directory / "other")
    CHANGES[operation](store)
    assert not list((working_directory / "other").iterdir())
    reopened = FrameStore(str(working_directory / "relative"))
    assert reopened.verify().problems == ()
    counts = {"append_rows": [4], "retract": []}.get(operation, [2])
    assert reopened.query("1h")["n"].to_pylist() == store.query("1h")["n"].to_pylist() == counts


@pytest.mark.store
def test_a_new_store_is_created_where_it_was_opened(working_directory):
    store = FrameStore("relative", FRAME)
    os.chdir(working_directory / "other")
    store.append_rows(ROWS, "w", 1)
    assert FrameStore(str(working_directory / "relative")).query("1h")["n"].to_pylist() == [2]
    assert store.backend.display_uri == "relative"


@pytest.mark.store
def test_the_saved_state_of_a_stream_stays_where_it_was(working_directory):
    store = FrameStore("relative", FRAME)
    store.append_rows(ROWS, "w", 1)
    stream = ClosedWindows(store, "stream")
    stream.add_rows(pa.table({"ts": [120_000]}))
    (working_directory / "state").write_bytes(stream.to_ipc())
    with_open = store.with_open("state")
    os.chdir(working_directory / "other")
    assert with_open.query("1h")["n"].to_pylist() == [3]
