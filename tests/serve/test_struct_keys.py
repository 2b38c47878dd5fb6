"""A struct as a key over HTTP: events, queries, and the labels of its fields in PromQL."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import serving
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.promql.metrics import metrics_by_name

pytestmark = [pytest.mark.store, pytest.mark.slow]

LINES = {"Content-Type": "application/x-ndjson"}
EVENTS = "/v1/stores/web/events"
START = 1_714_557_600_000  # 2024-05-01 10:00 UTC, in milliseconds


def event(second: int, tags: object) -> bytes:
    return json.dumps({"ts": START + 1000 * second, "tags": tags}).encode() + b"\n"


@pytest.fixture
def server(tmp_path):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["tags"])
    first = tmp_path / "first.jsonl"
    first.write_bytes(event(0, {"host": "a", "at": {"row": 1}}) + event(1, {"host": "b", "at": {"row": 2}}))
    FrameStore(tmp_path / "web", frame).append_rows(first, "first", 1)
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        yield server


def rows(server, **words):
    answer = server.ask("/v1/query", json.dumps({"store": "web", **words}).encode())
    assert answer.status == 200, answer.body
    return answer.json()["rows"]


def test_events_and_queries(server):
    events = [event(2, {"at": {"row": 1}, "host": "a"}), event(3, {"host": "a"}), event(4, {}), event(5, None)]
    for number, body in enumerate(events):
        answer = server.ask(f"{EVENTS}?writer=w&number={number + 1}", body, headers=LINES)
        assert answer.json() == {"added": True}
    counts = [(row["tags"], row["n"]) for row in rows(server, per="1m")]
    assert counts == [
        ({"host": "a", "at": {"row": 1}}, 2),
        ({"host": "a", "at": None}, 1),
        ({"host": "b", "at": {"row": 2}}, 1),
        ({"host": None, "at": None}, 1),
        (None, 1),
    ]
    by_host = [(row["tags.host"], row["n"]) for row in rows(server, per="1m", keys=["tags.host"])]
    assert by_host == [("a", 3), ("b", 1), (None, 2)]
    of_row = [(row["tags_host"], row["n"]) for row in rows(server, per="1m", where="tags.at.row = 2", flat=True)]
    assert of_row == [("b", 1)]
    refused = server.ask(f"{EVENTS}?writer=w&number=9", event(9, {"host": "a", "rack": 7}), headers=LINES)
    assert refused.status == 422
    assert "in 'tags'; got struct<" in refused.body.decode()


def test_labels_of_the_fields(server):
    described = server.ask("/v1/stores/web").json()["keys"]
    assert described == [
        {"name": "tags.host", "type": "string", "label": "tags_host"},
        {"name": "tags.at.row", "type": "int64", "label": "tags_at_row"},
    ]
    assert server.ask("/v1/stores/web/keys/tags.host").json()["values"] == ["a", "b"]
    time = START / 1000 + 60
    selected = server.ask(f"/api/v1/query?time={time}&query=n_total%7Btags_host%3D%22b%22%7D").json()["data"]["result"]
    assert [(series["metric"]["tags_at_row"], series["value"][1]) for series in selected] == [("2", "1")]
    by_row = server.ask(f"/api/v1/query?time={time}&query=sum+by+(tags_at_row)+(n_total)").json()["data"]["result"]
    assert [(series["metric"], series["value"][1]) for series in by_row] == [
        ({"tags_at_row": "1"}, "1"),
        ({"tags_at_row": "2"}, "1"),
    ]
    assert server.ask("/api/v1/label/tags_host/values").json()["data"] == ["a", "b"]


def test_names_with_blanks_of_keys_and_fields(tmp_path):
    """A key keeps its name; the path of a field with a blank is in backquotes, as queries read it."""
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["my host", "tags"])
    store = FrameStore(tmp_path / "store", frame)
    rows = pa.table({"ts": [START], "my host": ["a"], "tags": [{"data center": "x", "row": 1}]})
    store.append_rows(rows, "w", 1)
    names = list(store.manifest.key_types)
    assert names == ["my host", "`tags.data center`", "tags.row"]
    [row] = store.query(per="1m", keys=names).to_pylist()
    assert [row[name] for name in names] == ["a", "x", 1]
    assert list(metrics_by_name({"store": store.at()})["n_total"][0].labels) == [
        "my_host",
        "tags_data_center",
        "tags_row",
    ]
