"""Sketches as classic histograms (x_bucket, x_sum and x_count): from this server, and from Prometheus through remote
read.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_itself import prometheus
from tests.serve.prometheus_world import BEGIN, serving, store_of
from tests.serve.servers import free_port
from tiltframe import TiltFrame
from tiltframe.serve.promql.classic_buckets import BucketBounds
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
HOSTS = ("a", "b")
POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)  # edges of the buckets of every exponential histogram
UNEVEN = (0.3, 0.9, 1.9)
ACCURACY = {"dds": 0.01, "hdr": 0.001, "exponential": 0.001}
FRAME = TiltFrame(
    ["10s", "1m", "10m"],
    "ts",
    {
        "n": aggr.count(),
        "dds": aggr.dds("seconds", [0.5], relative_accuracy=0.01),
        "hdr": aggr.hdr("seconds", [0.5], unit=0.001),
        "exponential": aggr.exponential("seconds", [0.5]),
        "whole": aggr.hdr("millis", [0.5]),
        "edges": aggr.histogram("seconds", [0.5, 1, 2, 4]),
        "slow": aggr.dds("seconds", [0.5], where="seconds > 100"),
        "slow_bucket": aggr.max("seconds"),
        "newest": aggr.last("seconds"),
        "greatest_number": aggr.last("seconds", by="number"),
        "top": aggr.max("seconds"),
        "least": aggr.min("seconds"),
    },
    ["host"],
)
AT = BEGIN + 5400


def make_rows(count=6000, hours=2):
    rng = np.random.default_rng(11)
    times = np.sort(rng.integers(BEGIN * 1000, (BEGIN + hours * 3600) * 1000, count))
    seconds = rng.lognormal(0, 1, count)
    seconds[::20] = rng.choice(POWERS, len(seconds[::20]))
    seconds = np.round(seconds, 3)
    return pa.table(
        {
            "ts": times,
            "host": rng.choice(HOSTS, count),
            "seconds": seconds,
            "millis": rng.integers(1, 1000, count),
            "number": rng.permutation(count),
        }
    )


ROWS = make_rows()
TIMES = ROWS["ts"].to_numpy() / 1000
SECONDS = ROWS["seconds"].to_numpy()
HOST = np.array(ROWS["host"].to_pylist())


@pytest.fixture(scope="module")
def server():
    buckets = BucketBounds.read(["0.3,0.9,1.9", "exponential=0.25,0.5,1,2,4", "whole=10,500"])
    with serving({"web": store_of(MemoryBackend(), ROWS, FRAME)}, buckets=buckets) as running:
        yield running


def in_range(seconds, host=None, at=AT):
    """Return which rows are in the range of some seconds before a moment."""
    age = at - TIMES
    chosen = (age > 0) & (age <= seconds)
    return chosen if host is None else chosen & np.isin(HOST, host)


def counts_by_le(answer):
    return {dict(labels)["le"]: next(iter(points.values())) for labels, points in answer.by_labels().items()}


def quantile_of_buckets(q, counts):
    """Interpolate in cumulative counts by their bounds, as Prometheus documents histogram_quantile."""
    bounds = list(counts)
    rank = q * counts[math.inf]
    place = next(i for i, bound in enumerate(bounds) if counts[bound] >= rank)
    if bounds[place] == math.inf:
        return bounds[place - 1]
    low, before = (bounds[place - 1], counts[bounds[place - 1]]) if place else (0.0, 0)
    return low + (bounds[place] - low) * (rank - before) / (counts[bounds[place]] - before)


def counts_at(bounds, values, *, below=False):
    """Count values up to bounds; with ``below``, values equal to a bound are not counted."""
    counted = {bound: int(((values < bound) if below else (values <= bound)).sum()) for bound in bounds}
    return {**counted, math.inf: len(values)}


@pytest.mark.parametrize("measure", ACCURACY)
def test_buckets_count_rows_up_to_bounds_within_the_accuracy(server, measure):
    bounds = POWERS if measure == "exponential" else UNEVEN
    counted = counts_by_le(server.query(f"sum by (le) (increase({measure}_bucket[20m]))", AT))
    values = SECONDS[in_range(1200)]
    assert list(map(float, sorted(counted, key=float))) == [*bounds, math.inf]
    width = 2.1 * ACCURACY[measure]
    for text, count in counted.items():
        low, high = ((values <= float(text) * (1 + shift)).sum() for shift in (-width, width))
        assert low <= count <= high, text
    if measure == "exponential":
        assert counted == {f"{bound:g}".replace("inf", "+Inf"): n for bound, n in counts_at(bounds, values).items()}
    total = server.query(f"sum(increase({measure}_sum[20m]))", AT).by_labels()[frozenset()][AT]
    assert total == pytest.approx(values.sum(), rel=1e-12 if measure != "hdr" else ACCURACY[measure])


def test_whole_numbers_and_edges_are_counted_exactly(server):
    by_le = counts_by_le(server.query("sum by (le) (increase(whole_bucket[20m]))", AT))
    millis = ROWS["millis"].to_numpy()[in_range(1200)]
    assert by_le == {"10": (millis <= 10).sum(), "500": (millis <= 500).sum(), "+Inf": len(millis)}
    edges = counts_by_le(server.query('increase(edges_bucket{host="a"}[20m])', AT))
    values = SECONDS[in_range(1200, "a")]
    assert {float(le): n for le, n in edges.items()} == counts_at((0.5, 1, 2, 4), values, below=True)
    count = server.query('increase(edges_count{host="a"}[20m])', AT)
    assert list(count.by_labels().values()) == [{AT: len(values)}]


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ('le="1.7"', {"1.7": 1.7}),
        ('le="1.0"', {"1.0": 1.0}),
        ('le=~"0.3|1.7"', {"0.3": 0.3, "1.7": 1.7}),
        ('le!="+Inf"', dict(zip(("0.3", "0.9", "1.9"), UNEVEN, strict=True))),
        ('le="+Inf"', {"+Inf": math.inf}),
        ('le=""', {}),
        ('le="many"', {}),
    ],
)
def test_matchers_select_bounds_and_ask_for_others(server, matcher, expected):
    counted = counts_by_le(server.query(f"sum by (le) (increase(hdr_bucket{{{matcher}}}[20m]))", AT))
    values = SECONDS[in_range(1200)]
    assert counted == {text: (values <= bound).sum() for text, bound in expected.items()}
    listed = server.ask("series", **{"match[]": f'hdr_bucket{{host="a",{matcher}}}'}).data
    assert [labels["le"] for labels in listed] == list(expected)


def test_a_bound_that_is_not_an_edge_of_histogram_is_absent(server):
    assert server.query('edges_bucket{le="0.7"}', AT).data["result"] == []
    assert len(server.query('edges_bucket{le="1.0"}', AT).data["result"]) == 2


def test_quantiles_of_buckets_are_those_of_the_sketch(server):
    values = np.sort(SECONDS[in_range(1200)])
    for expression in ("sum by (le) (rate(dds_bucket[20m]))", "sum(rate(dds_bucket[20m])) by (le)"):
        answer = server.query(f"histogram_quantile(0.9, {expression})", AT).by_labels()[frozenset()][AT]
        assert answer == pytest.approx(values[int(0.9 * (len(values) - 1))], rel=0.01)
    for refused in (
        "histogram_quantile(0.9, sum by (le) (rate(edges_bucket[20m])))",
        'histogram_quantile(0.9, rate(dds_bucket{le="0.3"}[20m]))',
        "irate(dds_bucket[20m])",
    ):
        answer = server.query(refused, AT)
        assert (answer.status, "through remote read" in answer.body) == (422, True), refused


def test_names_labels_and_rows_without_values(server):
    assert server.query("slow_bucket", AT).by_labels().keys() == {
        frozenset({"__name__": "slow_bucket", "store": "web", "host": host}.items()) for host in HOSTS
    }, "a measure of this name replaces the buckets"
    assert server.query("increase(slow_count[20m])", AT).data["result"] == [], "no row is that slow"
    for metric in ("edges_count", "edges_bucket", "hdr_sum", "hdr_bucket"):
        assert server.query(f'increase({metric}{{host="none"}}[20m])', AT).data["result"] == []
    assert server.ask("label/le/values", **{"match[]": "dds_bucket"}).data == ["0.3", "0.9", "1.9", "+Inf"]
    assert server.query("count(dds_bucket)", AT).by_labels() == {frozenset(): {AT: 8}}
    below = server.query('sum(rate(dds_bucket{le="1.9"}[20m])) / sum(rate(dds_count[20m]))', AT)
    share = (SECONDS[in_range(1200)] <= 1.9).mean()
    assert below.by_labels()[frozenset()][AT] == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["1,x"], "ascending numbers"),
        (["2,1"], "ascending numbers"),
        (["1,1"], "ascending numbers"),
        (["1,inf"], "ascending numbers"),
        ([""], "ascending numbers"),
        (["1", "2"], "twice for all measures"),
        (["a=1", "a=2"], "twice for a"),
    ],
)
def test_bad_bounds_are_refused(texts, word):
    with pytest.raises(ValueError, match=word):
        BucketBounds.read(texts)


def test_bounds_of_a_measure_that_no_store_has_are_refused():
    with (
        pytest.raises(ValueError, match="no store has the measure 'ddss' of --buckets; did you mean 'dds'"),
        serving({"web": store_of(MemoryBackend(), ROWS, FRAME)}, buckets=BucketBounds.read(["ddss=1"])),
    ):
        pass


def answers_of(url, query, **times):
    """Ask Prometheus at one moment, or over moments: the value at each moment, by labels without the store's."""
    path = "query_range" if "step" in times else "query"
    with urlopen(f"{url}/api/v1/{path}?" + urlencode({"query": query, **times})) as answer:
        result = json.load(answer)["data"]["result"]
    values = {}
    for series in result:
        labels = frozenset((name, text) for name, text in series["metric"].items() if name not in ("store", "__name__"))
        values[labels] = {at: float(value) for at, value in series.get("values") or [series["value"]]}
    return values


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus is installed")
def test_prometheus_itself_computes_from_remote_read(server, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text()
    config = page.split("```yaml\n")[1].split("```")[0].replace("http://127.0.0.1:9464", server.url)
    with prometheus(tmp_path, free_port(), config) as url:

        def by_host(query):
            return {dict(labels)["host"]: v[AT] for labels, v in answers_of(url, query, time=AT).items()}

        def of_host(reading, seconds, values=SECONDS):
            return {host: reading(values[in_range(seconds, host)]) for host in HOSTS}

        # buckets of both hosts, at each step of a range: rows up to the edge of a bucket, exactly
        steps = {"start": AT - 3600, "end": AT, "step": 600}
        rates = answers_of(url, "sum by (le) (rate(exponential_bucket[10m]))", **steps)
        quantiles = answers_of(url, "histogram_quantile(0.9, sum by (le) (rate(exponential_bucket[10m])))", **steps)
        edge_quantiles = answers_of(url, "histogram_quantile(0.7, sum by (le) (rate(edges_bucket[10m])))", **steps)
        for moment in range(AT - 3600, AT + 1, 600):
            values = SECONDS[in_range(600, at=moment)]
            counts = counts_at(POWERS, values)
            for labels, points in rates.items():
                assert points[moment] == pytest.approx(counts[float(dict(labels)["le"])] / 600)
            assert quantiles[frozenset()][moment] == pytest.approx(quantile_of_buckets(0.9, counts))
            counts = counts_at((0.5, 1.0, 2.0, 4.0), values, below=True)
            assert edge_quantiles[frozenset()][moment] == pytest.approx(quantile_of_buckets(0.7, counts))
        assert len(rates) == len(POWERS) + 1

        # one bound that the list does not have, sums and counts
        up_to = of_host(lambda values: (values <= 1.7).sum() / 600, 600)
        assert by_host('rate(hdr_bucket{le="1.7"}[10m])') == pytest.approx(up_to)
        assert by_host("increase(dds_sum[10m])") == pytest.approx(of_host(np.sum, 600))
        assert by_host("increase(hdr_sum[10m])") == pytest.approx(of_host(np.sum, 600), rel=0.001)
        assert by_host("increase(edges_count[10m])") == pytest.approx(of_host(len, 600))
        assert by_host("increase(n_total[10m])") == pytest.approx(of_host(len, 600))

        # what only Prometheus computes: from the finest windows
        assert by_host("irate(n_total[10m])") == pytest.approx(of_host(lambda values: len(values) / 10, 10))
        last_ten = of_host(lambda values: (values <= 2).sum() / 10, 10)
        assert by_host('irate(exponential_bucket{le="2"}[10m])') == pytest.approx(last_ten)
        # up to Prometheus 2, the window that ends at the start of the range is in it
        assert by_host("max_over_time(top[10m])") == of_host(np.max, 610)
        assert by_host("min_over_time(least[10m])") == of_host(np.min, 610)
        assert by_host("count_over_time(n_total[10m])") == dict.fromkeys(HOSTS, 61)

        # the last value is at the time of its event, unless it is the last by another column
        assert by_host("newest") == of_host(lambda values: values[-1], AT - BEGIN)
        last_times = of_host(lambda times: times[-1], AT - BEGIN, TIMES)
        assert by_host("timestamp(newest)") == pytest.approx(last_times, abs=1e-3)
        assert by_host("timestamp(greatest_number)") == dict.fromkeys(HOSTS, AT)
