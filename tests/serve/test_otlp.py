"""Metrics in OTLP/HTTP: those that OpenTelemetry's exporter sends become rows of the store once, or are rejected with a
message.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource

import aggr
from aggr.interchange.otlp_metrics import rows_of_metrics
from tests.serve.servers import serving
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.appended_once import append_once
from tiltframe.serve.group_commits import GroupCommits
from tiltframe.store import UnreachableStore
from tiltframe.store.backends.delta.backend import DeltaBackend

pytestmark = [pytest.mark.store, pytest.mark.slow]

FRAME = TiltFrame(
    ["1m", "1h"],
    "at",
    {
        "requests": aggr.sum("value", where="metric = 'requests'"),
        "depth": aggr.max("value", where="metric = 'depth'"),
        "latency": aggr.exponential("value", [0.5, 0.99], weight="weight", where="metric = 'latency'"),
    },
    ["host"],
)
PATH = "/v1/stores/web/metrics"
KINDS = {"json": {"Content-Type": "application/json"}, "protobuf": {"Content-Type": "application/x-protobuf"}}


@pytest.fixture
def writable(tmp_path):
    first = {"at": [0], "host": ["none"], "metric": ["none"], "value": [0.0], "weight": [1]}
    FrameStore(tmp_path / "web", FRAME).append_rows(pa.table(first), "test", 1)
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        yield server


def numbers(server):
    """Read what the store has of each host but the first row's."""
    rows = server.query(store="web", per="all", flat="true", keys="host").json()["rows"]
    return {row["host"]: row for row in rows if row["host"] != "none"}


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
@pytest.mark.long
def test_the_exporter_of_opentelemetry_writes_into_a_store(writable, compression):
    exporter = OTLPMetricExporter(
        f"http://{writable.host}:{writable.port}{PATH}",
        preferred_temporality=dict.fromkeys([Counter, Histogram], AggregationTemporality.DELTA),
        preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()},
        compression=compression,
    )
    reader = PeriodicExportingMetricReader(exporter, 3_600_000)
    provider = MeterProvider([reader], Resource({"host": "a"}))
    meter = provider.get_meter("test")
    requests, depth, latency = (
        meter.create_counter("requests"),
        meter.create_gauge("depth"),
        meter.create_histogram("latency"),
    )
    values = np.random.default_rng(1).lognormal(3, 1, 3000).tolist()
    for part in range(3):
        for value in values[part::3]:
            requests.add(2)
            latency.record(value)
        depth.set(part)
        provider.force_flush()
    provider.shutdown()
    (row,) = [numbers(writable)["a"]]
    assert (row["requests"], row["depth"], row["latency_count"]) == (2 * len(values), 2, len(values))
    accuracy = 2 * row["latency_relative_accuracy"]
    for q in (0.5, 0.99):
        true = float(np.quantile(values, q, method="lower"))
        assert abs(row[f"latency_p{round(q * 100)}"] - true) <= accuracy * true
    assert row["latency_sum"] == pytest.approx(sum(values), rel=accuracy)


def exported(host="b", value="3", at=1_714_557_600, kind="sum", **more):
    """Write a request of one point as OTLP's JSON."""
    attributes = [{"key": "host", "value": {"stringValue": host}}]
    point = {"timeUnixNano": f"{at}000000000", "asInt": value, "attributes": attributes}
    metric = {
        "name": "requests",
        kind: {"dataPoints": [point], **({"aggregationTemporality": 1} if kind == "sum" else {}), **more},
    }
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


@pytest.mark.long
def test_what_is_sent_again_counts_once(writable):
    for _ in range(3):
        answer = writable.ask(PATH, exported(), headers=KINDS["json"])
        assert (answer.status, answer.json()) == (200, {})
    assert numbers(writable)["b"]["requests"] == 3
    assert writable.ask(PATH, exported(value="4"), headers=KINDS["json"]).status == 200
    assert numbers(writable)["b"]["requests"] == 7
    for _ in range(2):
        assert writable.ask(f"{PATH}?writer=me&number=1", exported(host="c"), headers=KINDS["json"]).status == 200
    assert writable.ask(f"{PATH}?writer=me&number=1", exported(value="5"), headers=KINDS["json"]).status == 409
    assert writable.ask(PATH, b"", headers=KINDS["protobuf"]).status == 200, "an exporter that has nothing to say"
    counts = numbers(writable)
    assert (counts["b"]["requests"], counts["c"]["requests"]) == (7, 3)
    described = writable.ask("/openapi.json").json()["paths"]["/v1/stores/{name}/metrics"]["post"]
    assert set(described["requestBody"]["content"]) == {kind["Content-Type"] for kind in KINDS.values()}


@pytest.mark.long
def test_a_request_that_cannot_be_added_is_refused(writable):
    before = numbers(writable)
    json_kind, gzipped = KINDS["json"], KINDS["json"] | {"Content-Encoding": "gzip"}
    for body, headers, status, word in (
        (exported(aggregationTemporality=2), json_kind, 400, "record it as a gauge"),
        (exported(aggregationTemporality=2, isMonotonic=True), json_kind, 400, "PREFERENCE=delta"),
        (exported(kind="histogram"), json_kind, 400, "is a histogram"),
        (exported(value="many"), json_kind, 400, "cannot read the body as an ExportMetricsServiceRequest"),
        (b"\xff" * 40, KINDS["protobuf"], 400, "cannot read the body as an ExportMetricsServiceRequest"),
        (b"[1, 2]", json_kind, 400, "cannot read the body as an ExportMetricsServiceRequest"),
        (exported(), {"Content-Type": "text/plain"}, 415, "metrics must be application/x-protobuf or application/json"),
        (exported(), json_kind | {"Content-Encoding": "br"}, 415, "Content-Encoding"),
        (b"no gzip", gzipped, 400, "not valid gzip"),
        (gzip.compress(b" " * (17 << 20)), gzipped, 413, "16,777,216"),
    ):
        answer = writable.ask(PATH, body, headers=headers)
        assert (answer.status, word in answer.json()["error"]) == (status, True), answer
    assert writable.ask(f"{PATH}?writer=me", exported(), headers=json_kind).status == 400
    assert writable.ask(PATH.replace("web", "other"), exported(), headers=json_kind).status == 404
    assert numbers(writable) == before


def attributes(**values):
    """Write attributes; a value that is not text is written as OTLP's JSON has it."""
    return [
        {"key": name.replace("__", "."), "value": value if isinstance(value, dict) else {"stringValue": value}}
        for name, value in values.items()
    ]


def point(at=1_714_557_600, value="1", **values):
    return {"timeUnixNano": f"{at}000000000", "asInt": value, "attributes": attributes(**values)}


def metric(name, *points, kind="sum", **more):
    return {"name": name, kind: {"aggregationTemporality": 1, "dataPoints": points, **more}}


def export(*metrics, resource=()):
    """Write a request of metrics as OTLP's JSON."""
    metrics_of_resource = {"resource": {"attributes": list(resource)}, "scopeMetrics": [{"metrics": metrics}]}
    return json.dumps({"resourceMetrics": [metrics_of_resource]}).encode()


def send(server, body, status=200, kind="json"):
    answer = server.ask(PATH, body, headers=KINDS[kind])
    assert answer.status == status, answer.body
    return answer


def buckets(offset, *counts, **more):
    total = str(sum(map(int, counts)))
    histogram = {"scale": 0, "count": total, "zeroCount": "0", "positive": {"offset": offset, "bucketCounts": counts}}
    return {"timeUnixNano": "1714557600000000000", "attributes": attributes(host="a"), **histogram, **more}


REFUSED = {
    "an UpDownCounter": metric("active", point(host="a"), aggregationTemporality=2),
    "a cumulative counter": metric("requests", point(host="a"), aggregationTemporality=2, isMonotonic=True),
    "explicit buckets": metric("latency", {"timeUnixNano": "1714557600000000000"}, kind="histogram"),
    "a summary": {"name": "latency", "summary": {"dataPoints": [{"timeUnixNano": "1714557600000000000"}]}},
    "no time": metric("requests", {"asInt": "1", "attributes": attributes(host="a")}),
    "time 0": metric("requests", point(at=0, host="a")),
    "all bits of the time": metric("requests", point(host="a") | {"timeUnixNano": str(2**64 - 1)}),
    "no value": metric("requests", {"timeUnixNano": "1714557600000000000", "attributes": attributes(host="a")}),
    "a contradiction": metric("latency", buckets(0, "2") | {"count": "3"}, kind="exponentialHistogram"),
    "a cumulative histogram": metric("latency", buckets(0, "2"), kind="exponentialHistogram", aggregationTemporality=2),
}


@pytest.mark.long
def test_a_refused_point_leaves_the_others(writable):
    for number, (name, refused) in enumerate(REFUSED.items(), 1):  # one store for all, to save time
        answer = send(writable, export(refused, metric("requests", point(host="good", value=str(number)))))
        partial = answer.json()["partialSuccess"]
        assert partial["rejectedDataPoints"] == "1", name
        assert "metric" in partial["errorMessage"], name
        assert numbers(writable)["good"]["requests"] == number * (number + 1) / 2, name
        assert set(numbers(writable)) == {"good"}, name
    counted = re.search(r'tiltframe_rejected_points_total\{store="web"\} (\d+)', writable.ask("/metrics").body.decode())
    assert int(counted[1]) == len(REFUSED)


def test_refused_values_are_a_warning(tmp_path):
    frame = TiltFrame(["1m"], "at", {"p": aggr.hdr("value", bad_values="skip")}, ["host"])
    first = pa.table({"at": [0], "host": ["none"], "value": [0.0]})
    FrameStore(tmp_path / "web", frame).append_rows(first, "test", 1)
    body = exported(value="-7", kind="gauge")
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        for path in PATH, f"{PATH}?writer=me&number=1":
            partial = server.ask(path, body, headers=KINDS["json"]).json()["partialSuccess"]
            assert partial == {"errorMessage": "p, hdr('value', bad_values='skip'): invalid values skipped: 1"}


@pytest.mark.long
def test_partial_success_in_protobuf(writable):
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

    text = export(REFUSED["time 0"], REFUSED["a summary"], metric("requests", point(host="a")))
    body = Parse(text, service.ExportMetricsServiceRequest()).SerializeToString()
    for _ in range(2):  # the same request gets the same answer
        response = service.ExportMetricsServiceResponse.FromString(send(writable, body, kind="protobuf").body)
        assert response.partial_success.rejected_data_points == 2
        assert "has no valid time" in response.partial_success.error_message
    assert numbers(writable)["a"]["requests"] == 1


@pytest.mark.long
def test_types_are_those_of_the_protocol_and_the_store(writable):
    status_code = {"intValue": "200"}
    send(writable, export(metric("requests", point(status="200", host="a"), point(status=status_code, host="a"))))
    send(writable, export(metric("requests", point())))  # without the key
    send(writable, export(metric("requests", point(host={"intValue": "7"}), point(host="7"))))
    send(writable, export(metric("requests", point(host={"boolValue": True}), point(host={"doubleValue": 0.5}))))
    send(writable, export(metric("requests", point(host="007"), point(host="1.10"))))
    send(writable, export(metric("requests", point() | {"attributes": []}), resource=attributes(host="r")))
    counted = {host: row["requests"] for host, row in numbers(writable).items() if row["requests"] is not None}
    assert counted == {"a": 2, None: 1, "7": 2, "true": 1, "0.5": 1, "007": 1, "1.10": 1, "r": 1}


def test_a_key_of_whole_numbers_takes_what_is_one(tmp_path):
    frame = TiltFrame(["1m"], "at", {"n": aggr.count()}, ["code"])
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("code", pa.int64())])
    store = FrameStore(tmp_path / "web", frame, row_schema=schema)
    codes = [{"intValue": "200"}, "200", {"doubleValue": 200.0}, "0200", {"doubleValue": 0.5}, {"boolValue": True}, "x"]
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        answer = send(server, export(metric("requests", *[point(code=code) for code in codes])))
    assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "4"
    assert store.query().select(["code", "n"]).to_pylist() == [{"code": 200, "n": 3}]


@pytest.mark.long
def test_a_value_that_does_not_fit_the_stores_type_is_refused_alone(tmp_path):
    frame = TiltFrame(["1m"], "at", {"n": aggr.sum("value")})
    store = FrameStore(tmp_path / "web", frame)
    store.append_rows(
        pa.table({"at": pa.array([0], pa.timestamp("s", "UTC")), "value": pa.array([2**60 + 1])}), "test", 1
    )
    values = [2**53 + 1, 0.5, 2.0, -1.0, "NaN"]
    points = [point(number=str(i)) | {("asInt" if isinstance(v, int) else "asDouble"): v} for i, v in enumerate(values)]
    for double in points[1:]:
        del double["asInt"]
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        answer = send(server, export(metric("m", *points)))
    assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "2"
    assert store.query(per=None)["n"].to_pylist() == [2**60 + 2**53 + 3]


@pytest.mark.long
def test_attributes_named_as_a_column_keep_their_values(tmp_path):
    keys = ["exported_metric", "exported_value", "exported_weight", "exported_at"]
    types = [("at", pa.timestamp("us", "UTC")), *((key, pa.string()) for key in keys)]
    frame = TiltFrame(["1m"], "at", {"n": aggr.count()}, keys)
    store = FrameStore(tmp_path / "web", frame, row_schema=pa.schema(types))
    names = {"metric": "m", "value": "v", "weight": {"intValue": "9"}, "at": "t"}
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        send(server, export(metric("requests", point() | {"attributes": attributes(**names)})))
    (row,) = store.query().to_pylist()
    assert [row[f"exported_{name}"] for name in names] == ["m", "v", "9", "t"]


@pytest.mark.parametrize("limits", [{"min": 5, "max": 5}, {"min": 4.5, "max": 5}, {"min": 5.5, "max": 7}, {}])
def test_rows_of_a_histogram_are_within_its_min_and_max(limits):
    rows = rows_of_metrics(export(metric("m", buckets(2, "2", **limits), kind="exponentialHistogram")), True)
    values = [row["value"] for row in rows]
    assert [row["weight"] for row in rows] == [2]
    assert all(limits.get("min", 4) <= value <= limits.get("max", 8) for value in values)


def empty_store(place):
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    return FrameStore(place, TiltFrame(["1m"], "at", {"n": aggr.sum("value")}), row_schema=schema)


def add(store, rows, body, commits=None):
    """Add the rows of a body as the server does."""
    return append_once(store, rows, body, partial((commits or GroupCommits()).commit, store))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_body_whose_commit_failed_counts_once_when_it_is_sent_again(tmp_path, monkeypatch, is_there):
    """The disk is full before the commit, or after it, when the writer hears of an error as well."""
    commit = DeltaBackend.commit

    def failing(*args, **kwargs):
        if is_there:
            commit(*args, **kwargs)
        raise UnreachableStore("no space left on device")

    store = empty_store(tmp_path / "web")
    for number in range(3):
        rows = pa.table({"at": pa.array([60 * number], pa.timestamp("s", "UTC")), "value": [1]})
        body = b"body %d" % number
        with monkeypatch.context() as patched:
            patched.setattr(DeltaBackend, "commit", failing)
            with pytest.raises(UnreachableStore):
                add(store, rows, body)
        again = [add(FrameStore(tmp_path / "web"), rows, body) for _ in range(3)]  # as after a restart
        assert again == [not is_there, False, False]
        assert sum(store.query("1m")["n"].to_pylist()) == number + 1


def test_bodies_of_the_same_states_at_the_same_time_count_each(tmp_path):
    store = empty_store(tmp_path / "web")
    rows = pa.table({"at": pa.array([0], pa.timestamp("s", "UTC")), "value": [1]})
    bodies = [b for b in (b"%d" % i for i in range(5000)) if hashlib.sha256(b).hexdigest().startswith("00")][:12]
    assert len(bodies) > 8, "of one record, so that they take the same numbers"
    commits = GroupCommits()
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda body: add(FrameStore(tmp_path / "web"), rows, body, commits), bodies * 2))
    assert sum(added) == len(bodies)
    assert store.query("1m")["n"].to_pylist() == [len(bodies)]


@pytest.mark.long
def test_a_killed_server_counts_each_body_once(tmp_path):
    FrameStore(tmp_path / "web", FRAME).append_rows(
        pa.table({"at": [0], "host": ["none"], "metric": ["none"], "value": [0.0], "weight": [1]}), "test", 1
    )
    draw = random.Random(5)
    bodies = [exported(host="k", value=str(i + 1)) for i in range(6)]
    for round_number in range(3):
        with serving(tmp_path, tmp_path / "web", "--writable") as server, ThreadPoolExecutor(3) as pool:
            sent = [pool.submit(_send_or_fail, server, body) for body in bodies[: 2 * round_number + 2]]
            if round_number < 2:
                time.sleep(draw.random() * 0.3)
                server.process.kill()
            statuses = [future.result() for future in sent]
    assert statuses == [200] * len(bodies)
    rows = FrameStore(tmp_path / "web").query(keys=["host"], measures=["requests"]).to_pylist()
    assert {row["host"]: row["requests"] for row in rows}["k"] == sum(range(1, 7))


def _send_or_fail(server, body):
    try:
        return server.ask(PATH, body, headers=KINDS["json"]).status
    except (OSError, http.client.HTTPException):
        return None


def test_an_attribute_that_a_key_reads_may_be_missing_in_all_points(tmp_path):
    """Names of attributes have dots, so a key that has another name reads them in backquotes."""
    keys = {"host": "`host.name`", "service": "lower(`service.name`)"}
    frame = TiltFrame(["1m"], "at", {"n": aggr.count()}, keys)
    first = {"at": [0], "host.name": ["none"], "service.name": ["none"], "value": [0.0]}
    FrameStore(tmp_path / "web", frame).append_rows(pa.table(first), "test", 1)
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        send(server, export(metric("requests", point(at=60))))
    assert FrameStore(tmp_path / "web").query("1m").select(["host", "service", "n"]).to_pylist() == [
        {"host": "none", "service": "none", "n": 1},
        {"host": None, "service": None, "n": 1},
    ]


def test_a_writer_with_the_name_of_the_server_does_not_block_it(tmp_path):
    """Another program has written under the name that the server uses for this body."""
    store = FrameStore(tmp_path / "web", TiltFrame(["1m"], "at", {"n": aggr.count()}))
    events = pa.table({"at": [0]})
    body = b"the body"
    digits = hashlib.sha256(body).hexdigest()[:2]
    store.append_rows(events, f"otlp-{digits}", 1000)
    commit = partial(GroupCommits().commit, store)
    assert append_once(store, events, body, commit)
    assert not append_once(store, events, body, commit)
    other = next(text for i in range(9999) if hashlib.sha256(text := b"%d" % i).hexdigest()[:2] == digits)
    assert append_once(store, events, other, commit)
    assert store.query("all")["n"].to_pylist() == [3]


def test_clients_cannot_use_the_names_of_the_server(writable):
    answer = writable.ask(
        "/v1/stores/web/events?writer=otlp-3f&number=1", b"{}", headers={"Content-Type": "application/x-ndjson"}
    )
    assert (answer.status, "reserved for OTLP" in answer.json()["error"]) == (400, True)


def test_the_reason_is_given_if_no_point_fits(writable):
    """The values of the store are doubles, which do not represent this integer."""
    point = {"timeUnixNano": "1714564800000000000", "asInt": str(2**53 + 1)}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "g", "gauge": {"dataPoints": [point]}}]}]}]}
    answer = writable.ask(PATH, json.dumps(body).encode(), headers=KINDS["json"])
    assert answer.status == 400
    assert str(2**53 + 1) in answer.json()["error"]


@pytest.mark.parametrize("body", ['""', '["a"]', "[]", "null", "1", "true", ""])
def test_json_that_is_no_object_is_refused(writable, body):
    answer = writable.ask(PATH, body.encode(), headers=KINDS["json"])
    assert (answer.status, "must be a JSON object" in answer.json()["error"]) == (400, True)


def test_lists_and_maps_in_attributes_are_json():
    inner = {"arrayValue": {"values": [{"intValue": "7"}, {"stringValue": 'é"'}, {"boolValue": True}, {}]}}
    entries = {"kvlistValue": {"values": [{"key": "k", "value": inner}, {"key": "b", "value": {"bytesValue": "AQI="}}]}}
    attributes = [{"key": "list", "value": inner}, {"key": "map", "value": entries}]
    point = {"timeUnixNano": "1500000000", "asInt": "7", "attributes": attributes}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "g", "gauge": {"dataPoints": [point]}}]}]}]}
    [row] = rows_of_metrics(json.dumps(body).encode(), as_json=True)
    assert json.loads(row["list"]) == [7, 'é"', True, None]
    assert json.loads(row["map"]) == {"k": [7, 'é"', True, None], "b": "AQI="}
