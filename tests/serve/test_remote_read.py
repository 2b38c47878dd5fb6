"""Remote read: what Prometheus has asked (`make prometheus` writes it down) is answered by the samples of the rows."""

from __future__ import annotations

import base64
import json
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pytest

from aggr.interchange.protobuf_messages import message_classes
from tests.serve.prometheus_itself import REQUESTS
from tests.serve.prometheus_world import BEGIN, LEVELS, rows, serving, store_of
from tiltframe.serve.cost import Limits
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
TABLE = {
    "Matcher": {"type": (1, "int32"), "name": (2, "string"), "value": (3, "string")},
    "Hints": {"step_ms": (1, "int64"), "func": (2, "string"), "range_ms": (7, "int64")},
    "Query": {
        "start": (1, "int64"),
        "end": (2, "int64"),
        "matchers": (3, "repeated Matcher"),
        "hints": (4, "Hints"),
    },
    "Request": {"queries": (1, "repeated Query"), "accepted": (2, "repeated int32")},
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "Series": {"labels": (1, "repeated Label"), "samples": (2, "repeated Sample")},
    "Result": {"series": (1, "repeated Series")},
    "Response": {"results": (1, "repeated Result")},
}
MESSAGES = message_classes("prompb", TABLE, "serve")
EQ, NEQ, RE, NRE = range(4)
END = BEGIN + 3 * 3600


@pytest.fixture(scope="module")
def world():
    store = store_of(MemoryBackend())
    with serving({"web": store}) as server:
        yield server, store


def request(*matchers, start=BEGIN, end=END, step=0, span=0):
    """Pack a request: times, steps and spans in seconds."""
    matchers = [{"type": kind, "name": name, "value": value} for name, kind, value in matchers]
    hints = {"step_ms": step * 1000, "range_ms": span * 1000}
    query = {"start": start * 1000, "end": end * 1000, "matchers": matchers, "hints": hints}
    return pa.compress(MESSAGES["Request"](queries=[query]).SerializeToString(), "snappy", asbytes=True)


def series_of(server, packed):
    """Ask, and unpack: the labels of each series, and its samples."""
    with urlopen(Request(f"{server.url}/api/v1/read", packed)) as answer:
        assert answer.headers["content-type"] == "application/x-protobuf"
        body = answer.read()
    size = sum(
        (byte & 127) << 7 * i for i, byte in enumerate(body[: next(i for i, b in enumerate(body) if b < 128) + 1])
    )
    (result,) = MESSAGES["Response"].FromString(pa.decompress(body, size, "snappy", asbytes=True)).results
    found = {}
    for series in result.series:
        labels = {label.name: label.value for label in series.labels}
        assert list(labels) == sorted(labels), "Prometheus takes labels in order"
        found[frozenset(labels.items())] = [(sample.timestamp, sample.value) for sample in series.samples]
    assert len(found) == len(result.series)
    return found


def test_counters_add_up_as_prometheus_asks_for_them(world):
    """Each sample of a counter is how many events there were since the beginning of the first window of the series."""
    data = rows()
    seconds = data["ts"].to_numpy() / 1000 - BEGIN
    asked = json.loads(REQUESTS.read_text())
    assert len(asked) >= 30
    checked = 0
    for packed in map(base64.b64decode, (each for several in asked.values() for each in several)):
        for labels, samples in series_of(world[0], packed).items():
            labels = dict(labels)
            assert (labels["__name__"], labels["store"]) == ("requests_total", "web")
            hosts = np.array([host or "" for host in data["host"].to_pylist()]) == labels.get("host", "")
            mine = np.sort(seconds[hosts & (data["code"].to_numpy() == int(labels["code"]))])
            times = np.array([at for at, _ in samples]) / 1000 - BEGIN
            (length,) = set(np.diff(times)) or {10}
            assert length in LEVELS.values()
            counted = np.searchsorted(mine, times, "left") - np.searchsorted(mine, times[0] - length, "left")
            assert [value for _, value in samples] == counted.tolist()
            checked += 1
    assert checked > 100


def test_other_measures_are_those_of_each_window(world):
    server, store = world
    for step, span, level in ((0, 0, "1m"), (10, 0, "10s"), (600, 36000, "10m"), (3600, 0, "1m"), (0, 90, "10s")):
        found = series_of(
            server,
            request(
                ("__name__", RE, "bytes|mean|latency"), ("host", EQ, "a"), ("code", NEQ, "500"), step=step, span=span
            ),
        )
        expected = {}
        for row in store.query(level, where="host = 'a' AND code != 500", flat=True).to_pylist():
            for name, column, more in (
                ("bytes", "bytes", {}),
                ("mean", "mean", {}),
                ("latency", "latency_p50", {"quantile": "0.5"}),
                ("latency", "latency_p99", {"quantile": "0.99"}),
            ):
                labels = {"__name__": name, "store": "web", "host": "a", "code": str(row["code"]), **more}
                sample = round(row["window_end"].timestamp() * 1000), float(row[column])
                expected.setdefault(frozenset(labels.items()), []).append(sample)
        assert found == expected, level
    assert series_of(server, request(("host", EQ, "nobody"))) == {}
    assert series_of(server, request(("__name__", EQ, "mean"), start=-(2**53), end=2**53)), "of all of time"
    assert series_of(server, request(("__name__", EQ, "mean"), start=END + 3600, end=END + 7200)) == {}
    assert {dict(labels)["__name__"] for labels in series_of(server, request(("code", NRE, "200|404"), step=3600))} == {
        metric["__name__"] for metric in server.ask("series", **{"match[]": ['{__name__!=""}']}).data
    }


@pytest.mark.parametrize(
    ("packed", "status", "word"),
    [
        (b"", 400, "no ReadRequest"),
        (b"events", 400, "no ReadRequest"),
        (pa.compress(b"\xff" * 50, "snappy", asbytes=True), 400, "no ReadRequest"),
        (b"\xff\xff\xff\x7f" + b"\x00" * 10, 400, "at most 16,777,216 bytes"),
        (b"\xff" * 20, 400, "bytes; this one has"),
        (request(("__name__", 7, "mean")), 400, "no ReadRequest"),
        (request(("__name__", RE, "(")), 400, "not RE2's"),
        (request(("host", RE, "["), ("__name__", EQ, "mean")), 400, "not RE2's"),
        (b"x" * (1 << 20 | 1), 400, "1,048,576"),
    ],
)
def test_bad_requests_are_refused(world, packed, status, word):
    answer = world[0].ask("read", packed)
    error = json.loads(answer.body)
    assert (answer.status, error["status"], error["errorType"]) == (status, "error", "bad_data"), answer
    assert word in error["error"]


def test_limits_hold_below_api(world):
    with serving({"web": world[1]}, limits=Limits(rows=200)) as server:
        for answer in (
            server.ask("read", request(("__name__", EQ, "mean"))),
            server.query_range("mean", BEGIN, END, 60),
            server.query("sum(increase(requests_total[2h]))", END - 60),
            server.query("mean[3h]", END),
        ):
            error = json.loads(answer.body)
            assert (answer.status, error["errorType"]) == (422, "execution"), answer
            assert "rows of states, and the server's limit is 200" in error["error"]
        assert server.query("sum(increase(requests_total[10m]))", END).status == 200
    with serving({"web": world[1]}, limits=Limits(rows=20)) as server:
        for path, words in (
            ("series", {"match[]": "mean"}),
            ("labels", {"match[]": "mean"}),
            ("label/host/values", {}),
        ):
            answer = server.ask(path, **words)
            assert (answer.status, json.loads(answer.body)["errorType"]) == (422, "execution"), answer
