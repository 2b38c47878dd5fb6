"""hdr: buckets compared with those of the package hdrhistogram."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hdrh.histogram import HdrHistogram

import aggr
from aggr.functions.hdrhistogram import Layout, _indices
from aggr.groups.groups import Groups
from aggr.histograms.column import Histograms
from aggr.tables.state_plan import plan_state_columns
from tests.conftest import cases_of

RNG = np.random.default_rng(9)
HIGHEST = 2**62
DATA = {
    "latencies": RNG.lognormal(8, 2, 3000).astype(np.int64),
    "small": RNG.integers(0, 300, 3000),
    "every magnitude": np.unique(np.concatenate([2 ** np.arange(62) + d for d in (-1, 0, 1)])),
    "zeros": np.zeros(50, np.int64),
}
QUANTILES = (0.0, 0.001, 0.145, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.99999, 1.0)


def their(values, digits: int) -> HdrHistogram:
    histogram = HdrHistogram(1, max(2, int(values.max())), digits)  # it walks all its buckets, recorded or not
    for value in values.tolist():
        assert histogram.record_value(value)
    return histogram


def ask(function, values, kind=None):
    return function.finish(function.reduce(pa.array(values, kind), Groups.single(len(values))))[0].as_py()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", DATA)
def test_buckets_and_results_are_those_of_the_package(name, digits):
    values = DATA[name] if digits < 4 else DATA[name][DATA[name] < 2**24]
    reference = their(values, digits)
    function = aggr.Hdr(QUANTILES, digits)
    states = function.reduce(pa.array(values), Groups.single(len(values)))
    histograms = Histograms.from_arrow(states.field("buckets"))
    expected = {i: n for i, n in enumerate(reference.counts) if n}
    assert dict(zip(histograms.keys.tolist(), histograms.counts.tolist(), strict=True)) == expected
    result = function.finish(states)[0].as_py()
    percentiles = [round(q * 100, 10) for q in QUANTILES]
    quantiles = reference.get_percentile_to_value_dict(percentiles)
    assert list(result["quantiles"].values()) == [quantiles[p] for p in percentiles]
    assert result["count"] == reference.get_total_count()
    assert (result["min"], result["max"]) == (values.min(), values.max())
    assert result["mean"] == pytest.approx(reference.get_mean_value(), rel=1e-12)
    assert result["stdev"] == pytest.approx(reference.get_stddev(), rel=1e-9)
    assert result["var"] == pytest.approx(reference.get_stddev() ** 2, rel=1e-9)


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
def test_layout_is_that_of_the_package(digits):
    reference, layout = HdrHistogram(1, HIGHEST, digits), Layout(digits)
    values = np.unique(np.concatenate([*DATA.values(), RNG.integers(0, 2**62, 2000)]))
    index = layout.index(values)
    assert index.tolist() == [reference._counts_index_for(v) for v in values.tolist()]
    assert layout.lowest(index).tolist() == [reference.get_lowest_equivalent_value(v) for v in values.tolist()]
    assert layout.highest(index).tolist() == [reference.get_highest_equivalent_value(v) for v in values.tolist()]


def test_the_largest_numbers():
    result = ask(aggr.Hdr((1.0,), 5), [2**63 - 1, 2**53, 2**53 + 1, 2**54 - 1], pa.int64())
    assert result["quantiles"]["1"] == 2**63 - 1
    assert result["max"] == 2**63 - 1


def test_quantiles_keep_their_digits():
    values = DATA["latencies"]
    for digits in range(1, 6):
        result = ask(aggr.Hdr(QUANTILES[1:], digits), values)
        ordered = np.sort(values)
        for q, estimate in zip(QUANTILES[1:], result["quantiles"].values(), strict=True):
            true = ordered[max(int(round(q * 100, 10) / 100 * len(values) + 0.5), 1) - 1]
            assert true <= estimate <= true * (1 + 10**-digits) + 1


def test_ranks_are_those_of_the_percentile_that_a_person_means():
    """0.145 · 100 is 14.499999999999998 in doubles, and the rank of the 14.5th percentile of 100 values is 15."""
    values = np.arange(1, 101)
    assert ask(aggr.Hdr((0.145,), 3), values)["quantiles"]["0.145"] == their(values, 3).get_value_at_percentile(14.5)


def java_rank(percentile: float, count: int) -> int:
    """As ``AbstractHistogram.getValueAtPercentile`` counts, from 1: an ulp less, rounded up, at least 1."""
    clipped_percentile = min(max(math.nextafter(percentile, -math.inf), 0.0), 100.0)
    return max(math.ceil(clipped_percentile * count / 100.0), 1)


def test_the_rank_rule_of_java():
    """One state answers either way; counts small and large, percentiles on ranks and between them."""
    quantiles = (0.0, 1e-9, 0.145, 0.29, 0.3, 0.5, 0.5000000000000001, 0.9, 0.995, 0.999, 1.0)
    for count in (*range(1, 40), 100, 145, 1000, 1001):
        state = aggr.Hdr(digits=3).reduce(pa.array(np.arange(1, count + 1)), Groups.single(count))
        estimates = aggr.Hdr(quantiles, method="inverted_cdf").finish(state)[0].as_py()["quantiles"]
        reference = HdrHistogram(1, 2**20, 3)
        for q, value in zip(quantiles, estimates.values(), strict=True):
            expected = java_rank(float(Decimal(repr(q)) * 100), count)
            assert value == (reference.get_highest_equivalent_value(expected) if q else 1)
        nearest = aggr.Hdr((0.3,)).finish(state)[0].as_py()["quantiles"]["0.3"]
        assert nearest == max(int(30.0 / 100 * count + 0.5), 1)
    estimates = ask(aggr.Hdr((0.5, 0.5000000000000001, 0.51), method="inverted_cdf"), [1, 2])["quantiles"]
    assert list(estimates.values()) == [1, 1, 2]  # of Java's own tests, the first two


def test_ranks_of_counts_beyond_doubles():
    """A rank that a double rounds up is still that of a value."""
    for weight in (2**54 - 1, 2**62 + 1):
        states = aggr.Hdr().reduce(pa.array([7]), Groups.single(1), pa.array([weight]))
        for method in ("hdrhistogram", "inverted_cdf"):
            result = aggr.Hdr((0.0, 0.5, 1.0), method=method).finish(states)[0].as_py()
            assert (result["count"], list(result["quantiles"].values())) == (weight, [7, 7, 7])


@pytest.mark.parametrize("bad", ["Lower", "java", None, 5, True, ["lower"]])
def test_a_bad_method_is_refused(bad):
    for call in (aggr.hdr, aggr.dds, aggr.exponential, aggr.exact_quantiles):
        with pytest.raises(ValueError, match="method must be one of lower, higher"):
            call("x", method=bad)


def test_the_rank_only_reads():
    measures = {"ours": aggr.hdr("x", [0.9]), "theirs": aggr.hdr("x", [0.9], method="inverted_cdf")}
    assert [c.serves for c in plan_state_columns(measures)] == [("ours", "theirs")]
    assert repr(measures["theirs"]) == "hdr('x', quantiles=[0.9], method='inverted_cdf')"
    assert aggr.from_description(measures["theirs"].describe()) == measures["theirs"]
    ids = np.zeros(4, int)
    states = aggr.Hdr().reduce(pa.array([1, 2, 3, 4]), Groups.of(ids, 1))
    assert states.equals(aggr.Hdr(method="inverted_cdf").reduce(pa.array([1, 2, 3, 4]), Groups.of(ids, 1)))


def test_fractions_need_a_unit():
    with pytest.raises(ValueError, match=r"got 2\.7.*unit=0\.001"):
        ask(aggr.Hdr(), [1.0, 2.7])
    result = ask(aggr.Hdr((0.5,), unit=0.001), [2.7, 2.7, 0.0004])
    assert result["quantiles"]["0.5"] == pytest.approx(2.7, rel=1e-3)
    assert result["max"] == pytest.approx(2.7)
    assert ask(aggr.Hdr((0.5,)), [2.0, 3.0])["max"] == 3


def test_what_it_refuses_by_name():
    with pytest.raises(ValueError, match="numbers of at least 0; got -1"):
        ask(aggr.Hdr(), [3, -1])
    with pytest.raises(ValueError, match=r"numbers of at least 0; got -0\.5"):
        ask(aggr.Hdr(unit=0.1), [3, -0.5])
    with pytest.raises(ValueError, match="finite numbers only; got inf"):
        ask(aggr.Hdr(unit=0.1), [3, math.inf])
    with pytest.raises(ValueError, match="larger unit"):
        ask(aggr.Hdr(), [1e300])


def test_nan_is_counted_apart():
    states = aggr.Hdr().reduce(pa.array([math.nan, 1.0, None]), Groups.single(3))
    assert states.field("nan")[0].as_py() == 1
    assert aggr.Hdr().finish(states)[0].as_py()["count"] == 1


@pytest.mark.parametrize("bad", [0, 6, 9, 2.5, True, "3"])
def test_bad_digits_are_refused(bad):
    with pytest.raises(ValueError, match="digits must be"):
        aggr.hdr("x", digits=bad)


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, "x"])
def test_a_bad_unit_is_refused(bad):
    with pytest.raises(ValueError, match="unit must be"):
        aggr.hdr("x", unit=bad)


def test_states_of_other_digits_or_units_are_refused():
    states = aggr.Hdr(digits=2).reduce(pa.array([1]), Groups.single(1))
    with pytest.raises(ValueError, match="digits=2"):
        aggr.Hdr(digits=3).merge(states, Groups.single(1))
    with pytest.raises(ValueError, match="unit=None"):
        aggr.Hdr(digits=2, unit=1.0).merge(states, Groups.single(1))


CASES = {case["name"]: case for case in cases_of("hdrhistogram.json")}


def test_conformance_interop():
    """Record what the encoded histogram holds, value by value, and read the same."""
    case = CASES["hdr-interop_corrected"]
    reference = HdrHistogram.decode(case["encoded_base64"])
    recorded = [(item.value_iterated_to, item.count_at_value_iterated_to) for item in reference.get_recorded_iterator()]
    values = np.repeat([v for v, _ in recorded], [n for _, n in recorded])
    expected = case["expected"]
    quantiles = tuple(round(p / 100, 10) for p, _ in expected["percentiles"])
    result = ask(aggr.Hdr(quantiles, case["spec"]["significant_figures"]), values, pa.int64())
    assert result["count"] == expected["total_count"]
    for (_, value), estimate in zip(expected["percentiles"], result["quantiles"].values(), strict=True):
        assert estimate == pytest.approx(value, rel=expected["relative_tolerance"])
    assert reference.values_are_equivalent(result["min"], expected["min_equivalent_to"])
    assert reference.values_are_equivalent(result["max"], expected["max_equivalent_to"])


@pytest.mark.parametrize("name", ["hdr-percentile_dict", "hdr-large_numbers"])
def test_conformance_percentiles(name):
    case = CASES[name]
    spec = case["spec"]
    values = np.repeat([v for v, _ in case["input"]], [n for _, n in case["input"]])
    expected_values = case.get("expected_equivalent") or [(float(p), v) for p, v in case["expected"].items()]
    quantiles = tuple(round(p / 100, 10) for p, _ in expected_values)
    result = ask(aggr.Hdr(quantiles, spec["significant_figures"]), values, pa.int64())
    reference = HdrHistogram(spec["lowest"], spec["highest"], spec["significant_figures"])
    for (_, value), estimate in zip(expected_values, result["quantiles"].values(), strict=True):
        assert reference.values_are_equivalent(estimate, value)
        if "expected" in case and value > 1000:
            assert estimate == value


def test_conformance_layout():
    case = CASES["hdr-layout"]
    layout, expected = Layout(case["spec"]["significant_figures"]), case["expected"]
    assert layout.half_magnitude == expected["sub_bucket_half_count_magnitude"]
    assert 2 << layout.half_magnitude == expected["sub_bucket_count"]
    last = int(layout.index(np.array([case["spec"]["highest"]]))[0])
    assert (last >> layout.half_magnitude) == expected["bucket_count"]
    assert last < expected["counts_len"]


def test_conformance_small_counts():
    values: list[int] = []
    for step in CASES["hdr-small_counts"]["steps"]:
        values += step.get("record", [])
        if "percentile" in step:
            q = step["percentile"] / 100
            for method in ("hdrhistogram", "inverted_cdf"):
                result = ask(aggr.Hdr((q,), method=method), values)["quantiles"]
                assert next(iter(result.values())) == step["expected"]


@pytest.mark.parametrize("digits", range(1, 6))
@pytest.mark.parametrize("unit", [1.0, 0.001, 3.7, 1e-9])
def test_floats_have_the_indices_of_what_they_are_in_units(digits, unit):
    """At the powers of two, where a rounded number would fall into the next bucket, up to the greatest number."""
    powers = 2.0 ** np.arange(62)
    x = np.concatenate([[0.0, -0.0, 0.5, 1.5, 2.5], powers, powers - 1, powers + 0.5]) * unit
    x = np.append(x, np.nextafter(2.0**63, 0) * unit * (1 - 2**-40))
    layout = Layout(digits)
    indices = _indices(x, unit, layout.half_magnitude)
    assert indices.tolist() == layout.index(np.rint(x / unit).astype(np.int64)).tolist()
