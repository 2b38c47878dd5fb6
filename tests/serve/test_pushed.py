"""Pushed changes: their rows, continuing after a version, and the end of a connection."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])


@contextmanager
def listening(server, headers=None, words=""):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    connection.request("GET", f"/v1/stores/web/changes{words}", headers=headers or {})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    try:
        yield answer
    finally:
        connection.close()


def next_event(answer):
    """Read until an event with data ends; return its id and its rows."""
    version, rows, line = None, [], ""
    while not rows or line != "\n":
        line = answer.readline().decode()
        assert line, "the stream has ended"
        name, _, value = line.strip().partition(": ")
        version = int(value) if name == "id" else version
        rows += [json.loads(value)] if name == "data" else []
    return version, rows


@pytest.mark.long
def test_changes_are_pushed_and_resumed_and_end_with_the_server(tmp_path):
    store = make_store(tmp_path / "web", frame=FRAME, data=pa.table({"ts": [0], "host": ["a"]}))
    with serving(tmp_path, tmp_path / "web") as server:
        with listening(server, words="?per=1m") as answer:
            answer.readline()
            begun = int(answer.readline().decode().partition(": ")[2])
            store.append_rows(pa.table({"ts": [60_000, 60_001], "host": ["b", "b"]}), "test", 2)
            version, rows = next_event(answer)
        assert [(row["level"], row["window_start"], row["host"]) for row in rows] == [
            ("1m", "1970-01-01T00:01:00Z", "b")
        ]
        assert version == rows[0]["version"] == store.version()
        store.append_rows(pa.table({"ts": [0], "host": ["c"]}), "test", 3)
        with listening(server, {"Last-Event-ID": str(version)}) as answer:
            assert {(row["level"], row["host"]) for row in next_event(answer)[1]} == {("1m", "c"), ("1h", "c")}
        with listening(server, words=f"?since={begun}") as answer:
            assert {row["host"] for row in next_event(answer)[1]} == {"b", "c"}
        with listening(server, words="?since=999") as answer:
            assert {row["host"] for row in next_event(answer)[1]} == {"a", "b", "c"}
            assert server.stop() in (0, -15)
            while answer.readline():
                pass
        assert "error" not in server.log()[-1]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("web/changes?per=5m", 400, "5m"),
        ("web/changes?since=x", 400, "since must be a version of the store, a whole number; got 'x'"),
        ("web/changes?limit=1", 400, "the request for changes has no parameter 'limit'"),
        ("nope/changes", 404, "no store 'nope'"),
    ],
)
def test_requests_that_are_refused(server_and_stores, path, status, message):
    answer = server_and_stores[0].ask(f"/v1/stores/{path}")
    assert (answer.status, message in answer.json()["error"]) == (status, True), answer.body
