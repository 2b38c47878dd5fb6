"""Classic histograms in the text format of Prometheus, compared with those of prometheus_client; texts that are
rejected.
"""

from __future__ import annotations

import math
import os
import re

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

import aggr
from aggr import Groups
from aggr.interchange.prometheus_text import classic_buckets

TRIALS = int(os.environ.get("TRIALS", "20"))


def reduced(function: aggr.Function, table: pa.Table) -> pa.StructArray:
    table = table.combine_chunks()
    return function.reduce(table["value"].chunk(0), Groups.single(table.num_rows), table["weight"].chunk(0))


@pytest.mark.parametrize("accuracy", [0.05, 0.001])
def test_quantiles_are_within_the_error_of_their_buckets(accuracy):
    rng, quantiles = np.random.default_rng(1), (0.0, 0.01, 0.3, 0.5, 0.9, 0.99, 1.0)
    for _ in range(TRIALS):
        registry, bounds = CollectorRegistry(), np.unique(rng.lognormal(0, 2, int(rng.integers(1, 12))))
        histogram = Histogram("latency", "Seconds.", ["host"], registry=registry, buckets=bounds.tolist())
        values = {host: np.sort(rng.lognormal(0, 2, int(rng.integers(1, 300)))) for host in ('a"\\\n', "b")}
        for host, observations in values.items():
            for value in observations:
                histogram.labels(host).observe(value)
        rows = classic_buckets(generate_latest(registry).decode(), "latency")
        for host, observations in values.items():
            rows_of_host = rows.filter(
                pa.array([dict(labels)["host"] == host for labels in rows["labels"].to_pylist()])
            )
            low, high, value, error, weight = (rows_of_host[name].to_numpy() for name in rows_of_host.column_names[1:])
            edges = np.append(0.0, np.append(bounds, math.inf))
            counted = np.histogram(-observations, -edges[::-1])[0][::-1]  # of buckets that hold their upper ends
            assert dict(zip(high, weight, strict=True)) == {
                edge: count for edge, count in zip(edges[1:].tolist(), counted.tolist(), strict=True) if count
            }
            results = (
                aggr.Dds(quantiles, accuracy).finish(reduced(aggr.Dds(quantiles, accuracy), rows_of_host))[0].as_py()
            )
            for q, estimate in zip(quantiles, results["quantiles"].values(), strict=True):
                true = observations[math.floor(q * (len(observations) - 1))]
                at = np.flatnonzero((low < true) & (true <= high))[0]
                assert abs(value[at] - true) <= error[at]
                assert abs(estimate - true) <= error[at] + accuracy * abs(value[at]) * (1 + 1e-9)


def text(*lines: str) -> str:
    return "\n".join(["# HELP up Whether.", "# TYPE up gauge", "up 1", "# TYPE x histogram", *lines, ""])


def test_buckets_without_ends_have_the_end_that_they_have():
    table = classic_buckets(
        text(
            'x_bucket{le="-1"} 2',
            'x_bucket{le="0"} 5',
            'x_bucket{le="2"} 5.0',
            'x_bucket{le="+Inf"} 6 1700000000000',
            "x_sum 9",
        ),
        "x",
    )
    assert table.drop_columns("labels").to_pylist() == [
        {"low": -math.inf, "high": -1.0, "value": -1.0, "error": math.inf, "weight": 2},
        {"low": -1.0, "high": 0.0, "value": -0.5, "error": 0.5, "weight": 3},
        {"low": 2.0, "high": math.inf, "value": 2.0, "error": math.inf, "weight": 1},
    ]
    assert classic_buckets(text('x_bucket{le="+Inf"} 0'), "x").num_rows == 0
    assert classic_buckets(text(), "x").schema.equals(table.schema)


def counted(*counts: int, host: str = "a", les: tuple[str, ...] = ("1", "2", "+Inf")) -> list[str]:
    return [f'x_bucket{{host="{host}",le="{le}"}} {n}' for le, n in zip(les, counts, strict=True)]


@pytest.mark.parametrize(
    ("before", "after", "weights"),
    [
        (counted(3, 5, 9), counted(3, 7, 12), {2.0: 2, math.inf: 1}),
        (counted(3, 5, 9), counted(3, 5, 9), {}),
        (counted(3, 5, 9), counted(4, 5, 10), {1.0: 4, 2.0: 1, math.inf: 5}),  # fewer up to 2: it began again
        (counted(3, 5, 9), counted(4, 10, les=("1", "+Inf")), {1.0: 4, math.inf: 6}),
        (counted(3, 5, 9, host="b"), counted(3, 5, 9), {1.0: 3, 2.0: 2, math.inf: 4}),
    ],
)
def test_what_came_after_an_earlier_scrape(before, after, weights):
    table = classic_buckets(text(*after), "x", since=text(*before))
    assert dict(zip(table["high"].to_pylist(), table["weight"].to_pylist(), strict=True)) == weights


INF = 'x_bucket{le="+Inf"} 1'
BAD = {
    "x{} has the count 1 at le=2.0, after the count 3; counts must be whole": (
        'x_bucket{le="1"} 3',
        'x_bucket{le="2"} 1',
        INF,
    ),
    "has the count 0.5 at le=inf, after the count 0;": ('x_bucket{le="+Inf"} 0.5',),
    "has the count nan at le=inf": ('x_bucket{le="+Inf"} NaN',),
    "has the count inf at le=inf": ('x_bucket{le="+Inf"} +Inf',),
    "has the count -1 at le=inf": ('x_bucket{le="+Inf"} -1',),
    "x{host='a'} has no bucket of le=\"+Inf\"": (INF, 'x_bucket{host="a",le="1"} 3'),
    "has a bucket with le='one', which is not a number": ('x_bucket{le="one"} 3', INF),
    "has a bucket with le='nothing'": ("x_bucket 3", INF),
    "has a bucket with le='1.0', which is not a number or occurs twice": (
        'x_bucket{le="1"} 3',
        'x_bucket{le="1.0"} 3',
        INF,
    ),
    "the text is not in Prometheus' text format": ("x_bucket{le=",),
    "is not in Prometheus' text format": ("x_bucket",),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_texts_are_refused_by_their_series(sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        classic_buckets(text(*BAD[sentence]), "x")
    assert len(str(refused.value)) <= 300


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="the text has no histogram called 'up'; histograms in the text: x"):
        classic_buckets(text(INF), "up")
    with pytest.raises(ValueError, match="no histogram called 'x'; histograms in the text: none"):
        classic_buckets("", "x")


def test_damaged_texts_give_rows_or_a_sentence():
    rng, sound = np.random.default_rng(2), text('x_bucket{host="a",le="1"} 3', 'x_bucket{host="a",le="+Inf"} 4')
    for _ in range(50 * TRIALS):
        damaged = list(sound)
        for at in rng.integers(0, len(damaged), 2):
            damaged[at] = chr(rng.choice([*b'{}"\\#=, \n\t1e.-aN', 0, 0xE9]))
        try:
            classic_buckets("".join(damaged), "x")
        except ValueError as refused:
            assert len(str(refused)) <= 300  # noqa: PT017
