"""Remote read: requests that Prometheus has sent (`make prometheus` writes them) are answered with the samples of the
rows.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import random
import struct
from itertools import pairwise
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.interchange.protobuf_messages import message_classes
from tests.serve.prometheus_chunks import read_chunk, read_frames
from tests.serve.prometheus_itself import REQUESTS
from tests.serve.prometheus_world import BEGIN, LEVELS, rows, serving, store_of
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.cost import Limits
from tiltframe.serve.promql.xor_chunks import encode_chunks
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
TABLE = {
    "Matcher": {"type": (1, "int32"), "name": (2, "string"), "value": (3, "string")},
    "Hints": {
        "step_ms": (1, "int64"),
        "func": (2, "string"),
        "start_ms": (3, "int64"),
        "end_ms": (4, "int64"),
        "range_ms": (7, "int64"),
    },
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


def request(*matchers, start=BEGIN, end=END, step=0, span=0, function="", accepted=(), hinted=(0, 0)):
    """Pack a request: times, steps and spans in seconds. ``hinted`` is the range of one selector of an expression."""
    matchers = [{"type": kind, "name": name, "value": value} for name, kind, value in matchers]
    hints = {"step_ms": step * 1000, "range_ms": span * 1000, "func": function}
    hints |= {"start_ms": hinted[0] * 1000, "end_ms": hinted[1] * 1000}
    query = {"start": start * 1000, "end": end * 1000, "matchers": matchers, "hints": hints}
    return pa.compress(
        MESSAGES["Request"](queries=[query], accepted=accepted).SerializeToString(), "snappy", asbytes=True
    )


def series_of(server, packed):
    """Ask, and unpack: the labels of each series, and its samples."""
    with urlopen(Request(f"{server.url}/api/v1/read", packed)) as answer:
        assert answer.headers["content-type"] == "application/x-protobuf"
        body = answer.read()
    size = sum(
        (byte & 127) << 7 * i for i, byte in enumerate(body[: next(i for i, b in enumerate(body) if b < 128) + 1])
    )
    (result,) = MESSAGES["Response"].FromString(pa.decompress(body, size, "snappy", asbytes=True)).results
    samples_by_labels = {}
    for series in result.series:
        labels = {label.name: label.value for label in series.labels}
        assert list(labels) == sorted(labels), "Prometheus takes labels in order"
        samples_by_labels[frozenset(labels.items())] = [(sample.timestamp, sample.value) for sample in series.samples]
    assert len(samples_by_labels) == len(result.series)
    return samples_by_labels


def test_counters_add_up_as_prometheus_asks_for_them(world):
    """Each sample of a counter is how many events there were since the beginning of the first window of the series."""
    data = rows()
    seconds = data["ts"].to_numpy() / 1000 - BEGIN
    recorded = json.loads(REQUESTS.read_text())
    assert len(recorded) >= 30
    checked = 0
    for packed in map(base64.b64decode, (request for several in recorded.values() for request in several)):
        for labels, samples in series_of(world[0], packed).items():
            labels = dict(labels)
            assert (labels["__name__"], labels["store"]) == ("requests_total", "web")
            hosts = np.array([host or "" for host in data["host"].to_pylist()]) == labels.get("host", "")
            times_of_code = np.sort(seconds[hosts & (data["code"].to_numpy() == int(labels["code"]))])
            times = np.array([at for at, _ in samples]) / 1000 - BEGIN
            (length,) = set(np.diff(times)) or {10}
            assert length in LEVELS.values()
            counted = np.searchsorted(times_of_code, times, "left") - np.searchsorted(
                times_of_code, times[0] - length, "left"
            )
            assert [value for _, value in samples] == counted.tolist()
            checked += 1
    assert checked > 100


def test_other_measures_are_those_of_each_window(world):
    server, store = world
    for step, span, level in ((0, 0, "10s"), (10, 0, "10s"), (600, 36000, "10s"), (3600, 0, "10s"), (0, 90, "10s")):
        series = series_of(
            server,
            request(
                ("__name__", RE, "fastest|mean|latency"), ("host", EQ, "a"), ("code", NEQ, "500"), step=step, span=span
            ),
        )
        expected = {}
        for row in store.query(level, where="host = 'a' AND code != 500", flat=True).to_pylist():
            for name, column, more in (
                ("fastest", "fastest", {}),
                ("mean", "mean", {}),
                ("latency", "latency_p50", {"quantile": "0.5"}),
                ("latency", "latency_p99", {"quantile": "0.99"}),
            ):
                labels = {"__name__": name, "store": "web", "host": "a", "code": str(row["code"]), **more}
                sample = round(row["window_end"].timestamp() * 1000), float(row[column])
                expected.setdefault(frozenset(labels.items()), []).append(sample)
        assert series == expected, level
    assert series_of(server, request(("host", EQ, "nobody"))) == {}
    assert series_of(server, request(("__name__", EQ, "mean"), start=-(2**53), end=2**53)), "of all of time"
    assert series_of(server, request(("__name__", EQ, "mean"), start=END + 3600, end=END + 7200)) == {}
    assert {dict(labels)["__name__"] for labels in series_of(server, request(("code", NRE, "200|404"), step=3600))} == {
        metric["__name__"] for metric in server.ask("series", **{"match[]": ['{__name__!=""}']}).data
    }


def totals_of(server, level_seconds, is_total=True, **hints):
    """Read the running total of a sum, and check that its samples stand at the ends of windows of one length."""
    series = series_of(server, request(("__name__", EQ, "bytes"), ("host", EQ, "a"), ("code", EQ, "200"), **hints))
    (samples,) = series.values()
    steps = {later - sooner for (sooner, _), (later, _) in pairwise(samples)}
    assert steps == {level_seconds * 1000} or not is_total
    return samples


def test_a_sum_is_a_counter(world):
    """Each sample is the sum of all rows since the beginning of the first window, at every level that may be read."""
    data = rows().to_pylist()
    rows_of_series = [(r["ts"], r["bytes"]) for r in data if (r["host"], r["code"]) == ("a", 200)]
    hour = {"step": 3600, "span": 36000, "start": BEGIN - 36000}
    for level, hints in (
        (60, {}),
        (10, {"end": END + 5}),
        (10, {"step": 60, "span": 600, "start": BEGIN - 600 + 7}),  # moments between the ends of minutes
        (60, {"step": 60, "span": 600, "start": BEGIN - 600}),
        (3600, hour),
        (3600, hour | {"function": "rate"}),
    ):
        samples = totals_of(world[0], level, **hints)
        for at, value in samples[:: max(len(samples) // 50, 1)]:
            assert value == sum(n for ts, n in rows_of_series if ts < at)
    samples = totals_of(world[0], 10, **hour, function="sum_over_time", is_total=False)
    assert sum(value for _, value in samples) == sum(n for _, n in rows_of_series)
    assert all(value == sum(n for ts, n in rows_of_series if at - 10_000 <= ts < at) for at, value in samples[::20])


def test_the_range_of_a_selector_decides_not_that_of_the_expression(world):
    """``rate(bytes[30m] offset 90s) / rate(bytes[1h])`` at one moment: only the second range ends with a minute."""
    begin, end = BEGIN + 1800, BEGIN + 5400
    for hinted, level in (((end - 1890, end - 90), 10), ((begin, end), 60)):
        span = hinted[1] - hinted[0]
        samples = totals_of(world[0], level, span=span, function="rate", start=begin, end=end, hinted=hinted)
        assert [samples[0][0], samples[-1][0]] == [at * 1000 for at in hinted]


def test_what_is_no_total_is_read_of_the_finest_windows(world):
    hints = {"step": 3600, "span": 36000, "start": BEGIN - 36000, "function": "max_over_time"}
    series = series_of(world[0], request(("__name__", EQ, "slowest"), ("host", EQ, "a"), **hints))
    for labels, samples in series.items():
        code = int(dict(labels)["code"])
        data = [r["seconds"] for r in rows().to_pylist() if (r["host"], r["code"]) == ("a", code)]
        assert max(value for _, value in samples) == max(data)
        assert sum(1 for at, _ in samples if at % 60_000) > 0, "windows of ten seconds"


def test_totals_that_fall_and_windows_that_have_expired_are_refused():
    data = pa.table({"ts": [BEGIN * 1000 + at * 1000 for at in (0, 70, 7300)], "v": [5, -3, 4]})
    frame = TiltFrame(["1m", "1h"], "ts", {"v": aggr.sum("v"), "last": aggr.last("v")})
    store = FrameStore(MemoryBackend(), frame, retention={"1m": "1h"})
    store.append_rows(data, "test", 1)
    with serving({"web": store}) as server:
        answer = server.ask("read", request(("__name__", EQ, "v"), function="rate"))
        assert (answer.status, "negative sums" in answer.body) == (422, True)
        (samples,) = series_of(server, request(("__name__", EQ, "v"), function="delta")).values()
        assert [value for _, value in samples][:3] == [0, 5, 2]
        store.expire(now=dt.datetime.fromtimestamp(BEGIN + 3 * 3600, dt.UTC))
        answer = server.ask("read", request(("__name__", EQ, "last"), step=3600, span=36000))
        assert (answer.status, "has windows of 1m only from" in answer.body) == (422, True), answer
        assert series_of(server, request(("__name__", EQ, "last"), start=BEGIN + 7200))
        hours = {"step": 3600, "span": 36000, "start": BEGIN - 36000}
        (samples,) = series_of(server, request(("__name__", EQ, "v"), **hours)).values()
        assert [value for _, value in samples] == [0, 2, 2, 6]


def test_the_first_accepted_response_type_is_sent(world):
    answer = world[0].ask("read", request(("__name__", EQ, "mean"), accepted=[7]))
    assert (answer.status, json.loads(answer.body)["errorType"]) == (400, "bad_data")
    for accepted in ([], [0], [7, 0], [0, 1]):
        assert series_of(world[0], request(("__name__", EQ, "mean"), accepted=accepted))
    for accepted in ([1], [1, 0], [7, 1, 0]):
        assert frames_of(world[0], request(("__name__", EQ, "mean"), ("host", EQ, "a"), accepted=accepted))


def frames_of(server, packed):
    """Ask for chunks, and read the frames."""
    with urlopen(Request(f"{server.url}/api/v1/read", packed)) as answer:
        kind = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
        assert answer.headers["content-type"] == kind
        return read_frames(answer.read())


def test_streamed_chunks_have_the_samples_of_a_response_in_the_order_of_labels(world):
    for matchers, hints in (
        ([("__name__", RE, "bytes|latency|latency_bucket|slowest"), ("host", EQ, "a")], {"step": 60}),
        ([("host", EQ, "nobody")], {}),
    ):
        frames = frames_of(world[0], request(*matchers, accepted=[1], **hints))
        orders = [sorted(labels.items()) for labels, _ in frames]
        assert orders == sorted(orders)
        samples_by_labels = {}
        for labels, chunks in frames:
            samples = samples_by_labels.setdefault(frozenset(labels.items()), [])
            for first, last, data in chunks:
                decoded = read_chunk(data)
                assert len(decoded) <= 120
                assert (first, last) == (decoded[0][0], decoded[-1][0])
                samples += decoded
        assert samples_by_labels == series_of(world[0], request(*matchers, **hints))


def test_errors_before_the_first_chunks_have_a_status(world):
    with serving({"web": world[1]}, limits=Limits(rows=200)) as server:
        answer = server.ask("read", request(("__name__", EQ, "mean"), accepted=[1]))
        assert (answer.status, json.loads(answer.body)["errorType"]) == (422, "execution")


def test_chunks_of_any_times_and_values():
    """Changes of each width, values without and with common bits, and chunks of one and two samples."""
    rng = random.Random(5)
    for trial in range(60):
        count = rng.choice([1, 2, 3, 119, 120, 121, 300])
        steps = [rng.choice([1, 10_000, 10_003, 10_000 + 8191, 10_000 + 8193, 10**6, 10**11]) for _ in range(count)]
        times = np.cumsum([rng.choice([-(10**13), 0, 1_774_656_000_000]), *steps[1:]])
        kinds = [0.0, -0.0, 1.0, 5e-324, math.inf, -1e308, 0.1, float(trial), 2.0**53]
        values = np.array([rng.choice([*kinds, rng.random()]) for _ in range(count)])
        series = np.sort([rng.randrange(3) for _ in range(count)])
        expected = [(int(at), struct.pack(">d", value)) for at, value in zip(times, values, strict=True)]
        chunks = encode_chunks(times, values, series)
        decoded = [(at, struct.pack(">d", value)) for *_, data in chunks for at, value in read_chunk(data)]
        assert decoded == expected, trial
        assert [first for first, *_ in chunks] == sorted(first for first, *_ in chunks)


@pytest.mark.parametrize(
    ("packed", "status", "word"),
    [
        (b"", 400, "not a ReadRequest"),
        (b"events", 400, "not a ReadRequest"),
        (pa.compress(b"\xff" * 50, "snappy", asbytes=True), 400, "not a ReadRequest"),
        (b"\xff\xff\xff\x7f" + b"\x00" * 10, 400, "at most 16,777,216 bytes"),
        (b"\xff" * 20, 400, "bytes; this one has"),
        (request(("__name__", 7, "mean")), 400, "not a ReadRequest"),
        (request(("__name__", RE, "(")), 400, "not valid in RE2"),
        (request(("host", RE, "["), ("__name__", EQ, "mean")), 400, "not valid in RE2"),
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


@pytest.mark.long
def test_a_response_has_a_limit_of_samples():
    """120 series of 60,000 seconds are 7.2 million running totals, from 240 rows."""
    hosts = [str(i) for i in range(120)]
    times = [BEGIN * 1000] * 120 + [(BEGIN + 60_000) * 1000] * 120
    frame = TiltFrame(["1s", "1h"], "ts", {"n": aggr.count()}, ["host"])
    store = store_of(MemoryBackend(), pa.table({"ts": times, "host": hosts * 2}), frame)
    with serving({"web": store}) as server:
        every_second = {"start": BEGIN, "end": BEGIN + 60_000, "step": 15, "span": 300, "function": "irate"}
        answer = server.ask("read", request(("__name__", EQ, "n_total"), **every_second))
        assert (answer.status, "at most 5,000,000 samples" in answer.body) == (422, True), answer
        one_host = series_of(server, request(("__name__", EQ, "n_total"), ("host", EQ, "7"), **every_second))
        assert [len(samples) for samples in one_host.values()] == [60_001]
        every_hour = {"start": BEGIN, "end": BEGIN + 61_200, "step": 3600, "span": 36_000, "function": "rate"}
        hourly = series_of(server, request(("__name__", EQ, "n_total"), **every_hour))
        assert {tuple(value for _, value in samples) for samples in hourly.values()} == {(0, *[1] * 16, 2)}


@pytest.mark.long
def test_totals_are_read_from_coarser_windows_if_the_finest_have_expired():
    rows_by_second = {0: 5, 70: 3, 7300: 4, 7400: 1}
    times = [(BEGIN + second) * 1000 for second in rows_by_second]
    frame = TiltFrame(["10s", "1m", "1h"], "ts", {"v": aggr.sum("v")})
    store = FrameStore(MemoryBackend(), frame, retention={"10s": "1h"})
    store.append_rows(pa.table({"ts": times, "v": list(rows_by_second.values())}), "test", 1)
    hints = {"start": BEGIN + 5, "end": BEGIN + 8000, "step": 15, "span": 600, "function": "increase"}
    with serving({"web": store}) as server:

        def samples_of(**changes):
            (samples,) = series_of(server, request(("__name__", EQ, "v"), **hints | changes)).values()
            return samples

        assert {(at - BEGIN * 1000) % 60_000 for at, _ in samples_of()} == set(range(0, 60_000, 10_000))
        store.expire(now=dt.datetime.fromtimestamp(BEGIN + 3 * 3600, dt.UTC))
        assert {(at - BEGIN * 1000) % 60_000 for at, _ in samples_of()} == {0}
        for at, value in samples_of():
            assert value == sum(v for second, v in rows_by_second.items() if (BEGIN + second) * 1000 < at)
        for refused in ({"function": "irate"}, {"span": 300}):
            answer = server.ask("read", request(("__name__", EQ, "v"), **hints | refused))
            assert (answer.status, "has windows of 10s only from" in answer.body) == (422, True), answer


def test_last_values_are_at_the_times_of_their_events_within_the_range():
    times = [BEGIN * 1000 + at for at in (10_000, 25_500, 59_999, 60_000, 119_250, 185_000)]
    data = pa.table({"ts": times, "v": [1, 2, None, 4, 5, 6], "order": [2, 1, 0, 1, 0, 0]})
    frame = TiltFrame(["1m"], "ts", {"v": aggr.last("v"), "by_order": aggr.last("v", by="order")})
    with serving({"web": store_of(MemoryBackend(), data, frame)}) as server:

        def samples_of(name, start=0, end=300):
            series = series_of(server, request(("__name__", EQ, name), start=BEGIN + start, end=BEGIN + end))
            return [(at - BEGIN * 1000, value) for samples in series.values() for at, value in samples]

        assert samples_of("v") == [(25_500, 2), (119_250, 5), (185_000, 6)]
        assert samples_of("v", 26, 119) == []
        assert samples_of("v", 25, 185) == [(25_500, 2), (119_250, 5), (185_000, 6)]
        assert samples_of("by_order") == [(60_000, 1), (120_000, 4), (240_000, 6)]


@pytest.mark.long
def test_gauges_are_read_from_coarser_windows_only_if_the_finest_do_not_cover_the_range():
    hours = 40  # 144,000 windows of a second are beyond the limit, and 2,400 of a minute are not
    seconds = np.arange(hours * 3600)
    values = np.random.default_rng(3).permutation(len(seconds))
    data = pa.table({"ts": (BEGIN + seconds) * 1000, "v": values})
    frame = TiltFrame(["1s", "1m", "1h"], "ts", {"top": aggr.max("v"), "mean": aggr.avg("v")})
    store = FrameStore(MemoryBackend(), frame, retention={"1s": "1h", "1m": "1h"})
    store.append_rows(data, "test", 1)
    hourly = {"start": BEGIN - 300, "end": BEGIN + hours * 3600, "step": 3600}

    def expected(length):
        window_ends = np.arange(length, hours * 3600 + 1, length)
        maxima = [values[(seconds >= end - length) & (seconds < end)].max() for end in window_ends]
        return [((BEGIN + int(end)) * 1000, float(n)) for end, n in zip(window_ends, maxima, strict=True)]

    with serving({"web": store}) as server:

        def samples_of(**hints):
            (samples,) = series_of(server, request(("__name__", EQ, "top"), **hints)).values()
            return samples

        assert samples_of(**hourly) == expected(60)
        in_ten_hours = {"start": BEGIN - 36_000, "step": 3600, "span": 36_000, "end": BEGIN + hours * 3600}
        assert samples_of(**in_ten_hours, function="max_over_time") == expected(60)
        assert samples_of(**hourly | {"start": BEGIN - 307}, function="series"), "of any level"
        for refused in (
            hourly | {"start": BEGIN - 307},  # moments that are within windows
            in_ten_hours | {"function": "min_over_time"},
        ):
            answer = server.ask("read", request(("__name__", EQ, "top"), **refused))
            assert answer.status == 422
            assert "windows, and the server's limit is 100,000" in json.loads(answer.body)["error"]
        store.expire(now=dt.datetime.fromtimestamp(BEGIN + 100 * 3600, dt.UTC))
        assert samples_of(**hourly) == expected(3600)
        assert samples_of(**in_ten_hours, function="max_over_time") == expected(3600)
        answer = server.ask("read", request(("__name__", EQ, "mean"), **in_ten_hours, function="avg_over_time"))
        assert (answer.status, "has windows of 1s only from" in answer.body) == (422, True), answer
