"""Values of PromQL as in Prometheus: sums and means, NaN, names, vector matching, texts and times."""

from __future__ import annotations

import json
import math
import os
import random
from fractions import Fraction

import promql_parser
import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_world import serving, store_of
from tiltframe import TiltFrame
from tiltframe.serve.cost import Limits
from tiltframe.serve.promql.metrics import Matcher
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
TRIALS = int(os.environ.get("TRIALS", "20"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
AT = 1_714_564_800  # 2024-05-01T12:00:00Z
SPECIAL = {"a": 1e100, "b": 8.0, "c": -1e100, "x": 1e308, "y": 1e308, "n": math.nan, "o": 1.0}
TENTHS = {f"t{i}": 0.1 for i in range(10)}


def world(values, measures, levels=("1m",), key="p", seconds=30):
    """Make a store of a row for entry key, in the last minute before the moment unless told otherwise."""
    data = {"ts": [(AT - seconds) * 1000] * len(values), key: list(values), "v": list(values.values())}
    return store_of(MemoryBackend(), pa.table(data), TiltFrame(levels, "ts", measures, [key]))


@pytest.fixture(scope="module")
def server():
    values = world(SPECIAL | TENTHS, {"x": aggr.last("v"), "s": aggr.sum("v")})
    names = store_of(
        MemoryBackend(),
        pa.table({"ts": [(AT - 30) * 1000], "host": ["h"], "a": [1], "b": [2]}),
        TiltFrame(["1m"], "ts", {"a": aggr.last("a"), "b": aggr.last("b")}, ["host"]),
    )
    pods = store_of(
        MemoryBackend(),
        pa.table({"ts": [(AT - at) * 1000 for at in (5400, 1800)], "job": ["web"] * 2, "pod": ["web-1", "web-2"]}),
        TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["job", "pod"]),
    )
    paths = world(
        {r"/api/v1": 1.0, r"C:\logs": 2.0, 'say "x"': 3.0, "tab\there": 4.0}, {"r": aggr.last("v")}, key="path"
    )
    with serving({"values": values, "names": names, "pods": pods, "paths": paths}) as running:
        yield running


def ask(server, query, at=AT):
    """Return the labels, without the store, and the value of entry series."""
    result = server.query(query, at).data["result"]
    return [({k: v for k, v in e["metric"].items() if k != "store"}, float(e["value"][1])) for e in result]


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ('sum(x{p=~"t.*"})', 1.0),
        ('sum(s{p=~"t.*"} * 1)', 1.0),
        ('sum(x{p=~"a|b|c"})', 8.0),
        ('sum(s{p=~"a|b|c"} * 1)', 8.0),
        ('sum(s{p=~"a|b|c"})', 8.0),
        ('avg(x{p=~"a|b|c"})', 8 / 3),
        ('avg(x{p=~"x|y"})', 1e308),
        ('sum(x{p=~"x|y"})', math.inf),
        ("sum_over_time(vector(0.1)[10s:1s])", 1.0),
        ("avg_over_time(vector(1e308)[5s:1s])", 1e308),
        ("count_over_time(vector(NaN)[5s:1s])", 5.0),
        ("max_over_time(vector(NaN)[5s:1s])", math.nan),
        ('quantile(1, x{p=~"n|o"})', 1.0),
        ('quantile(0, x{p=~"n|o"})', math.nan),
        ('quantile(0.75, x{p=~"b|o"})', 6.25),
        ('max(x{p=~"n|o"})', 1.0),
    ],
)
def test_values_are_those_of_prometheus(server, query, value):
    assert [actual for _, actual in ask(server, query)] == [pytest.approx(value, rel=0, abs=0, nan_ok=True)]


@pytest.mark.long
def test_sums_and_means_of_values_are_rounded_once(server):
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(TRIALS):
        values = {f"k{i}": draw.choice([1, -1]) * draw.random() * 10.0 ** draw.randrange(-30, 30) for i in range(25)}
        with serving({"v": world(values, {"x": aggr.last("v")})}) as running:
            exact = sum(map(Fraction, values.values()))
            assert ask(running, "sum(x)") == [({}, float(exact))]
            assert ask(running, "avg(x)") == [({}, float(exact / len(values)))]


@pytest.mark.parametrize("query", ["topk(NaN, x)", "bottomk(Inf, x)", "topk(-Inf, x)", "topk(1e30, x)"])
def test_a_number_of_series_that_is_no_int64_is_refused(server, query):
    answer = server.query(query, AT)
    assert (answer.status, json.loads(answer.body)["errorType"]) == (422, "execution")
    assert "fits 64 bits" in answer.body


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("last_over_time(a[1m])", [({"__name__": "a", "host": "h"}, 1)]),
        ("max(last_over_time(a[1m]) or last_over_time(b[1m])) by (__name__)", [({"__name__": "a"}, 1)]),
        ("a / on(host, __name__) a", [({"host": "h"}, 1)]),
        ("a == bool on(host, __name__) a", [({"host": "h"}, 1)]),
        ("a == on(host, __name__) a", [({"__name__": "a", "host": "h"}, 1)]),
        ("a == on(host) a", [({"host": "h"}, 1)]),
        ("a < ignoring(x) b", [({"__name__": "a", "host": "h"}, 1)]),
        ('absent(zz{job!="b",job="a"})', [({"job": "a"}, 1)]),
        ('absent(zz{job="a",job!="b"})', [({}, 1)]),
        ('absent(zz{job="a",job="a"})', [({}, 1)]),
        ('absent(zz{job="a",job=""})', [({}, 1)]),
        ('absent(zz{job="",job="a"})', [({}, 1)]),
    ],
)
def test_names_and_labels_are_those_of_prometheus(server, query, expected):
    assert ask(server, query) == expected


def test_series_that_differ_by_their_name_alone_cannot_lose_it(server):
    both = "(a or on(host, __name__) b)"
    assert len(ask(server, both)) == 2
    for query in (f"-{both}", f"{both} * 2", f"{both} == bool 1", f"sum_over_time({both}[1m:1m])"):
        answer = server.query(query, AT)
        assert (answer.status, "several series of the result" in answer.body) == (422, True), query
    assert len(ask(server, f"{both} > 0")) == 2


def test_series_are_matched_at_each_moment(server):
    start, end = AT - 5340, AT - 1740
    actual = server.query_range("n_total * on(job) sum by (job) (n_total)", start, end, 60).data["result"]
    (series,) = actual
    assert series["metric"] == {"job": "web"}
    moments = [at for at in range(start, end + 1, 60) if at < start + 300 or at == end]
    assert series["values"] == [[at, "1"] for at in moments]
    two = server.query_range("sum by (job) (n_total) + on(job) n_total", start, end, 3600)
    assert [len(entry["values"]) for entry in two.data["result"]] == [2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('x{p=~"a|b"} > on(v) x{p="o"}', "left"),
        ('x{p=~"b|c"} > on(v) x{p="o"}', [8.0]),
        ('x{p=~"b|c"} * on(v) x{p="o"}', "left"),
        ('x{p=~"b|c"} > bool on(v) x{p="o"}', "left"),
        ('x{p="o"} * on(v) x{p=~"b|c"}', "right"),
        ('x{p="none"} * on(v) x{p=~"b|c"}', []),
    ],
)
def test_a_comparison_matches_the_values_that_it_keeps(server, query, expected):
    if isinstance(expected, str):
        answer = server.query(query, AT)
        assert (answer.status, f"several series on the {expected} side" in answer.body) == (422, True), answer.body
    else:
        assert [value for _, value in ask(server, query)] == expected


@pytest.mark.parametrize(
    ("backquoted", "quoted"),
    [
        (r"=~`/api/v\d+`", r'=~"/api/v\\d+"'),
        (r"=`C:\logs`", r'="C:\\logs"'),
        ('=`say "x"`', r'="say \"x\""'),
        (r"=~`tab\there`", r'=~"tab\\there"'),
        (r"=~`\w+.\w+`", r'=~"\\w+.\\w+"'),
        ("=~`/api.*\n?`", r'=~"/api.*\n?"'),
    ],
)
def test_a_backslash_in_backquotes_stands_for_itself(server, backquoted, quoted):
    first, second = (ask(server, f"r{{path{matcher}}}") for matcher in (backquoted, quoted))
    assert first == second
    assert len(first) == 1
    assert server.query(r"`\d \n 'x'`", AT).data["result"][1] == r"\d \n 'x'"


GO_TIMES = ("-9223309901257974", "9223309901257974"), ("-292273086-05-16T16:47:06Z", "292277025-08-18T07:12:54.99999Z")


@pytest.mark.parametrize("times", GO_TIMES)
def test_all_of_time_as_gos_client_sends_it(server, times):
    bounds = dict(zip(("start", "end"), times, strict=True))
    assert len(server.ask("series", **{"match[]": "a", **bounds}).data) == 1
    assert server.ask("label/job/values", **bounds).data == ["web"]
    assert "job" in server.ask("labels", **{"match[]": "n_total", **bounds}).data
    assert server.ask("label/job/values", start=bounds["end"]).data == []
    assert server.ask("label/job/values", end=bounds["start"]).data == []


def test_an_empty_parameter_is_not_given(server):
    assert server.ask("query", query="1", time="").status == 200
    empty = {"timeout": "", "lookback_delta": "", "limit": ""}
    assert server.ask("query", query="a", time=AT, **empty).data["result"]
    assert server.ask("series", **{"match[]": "a", "start": "", "end": "", "limit": ""}).data
    assert server.ask("query_range", query="1", start="", end=5, step=1).status == 400
    assert len(server.ask("metadata", metric="").data) > 3


@pytest.mark.long
@pytest.mark.parametrize("query", ["sum_over_time(vector(1)[3000000s:1s])", "max_over_time(vector(1)[9000000s:1s])"])
def test_a_long_subquery_is_answered_or_given_up(query):
    with serving({"v": world({"a": 1.0}, {"x": aggr.last("v")})}, limits=Limits(seconds=20)) as running:
        assert running.query(query, AT).data["result"]
        late = running.query_range(query, AT - 3600, AT, 1, timeout="500ms")
        assert (late.status, json.loads(late.body)["errorType"]) == (503, "timeout")
        assert ask(running, "vector(1)") == [({}, 1)], "no thread is still at what was given up"


@pytest.mark.parametrize(
    ("matcher", "condition"),
    [
        ('="a.b"', "`p` IN ('a.b')"),
        (r'=~"a\\.b|c"', "`p` IN ('a.b', 'c')"),
        ('=~"(a|b)"', "`p` IN ('a', 'b')"),
        ('=~"a.b"', None),
        ('!="a"', None),
        ('="it\'s"', None),
    ],
)
def test_matchers_of_plain_texts_skip_files(matcher, condition):
    (node,) = promql_parser.parse(f"x{{p{matcher}}}").matchers.matchers
    assert Matcher.of(node).condition("p") == condition
