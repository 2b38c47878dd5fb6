"""dds: quantiles compared with true quantiles, and buckets with those of the package ddsketch."""

from __future__ import annotations

import math

import ddsketch
import numpy as np
import pyarrow as pa
import pytest
from ddsketch.mapping import LogarithmicMapping as Theirs

import aggr
from aggr.arrow.damaged_state import DamagedState
from aggr.groups.groups import Groups
from aggr.histograms.column import Histograms
from aggr.histograms.logarithmic_mapping import LogarithmicMapping
from aggr.histograms.reading import PackedHistograms
from tests.conftest import cases_of

RNG = np.random.default_rng(5)
N = 20_000
DATA = {
    "uniform": RNG.uniform(0, 1, N),
    "normal": RNG.normal(0, 10, N),
    "pareto": RNG.pareto(1.1, N) + 1,
    "lognormal": RNG.lognormal(0, 3, N),
    "integers": RNG.integers(-100, 1000, N).astype(float),
    "every magnitude": np.ldexp(RNG.uniform(0.5, 1, N) * RNG.choice([-1, 1], N), RNG.integers(-1000, 1000, N)),
    "one value": np.full(100, 1 / 3),
    "two values far apart": np.array([1e-300, 1e300] * 50),
    "mostly zero": np.where(RNG.uniform(size=N) < 0.9, 0.0, RNG.normal(size=N)),
    "denormal": np.array([5e-324, -5e-324, 1e-310, 0.0, -0.0]),
}
QUANTILES = (0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)


def edges(alpha: float) -> np.ndarray:
    """Adversarial data: values on and right next to the edges of buckets."""
    gamma = (1 + alpha) / (1 - alpha)
    at = gamma ** np.arange(-200.0, 200.0)
    return np.concatenate([at, np.nextafter(at, 0), np.nextafter(at, np.inf), -at])


@pytest.mark.parametrize("alpha", [0.1, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("name", [*DATA, "edges"])
def test_accuracy(name, alpha):
    values = edges(alpha) if name == "edges" else DATA[name]
    function = aggr.Dds(QUANTILES, alpha)
    result = function.finish(function.reduce(pa.array(values), Groups.single(len(values))))[0].as_py()
    ordered = np.sort(values)
    for q, estimate in zip(QUANTILES, result["quantiles"].values(), strict=True):
        true = float(ordered[math.floor(q * (len(values) - 1))])
        slack = 1e-11 * abs(true) if abs(true) > 2.3e-308 else 2.3e-308  # the logarithm's own rounding; zero below
        assert abs(estimate - true) <= alpha * abs(true) + slack, (q, estimate, true)
    assert result["count"] == len(values)
    assert (result["min"], result["max"]) == (ordered[0], ordered[-1])
    assert result["sum"] == math.fsum(values)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("name", [*DATA, "edges"])
def test_buckets_are_those_of_the_package(name, alpha):
    values = (edges(alpha) if name == "edges" else DATA[name])[:3000]
    if name in ("every magnitude", "two values far apart") and alpha < 0.01:
        values = values[np.abs(values) < 1e20]  # their store is dense, and would take all memory
    reference = ddsketch.DDSketch(alpha)
    for value in values.tolist():
        reference.add(value)
    states = aggr.Dds((0.5,), alpha).reduce(pa.array(values), Groups.single(len(values)))
    assert states.field("zero")[0].as_py() == reference._zero_count
    for sign, store in (("positive", reference._store), ("negative", reference._negative_store)):
        histograms = Histograms.from_arrow(states.field(sign))
        expected = {i + store.offset: int(n) for i, n in enumerate(store.bins) if n}
        assert dict(zip(histograms.keys.tolist(), histograms.counts.tolist(), strict=True)) == expected
    function = aggr.Dds(QUANTILES, alpha)
    histograms = list(function.finish(states)[0].as_py()["quantiles"].values()) if len(values) else []
    for q, estimate in zip(QUANTILES, histograms, strict=False):
        quantile = reference.get_quantile_value(q)
        assert estimate == pytest.approx(min(max(quantile, values.min()), values.max()), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 1e-3, 1e-4, 1e-6])
def test_keys_and_values_are_those_of_the_package(alpha):
    values = np.concatenate([np.exp(RNG.uniform(-700, 700, 5000)), np.arange(1.0, 2000), 2.0 ** np.arange(-1000, 1000)])
    own_mapping, package_mapping = LogarithmicMapping(alpha), Theirs(alpha)
    keys = own_mapping.keys(values)
    assert keys.tolist() == [package_mapping.key(v) for v in values.tolist()]
    sample = keys[:: len(keys) // 500]
    assert own_mapping.values(sample) == pytest.approx([package_mapping.value(int(k)) for k in sample], rel=1e-12)


@pytest.mark.parametrize("max_buckets", [1, 7, 100, 500])
def test_collapsing_keeps_the_highest_buckets(max_buckets):
    values = DATA["lognormal"][:3000] * RNG.choice([-1, 1], 3000)
    reference = ddsketch.ddsketch.LogCollapsingLowestDenseDDSketch(0.01, max_buckets)
    for value in values.tolist():
        reference.add(value)
    states = aggr.Dds((0.5,), 0.01, max_buckets).reduce(pa.array(values), Groups.single(len(values)))
    for sign, store in (("positive", reference._store), ("negative", reference._negative_store)):
        histograms = Histograms.from_arrow(states.field(sign))
        expected = {i + store.offset: int(n) for i, n in enumerate(store.bins) if n}
        assert dict(zip(histograms.keys.tolist(), histograms.counts.tolist(), strict=True)) == expected
        assert len(histograms.keys) <= max_buckets


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_value_nearest_to_zero_lies_in_its_bucket_unless_buckets_collapsed(sign, scale):
    values, single, nearest = (
        pa.array([sign * scale, sign * 1e8 * scale]),
        Groups.single(2),
        "min" if sign > 0 else "max",
    )
    collapsed, uncollapsed = aggr.Dds((0.5,), 0.01, 7), aggr.Dds((0.5,), 0.01, 4000)
    assert collapsed.finish(collapsed.reduce(values, single))[0].as_py()[nearest] == sign * scale
    states = uncollapsed.reduce(values, single)
    assert uncollapsed.finish(states)[0].as_py()[nearest] == sign * scale
    fields = {field.name: states.field(field.name) for field in states.type}
    fields[nearest] = pa.array([sign * 0.9 * scale])
    with pytest.raises(DamagedState, match="contradict"):
        uncollapsed.finish(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))


def test_special_values():
    values = [math.nan, math.inf, -math.inf, 1.0, None, 2.0, math.nan]
    function = aggr.Dds((0.0, 0.5, 1.0))
    result = function.finish(function.reduce(pa.array(values), Groups.single(7)))[0].as_py()
    assert result["count"] == 4
    assert list(result["quantiles"].values()) == [-math.inf, pytest.approx(1, rel=0.01), math.inf]
    assert (result["min"], result["max"]) == (-math.inf, math.inf)
    assert math.isnan(result["sum"])
    assert function.finish(function.reduce(pa.array([math.nan]), Groups.single(1)))[0].as_py() is None


def test_new_quantiles_of_old_states():
    states = aggr.Dds((0.5,)).reduce(pa.array(DATA["pareto"]), Groups.single(N))
    later = aggr.Dds((0.123,)).finish(states)[0].as_py()["quantiles"]
    true = float(np.sort(DATA["pareto"])[math.floor(0.123 * (N - 1))])
    assert later["0.123"] == pytest.approx(true, rel=0.01)


def test_states_of_another_accuracy_are_refused():
    states = aggr.Dds(relative_accuracy=0.02).reduce(pa.array([1.0]), Groups.single(1))
    with pytest.raises(ValueError, match=r"relative_accuracy=0\.02"):
        aggr.Dds(relative_accuracy=0.01).merge(states, Groups.single(1))


@pytest.mark.parametrize("bad", [0, 0.0, 1.0, -0.1, "x", None, math.nan])
def test_a_bad_accuracy_is_refused(bad):
    with pytest.raises(ValueError, match="relative_accuracy must be"):
        aggr.dds("x", relative_accuracy=bad)


@pytest.mark.parametrize("bad", [[1.5], [-0.1], ["a"], [math.nan], [0.5, 0.5], 2])
def test_a_bad_quantile_is_refused(bad):
    with pytest.raises(ValueError, match="quantile"):
        aggr.dds("x", bad)


CASES = {case["name"]: case for case in cases_of("ddsketch.json")}


@pytest.mark.parametrize("size", CASES["ddsketch-accuracy_property"]["test_sizes"])
def test_conformance_accuracy(size):
    case = CASES["ddsketch-accuracy_property"]
    eps, quantiles = case["relative_accuracy"], tuple(case["test_quantiles"])
    for values in (
        RNG.normal(37.4, 1, size),
        RNG.lognormal(0, 2, size),
        -RNG.exponential(1, size),
        np.arange(size) * 1.0,
    ):
        for max_buckets in (None, case["bin_limit"]):
            function = aggr.Dds(quantiles, eps, max_buckets)
            result = function.finish(function.reduce(pa.array(values), Groups.single(size)))[0].as_py()
            for q, estimate in zip(quantiles, result["quantiles"].values(), strict=True):
                true = np.sort(values)[int(q * (size - 1))]
                assert abs(estimate - true) - eps * abs(true) <= 1e-15
            assert result["sum"] == pytest.approx(values.sum())
            assert result["mean"] == pytest.approx(values.mean())


def test_conformance_key_at_rank():
    case = CASES["ddsketch-key_at_rank"]
    keys = np.array(case["add"])
    histogram = Histograms(np.array([3]), keys, np.ones(3, np.int64))
    for ask in case["expected"]:
        # the upper rank r counts the keys up to ceil(r); the lower one those up to floor(r)
        rank = math.floor(ask["rank"]) if ask["lower"] else math.ceil(ask["rank"])
        assert PackedHistograms.from_arrow(histogram.to_arrow()).keys_at(np.array([[rank]]))[0, 0] == ask["key"]


def test_conformance_simple_quantile():
    case = CASES["ddsketch-rust_simple_quantile"]
    values = pa.array(range(1, 101))
    for ask in case["expected"]:
        if ask.get("error"):
            with pytest.raises(ValueError, match="quantile"):
                aggr.Dds((ask["q"],), case["alpha"])
        else:
            function = aggr.Dds((ask["q"],), case["alpha"])
            result = function.finish(function.reduce(values, Groups.single(100)))[0].as_py()
            assert math.ceil(next(iter(result["quantiles"].values()))) == ask["ceil_of_value"]


def test_conformance_tremor():
    case = next(c for c in cases_of("tremor_functions.json") if c["name"] == "tremor-dds")
    quantiles = tuple(float(p) for p in case["spec"]["percentiles"])
    function = aggr.Dds(quantiles, case["spec"]["alpha"], case["spec"]["max_num_bins"])
    state = function.reduce(pa.array(range(1, 101)), Groups.single(100))
    empty = function.zero(1, pa.int64())
    for states in (state, function.merge(pa.concat_arrays([empty, state]), Groups.single(2))):
        result = function.finish(states)[0].as_py()
        expected = case["expected"]
        assert {k: result[k] for k in ("count", "sum", "min", "max", "mean")} == {
            k: expected[k] for k in ("count", "sum", "min", "max", "mean")
        }
        rounded = {label: math.ceil(value * 10) / 10 for label, value in result["quantiles"].items()}
        assert rounded == expected["percentiles"]


@pytest.mark.parametrize("accuracy", [0.1, 0.02, 0.01, 0.002])
@pytest.mark.parametrize("middle", [-700.0, -20.0, 0.0, 20.0, 690.0])
def test_the_table_of_steps_gives_the_keys_of_the_logarithm(accuracy, middle):
    """Many values at once are looked up; one by one they are not. On edges, and a bit next to them, too."""
    mapping = LogarithmicMapping(accuracy)
    rng = np.random.default_rng(int(accuracy * 1000) + int(middle) + 1000)
    anywhere = np.exp(np.clip(rng.normal(middle, 5, 60_000), -708.0, 709.0))
    edges = mapping.gamma ** np.ceil(np.log(anywhere[:20_000]) / np.log(mapping.gamma))
    beside = np.nextafter(edges, rng.choice([0.0, np.inf], len(edges)))
    values = np.concatenate([anywhere, edges, beside])
    values = values[(values > mapping.zero_threshold) & np.isfinite(values)]
    few = np.concatenate([mapping.keys(values[i : i + 1000]) for i in range(0, len(values), 1000)])
    assert (mapping.keys(values) == few).all()


@pytest.mark.parametrize("zeros", [[-0.0], [0.0], [-0.0, 0.0], [-0.0, 1.0], [-1.0, -0.0]])
def test_a_quantile_of_zeros_is_the_same_bits_however_many_states_are_read(zeros):
    """numpy's clip gives one zero or the other by its place among vector lanes."""
    for groups in (1, 2, 3, 7, 8, 9, 33):
        for quantiles in ([0.5], [0.0, 0.5, 1.0]):
            function = aggr.Dds(tuple(quantiles))
            values = pa.array(zeros * groups)
            states = function.reduce(values, Groups.of(np.repeat(np.arange(groups), len(zeros)), groups))
            distinct_results = {repr(row["quantiles"]) for row in function.finish(states).to_pylist()}
            assert len(distinct_results) == 1, (groups, distinct_results)
            assert "-0.0" not in distinct_results.pop()
