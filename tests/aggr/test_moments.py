"""sum, avg, var and stdev, compared with fractions, NIST's data, and test cases of other engines."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.groups.groups import Groups
from tests.conftest import cases_of


def ask(function, values, kind=None):
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return function.finish(function.reduce(column, Groups.single(len(column))))[0].as_py()


def nearest(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def variance_of(exact: list[Fraction], ddof: int = 1) -> Fraction:
    mean = sum(exact) / len(exact)
    return sum((x - mean) ** 2 for x in exact) / (len(exact) - ddof)


def is_root(root: float, square: Fraction) -> bool:
    """Say whether a double is the one nearest to the square root."""
    below, above = (Fraction(math.nextafter(root, to)) for to in (0.0, math.inf))
    low, high = (Fraction(root) + below) / 2, (Fraction(root) + above) / 2
    return max(low, 0) ** 2 <= square <= high**2


floats = st.floats(allow_nan=False, allow_infinity=False)
spanning = st.builds(lambda m, e: m * 10.0**e, st.floats(-10, 10), st.integers(-300, 300))
awkward = st.one_of(floats, spanning, st.sampled_from([1e16, 1.0, -1e16, 5e-324, -5e-324, 2.0**53, 0.1, -0.0]))


@pytest.mark.long
@pytest.mark.slow
@given(st.lists(awkward, min_size=1, max_size=40))
@settings(max_examples=300, deadline=None)
def test_correctly_rounded(values):
    exact = [Fraction(v) for v in values]
    assert ask(aggr.Sum(), values, pa.float64()) == nearest(sum(exact))
    assert ask(aggr.Avg(), values, pa.float64()) == nearest(sum(exact) / len(exact))
    assert ask(aggr.Var(0), values, pa.float64()) == nearest(variance_of(exact, 0))
    if len(values) > 1:
        spread = variance_of(exact)
        assert ask(aggr.Var(), values, pa.float64()) == nearest(spread)
        root = ask(aggr.Stdev(), values, pa.float64())
        assert math.isinf(root) or is_root(root, spread)


def test_cancellation():
    assert ask(aggr.Sum(), [1e16, 1.0, -1e16]) == 1.0
    assert ask(aggr.Sum(), [1e308, 1e308, -1e308, -1e308, 5e-324]) == 5e-324
    assert ask(aggr.Sum(), [1.7976931348623157e308] * 2) == math.inf
    assert ask(aggr.Avg(), [1.7976931348623157e308] * 3) == 1.7976931348623157e308


def test_every_magnitude_at_once():
    values = np.ldexp(np.random.default_rng(0).uniform(0.5, 1, 2098), np.arange(-1074, 1024))
    exact = [Fraction(float(v)) for v in values]
    assert ask(aggr.Sum(), values.tolist()) == nearest(sum(exact))
    assert ask(aggr.Var(), values.tolist()) == nearest(variance_of(exact))


@pytest.mark.slow
def test_a_million_rows_against_fsum():
    rng = np.random.default_rng(1)
    values = rng.normal(size=1_000_000) * 10.0 ** rng.integers(-20, 20, 1_000_000)
    assert ask(aggr.Sum(), pa.array(values)) == math.fsum(values)


def test_huge_offset_tiny_spread():
    values = 1e9 + np.random.default_rng(2).normal(size=10_000)
    assert ask(aggr.Var(), pa.array(values)) == nearest(variance_of([Fraction(float(v)) for v in values]))


@pytest.mark.parametrize("n", [64, 2**15 + 1, 2**18 + 3])
def test_chunks_join(n):
    values = np.random.default_rng(n).lognormal(0, 30, n)
    groups = np.arange(n) % 3
    states = aggr.Sum().reduce(pa.array(values), Groups.of(groups, 3))
    assert aggr.Sum().finish(states).to_pylist() == [math.fsum(values[groups == g]) for g in range(3)]


# NIST's univariate sets, generated from their definition: mean and standard deviation are known exactly.
NIST = {
    "NumAcc1": ([10000001, 10000003, 10000002], "10000002", "1"),
    "NumAcc2": (["1.2", *["1.1", "1.3"] * 500], "1.2", "0.1"),
    "NumAcc3": (["1000000.2", *["1000000.1", "1000000.3"] * 500], "1000000.2", "0.1"),
    "NumAcc4": (["10000000.2", *["10000000.1", "10000000.3"] * 500], "10000000.2", "0.1"),
}


@pytest.mark.parametrize("name", NIST)
def test_nist(name):
    numbers, mean, deviation = NIST[name]
    decimals = pa.array([Decimal(v) for v in numbers], pa.decimal128(10, 1))
    assert ask(aggr.Avg(), decimals) == float(mean)
    assert ask(aggr.Stdev(), decimals) == float(deviation)
    binary = [float(v) for v in numbers]  # not quite those decimals, yet exactly these doubles
    exact = [Fraction(v) for v in binary]
    assert ask(aggr.Avg(), binary) == nearest(sum(exact) / len(exact))
    assert is_root(ask(aggr.Stdev(), binary), variance_of(exact))


def test_integers_stay_integers():
    assert ask(aggr.Sum(), [2**53, 1], pa.int64()) == 2**53 + 1
    assert ask(aggr.Sum(), [2**63 - 1, -(2**63), 5], pa.int64()) == 4
    assert ask(aggr.Avg(), [2**63 - 1, 2**63 - 3], pa.int64()) == float(2**63 - 2)
    assert ask(aggr.Var(), [2**62, 2**62 + 2], pa.int64()) == 2.0


@pytest.mark.parametrize("power", [52, 53, 54, 61, 62])
def test_whole_numbers_beyond_those_of_doubles_are_kept(power):
    for value in (2**power - 1, 2**power + 1):
        assert ask(aggr.Sum(), [value], pa.int64()) == value
        assert ask(aggr.Sum(), [-value], pa.int64()) == -value


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1]])
def test_a_sum_beyond_int64_is_an_error(values):
    with pytest.raises(OverflowError, match=rf"{sum(values)} does not fit into int64"):
        ask(aggr.Sum(), values, pa.int64())


def test_int64_limits_fit():
    for value in (2**63 - 1, -(2**63)):
        assert ask(aggr.Sum(), [value, 5, -5], pa.int64()) == value


def test_decimals():
    values = [Decimal("0.10"), Decimal("-99999999.99"), Decimal("12.34")]
    kind = pa.decimal128(10, 2)
    assert ask(aggr.Sum(), values, kind) == sum(values)
    assert aggr.Sum().result_type(aggr.Sum().state_type(kind)) == pa.decimal128(20, 2)
    wide = [Decimal(10**38 - 1), Decimal(1), Decimal(-1)]
    assert ask(aggr.Sum(), wide, pa.decimal128(38, 0)) == 10**38 - 1
    with pytest.raises(OverflowError, match="does not fit"):
        ask(aggr.Sum(), wide[:2], pa.decimal128(38, 0))


def test_mean_of_timestamps_whose_sum_is_beyond_int64():
    for values in ([2**62 + 1, 2**62 + 2, 2**62 + 4], [2**63 - 1, 2**63 - 2], [-(2**63), -(2**63) + 3]):
        times = pa.array(values, pa.timestamp("ns"))
        mean = aggr.Avg().finish(aggr.Avg().reduce(times, Groups.single(len(values))))[0]
        assert mean.value == round(Fraction(sum(values), len(values)))


def test_mean_of_timestamps():
    kind = pa.timestamp("us", "UTC")
    states = aggr.Avg().reduce(pa.array([0, 1, 5_000_001], pa.int64()).cast(kind), Groups.single(3))
    assert aggr.Avg().finish(states).cast(pa.int64()).to_pylist() == [1_666_667]
    with pytest.raises(TypeError, match="sum cannot take"):
        aggr.Sum().reduce(pa.array([0]).cast(kind), Groups.single(1))


def test_nothing_and_one_row():
    for function in (aggr.Sum(), aggr.Avg(), aggr.Var(), aggr.Stdev()):
        assert ask(function, [], pa.float64()) is None
        assert ask(function, [None, None], pa.float64()) is None
    assert ask(aggr.Var(), [3.0]) is None
    assert ask(aggr.Var(0), [3.0]) == 0.0


def test_states_cast_to_another_scale_are_refused():
    states = aggr.Sum().reduce(pa.array([Decimal("1.00")], pa.decimal128(10, 2)), Groups.single(1))
    fields = {f.name: states.field(f.name) for f in states.type}
    fields["unit"] = fields["unit"].cast(pa.decimal128(12, 4))
    cast = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    with pytest.raises(ValueError, match=r"units of 0\.0100"):
        aggr.Sum().finish(cast)


@pytest.mark.parametrize("bad", [-1, 1.5, "1", True])
def test_a_bad_ddof_is_refused(bad):
    with pytest.raises(ValueError, match="ddof"):
        aggr.Var(bad)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.bool_(), pa.date32(), pa.list_(pa.int64()), pa.decimal256(50, 2)], ids=str
)
def test_what_cannot_be_summed_is_refused(kind):
    with pytest.raises(TypeError, match="sum cannot take a column of type"):
        aggr.Sum().reduce(pa.array([], kind), Groups.of([], 0))


TREMOR = {case["name"]: case for case in cases_of("tremor_functions.json")}


@pytest.mark.parametrize("name", ["tremor-variance", "tremor-mean", "tremor-min", "tremor-count", "tremor-last_merge"])
def test_tremor(name):
    """Run its steps; what is empty is null here (0 for counts), where tremor says 0.0."""
    function = {
        "variance": aggr.Var(),
        "mean": aggr.Avg(),
        "min": aggr.Min(),
        "count": aggr.Count(),
        "last": aggr.Last(),
    }[name.split("-")[1].split("_")[0]]
    states: dict[str, pa.StructArray] = {}
    clock = iter(range(1000))

    def reduced(values):
        column = pa.array(values, pa.float64())
        if function.name == "count":
            column = pa.array([True] * len(values), pa.bool_())  # rows, not values
        if function.name == "last":
            times = pa.array([next(clock) for _ in values], pa.int64())
            column = pa.StructArray.from_arrays([column, times], names=["value", "time"])
        return function.reduce(column, Groups.single(len(values)))

    def add(to, state):
        states[to] = function.merge(pa.concat_arrays([states[to], state]), Groups.single(2)) if to in states else state

    for step in TREMOR[name]["steps"]:
        if "accumulate" in step or step.get("op") == "accumulate":
            add(step["state"], reduced(step.get("accumulate", step.get("values"))))
        elif "merge_into" in step or step.get("op") == "merge":
            add(step.get("merge_into", step.get("into")), states[step["src"]])
        elif step.get("op") == "merge_empty":
            add(step["into"], reduced([]))
        elif "emit" in step or step.get("op") == "emit":
            state = states.setdefault(step["state"], reduced([]))
            expected = step.get("expected", step.get("emit"))
            result = function.finish(state)[0].as_py()
            nothing = state.field("count")[0].as_py() == 0 if "count" in [f.name for f in state.type] else False
            if nothing:
                assert result is None
            else:
                assert result == expected


def test_tremor_last():
    values = [step["accumulate"] for step in TREMOR["tremor-last"]["steps"] if "accumulate" in step]
    expected = [step["emit_and_init"] for step in TREMOR["tremor-last"]["steps"] if "emit_and_init" in step]
    for window, last in zip(values, expected, strict=True):
        events = pa.StructArray.from_arrays([pa.array(window), pa.array(range(len(window)))], names=["value", "time"])
        assert ask(aggr.Last(), events) == last


@settings(deadline=None)
@given(st.integers(0, 2**20), st.integers(-15, 15), st.floats(-0.5, 0.5), st.sampled_from([1, 2, 3, 1000]))
def test_sums_of_equal_numbers_are_possible(units, level, tail, n):
    """n·Σx² is (Σx)² there, and just above 2^31 in a digit's units what is cut off a sum weighs most."""
    values = pa.array([(2.0**31 + units + tail) * 2.0 ** (32 * level)] * n)
    for function in (aggr.Var(), aggr.Stdev()):
        states = function.reduce(values, Groups.single(n))
        assert function.merge(pa.concat_arrays([states, states]), Groups.single(2)).to_pylist()[0]["count"] == 2 * n
