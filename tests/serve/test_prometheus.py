"""The Prometheus HTTP API: real clients, Prometheus' own answers, documented differences, and bad requests."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect

import aggr
from tests.bad_inputs import promql as bad
from tests.serve.prometheus_itself import _AT, ANSWERS, answers_of
from tests.serve.prometheus_world import BEGIN, FRAME, LEVELS, serving, store_of
from tiltframe import FrameStore, TiltFrame
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    store = store_of(tmp_path_factory.mktemp("prometheus"))
    with serving({"web": store}) as server:
        yield server, store


def small(times, levels=("1m", "1h"), timezone="UTC", measures=None, **columns):
    """Make a store in memory of one row a time, in seconds."""
    data = pa.table({"ts": [at * 1000 for at in times], **columns})
    measures = measures or {"n": aggr.count()}
    return store_of(MemoryBackend(), data, TiltFrame(levels, "ts", measures, list(columns), timezone))


def test_answers_are_those_of_prometheus(world):
    server, _ = world
    expected = json.loads(ANSWERS.read_text())
    assert len(expected) >= 30
    for query, result in answers_of(server.url).items():
        assert _comparable(result) == _comparable(expected[query]), query


def _comparable(result):
    if result and not isinstance(result[0], dict):
        return pytest.approx(float(result[1]), rel=1e-12, nan_ok=True)
    return {json.dumps(e["metric"], sort_keys=True): pytest.approx(float(e["value"][1]), rel=1e-12) for e in result}


def test_its_client_of_python(world):
    server, store = world
    client = PrometheusConnect(url=server.url)
    assert "requests_total" in client.all_metrics()
    assert client.get_label_names()[:2] == ["__name__", "code"]
    assert client.get_label_values("code") == ["200", "404", "500"]
    total = client.custom_query("sum(increase(requests_total[3h]))", params={"time": BEGIN + 3 * 3600})
    assert float(total[0]["value"][1]) == 6000
    now = client.get_current_metric_value("mean", {"host": "a"}, params={"time": _AT})
    assert {labels["metric"]["code"] for labels in now} <= {"200", "404", "500"}
    import datetime as dt

    start, end = (dt.datetime.fromtimestamp(BEGIN + s, dt.UTC) for s in (3600, 7200))
    (series,) = client.get_metric_range_data(
        "requests_total", {"host": "a", "code": "200"}, start, end, dt.timedelta(hours=1)
    )
    within = store.query("10s", within=(start, end), where="host = 'a' AND code = 200", measures=["requests"])
    assert [(at, float(n)) for at, n in series["values"]] == [
        (row["window_end"].timestamp(), row["requests"]) for row in within.to_pylist()
    ]
    with pytest.raises(PrometheusApiClientException, match="Prometheus computes it through remote read"):
        client.custom_query("rate(mean[5m])")


def test_address_and_form_are_one(world):
    server, _ = world
    words = {"query": "sum by (host) (rate(bytes[5m]))", "time": str(_AT)}
    assert server.ask("query", **words).body == server.ask("query", form=words).body
    assert server.ask("query", form={"query": words["query"]}, time=_AT).body == server.ask("query", **words).body
    span = {"query": words["query"], "start": BEGIN, "end": "2026-03-28T01:00:00Z", "step": "10m"}
    assert server.ask("query_range", form=span).by_labels() == server.ask("query_range", **span).by_labels()


def test_series_labels_and_metadata(world):
    server, store = world
    for metric, matcher, where in (("mean", "", "true"), ("bytes", '{host="a",code=~"4.."}', "host='a' AND code=404")):
        keys = store.query("1h", where=where, measures=["requests"]).select(["host", "code"]).to_pylist()
        expected = {tuple((k, str(v)) for k, v in row.items() if v is not None) for row in keys}
        series = server.ask("series", **{"match[]": metric + matcher}).data
        assert {tuple((k, labels[k]) for k in ("host", "code") if k in labels) for labels in series} == expected
        assert {(labels["__name__"], labels["store"]) for labels in series} == {(metric, "web")}
    first = {"start": BEGIN, "end": BEGIN + 60}
    assert server.ask("series", **{"match[]": "mean", "start": BEGIN - 99999, "end": BEGIN - 7200}).data == []
    hosts = {row["host"] for row in store.query("1h", within="2026-03-28T00:00Z,2026-03-28T01:00Z").to_pylist()}
    assert server.ask("label/host/values", **first).data == sorted(hosts - {None})
    assert server.ask("labels").data == ["__name__", "code", "host", "le", "quantile", "store"]
    assert server.ask("labels", **{"match[]": 'mean{host=""}'}).data == ["__name__", "code", "store"]
    assert server.ask("label/__name__/values", **{"match[]": '{__name__=~"lat.*t"}'}).data == [
        "latency_bucket",
        "latency_count",
    ]
    assert server.ask("label/quantile/values").data == ["0.5", "0.99"]
    assert server.ask("label/nothing/values").data == []
    described = server.ask("metadata").data
    kinds = {name: descriptions[0]["type"] for name, descriptions in described.items()}
    assert kinds | {"requests_total": "counter", "latency": "histogram", "bytes": "gauge"} == kinds
    assert list(server.ask("metadata", metric="bytes").data) == ["bytes"]
    assert len(server.ask("metadata", limit=2).data) == 2
    assert "first" not in described  # a text is no number
    assert server.ask("status/buildinfo").data["version"]
    for path, nothing in (("rules", "groups"), ("alerts", "alerts"), ("targets", "activeTargets")):
        assert server.ask(path).data[nothing] == []
    assert server.ask("query_exemplars", query="mean").data == []


def test_a_range_is_one_merge_and_says_of_which_level():
    store = small([BEGIN + 60 * i for i in range(180)])
    with serving({"s": store}) as server:
        hour = server.query("increase(n_total[1h])", BEGIN + 7200)
        assert hour.warnings == []  # Grafana marks a panel with warnings
        assert hour.infos == ["n_total[1h] is read from windows of 1h"]
        assert server.query("increase(n_total[1h])", BEGIN + 7260).infos == [
            "n_total[1h] is read from windows of 1m"  # as fresh as the finest windows
        ]
        steps = server.query_range("increase(n_total[2h])", BEGIN, BEGIN + 7200, 3600)
        assert steps.infos == ["n_total[2h] is read from windows of 1h"]
        assert list(steps.by_labels().values()) == [{BEGIN + 3600: 60, BEGIN + 7200: 120}]
        fine = server.query_range("n_total", BEGIN, BEGIN + 600, 15)
        assert fine.infos == [
            "n_total is read from windows of 1m",
            "steps of 15s are finer than the finest windows, 1m: values repeat",
        ]
        assert set(next(iter(fine.by_labels().values())).values()) == {1.0}
        alone = server.query("n_total[3m]", BEGIN + 7200 + 30)
        assert [series["values"] for series in alone.data["result"]] == [
            [[BEGIN + 7200 - 60 * back, "1"] for back in (2, 1, 0)]
        ]


def test_the_newest_window_counts_for_five_minutes_or_its_own_length():
    fine, coarse = small([BEGIN]), small([BEGIN], levels=["1h"])
    with serving({"fine": fine, "coarse": coarse}) as server:
        for store, end, seconds in (("fine", 60, 300), ("coarse", 3600, 3600)):
            query = f'n_total{{store="{store}"}}'
            answered = [
                bool(server.query(query, BEGIN + end + after).by_labels()) for after in (-1, 0, seconds - 1, seconds)
            ]
            assert answered == [False, True, True, False]
        query = 'n_total{store="fine"}'
        assert server.query(query, BEGIN + 660, lookback_delta="11m").by_labels()
        assert not server.query(query, BEGIN + 120, lookback_delta="30s").by_labels()  # a window's length, at least


def test_keys_are_labels():
    columns = {"2xx rate": ["a", "", None], "store": [1, 2, 2], "on": [True, False, None]}
    store = small([BEGIN] * 3, **columns)
    with serving({"s": store}) as server:
        series_by_labels = server.query("n_total", BEGIN + 60).by_labels()
        own = {"__name__": "n_total", "store": "s"}
        assert series_by_labels == {
            frozenset({**own, "_2xx_rate": "a", "exported_store": "1", "on": "true"}.items()): {BEGIN + 60: 1},
            frozenset({**own, "exported_store": "2", "on": "false"}.items()): {BEGIN + 60: 1},
            frozenset({**own, "exported_store": "2"}.items()): {BEGIN + 60: 1},
        }
        without = server.query("sum by (_2xx_rate) (increase(n_total[1m]))", BEGIN + 60).by_labels()
        assert without == {frozenset(): {BEGIN + 60: 2}, frozenset({("_2xx_rate", "a")}): {BEGIN + 60: 1}}


def test_a_label_may_have_the_name_of_a_measure():
    frame = TiltFrame(["1m"], "ts", {"a_b": aggr.max("v")}, ["a.b"])
    rows_of_a_key = pa.table({"ts": [BEGIN * 1000], "a.b": ["x"], "v": [2.0]})
    with serving({"s": store_of(MemoryBackend(), rows_of_a_key, frame)}) as server:
        series_by_labels = server.query("max by (a_b) (max_over_time(a_b[1m]))", BEGIN + 60).by_labels()
        assert series_by_labels == {frozenset({("a_b", "x")}): {BEGIN + 60: 2}}


def test_clashes_are_refused_at_the_start():
    for measures, keys, word in (
        ({"a b": aggr.count("x"), "a_b_total": aggr.count()}, [], "'a b' and 'a_b_total'"),
        ({"n": aggr.count()}, {"k 1": "x", "k_1": "x"}, "'k 1' and 'k_1'"),
        ({"x": aggr.dds("x"), "x_count": aggr.max("x")}, [], "x_count"),
    ):
        frame = TiltFrame(["1m"], "ts", measures, keys)
        store = FrameStore(MemoryBackend(), frame)
        store.append_rows(pa.table({"ts": [0], "x": [1.0]}), "test", 1)
        with (
            pytest.raises(ValueError, match=f"of the store 's' would both be called .*|{word}") as error,
            serving({"s": store}),
        ):
            pass
        assert word in str(error.value)


def test_a_metric_of_two_stores_is_read_of_one():
    stores = {name: small([BEGIN], host=[name]) for name in ("east", "west")}
    with serving(stores) as server:
        assert server.ask("label/store/values").data == ["east", "west"]
        several = server.query("n_total", BEGIN + 60)
        assert several.status == 422
        assert 'name one of them, as in n_total{store="east"}' in json.loads(several.body)["error"]
        assert len(server.query('n_total{store=~"e.*"}', BEGIN + 60).by_labels()) == 1
        both = 'sum(n_total{store="east"}) + sum(n_total{store="west"})'
        assert server.query(both, BEGIN + 60).by_labels() == {frozenset(): {BEGIN + 60: 2.0}}
        assert len(server.ask("series", **{"match[]": "n_total"}).data) == 2


def test_what_is_unknown_or_expired_is_said():
    store = small([BEGIN, BEGIN + 90000])
    store.evolve(
        TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "most": aggr.max("x")}),
        pa.schema([("ts", pa.int64()), ("x", pa.float64())]),
    )
    store.append_rows(pa.table({"ts": [(BEGIN + 90100) * 1000], "x": [5.0]}), "test", 2)
    with serving({"s": store}) as server:
        assert server.query("max_over_time(most[1m])", BEGIN + 90120).by_labels()
        for span, end in (("2m", 90120), ("1h", 93600)):  # some of it is not known
            assert not server.query(f"max_over_time(most[{span}])", BEGIN + end).by_labels()
        assert server.query("increase(n_total[1h])", BEGIN + 93600).by_labels() == {
            frozenset({("store", "s")}): {BEGIN + 93600: 2}
        }
        missing = server.query("mosst", BEGIN)
        assert missing.data["result"] == []
        assert missing.infos == ["there is no metric mosst; did you mean 'most'?"]


def test_days_of_a_zone_make_no_range_where_its_clock_changes():
    begin = 1_774_566_000 - 86400  # 2026-03-26 in Berlin; on the 29th its day has 23 hours
    store = small([begin + 86400 * i for i in range(7)], ["1d"], "Europe/Berlin")
    with serving({"s": store}) as server:
        before = server.query("increase(n_total[2d])", begin + 2 * 86400)
        assert list(before.by_labels().values()) == [{begin + 2 * 86400: 2}]
        after = server.query("increase(n_total[2d])", begin + 5 * 86400 - 3600)
        assert (after.status, "the clock of Europe/Berlin changes" in after.body) == (422, True)
        short = server.query("increase(n_total[1d])", begin + 4 * 86400 + 3600)  # two hours after the day of 23 hours
        assert (short.status, "the clock of Europe/Berlin changes" in short.body) == (422, True)
        assert server.query("n_total", begin + 5 * 86400).by_labels()


def test_numbers_beyond_doubles_and_special_ones():
    columns = {"k": ["a", "a", "b", "c"], "x": [2**53, 1, -5, 0], "y": [math.inf, 1.0, math.nan, -math.inf]}
    columns["d"], columns["b"] = [Decimal("0.10"), Decimal("0.20"), None, Decimal("-1.5")], [True, False, True, None]
    measures = {"sum": aggr.sum("x"), "max": aggr.max("y"), "q": aggr.dds("y", [0.5])}
    measures |= {"paid": aggr.sum("d"), "all": aggr.bool_and("b")}
    frame = TiltFrame(["1m"], "ts", measures, ["k"])
    store = store_of(MemoryBackend(), pa.table({"ts": [BEGIN * 1000] * 4, **columns}), frame)
    with serving({"s": store}) as server:

        def texts(query):
            result = server.query(query, BEGIN + 60).data["result"]
            return {series["metric"].get("k"): series["value"][1] for series in result}

        assert texts("sum") == {"a": "9007199254740992", "b": "-5", "c": "0"}
        assert texts("paid") == {"a": "0.3", "c": "-1.5"}
        assert texts("all") == {"a": "0", "b": "1"}
        assert texts("max") == {"a": "+Inf", "b": "NaN", "c": "-Inf"}
        assert texts("max_over_time(max[1m])") == texts("max")
        assert texts("histogram_quantile(-1, q)") == dict.fromkeys("ac", "-Inf")  # NaN alone has no quantiles
        assert texts("sum / 0") == {"a": "+Inf", "b": "-Inf", "c": "NaN"}
        assert texts("sum * 1e30")["b"] == "-5e+30"  # as in Prometheus
        assert texts("max(max)") == {None: "NaN"}  # a merge of states, in which NaN is the greatest
        assert texts("max(max * 1)") == {None: "+Inf"}  # of values, as Prometheus has it
        assert texts("topk(1, max)") == {"a": "+Inf"}


@pytest.mark.parametrize(("path", "params", "status", "word"), bad.REQUESTS)
def test_bad_requests(world, path, params, status, word):
    _check_failure(world[0].ask(path, **params), status, word)


@pytest.mark.parametrize("query", bad.NONSENSE, ids=range(len(bad.NONSENSE)))
def test_nonsense(world, query):
    _check_failure(world[0].query(query, _AT), 400, "")


@pytest.mark.parametrize("query", bad.UNANSWERED)
def test_what_is_no_merge_is_named(world, query):
    word = bad.UNANSWERED[query]
    _check_failure(world[0].query(query, _AT), 422 if word else None, word)


def _check_failure(answer, status, word):
    """Check that a request is refused in Prometheus' form, by one sentence."""
    kinds = {400: "bad_data", 422: "execution", 503: "timeout"}
    assert answer.status in kinds, answer
    assert status in (None, answer.status), answer
    problem = json.loads(answer.body)
    assert problem.keys() == {"status", "errorType", "error"}
    assert (problem["status"], problem["errorType"]) == ("error", kinds[answer.status])
    assert word in problem["error"]
    assert 0 < len(problem["error"]) <= 300, problem["error"]
    assert "\n" not in problem["error"]
    assert "Traceback" not in problem["error"]


def test_bodies_methods_and_paths(world):
    server, _ = world
    _check_failure(server.ask("query", form=b"query=" + b"1" * (1 << 21)), 400, "more than 1,048,576 bytes")
    _check_failure(server.ask("query", form=b"query=\xff"), 400, "cannot read the parameters")
    _check_failure(server.ask("query", form=b"&".join([b"a=1"] * 2000)), 400, "cannot read the parameters")
    _check_failure(
        server.ask("query", form=b'{"query": "1"}', headers={"Content-Type": "application/json"}), 400, "query"
    )
    for method in ("PUT", "DELETE", "PATCH"):
        assert server.ask("query", method=method, query="1").status == 405
    assert server.ask("label/host/values", form={}).status == 405
    for path in ("label/..%2f..%2fetc/values", "queries", "label/values", "../../etc/passwd"):
        answer = server.ask(path)
        assert answer.status == 404 or answer.data == [], path
    assert server.ask("label/%00/values").data == []


def test_every_level_is_named(world):
    """A range query of each level's length reads that level."""
    server, _ = world
    for name, seconds in LEVELS.items():
        answer = server.query_range("sum(bytes)", BEGIN, BEGIN + 10800, seconds)
        assert answer.infos == [f"bytes is read from windows of {name}"]
    assert FRAME.levels[0].name == "10s"


def test_steps_are_answered_as_moments_are(world):
    server, _ = world
    query = "max_over_time(sum(increase(requests_total[1m]))[150s:1m]) / count_over_time(sum(mean)[150s:1m])"
    (steps,) = server.query_range(query, BEGIN + 5400, BEGIN + 5520, 15).by_labels().values()
    assert len(steps) == 9
    for at, value in steps.items():
        assert list(server.query(query, at).by_labels().values()) == [{at: value}]


def test_a_range_has_at_most_11000_steps(world):
    server, _ = world
    for length, points in ((10_999, 11_000), (11_000, 11_001), (11_000.9, 11_001)):
        (values,) = server.query_range("vector(1)", BEGIN, BEGIN + length, 1).by_labels().values()
        assert len(values) == points
    assert server.query_range("vector(1)", BEGIN, BEGIN + 11_001, 1).status == 400


def test_an_offset_that_the_step_does_not_divide_is_exact(world):
    server, _ = world
    query = "sum(increase(requests_total[1h] offset 10m))"
    (steps,) = server.query_range(query, BEGIN + 7200, BEGIN + 10800, 3600).by_labels().values()
    assert steps == {at: value for at in steps for value in server.query(query, at).by_labels()[frozenset()].values()}
    assert len(set(steps.values())) == 2


def test_a_label_that_no_key_has_is_absent(world):
    server, _ = world
    every = server.query("mean", _AT).by_labels()
    for matchers, expected in (
        ('nothing=""', every),
        ('nothing!="x"', every),
        ('nothing="x"', {}),
        ('nothing=~".+"', {}),
    ):
        assert server.query(f"mean{{{matchers}}}", _AT).by_labels() == expected


def test_only_what_is_selected_or_compared_keeps_its_name(world):
    server, _ = world
    keeps_name = {"mean", "mean > 0", "0 < mean", "mean >= ignoring (other) mean", "topk(1, mean)", "(mean)"}
    dropped = {
        "mean * 1",
        "1 + mean",
        "-mean",
        "mean > bool 0",
        "mean + mean",
        "mean == on (host, code) mean",
        "avg(mean)",
    }
    for query in (
        keeps_name | dropped | {"avg_over_time(mean[1m])", "avg_over_time(mean[5m:1m])", "histogram_count(latency)"}
    ):
        series = server.query(query, _AT).by_labels()
        assert series
        assert {"__name__" in dict(labels) for labels in series} == {query in keeps_name}, query


def test_histograms_are_native():
    """Each bucket counts the values that lie in it, counted naively; the whole is the sum of its buckets."""
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [rng.lognormal(0, 2, 300), -rng.lognormal(0, 2, 200), [0.0] * 7, [math.inf, -math.inf, math.nan]]
    )
    measures = {"x": aggr.dds("x", [0.5]), "y": aggr.hdr("y", [0.5], digits=1), "z": aggr.hdr("z", [0.5], unit=0.5)}
    measures |= {"e": aggr.exponential("x", [0.5]), "f": aggr.exponential("x", [0.5], max_buckets=9)}
    magnitudes = np.abs(np.nan_to_num(x, posinf=5, neginf=5)).astype(int)
    rows = pa.table({"ts": [BEGIN * 1000] * len(x), "x": x, "y": magnitudes, "z": magnitudes / 2})
    store = store_of(MemoryBackend(), rows, TiltFrame(["1m", "1h"], "ts", measures))
    with serving({"s": store}) as server:
        for name, values in (("x", x), ("y", magnitudes), ("z", magnitudes / 2), ("e", x), ("f", x)):
            (series,) = server.query(name, BEGIN + 60).data["result"]
            at, histogram = series["histogram"]
            assert (at, series["metric"]["__name__"]) == (BEGIN + 60, name)
            assert float(histogram["count"]) == np.count_nonzero(~np.isnan(values))
            edges = []
            for rule, *texts in histogram["buckets"]:
                low, high, count = map(float, texts)
                open_left, open_right = rule in (0, 2), rule in (1, 2)
                inside = (values > low if open_left else values >= low) & (
                    values < high if open_right else values <= high
                )
                assert inside.sum() == count > 0, (name, rule, texts)
                edges += [low, high]
            assert edges == sorted(edges)
            assert sum(float(bucket[3]) for bucket in histogram["buckets"]) == float(histogram["count"])
        (rate,) = server.query_range("rate(y[1m])", BEGIN, BEGIN + 120, 60).data["result"]
        ((at, first),) = rate["histograms"]
        assert (at, float(first["count"])) == (BEGIN + 60, len(x) / 60)
        assert first["sum"] == "NaN"  # hdr keeps none
        assert sum(float(bucket[3]) for bucket in first["buckets"]) == pytest.approx(len(x) / 60)
        (alone,) = server.query("x[1m]", BEGIN + 60).data["result"]
        assert alone["histograms"][0][1] == server.query("x", BEGIN + 60).data["result"][0]["histogram"][1]


@pytest.mark.long
def test_tiltframe_serve_has_it(server_and_stores):
    server, stores = server_and_stores
    answer = server.ask(
        "/api/v1/query?" + urlencode({"query": 'sum(increase(n_total{store="web"}[1h]))', "time": 1714561200})
    )
    (row,) = stores["web"].query("1h", within="2024-05-01T10:00Z,2024-05-01T11:00Z", keys=[]).to_pylist()
    assert (answer.status, answer.json()["data"]["result"][0]["value"]) == (200, [1714561200, str(row["n"])])
    assert server.ask("/api/v1/query?query=n_total").json()["errorType"] == "execution"  # of which store?


def test_the_dashboard_and_the_alerts_are_answered():
    """What the page gives to Grafana asks only what is answered."""
    folder = Path(__file__).parents[2] / "examples" / "grafana"
    panels = json.loads((folder / "dashboard.json").read_text())["panels"]
    queries = [target["expr"].replace("$host", "a|b") for panel in panels for target in panel["targets"]]
    queries += re.findall(r"^ +expr: (.*)$", (folder / "alerts.yaml").read_text(), re.M)
    measures = {"requests": aggr.count(), "errors": aggr.count(where="status >= 500"), "latency": aggr.dds("ms")}
    columns = {"host": ["a", "b"] * 3600, "status": [500, 500, 200] * 2400, "ms": [900.0] * 7200}
    rows = pa.table({"ts": [(BEGIN + i) * 1000 for i in range(7200)], **columns})
    store = store_of(MemoryBackend(), rows, TiltFrame(["10s", "1m", "10m", "1h"], "ts", measures, ["host"]))
    with serving({"web": store}) as server:
        for query in queries:
            assert server.query_range(query, BEGIN + 3600, BEGIN + 7200, 60).by_labels(), query
    assert len(queries) == 5


def drawn(rng, depth=3):
    """Draw an expression: of parts that are answered, and of some that are not."""
    metric = rng.choice(["mean", "bytes", "requests_total", "latency", "rounded", "spread", "nothing", "latency_sum"])
    metric += rng.choice(["", "", '{host="a"}', '{code=~"4..|200"}', '{quantile="0.5"}', '{host!=""}'])
    span, q = rng.choice(["30s", "1m", "10m", "1h", "7s"]), rng.choice(["0.5", "2", "-1", "NaN", "mean"])
    if depth == 0:
        return rng.choice([metric, metric, f"{metric} offset {span}", "1", "-0.5", f"{metric}[{span}]", '"text"'])
    inner, other = drawn(rng, depth - 1), drawn(rng, depth - 1)
    over = rng.choice(
        ["rate", "increase", *(f"{part}_over_time" for part in ("sum", "min", "max", "avg", "count", "last"))]
    )
    grouping = rng.choice(["", " by (host)", " without (code)", " by ()"])
    operator = rng.choice(["+", "/", "^", "%", "> bool", "==", "<= on (host)", "* ignoring (code)", "and"])
    return rng.choice(
        [
            f"{over}({metric}[{span}])",
            f"{over}({inner}[{span}:{rng.choice(['10s', '1m', '7s'])}])",
            f"quantile_over_time({q}, {metric}[{span}])",
            f"histogram_{rng.choice(['count', 'sum', 'avg'])}({inner})",
            f"histogram_quantile({q}, {inner})",
            f"{rng.choice(['sum', 'min', 'max', 'avg', 'count', 'stddev'])}{grouping} ({inner})",
            f"{rng.choice(['topk', 'bottomk', 'quantile'])}{grouping} ({q}, {inner})",
            f"{inner} {operator} {other}",
            f"-({inner})",
        ]
    )


@pytest.mark.long
def test_drawn_queries_are_answered_or_refused(world):
    """Whatever is asked: an answer, at one moment and over steps, or a sentence in Prometheus' form."""
    server, _ = world
    rng, statuses = random.Random(int(os.environ.get("TILTFRAME_SEED", 5))), Counter()
    for _ in range(int(os.environ.get("TRIALS", 150))):
        query = drawn(rng, rng.randrange(4))
        for answer in (server.query(query, _AT), server.query_range(query, _AT - 600, _AT, 300)):
            statuses[answer.status] += 1
            if answer.status != 200:
                _check_failure(answer, None, "")
    assert min(statuses[200], statuses[400], statuses[422]) > statuses.total() / 20, statuses
