"""OTLP/HTTP metrics are rows of the store: sent by OpenTelemetry's exporter, once each, or refused by a sentence."""

from __future__ import annotations

import gzip
import json

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
from tests.serve.servers import serving
from tiltframe import FrameStore, TiltFrame

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


@pytest.mark.parametrize("packing", [Compression.NoCompression, Compression.Gzip])
@pytest.mark.long
def test_the_exporter_of_opentelemetry_writes_into_a_store(writable, packing):
    exporter = OTLPMetricExporter(
        f"http://{writable.host}:{writable.port}{PATH}",
        preferred_temporality=dict.fromkeys([Counter, Histogram], AggregationTemporality.DELTA),
        preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()},
        compression=packing,
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
    found = numbers(writable)
    assert (found["b"]["requests"], found["c"]["requests"]) == (7, 3)
    described = writable.ask("/openapi.json").json()["paths"]["/v1/stores/{name}/metrics"]["post"]
    assert set(described["requestBody"]["content"]) == {kind["Content-Type"] for kind in KINDS.values()}


@pytest.mark.long
def test_what_does_not_add_up_is_refused(writable):
    before = numbers(writable)
    json_kind, gzipped = KINDS["json"], KINDS["json"] | {"Content-Encoding": "gzip"}
    for body, headers, status, word in (
        (exported(aggregationTemporality=2), json_kind, 400, "is cumulative"),
        (exported(kind="histogram"), json_kind, 400, "is a histogram"),
        (exported(value="many"), json_kind, 400, "no ExportMetricsServiceRequest"),
        (b"\xff" * 40, KINDS["protobuf"], 400, "no ExportMetricsServiceRequest"),
        (b"[1, 2]", json_kind, 400, "no ExportMetricsServiceRequest"),
        (exported(), {"Content-Type": "text/plain"}, 415, "metrics are application/x-protobuf or application/json"),
        (exported(), json_kind | {"Content-Encoding": "br"}, 415, "Content-Encoding"),
        (b"no gzip", gzipped, 400, "no gzip"),
        (gzip.compress(b" " * (17 << 20)), gzipped, 413, "16,777,216"),
    ):
        answer = writable.ask(PATH, body, headers=headers)
        assert (answer.status, word in answer.json()["error"]) == (status, True), answer
    assert writable.ask(f"{PATH}?writer=me", exported(), headers=json_kind).status == 400
    assert writable.ask(PATH.replace("web", "other"), exported(), headers=json_kind).status == 404
    assert numbers(writable) == before
