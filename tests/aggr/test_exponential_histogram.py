"""exponential: keys compared with integer arithmetic, scale and buckets with OpenTelemetry's SDK, quantiles with sorted
values.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation

import aggr
from aggr import Groups
from aggr.contrib.exponential_mapping import COARSEST, FINEST, accuracy_of, finest_keys, values_of
from aggr.histograms.column import Histograms

TRIALS = int(os.environ.get("TRIALS", "30"))


def state_of(function: aggr.Function, values: np.ndarray) -> pa.StructArray:
    return function.reduce(pa.array(values), Groups.single(len(values)))


def buckets_of(states: pa.StructArray, sign: str) -> dict[int, int]:
    histogram = Histograms.from_arrow(states.field(sign))
    return dict(zip(histogram.keys.tolist(), histogram.counts.tolist(), strict=True))


def key_by_integers(value: float, scale: int) -> int:
    """Find k with ``2^k < value^(2^scale) <= 2^(k + 1)``, by whole numbers."""
    numerator, denominator = value.as_integer_ratio()
    top, bottom = (numerator ** (1 << scale), denominator ** (1 << scale)) if scale >= 0 else (numerator, denominator)
    k = top.bit_length() - bottom.bit_length()
    above = top > (bottom << k) if k >= 0 else (top << -k) > bottom  # is the power above 2^k
    k = k if above else k - 1
    return k if scale >= 0 else k >> -scale


def ugly_sizes(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw magnitudes: any exponent, powers of two and doubles next to the edges of buckets, with their neighbours."""
    anywhere = np.ldexp(rng.uniform(1, 2, n), rng.integers(-1074, 1023, n))
    powers = np.ldexp(1.0, rng.integers(-1074, 1023, n))
    scale = rng.integers(0, FINEST + 1, n)
    edges = np.ldexp(2.0 ** (rng.integers(0, 1 << 20, n) % (1 << scale) / (1 << scale)), rng.integers(-1022, 1023, n))
    sizes = np.concatenate([anywhere, powers, edges])
    beside = np.concatenate([sizes, np.nextafter(sizes, np.inf), np.nextafter(sizes, 0.0)])
    return np.append(
        beside[(beside > 0) & np.isfinite(beside)], [5e-324, 1.7976931348623157e308, 2.2250738585072014e-308]
    )


@pytest.mark.parametrize("scale", [*range(COARSEST, 9), 11])
def test_keys_are_those_of_whole_numbers(scale):
    sizes = ugly_sizes(np.random.default_rng(scale + 20), TRIALS if scale < 11 else 3)
    keys = finest_keys(sizes) >> (FINEST - scale)
    assert keys.tolist() == [key_by_integers(size, scale) for size in sizes.tolist()]


def test_keys_of_the_finest_scale_are_those_of_eighty_digits():
    rng = np.random.default_rng(3)
    steps = rng.integers(0, 1 << FINEST, 20 * TRIALS).tolist()
    with localcontext() as context:
        context.prec = 80
        edges = [Decimal(2) ** (Decimal(step) / (1 << FINEST)) for step in steps]
        doubles = [(float(edge), math.nextafter(float(edge), 3.0), math.nextafter(float(edge), 0.0)) for edge in edges]
        expected = [
            [step if Decimal(x) > edge else step - 1 for x in row]
            for step, edge, row in zip(steps, edges, doubles, strict=True)
        ]
    assert finest_keys(np.array(doubles).ravel()).reshape(-1, 3).tolist() == expected


def test_bounds_of_values_are_within_the_accuracy_of_the_scale():
    for scale in range(COARSEST, FINEST + 1):
        top = int(1021 * 2.0**scale)
        keys = np.unique(np.clip(np.array([-top, -top // 2, -1, 0, 1, top // 3, top - 1]), -top, max(top - 1, 0)))
        with localcontext() as context:
            context.prec = 60
            for key, value in zip(keys.tolist(), values_of(keys, np.full(len(keys), scale)).tolist(), strict=True):
                low, high = (Decimal(2) ** (Decimal(k) / Decimal(2) ** scale) for k in (key, key + 1))
                alpha = Decimal(float(accuracy_of(np.array([scale]))[0])) + Decimal(2) ** -51  # rounded twice
                assert abs(Decimal(value) - low) <= alpha * low
                assert abs(Decimal(value) - high) <= alpha * high


def by_the_sdk(values: list[float], max_size: int, max_scale: int):
    reference = ExponentialBucketHistogramAggregation(max_size=max_size, max_scale=max_scale)
    reader = InMemoryMetricReader(preferred_aggregation={Histogram: reference})
    provider = MeterProvider([reader], exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False)
    histogram = provider.get_meter("m").create_histogram("h")
    for value in values:
        histogram.record(value, context=Context())
    ((scope,),) = [resource.scope_metrics for resource in reader.get_metrics_data().resource_metrics]
    return scope.metrics[0].data.data_points[0]


def dense(buckets) -> dict[int, int]:
    return {buckets.offset + i: count for i, count in enumerate(buckets.bucket_counts) if count}


@pytest.mark.parametrize(("max_buckets", "scale"), [(160, 20), (20, 20), (4, 6)])
def test_scale_and_buckets_are_those_of_opentelemetry(max_buckets, scale):
    rng = np.random.default_rng(max_buckets)
    function = aggr.Exponential((0.5,), scale, max_buckets)
    for _ in range(TRIALS):
        n = int(rng.integers(1, 60))
        values = rng.lognormal(rng.normal() * 20, rng.random() * rng.choice([0.01, 1, 30]), n)
        values[rng.random(n) < 0.1] = 0.0
        values[rng.random(n) < 0.2] = np.ldexp(1.0, rng.integers(-900, 900))
        reference, states = by_the_sdk(values.tolist(), max_buckets, scale), state_of(function, values)
        if values.any():  # the SDK says scale 0 of a histogram without buckets
            assert states.field("kept_scale").to_pylist() == [reference.scale]
        assert buckets_of(states, "positive") == dense(reference.positive)
        assert states.field("zero").to_pylist() == [reference.zero_count]
        result = function.finish(states)[0].as_py()
        assert (result["count"], result["min"], result["max"]) == (reference.count, reference.min, reference.max)
        assert result["sum"] == math.fsum(values)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_quantiles_are_within_the_accuracy_that_is_told(seed):
    rng = np.random.default_rng(seed)
    quantiles = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)
    for _ in range(TRIALS):
        function = aggr.Exponential(quantiles, int(rng.integers(0, 21)), int(rng.choice([2, 10, 160, 640])))
        n = int(rng.integers(1, 1000))
        values = rng.lognormal(rng.normal() * 10, rng.random() * 8, n) * rng.choice([-1, 1, 1], n)
        values[rng.random(n) < 0.05] = 0.0
        result = function.finish(state_of(function, values))[0].as_py()
        ordered, alpha = np.sort(values), result["relative_accuracy"]
        base = 2.0 ** (2.0 ** -result["scale"]) if result["scale"] > -10 else math.inf
        assert alpha == pytest.approx((base - 1) / (base + 1) if base < math.inf else 1.0, rel=1e-9)
        for q, estimate in zip(quantiles, result["quantiles"].values(), strict=True):
            true = ordered[math.floor(q * (n - 1))]
            assert abs(estimate - true) <= alpha * abs(true) * (1 + 1e-12), (q, estimate, true, result["scale"])
            share = function.own_state.share_up_to(state_of(function, values), float(true))[0].as_py()
            within = [np.mean(ordered <= true * width) for width in (base * (1 + 1e-9), (1 - 1e-9) / base)]
            assert base == math.inf or min(within) <= share <= max(within)  # those of its bucket, or none of them


def test_states_of_different_scales_are_merged_at_the_coarser():
    function = aggr.Exponential((0.5,), max_buckets=4)
    near, far = state_of(function, np.array([1.0, 1.01])), state_of(function, np.array([1.0, 1e6, -3.0]))
    scales = [states.field("kept_scale")[0].as_py() for states in (near, far)]
    assert scales[0] > scales[1] == -3
    merged = function.merge(pa.concat_arrays([near, far]), Groups.single(2))
    assert buckets_of(merged, "positive") == {-1: 2, 0: 1, 2: 1}
    assert buckets_of(merged, "negative") == {0: 1}


def test_it_says_what_it_does_not_take():
    for wrong, excerpt in (({"scale": 21}, "scale"), ({"max_buckets": 1}, "max_buckets")):
        with pytest.raises(ValueError, match=excerpt):
            aggr.Exponential(**wrong)
    with pytest.raises(ValueError, match=r"max_buckets=160 cannot be merged or read as max_buckets=20"):
        aggr.Exponential(max_buckets=20).finish(state_of(aggr.Exponential(), np.array([1.0])))
