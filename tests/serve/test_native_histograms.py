"""Native histograms of remote read: the running totals of the rows, in the buckets of Prometheus."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.interchange.protobuf_messages import message_classes
from tests.serve.prometheus_world import BEGIN, serving, store_of
from tests.serve.test_remote_read import EQ, NEQ, RE, request
from tiltframe import TiltFrame
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
# Typed from prompb/types.proto; the server has tables of its own.
TABLE = {
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Span": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "Histogram": {
        "count": (1, "uint64"),
        "sum": (3, "double"),
        "schema": (4, "sint32"),
        "zero_threshold": (5, "double"),
        "zero_count": (6, "uint64"),
        "negative_spans": (8, "repeated Span"),
        "negative_deltas": (9, "repeated sint64"),
        "positive_spans": (11, "repeated Span"),
        "positive_deltas": (12, "repeated sint64"),
        "timestamp": (15, "int64"),
    },
    "Series": {
        "labels": (1, "repeated Label"),
        "samples": (2, "repeated Sample"),
        "histograms": (4, "repeated Histogram"),
    },
    "Result": {"series": (1, "repeated Series")},
    "Response": {"results": (1, "repeated Result")},
}
MESSAGES = message_classes("prompb", TABLE, "serve")
HOURS = 2
END = BEGIN + HOURS * 3600


def make_rows(count=600):
    """Return rows of two hosts, with gaps of many windows; the values of the second hour need a coarser schema."""
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.choice(HOURS * 3600, count))
    seconds = seconds[(seconds < 1000) | (seconds > 2500)]
    values = rng.lognormal(0, 0.2, len(seconds))
    values[seconds > 3600] **= 40.0
    values[rng.random(len(seconds)) < 0.1] = 0.0
    values[rng.random(len(seconds)) < 0.2] *= -1
    return pa.table(
        {
            "ts": (BEGIN + seconds) * 1000,
            "host": np.array(["a", "b"])[rng.integers(0, 2, len(seconds))],
            "v": np.round(values * 2**20) / 2**20,
        }
    )


ROWS = make_rows()
FRAME = TiltFrame(
    ["10s", "1m", "1h"],
    "ts",
    {"latency": aggr.exponential("v", [0.5]), "other": aggr.dds("v", [0.5])},
    ["host"],
)


@pytest.fixture(scope="module")
def server():
    with serving({"web": store_of(MemoryBackend(), ROWS, FRAME)}) as server:
        yield server


def series_of(server, packed):
    """Return the native histograms by label ``host``, and the number of other series."""
    with urlopen(Request(f"{server.url}/api/v1/read", packed)) as answer:
        assert answer.headers["content-type"] == "application/x-protobuf"
        body = answer.read()
    size = 0
    for i, byte in enumerate(body):
        size |= (byte & 127) << 7 * i
        if byte < 128:
            break
    (result,) = MESSAGES["Response"].FromString(pa.decompress(body, size, "snappy", asbytes=True)).results
    native = [series for series in result.series if series.histograms]
    by_host = {}
    for series in native:
        labels = {label.name: label.value for label in series.labels}
        assert list(labels) == sorted(labels)
        assert labels == {"__name__": "latency", "host": labels["host"], "store": "web"}
        by_host[labels["host"]] = series.histograms
    return by_host, len(result.series) - len(native)


def buckets_of(histogram, sign):
    """Return the counts of buckets by their index in Prometheus: the bucket i ends at 2^(i / 2^schema)."""
    counts = {}
    index = 0
    count = 0
    deltas = iter(getattr(histogram, f"{sign}_deltas"))
    for span in getattr(histogram, f"{sign}_spans"):
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            counts[index] = count
            index += 1
    return {index: count for index, count in counts.items() if count}


def expected_buckets(values, schema):
    """Count values naively, by the definition of a bucket's bounds. Logarithms are not exact, so the bucket that they
    give is corrected by comparing with the bounds.
    """
    counts = Counter()
    for value in values:
        index = math.ceil(math.log2(value) * 2.0**schema)
        while value > 2.0 ** (index / 2.0**schema):
            index += 1
        while value <= 2.0 ** ((index - 1) / 2.0**schema):
            index -= 1
        counts[index] += 1
    return counts


def rows_until(host, milliseconds, after=0):
    rows = [row for row in ROWS.to_pylist() if row["host"] == host and after <= row["ts"] < milliseconds]
    return [row["v"] for row in rows]


def check(histogram, values):
    assert histogram.count == len(values)
    assert histogram.zero_count == values.count(0.0)
    assert histogram.zero_threshold == 0.0
    assert histogram.sum == math.fsum(values)
    for sign, magnitudes in (
        ("positive", [value for value in values if value > 0]),
        ("negative", [-value for value in values if value < 0]),
    ):
        counts = buckets_of(histogram, sign)
        expected = expected_buckets(magnitudes, histogram.schema)
        assert counts == expected


def test_native_histograms_are_running_totals_of_the_rows(server):
    native, _ = series_of(server, request(("__name__", EQ, "latency"), start=BEGIN, end=END))
    assert sorted(native) == ["a", "b"]
    for host, histograms in native.items():
        times = [histogram.timestamp for histogram in histograms]
        assert times == sorted(set(times))
        assert histograms[0].count == 0
        for histogram in histograms[:: max(len(histograms) // 40, 1)]:
            check(histogram, rows_until(host, histogram.timestamp))
        assert histograms[-1].count > histograms[len(histograms) // 2].count > 0
        schemas = [histogram.schema for histogram in histograms]
        assert schemas == sorted(schemas, reverse=True), "a finer schema would be a reset for Prometheus"
        assert schemas[-1] < schemas[1]


def exact_index(value, schema):
    """Return the index of the bucket that contains a value, computed without rounding: bucket i has the values v with
    2^(i - 1) < v^(2^schema) <= 2^i.
    """
    power = Fraction(value) ** 2**schema
    index = power.numerator.bit_length() - power.denominator.bit_length() - 1
    while power > Fraction(2) ** index:
        index += 1
    return index


@pytest.mark.parametrize("schema", [0, 3])
def test_a_bucket_contains_its_upper_bound_and_not_its_lower_bound(schema):
    powers = [2.0**exponent for exponent in range(-3, 6)]
    near_bounds = [2.0 ** (step / 8) for step in range(-16, 17)]  # the doubles that are nearest to irrational bounds
    bounds = powers + near_bounds
    magnitudes = [*bounds, *np.nextafter(bounds, 0.0).tolist(), *np.nextafter(bounds, np.inf).tolist()]
    values = [*magnitudes, *(-value for value in magnitudes)]
    rows = pa.table({"ts": [BEGIN * 1000] * len(values), "host": ["a"] * len(values), "v": values})
    frame = TiltFrame(["10s"], "ts", {"latency": aggr.exponential("v", [0.5], scale=schema)}, ["host"])
    with serving({"web": store_of(MemoryBackend(), rows, frame)}) as server:
        native, _ = series_of(server, request(("__name__", EQ, "latency"), start=BEGIN, end=BEGIN + 60))
    histogram = native["a"][-1]
    assert histogram.schema == schema
    expected = Counter(exact_index(value, schema) for value in magnitudes)
    assert buckets_of(histogram, "positive") == expected
    assert buckets_of(histogram, "negative") == expected


def test_sum_over_time_reads_the_rows_of_each_window(server):
    query = request(("__name__", EQ, "latency"), ("host", EQ, "a"), function="sum_over_time", span=600, end=END)
    native, _ = series_of(server, query)
    (histograms,) = native.values()
    lengths = np.diff([histogram.timestamp for histogram in histograms])
    assert lengths.min() == 10_000
    assert lengths.max() > 1_000_000
    for histogram in histograms:
        check(histogram, rows_until("a", histogram.timestamp, histogram.timestamp - 10_000))


def test_coarser_windows_are_read_if_they_suffice(server):
    query = request(("__name__", EQ, "latency"), function="rate", span=3600, step=3600, start=BEGIN, end=END)
    native, _ = series_of(server, query)
    for host, histograms in native.items():
        assert np.diff([histogram.timestamp for histogram in histograms]).min() >= 60_000
        check(histograms[-1], rows_until(host, histograms[-1].timestamp))


@pytest.mark.parametrize(
    ("matchers", "hosts", "has_quantiles"),
    [
        ([("quantile", EQ, "")], ["a", "b"], False),
        ([("quantile", EQ, "0.5")], [], True),
        ([("quantile", NEQ, "")], [], True),
        ([("host", RE, "a|c")], ["a"], True),
        ([("host", EQ, "c")], [], False),
        ([("store", EQ, "web"), ("host", NEQ, "a")], ["b"], True),
        ([("store", EQ, "x")], [], False),
    ],
)
def test_matchers_select_native_histograms(server, matchers, hosts, has_quantiles):
    native, quantile_count = series_of(server, request(("__name__", EQ, "latency"), *matchers))
    assert sorted(native) == hosts
    assert (quantile_count > 0) == has_quantiles


@pytest.mark.parametrize(("function", "has_quantiles"), [("rate", False), ("sum", False), ("max", True), ("", True)])
def test_functions_that_add_samples_read_histograms_without_their_quantiles(server, function, has_quantiles):
    native, quantile_count = series_of(server, request(("__name__", EQ, "latency"), function=function, span=3600))
    assert len(native) == 2
    assert quantile_count == 2 * has_quantiles
    native, quantile_count = series_of(
        server, request(("__name__", EQ, "latency"), ("quantile", RE, ".+"), function=function)
    )
    assert (len(native), quantile_count) == (0, 2)


def test_other_sketches_are_not_native_histograms(server):
    native, quantile_count = series_of(server, request(("__name__", EQ, "other")))
    assert not native
    assert quantile_count == 2


@pytest.mark.parametrize(
    ("name", "accepted", "kind"),
    [
        ("latency", (1, 0), "application/x-protobuf"),
        ("latency", (0, 1), "application/x-protobuf"),
        ("latency", (1,), "application/x-streamed-protobuf"),
        ("other", (1, 0), "application/x-streamed-protobuf"),
        ("latency_count", (1, 0), "application/x-streamed-protobuf"),
    ],
)
def test_a_client_that_also_accepts_samples_receives_native_histograms(server, name, accepted, kind):
    packed = request(("__name__", EQ, name), accepted=accepted)
    with urlopen(Request(f"{server.url}/api/v1/read", packed)) as answer:
        assert answer.headers["content-type"].startswith(kind)
        assert answer.read()


def test_a_scale_that_prometheus_lacks_is_refused_with_a_way():
    frame = TiltFrame(["10s"], "ts", {"latency": aggr.exponential("v", [0.5], scale=-8)}, ["host"])
    with serving({"web": store_of(MemoryBackend(), ROWS, frame)}) as server:
        packed = request(("__name__", EQ, "latency"))
        with pytest.raises(HTTPError) as error:
            urlopen(Request(f"{server.url}/api/v1/read", packed))
        assert "native histograms accept only schemas" in error.value.read().decode()


def test_an_error_counts_all_states_of_the_answer():
    """The running total exceeds the buckets at the state after 1,200 windows; states are encoded in slices."""
    values = pa.array([1.0] * 1200 + [1e-300, 1e300])
    rows = pa.table(
        {"ts": [(BEGIN + 10 * i) * 1000 for i in range(len(values))], "host": ["a"] * len(values), "v": values}
    )
    frame = TiltFrame(["10s"], "ts", {"latency": aggr.exponential("v", [0.5], max_buckets=4)}, ["host"])
    with serving({"web": store_of(MemoryBackend(), rows, frame)}) as server:
        packed = request(("__name__", EQ, "latency"), start=BEGIN, end=BEGIN + 20 * 1200)
        with pytest.raises(HTTPError) as error:
            urlopen(Request(f"{server.url}/api/v1/read", packed))
        assert "state 1200 has scale " in error.value.read().decode()
