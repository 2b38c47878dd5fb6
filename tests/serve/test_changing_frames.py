"""Requests that write are added, each once, while another process changes the frame of the store."""

import json
import threading
import time

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import FrameStore, TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

LINES = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
ROW_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("metric", pa.string()), ("value", pa.int64())])
CHANGES = 5


def frame(number):
    """Return the frame of the store after some changes. Each change replaces a measure."""
    return TiltFrame(["1m"], "at", {"n": aggr.sum("value"), f"s{number}": aggr.max("value")})


def event(sender, number):
    row = {"at": "2024-05-01T10:00:00Z", "metric": "m", "value": 1}
    return f"/v1/stores/web/events?writer={sender}&number={number}", LINES, json.dumps(row)


def otlp(sender, number):
    nanoseconds = 1_714_557_600_000_000_000 + 1000 * (10_000 * sender + number)
    points = [{"timeUnixNano": str(nanoseconds), "asInt": "1"}]
    metric = {"name": "m", "sum": {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": points}}
    return "/v1/stores/web/metrics", JSON, json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})


@pytest.mark.parametrize("request_of", [event, otlp])
def test_each_request_is_added_while_the_frame_changes(tmp_path, request_of):
    first = pa.table({"at": [0], "metric": ["m"], "value": [0]}, ROW_SCHEMA)
    make_store(tmp_path / "web", frame=frame(0), data=first)
    statuses = []
    is_over = threading.Event()

    def send(sender):
        number = 0
        while not is_over.is_set():
            number += 1
            path, headers, body = request_of(sender, number)
            statuses.append(server.ask(path, body.encode(), headers=headers).status)

    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        senders = [threading.Thread(target=send, args=(sender,)) for sender in range(1, 5)]
        for thread in senders:
            thread.start()
        for number in range(1, CHANGES + 1):
            time.sleep(0.3)
            FrameStore(tmp_path / "web").evolve(frame(number), row_schema=ROW_SCHEMA)
        time.sleep(0.3)
        is_over.set()
        for thread in senders:
            thread.join()
    assert set(statuses) == {200}
    assert FrameStore(tmp_path / "web").query("all")["n"].to_pylist() == [len(statuses)]
