"""Requests of Grafana's data source and of Prometheus' page: each answer has the format of Prometheus' API."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_world import BEGIN, serving, store_of
from tiltframe import TiltFrame
from tiltframe.serve.promql.function_table import AGGREGATIONS, FUNCTIONS, REFUSED
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store


@pytest.fixture(scope="module")
def server():
    seconds = np.array([0.1, 0.2, 0.3, 0.3, 0.9, 1.2, 5.0, 0.0, -1.0, 40.0])
    measures = {
        "latency": aggr.dds("s", [0.5]),
        "exact": aggr.hdr("s", [0.5], unit=0.1),
        "fine": aggr.exponential("s", [0.5]),
        "n": aggr.count(),
    }
    data = pa.table({"ts": [BEGIN * 1000] * 9, "s": np.delete(seconds, 8)})
    signed = pa.table({"ts": [BEGIN * 1000] * 10, "s": seconds})
    stores = {"s": store_of(MemoryBackend(), data, TiltFrame(["1m"], "ts", measures))}
    stores["signed"] = store_of(MemoryBackend(), signed, TiltFrame(["1m"], "ts", {"both": measures["latency"]}))
    with serving(stores) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "member"),
    [
        ("status/config", "yaml"),
        ("status/flags", "max-rows"),
        ("status/runtimeinfo", "storageRetention"),
        ("status/buildinfo", "version"),
        ("status/tsdb", "headStats"),
        ("status/walreplay", "state"),
        ("targets", "activeTargets"),
        ("targets/metadata", None),
        ("scrape_pools", "scrapePools"),
        ("alertmanagers", "activeAlertmanagers"),
        ("rules", "groups"),
        ("alerts", "alerts"),
        ("metadata", "n_total"),
        ("query_exemplars?query=n_total", None),
    ],
)
def test_the_envelope(server, path, member):
    name, _, words = path.partition("?")
    answer = server.ask(name, **dict(word.split("=") for word in words.split("&") if word))
    assert answer.status == 200
    assert member in answer.data if member else answer.data == []


def test_expressions_are_formatted_and_parsed(server):
    assert server.ask("format_query", query="sum   by(a)(n_total)").data == "sum by (a) (n_total)"
    tree = server.ask("parse_query", form={"query": 'rate(x{a!~"b"}[5m] offset 1m) * on (k) group_left (z) -y'}).data
    assert (tree["type"], tree["op"], tree["matching"]["card"]) == ("binaryExpr", "*", "many-to-one")
    assert (tree["matching"]["on"], tree["matching"]["labels"], tree["matching"]["include"]) == (True, ["k"], ["z"])
    assert tree["lhs"]["func"] == {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"}
    (selected,) = tree["lhs"]["args"]
    assert (selected["type"], selected["range"], selected["offset"]) == ("matrixSelector", 300_000, 60_000)
    assert selected["matchers"] == [
        {"name": "a", "value": "b", "type": "!~"},
        {"name": "__name__", "value": "x", "type": "="},
    ]
    assert tree["rhs"]["type"] == "unaryExpr"
    queries = ("topk(2, a) > bool 1 or max_over_time(b[1h:1m] @ end())", 'count_values("v", a @ start())', "1e3 ^ pi()")
    for query in queries:
        assert server.ask("parse_query", query=query).data["type"], query
    assert json.loads(server.ask("parse_query", query="sum(").body)["errorType"] == "bad_data"


def test_every_function_is_answered_or_refused_with_the_way():
    """Each name of Prometheus' parser is in the table; the list is that of its release 3."""
    names = (
        "abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max "
        "clamp_min cos cosh count_over_time days_in_month day_of_month day_of_week day_of_year deg delta deriv "
        "double_exponential_smoothing end exp first_over_time floor histogram_avg histogram_count histogram_fraction "
        "histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar histogram_sum hour idelta increase "
        "info integral irate label_join label_replace last_over_time ln log10 log2 mad_over_time max_over_time "
        "min_over_time minute month pi predict_linear present_over_time quantile_over_time rad range rate resets round "
        "scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start stddev_over_time "
        "stdvar_over_time step sum_over_time tan tanh time timestamp ts_of_first_over_time ts_of_last_over_time "
        "ts_of_max_over_time ts_of_min_over_time vector year"
    )
    assert set(FUNCTIONS) == {*names.split(), "holt_winters"}
    aggregations = "sum avg count min max group stddev stdvar topk bottomk count_values quantile limitk limit_ratio"
    assert set(AGGREGATIONS) == {*aggregations.split()}
    assert FUNCTIONS["irate"] == REFUSED


def test_a_refusal_names_the_way(server):
    for query in ("irate(n_total[1m])", "stddev(n_total)", "label_replace(n_total, 'a', 'b', 'c', 'd')", "time()"):
        answer = server.query(query, BEGIN + 60)
        sentence = (
            "cannot be computed by merging windows; Prometheus computes it through remote read (docs/prometheus.md)"
        )
        assert (answer.status, sentence in json.loads(answer.body)["error"]) == (422, True), query


@pytest.mark.parametrize("name", ["latency", "exact", "fine"])
def test_fractions_of_a_histogram(server, name):
    """Values that are equal to a bound are counted, and zeros are part of a range from 0, as in Prometheus."""

    def fraction(lower, upper, metric=f"rate({name}[1m])"):
        query = f"histogram_fraction({lower}, {upper}, {metric})"
        (value,) = server.query(query, BEGIN + 60).by_labels().values()
        return value[BEGIN + 60]

    assert fraction(0, 0.3) == 5 / 9
    assert fraction(0, 1.2) == 7 / 9
    assert fraction(0.3, 1.2) == pytest.approx(2 / 9)
    assert fraction("-Inf", "+Inf") == 1
    assert fraction(2, 1) == 0
    assert np.isnan(fraction("NaN", 1))
    assert fraction(-2, 0, "both") == 2 / 10
    apdex = f"(histogram_fraction(0, 0.3, {name}) + histogram_fraction(0, 1.2, {name})) / 2"
    assert list(server.query(apdex, BEGIN + 60).by_labels().values()) == [{BEGIN + 60: pytest.approx(6 / 9)}]
