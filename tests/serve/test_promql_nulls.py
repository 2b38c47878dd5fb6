"""Windows without a value are not samples: all operators of PromQL, compared with a naive evaluation of the rows."""

from __future__ import annotations

import math
import random
import statistics

import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_world import serving, store_of
from tiltframe import TiltFrame
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store

BEGIN = 1_714_557_600  # 2024-05-01T10:00:00Z
MINUTES = 20
MOMENTS = [BEGIN + 60 * i for i in range(1, MINUTES + 8)]  # the last ones are without any window
KINDS = ("temp", "lat", "cpu")
MEASURES = {
    "temp": aggr.last("v", where="kind = 'temp'"),
    "hot": aggr.max("v", where="kind = 'temp'"),
    "cold": aggr.min("v", where="kind = 'temp'"),
    "heat": aggr.sum("v", where="kind = 'temp'"),
    "mean": aggr.avg("v", where="kind = 'temp'"),
    "spread": aggr.stdev("v", where="kind = 'temp'"),
    "lat": aggr.dds("v", [0.5], where="kind = 'lat'"),
    "rounded": aggr.hdr("v", [0.5], where="kind = 'lat'", unit=0.5),
    "cpu": aggr.last("v", where="kind = 'cpu'"),
    "n": aggr.count(),
}


def draw_rows(seed=11):
    """Draw rows of three hosts: in most windows some kinds have no row, and one host never has ``temp``."""
    draw = random.Random(seed)
    rows = []
    for minute in range(MINUTES):
        for host in "abc":
            for kind in KINDS:
                if draw.random() < 0.4 and (host, kind) != ("c", "temp") and not 8 <= minute < 12:
                    for second in draw.sample(range(60), draw.choice([1, 1, 2])):
                        at = (BEGIN + 60 * minute + second) * 1000
                        rows.append({"ts": at, "host": host, "kind": kind, "v": draw.randrange(2, 40) / 2})
        rows.append({"ts": (BEGIN + 60 * minute) * 1000, "host": "d", "kind": "none", "v": 0.0})
    return rows


ROWS = draw_rows()


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else None


READ = {  # metric -> kind of row, value of the values of a window in order of time
    "temp": ("temp", lambda v: v[-1]),
    "hot": ("temp", max),
    "cold": ("temp", min),
    "heat": ("temp", math.fsum),
    "mean": ("temp", statistics.mean),
    "spread": ("temp", spread),
    "cpu": ("cpu", lambda v: v[-1]),
    "lat_count": ("lat", len),
    "lat_sum": ("lat", math.fsum),
    "lat_max": ("lat", max),
    "rounded_count": ("lat", len),
}


def values_of(metric, host, low, high):
    """Return the values of the rows of a metric in a range of seconds, in order of time."""
    kind = READ[metric][0]
    rows = [r for r in ROWS if r["host"] == host and r["kind"] == kind and low <= r["ts"] // 1000 < high]
    return [row["v"] for row in sorted(rows, key=lambda row: row["ts"])]


def read(metric, values):
    value = READ[metric][1](values) if values else None
    return None if value is None else float(value)


def newest(metric, at, lookback=300):
    """Return entry series' newest window with a value that ended in the five minutes up to a moment."""
    actual = {}
    for host in "abcd":
        for end in range(at // 60 * 60, at - lookback, -60):
            value = read(metric, values_of(metric, host, end - 60, end))
            if value is not None:
                actual[host] = value
                break
    return actual


def over(metric, at, span):
    """Return entry series' value of the windows that ended in a range up to a moment."""
    actual = {host: read(metric, values_of(metric, host, at - span, at)) for host in "abcd"}
    return {host: value for host, value in actual.items() if value is not None}


def both(left, right, operate):
    return {host: operate(left[host], right[host]) for host in left if host in right}


def total(vector, reduce):
    return {"": float(reduce(list(vector.values())))} if vector else {}


def steps(vector_at, at, span, reduce):
    """Reduce the values of entry series at the minutes of a range."""
    actual = {}
    for moment in range((at - span) // 60 * 60 + 60, at + 1, 60):
        for host, value in vector_at(moment).items():
            actual.setdefault(host, []).append(value)
    return {host: float(reduce(values)) for host, values in actual.items()}


def missing(vector):
    return {} if vector else {"": 1.0}


def middle(values):
    ordered = sorted(values)
    rank = 0.5 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] * (1 - rank + below) + ordered[above] * (rank - below)


def greatest(vector):
    return dict(sorted(vector.items(), key=lambda entry: (-entry[1], entry[0]))[:1])


def times(x, y):
    return x * y


def ones(vector):
    return dict.fromkeys(vector, 1.0)


AGGREGATIONS = {"sum": math.fsum, "avg": statistics.mean, "min": min, "max": max, "count": len}
EXPRESSIONS = {
    **{metric: lambda t, m=metric: newest(m, t) for metric in READ},
    **{
        f"{name}({metric})": lambda t, m=metric, f=reduce: total(newest(m, t), f)
        for name, reduce in AGGREGATIONS.items()
        for metric in ("temp", "hot", "cold", "heat", "spread", "cpu", "lat_count")
    },
    "count(mean)": lambda t: total(newest("mean", t), len),
    "count by (host) (hot)": lambda t: ones(newest("hot", t)),
    "count without (store) (lat)": lambda t: ones(newest("lat_count", t)),
    "count(lat)": lambda t: total(newest("lat_count", t), len),
    "count(rounded)": lambda t: total(newest("rounded_count", t), len),
    "count(rate(lat[3m]))": lambda t: total(over("lat_count", t, 180), len),
    "count(histogram_quantile(0.5, rate(lat[3m])))": lambda t: total(over("lat_count", t, 180), len),
    "count(histogram_quantile(2, lat))": lambda t: total(newest("lat_count", t), len),
    "histogram_count(increase(lat[3m]))": lambda t: over("lat_count", t, 180),
    "histogram_sum(increase(lat[3m]))": lambda t: over("lat_sum", t, 180),
    "histogram_count(sum(increase(lat[3m])))": lambda t: total(over("lat_count", t, 180), sum),
    "count_over_time(rounded[3m])": lambda t: over("rounded_count", t, 180),
    "max_over_time(lat[3m])": lambda t: over("lat_max", t, 180),
    "quantile(0.5, temp)": lambda t: total(newest("temp", t), middle),
    "topk(1, heat)": lambda t: greatest(newest("heat", t)),
    "topk(9, temp)": lambda t: newest("temp", t),
    "bottomk by (host) (1, temp)": lambda t: newest("temp", t),
    "sum_over_time(heat[3m])": lambda t: over("heat", t, 180),
    "increase(heat[3m])": lambda t: over("heat", t, 180),
    "max_over_time(hot[3m])": lambda t: over("hot", t, 180),
    "min_over_time(cold[3m])": lambda t: over("cold", t, 180),
    "avg_over_time(mean[3m])": lambda t: over("mean", t, 180),
    "last_over_time(temp[3m])": lambda t: over("temp", t, 180),
    "count(last_over_time(temp[3m]))": lambda t: total(over("temp", t, 180), len),
    "count by (host) (max_over_time(hot[2m]))": lambda t: ones(over("hot", t, 120)),
    "-temp": lambda t: {host: -value for host, value in newest("temp", t).items()},
    "temp * 2": lambda t: {host: value * 2 for host, value in newest("temp", t).items()},
    "temp * cpu": lambda t: both(newest("temp", t), newest("cpu", t), times),
    "temp * on (host) cpu": lambda t: both(newest("temp", t), newest("cpu", t), times),
    "hot * ignoring (store) cpu": lambda t: both(newest("hot", t), newest("cpu", t), times),
    "temp > 10": lambda t: {host: value for host, value in newest("temp", t).items() if value > 10},
    "temp > bool 10": lambda t: {host: float(value > 10) for host, value in newest("temp", t).items()},
    "temp > bool cpu": lambda t: both(newest("temp", t), newest("cpu", t), lambda x, y: float(x > y)),
    "cpu and temp": lambda t: {host: v for host, v in newest("cpu", t).items() if host in newest("temp", t)},
    "cpu unless temp": lambda t: {host: v for host, v in newest("cpu", t).items() if host not in newest("temp", t)},
    "temp or cpu": lambda t: newest("cpu", t) | newest("temp", t),
    "cpu and lat_count": lambda t: {h: v for h, v in newest("cpu", t).items() if h in newest("lat_count", t)},
    "absent(temp)": lambda t: missing(newest("temp", t)),
    "absent(lat)": lambda t: missing(newest("lat_count", t)),
    "absent(hot > 15)": lambda t: missing({h: v for h, v in newest("hot", t).items() if v > 15}),
    "absent_over_time(temp[2m])": lambda t: missing(over("temp", t, 120)),
    "absent_over_time(lat[2m])": lambda t: missing(over("lat_count", t, 120)),
    "absent_over_time(rounded[2m])": lambda t: missing(over("lat_count", t, 120)),
    **{
        f"{name}_over_time(temp[5m:1m])": lambda t, f=reduce: steps(lambda u: newest("temp", u), t, 300, f)
        for name, reduce in AGGREGATIONS.items()
    },
    "count_over_time((temp > 10)[5m:1m])": lambda t: steps(
        lambda u: {host: v for host, v in newest("temp", u).items() if v > 10}, t, 300, len
    ),
    "absent_over_time(temp[1m:1m])": lambda t: missing(newest("temp", t)),
}


@pytest.fixture(scope="module")
def server():
    store = store_of(MemoryBackend(), pa.Table.from_pylist(ROWS), TiltFrame(["1m", "1h"], "ts", MEASURES, ["host"]))
    with serving({"web": store}) as running:
        yield running


def by_host(result):
    return {entry["metric"].get("host", ""): entry for entry in result}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_window_without_a_value_is_not_a_sample(server, expression):
    expected = {at: EXPRESSIONS[expression](at) for at in MOMENTS}
    assert any(expected.values())
    result = server.query_range(expression, MOMENTS[0], MOMENTS[-1], 60).data["result"]
    actual = {at: {} for at in MOMENTS}
    for series in result:  # of "or", of one host several with other names
        for at, text in series["values"]:
            assert actual[at].setdefault(series["metric"].get("host", ""), float(text)) == float(text)
    assert actual == {at: pytest.approx(values, rel=1e-12) for at, values in expected.items()}
    for at in MOMENTS[::5]:
        result = server.query(expression, at).data["result"]
        alone = {host: float(entry["value"][1]) for host, entry in by_host(result).items()}
        assert alone == pytest.approx(expected[at], rel=1e-12), at


def test_histograms_alone_are_those_that_have_values(server):
    for at in MOMENTS:
        for text, expected in (("lat", newest("lat_count", at)), ("increase(lat[3m])", over("lat_count", at, 180))):
            actual = by_host(server.query(text, at).data["result"])
            assert {host: float(entry["histogram"][1]["count"]) for host, entry in actual.items()} == expected


def test_a_range_alone_lists_the_windows_with_values(server):
    actual = by_host(server.query("temp[20m]", BEGIN + 1200).data["result"])
    for host in "abc":
        window_ends = [e for e in range(BEGIN + 60, BEGIN + 1201, 60) if values_of("temp", host, e - 60, e)]
        assert [at for at, _ in actual[host]["values"]] == window_ends if window_ends else host not in actual


@pytest.mark.parametrize("metric", [*READ, "lat", "n_total"])
def test_series_are_those_that_have_a_value(server, metric):
    counted = "lat_count" if metric == "lat" else metric
    hosts = {host for host in "abcd" if metric == "n_total" or host in over(counted, BEGIN + 3600, 3600)}
    assert {entry["host"] for entry in server.ask("series", **{"match[]": metric}).data} == hosts
    assert set(server.ask("label/host/values", **{"match[]": metric}).data) == hosts
    names = server.ask("labels", **{"match[]": f'{metric}{{host="d"}}'}).data
    assert ("host" in names) == ("d" in hosts)
