"""decayed_sum, decayed_avg and decayed_count, compared with fractions, for any time at which results are computed."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.exact import powers_of_two
from aggr.exact.powers_of_two import power_of_two
from aggr.tables.state_plan import plan_state_columns
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

TRIALS = int(os.environ.get("TRIALS", 12))
NAMES = ("decayed_sum", "decayed_avg", "decayed_count")
MICROSECONDS = {"1m": 60_000_000, "7d": 604_800_000_000, "3us": 3}


def exact_power(top: int, bottom: int) -> float:
    with localcontext(prec=70):
        return float(Decimal(2) ** (Decimal(top) / Decimal(bottom)))


@pytest.mark.parametrize("bottom", [1, 7, 1000, 60_000_000, 3_162_240_000_000_000])
def test_powers_of_two_are_correctly_rounded(bottom):
    tops = np.random.default_rng(bottom % 97).integers(0, bottom, 60 * TRIALS)
    tops[:2] = 0, bottom - 1
    assert power_of_two(tops, bottom).tolist() == [exact_power(top, bottom) for top in tops.tolist()]


def test_before_they_are_rounded_they_are_off_by_far_less_than_the_margin():
    tops = np.random.default_rng(4).integers(0, 10**9, 1000)
    high, low = powers_of_two._power(tops.astype(float), np.array([1e9]))
    with localcontext(prec=70):
        for top, *parts in zip(tops.tolist(), high.tolist(), low.tolist(), strict=True):
            assert abs(sum(map(Decimal, parts)) / Decimal(2) ** (Decimal(top) / 10**9) - 1) < Decimal(2) ** -73


def weight(time: int, half_life: int) -> Fraction:
    return Fraction(exact_power(time % half_life, half_life)) * Fraction(2) ** (time // half_life)


def naive(rows: list[tuple[float, int]], half_life: int, as_of: int | None) -> tuple[float | None, ...]:
    """Sum with fractions the rows of the four last spans of 32 half-lives."""
    if not rows:
        return None, None, None
    newest = max(time for _, time in rows)
    recent = [(x, t) for x, t in rows if t // (32 * half_life) > newest // (32 * half_life) - 4]
    shift = newest // half_life  # so that no fraction is huge
    weights = [weight(t - shift * half_life, half_life) for _, t in recent]
    at = newest if as_of is None else as_of
    far = at - newest > 3000 * half_life
    now = Fraction(2) ** 3000 if far else weight(at - shift * half_life, half_life)
    total = sum(Fraction(x) * w for (x, _), w in zip(recent, weights, strict=True))
    return float(total / now), float(total / sum(weights)), float(sum(weights) / now)


@pytest.mark.parametrize("half_life", list(MICROSECONDS))
def test_sums_are_those_of_fractions(half_life):
    print("seed", half_life, TRIALS)
    draws, length = random.Random(half_life), MICROSECONDS[half_life]
    for _ in range(TRIALS):
        spread = min(length * draws.choice([1, 40, 200, 10**6]), 10**16)
        begin = draws.choice([-1, 0, 1_700_000_000_000_000])
        size = draws.randint(1, 30)
        times = [begin + draws.randint(0, spread) for _ in range(size)]
        values = [draws.choice([draws.gauss(0, 1), draws.randint(-9, 9), 1e200, -1e-200]) for _ in range(size)]
        ids = [draws.randrange(3) for _ in range(size)]
        as_of = draws.choice([None, max(times), max(times) + draws.randint(0, 2 * spread)])
        text = None if as_of is None else f"{dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=as_of)}"
        columns = [pa.array(values, pa.float64()), pa.array(times).cast(pa.timestamp("us", "UTC"))]
        parts = aggr.DecayedSum(half_life).reduce(columns, Groups.each(size))
        states = aggr.DecayedSum(half_life).merge(parts, Groups.of(ids, 4))
        expected = [
            naive(
                [row for row, g in zip(zip(values, times, strict=True), ids, strict=True) if g == group], length, as_of
            )
            for group in range(4)
        ]
        for name, expected_values in zip(NAMES, zip(*expected, strict=True), strict=True):
            assert aggr.get(name)(half_life, text).finish(states).to_pylist() == list(expected_values), name


def test_forty_years_by_the_minute_stay_small_and_near_the_true_decay():
    rng = np.random.default_rng(4)
    times = np.sort(rng.integers(0, 40 * 365 * 86_400, 50_000)) * 1_000_000
    times[-5000:] = times[-1] - np.arange(5000) * 10_000_000
    values = rng.lognormal(0, 1, 50_000)
    function, columns = aggr.DecayedSum("1m"), [pa.array(values), pa.array(times).cast(pa.timestamp("us"))]
    states = function.reduce(columns, Groups.single(50_000))
    assert states.nbytes < 400
    true = math.fsum(values * np.exp2((times - times.max()) / 60e6))
    assert function.finish(states)[0].as_py() == pytest.approx(true, rel=1e-14)
    later = aggr.DecayedCount("1m", as_of="9999-12-31").finish(states)
    assert later.to_pylist() == [0.0]


def test_special_values_last_as_long_as_their_rows():
    function, minute = aggr.DecayedSum("1m"), 60_000_000
    times = pa.array([0, 1, 200 * minute]).cast(pa.timestamp("us"))
    values = pa.array([math.nan, math.inf, 5.0])
    states = function.reduce([values, times], Groups.of([0, 1, 0], 2))
    assert repr(function.finish(states).to_pylist()) == "[5.0, inf]"
    merged = function.merge(states, Groups.single(2))
    assert function.finish(merged).to_pylist() == [5.0]
    both = function.reduce([values.slice(0, 2), times.slice(0, 2)], Groups.single(2))
    assert math.isnan(aggr.DecayedAvg("1m").finish(both)[0].as_py())
    assert aggr.DecayedCount("1m").finish(both)[0].as_py() > 1.9


def test_whole_numbers_decimals_and_units_of_time():
    half, eight = "1s", [Decimal("0.10"), Decimal("0.20")]
    for unit in ("ms", "us", "ns"):
        times = pa.array([0, 1], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
        states = aggr.DecayedSum(half).reduce([pa.array(eight, pa.decimal128(4, 2)), times], Groups.single(2))
        assert aggr.DecayedSum(half).finish(states).to_pylist() == [0.25]
        states = aggr.DecayedSum(half).reduce([pa.array([2**62, 1], pa.int64()), times], Groups.single(2))
        assert aggr.DecayedSum(half).finish(states).to_pylist() == [float(2**61 + 1)]


def test_the_three_share_a_state_in_a_frame():
    measures = {name: getattr(aggr, name)("x", half_life="60s") for name in NAMES}
    assert [column.serves for column in plan_state_columns(measures)] == [NAMES]
    frame = TiltFrame(["1m", "1h"], "ts", measures)
    rows = pa.table({"ts": pa.array([0, 60, 120], pa.timestamp("s", "UTC")), "x": [4.0, 2.0, 1.0]})
    hour = finish(rollup(rows, frame), frame).to_pylist()[-1]
    assert [hour[name] for name in NAMES] == [3.0, 12 / 7, 1.75]
    assert repr(measure_from("decayed_sum(x, '90s', as_of='2024-05-01')")) == (
        "decayed_sum('x', half_life='90s', as_of='2024-05-01')"
    )


def test_a_time_before_the_newest_row_is_refused():
    states = aggr.DecayedSum("1m").reduce([pa.array([1.0]), pa.array([5], pa.timestamp("s"))], Groups.single(1))
    with pytest.raises(ValueError, match=r"before the time of the newest row, 1970-01-01T00:00:05; pass that time or"):
        aggr.DecayedSum("1m", as_of="1970-01-01").finish(states)


def test_states_of_another_half_life_are_refused():
    states = aggr.DecayedSum("1m").reduce([pa.array([1.0]), pa.array([5], pa.timestamp("s"))], Groups.single(1))
    with pytest.raises(ValueError, match="half_life=1m cannot be merged or read as half_life=1h"):
        aggr.DecayedAvg("1h").finish(states)


def test_times_that_are_no_timestamps_are_refused():
    with pytest.raises(TypeError, match="decayed_sum cannot take a column of type int64; it takes timestamps"):
        aggr.DecayedSum().zero(1, pa.struct([("value", pa.float64()), ("time", pa.int64())]))


TIMES = pa.array([0, 90], pa.timestamp("s")).cast(pa.timestamp("us"))
STATES = aggr.DecayedSum("1s").reduce([pa.array([1.0, 2.0]), TIMES], Groups.single(2))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda first, last: {"newest": dt.datetime(1975, 1, 1)}, "does not lie in its last span"),
        (lambda first, last: {"newest": None}, "contradict each other"),
        (lambda first, last: {"spans": [last, first]}, "not in ascending order"),
        (
            lambda first, last: {"spans": [first | {"span": last["span"] - 4}, last]},
            "whose numbers differ by 4 or more",
        ),
        (lambda first, last: {"spans": [first | {"weights": {"exponent": 0, "limbs": []}}, last]}, "is not above 0"),
        (lambda first, last: {"spans": [first | {"special": 9}, last]}, "flags of special values outside the range"),
    ],
)
def test_states_that_contradict_themselves_are_damaged(spoil, message):
    (state,) = STATES.to_pylist()
    with pytest.raises(DamagedState, match=message):
        aggr.DecayedSum("1s").finish(pa.array([state | spoil(*state["spans"])], STATES.type))
