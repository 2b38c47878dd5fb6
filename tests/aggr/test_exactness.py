"""Every function has its documented guarantee for every type and magnitude of numbers, compared with fractions.

``TRIALS`` is the number of random triples of function, type and magnitude; 20,000 have been tried.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from benchmarks.by_fractions import exact_pair_statistic, exact_statistic

TRIALS = int(os.environ.get("TRIALS", "150"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float32(), pa.float64()]
DECIMALS = [pa.decimal128(p, s) for p, s in ((5, 2), (18, 2), (19, 9), (28, 10), (38, 0), (38, 2), (38, 20), (38, 38))]
WIDE = [pa.decimal256(p, s) for p, s in ((38, 2), (45, 2), (76, 30))]
TYPES = [*INTEGERS, *FLOATS, *DECIMALS, *WIDE]
MAGNITUDES = ("small", "halves", "cents", "near", "beyond", "limits", "mixed")
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

Number = int | float | Decimal
Rows = list[Any]


def draw(rng: random.Random, dtype: pa.DataType, magnitude: str, *, lowest: int | None = None) -> Number:
    """Draw a number of a type: halves, cents, near and beyond 2^53, at the limits of the type."""
    magnitude = rng.choice(MAGNITUDES[:-1]) if magnitude == "mixed" else magnitude
    sign = 1 if lowest is not None else rng.choice([-1, 1])
    if pa.types.is_floating(dtype):
        value = {
            "small": lambda: rng.randint(0, 50) * 1.0,
            "halves": lambda: rng.randint(0, 100) / 2,
            "cents": lambda: rng.randint(0, 9999) / 100,
            "near": lambda: 2.0**53 - rng.randint(0, 3),
            "beyond": lambda: rng.uniform(1, 2) * 2.0 ** rng.randint(53, 61),
            "limits": lambda: rng.choice([0.0, 1e-30, 1e30, 1.5, 2.0**62]),
        }[magnitude]()
        return float(np.float32(sign * value)) if dtype == pa.float32() else sign * value
    if pa.types.is_integer(dtype):
        limits = np.iinfo(dtype.to_pandas_dtype())
        low, high, scale = int(limits.min), int(limits.max), 0
    else:
        high = 10**dtype.precision - 1
        low, scale = -high, dtype.scale
    unit = 10**scale
    draws = {
        "small": lambda: rng.randint(0, 50) * unit,
        "halves": lambda: rng.randint(0, 100) * unit // 2,
        "cents": lambda: rng.randint(0, 9999) * max(unit // 100, 1),
        "near": lambda: 2**53 + rng.randint(-3, 3),
        "beyond": lambda: rng.randrange(2**53, max(min(high, 2 ** rng.randint(54, 250)), 2**53 + 1)),
        "limits": lambda: rng.choice([high, high - 1, high // 2 + 1, 0, 1]),
    }[magnitude]()
    draws = max(min(sign * draws, high), low if lowest is None else lowest)
    if not pa.types.is_decimal(dtype):
        return draws
    with localcontext(prec=100):
        return Decimal(draws).scaleb(-scale)


def exact(value: Number) -> Fraction:
    return Fraction(value)


def nearest(value: Fraction) -> float:
    """Round as Python does, beyond the greatest double to infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def time_of(row: int) -> dt.datetime:
    return START + dt.timedelta(microseconds=row * 1_500_007)


def events(values: pa.Array) -> pa.Array:
    times = pa.array([time_of(row) for row in range(len(values))], pa.timestamp("us", "UTC"))
    return pa.StructArray.from_arrays([values, times], names=["value", "time"])


def growth(rows: list[Fraction]) -> Fraction:
    return rows[-1] - rows[0] + sum(before for before, after in pairwise(rows) if after < before)


def seconds(rows: Rows) -> Fraction:
    return Fraction((len(rows) - 1) * 1_500_007, 10**6)


# Each check gets the values as numbers, the result and the type, and says whether the guarantee holds.

Check = Callable[[Rows, Any, pa.DataType], bool]


def rounded(oracle: Callable[[list[Fraction]], Fraction | None]) -> Check:
    def check(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        expected = oracle([exact(row) for row in rows])
        if expected is None:
            return result is None
        return exact(result) == expected if isinstance(result, Decimal) else result == nearest(expected)

    return check


def total(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
    expected = sum(map(exact, rows))
    return exact(result) == expected if not pa.types.is_floating(dtype) else result == nearest(expected)


def sketch(error: float) -> Check:
    """Count, sum, mean, min and max are exact; quantiles within the relative error of the value at the lower rank."""

    def check(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        numbers = sorted(map(exact, rows))
        n, alpha = len(numbers), Fraction(result.get("relative_accuracy", error)) * (1 + Fraction(1, 10**9))
        actual = (result["count"], result["sum"], result["mean"], result["min"], result["max"])
        expected = (n, nearest(sum(numbers)), nearest(sum(numbers) / n), nearest(numbers[0]), nearest(numbers[-1]))
        if actual != expected:
            return False
        for q, value in result["quantiles"].items():
            true = numbers[math.floor(float(q) * (n - 1))]
            if abs(exact(value) - true) > alpha * abs(true) + Fraction(1, 10**300):
                return False
        return True

    return check


def hdr(unit: Fraction) -> Check:
    def check(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        units = sorted(round(exact(row) / unit) for row in rows)
        extremes = [float(units[i] * unit) if unit != 1 else units[i] for i in (0, -1)]
        actual = [result["min"], result["max"]]
        if pa.types.is_floating(dtype):  # which are divided by the unit as doubles
            extremes = [
                end if math.isclose(end, seen, rel_tol=2.0**-50) else math.nan
                for end, seen in zip(actual, extremes, strict=True)
            ]
        if (result["count"], actual) != (len(rows), extremes):
            return False
        for q, value in result["quantiles"].items():
            true = units[max(math.floor(float(q) * len(units) + 0.5), 1) - 1]
            in_units = exact(value) / unit
            if not true - true / 10**6 <= in_units <= true + true / 1000 + 1:
                return False
        return True

    return check


def histogram(edges: tuple[float, ...]) -> Check:
    def check(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        if pa.types.is_floating(dtype):
            limits = [exact(float(np.float32(edge)) if dtype == pa.float32() else edge) for edge in edges]
        else:
            limits = [Fraction(repr(edge)) for edge in edges]
        cells = Counter(bisect_right(limits, exact(row)) for row in rows)
        actual = [result["below"], *result["counts"], result["above"]]
        return actual == [cells[i] for i in range(len(edges) + 1)]

    return check


def relative(oracle: Callable[[list[Fraction]], Fraction], error: float) -> Check:
    def check(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        expected = oracle([exact(row) for row in rows])
        return abs(exact(result) - expected) <= Fraction(error) * abs(expected)

    return check


def root(value: Fraction) -> Fraction:
    with localcontext(prec=400):
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def root_mean_square(rows: list[Fraction]) -> Fraction:
    return root(sum(row * row for row in rows) / len(rows))


def variance(rows: list[Fraction]) -> Fraction | None:
    if len(rows) < 2:
        return None
    mean = sum(rows) / len(rows)
    return sum((row - mean) ** 2 for row in rows) / (len(rows) - 1)


def harmonic(rows: list[Fraction]) -> Fraction:
    return Fraction(0) if 0 in rows else len(rows) / sum(1 / row for row in rows)


def exact_numbers(oracle: Callable[[list[Fraction]], Fraction | None]) -> Check:
    """Of floats the guarantee is double arithmetic in the order of time; all other numbers are exact."""

    check = rounded(oracle)

    def checked(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
        return pa.types.is_floating(dtype) or check(rows, result, dtype)

    return checked


def same(oracle: Callable[[Rows], Any]) -> Check:
    return lambda rows, result, dtype: result == oracle(rows)


def _increase(rows: list[Fraction]) -> Fraction | None:
    return growth(rows) if len(rows) > 1 else None


def _rate(rows: list[Fraction]) -> Fraction | None:
    return growth(rows) / seconds(rows) if len(rows) > 1 else None


def _delta(rows: list[Fraction]) -> Fraction | None:
    return rows[-1] - rows[0] if len(rows) > 1 else None


def _range(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
    difference = exact(max(rows)) - exact(min(rows))
    if dtype == pa.float32():  # the result has the input's type
        return result == float(np.float32(nearest(difference)))
    return result == nearest(difference) if pa.types.is_floating(dtype) else exact(result) == difference


def _median(rows: Rows, result: Any, dtype: pa.DataType) -> bool:
    return result["0.5"] == sorted(rows)[(len(rows) - 1) // 2]


def _most_frequent(rows: Rows) -> Number:
    return min(set(rows), key=lambda row: (-rows.count(row), row))


def _weighted(rows: list[Fraction]) -> Fraction | None:
    return sum(a * b for a, b in zip(rows, rows[::-1], strict=True)) / sum(rows) if sum(rows) else None


EDGES = (0.1, 0.3, 0.5, 25.0, 2.0**53)
CASES: dict[str, tuple[aggr.Function, Check, str]] = {
    "sum": (aggr.Sum(), total, ""),
    "sum as float64": (aggr.Sum(dtype="float64"), rounded(sum), ""),
    "avg": (aggr.Avg(), rounded(lambda rows: sum(rows) / len(rows)), ""),
    "var": (aggr.Var(), rounded(variance), ""),
    "stdev": (aggr.Stdev(), rounded(lambda rows: None if len(rows) < 2 else root(variance(rows))), ""),
    "sum_of_squares": (aggr.SumOfSquares(), rounded(lambda rows: sum(row * row for row in rows)), ""),
    "rms": (aggr.Rms(), rounded(root_mean_square), ""),
    "skewness": (aggr.Skewness(), lambda rows, result, _: result == exact_statistic("skewness", rows, False), ""),
    "kurtosis": (aggr.Kurtosis(), lambda rows, result, _: result == exact_statistic("kurtosis", rows, False), ""),
    "min": (aggr.Min(), same(min), ""),
    "max": (aggr.Max(), same(max), ""),
    "range": (aggr.Range(), _range, ""),
    "count": (aggr.Count(), same(len), ""),
    "count_distinct": (aggr.CountDistinct(), same(lambda rows: len(set(rows))), ""),
    "sum_distinct": (aggr.SumDistinct(), lambda rows, result, dtype: total(list(set(rows)), result, dtype), ""),
    "avg_distinct": (aggr.AvgDistinct(), rounded(lambda rows: sum(set(rows)) / len(set(rows))), ""),
    "collect_set": (aggr.CollectSet(), same(lambda rows: sorted(set(rows))), ""),
    "mode": (aggr.Mode(), same(_most_frequent), ""),
    "exact_quantiles": (aggr.ExactQuantiles([0.5]), _median, ""),
    "dds": (aggr.Dds(), sketch(0.01), ""),
    "exponential": (aggr.Exponential(), sketch(0.01), ""),
    "hdr": (aggr.Hdr([0.5, 0.99]), hdr(Fraction(1)), "whole"),
    "hdr in cents": (aggr.Hdr([0.5, 0.99], unit=0.01), hdr(Fraction(1, 100)), "positive"),
    "histogram": (aggr.Histogram(EDGES), histogram(EDGES), ""),
    "harmonic_mean": (aggr.HarmonicMean(), relative(harmonic, 2.0**-51), "positive"),
    "first": (aggr.First(), same(lambda rows: rows[0]), "events"),
    "last": (aggr.Last(), same(lambda rows: rows[-1]), "events"),
    "increase": (aggr.Increase(), exact_numbers(_increase), "events"),
    "rate": (aggr.Rate(), exact_numbers(_rate), "events"),
    "delta": (aggr.Delta(), exact_numbers(_delta), "events"),
    "resets": (aggr.Resets(), same(lambda rows: sum(b < a for a, b in pairwise(rows))), "events"),
    "covar": (
        aggr.Covar(),
        lambda rows, result, _: result == exact_pair_statistic("covar", rows, rows[::-1], 1),
        "pairs",
    ),
    "corr": (aggr.Corr(), lambda rows, result, _: result == exact_pair_statistic("corr", rows, rows[::-1]), "pairs"),
    "slope": (aggr.Slope(), lambda rows, result, _: result == exact_pair_statistic("slope", rows, rows[::-1]), "pairs"),
    "intercept": (
        aggr.Intercept(),
        lambda rows, result, _: result == exact_pair_statistic("intercept", rows, rows[::-1]),
        "pairs",
    ),
    "weighted_avg": (aggr.WeightedAvg(), rounded(_weighted), "pairs"),
}


def test_every_function_keeps_its_guarantee_on_every_type_and_magnitude():
    rng = random.Random(SEED)
    failed, refused, tried = [], Counter[str](), 0
    for _ in range(TRIALS):
        name, dtype, magnitude = rng.choice(list(CASES)), rng.choice(TYPES), rng.choice(MAGNITUDES)
        function, check, shape = CASES[name]
        lowest = 0 if shape in ("whole", "positive") else None
        rows = [draw(rng, dtype, magnitude, lowest=lowest) for _ in range(rng.choice([1, 2, 3, 8, 20]))]
        if shape == "whole" and not pa.types.is_integer(dtype):
            rows = [row for row in rows if exact(row).denominator == 1] or rows[:1]
        values = pa.array(rows, dtype)
        shaped = {"events": events, "pairs": lambda v: [v, v[::-1]]}
        parts = shaped.get(shape, lambda v: v)(values)
        try:
            states = function.reduce(parts, Groups.single(len(rows)))
            result = function.finish(states)[0].as_py()
        except (TypeError, ValueError, OverflowError) as error:
            if type(error) not in (TypeError, ValueError, OverflowError):
                failed.append((name, str(dtype), magnitude, rows, repr(error)))
            refused[f"{name}, {dtype}: {str(error)[:60]}"] += 1
            continue
        tried += 1
        if not check(rows, result, dtype):
            failed.append((name, str(dtype), magnitude, rows, result))
    print(f"seed {SEED}: {tried} of {TRIALS} have results; refused: {len(refused)} kinds")
    for text, count in refused.most_common(40):
        print(count, text)
    assert not failed, f"{len(failed)} of {TRIALS}:\n" + "\n".join(map(str, failed[:12]))
    assert tried > TRIALS / 2


def test_counters_of_whole_numbers_and_decimals_are_exact():
    def read(function: aggr.Function, rows: Rows, dtype: pa.DataType) -> Any:
        return function.finish(function.reduce(events(pa.array(rows, dtype)), Groups.single(len(rows))))[0].as_py()

    assert read(aggr.Increase(), [2**62, 2**62 + 1000], pa.int64()) == 1000
    assert read(aggr.Increase(), [2**64 - 8, 2**64 - 1], pa.uint64()) == 7
    assert read(aggr.Increase(), [2**62, 2**62 + 1, 5, 7], pa.int64()) == 8
    assert read(aggr.Delta(), [-(2**63), 2**63 - 1], pa.int64()) == float(2**64 - 1)
    assert read(aggr.Delta(), [Decimal("0.10"), Decimal("0.30")], pa.decimal128(5, 2)) == 0.2
    assert read(aggr.Resets(), [2**62 + 1, 2**62], pa.int64()) == 1
    assert read(aggr.Rate(), [10**18, 10**18 + 3], pa.int64()) == float(Fraction(3 * 10**6, 1_500_007))


@pytest.mark.parametrize("extrapolate", [None, "1m"])
def test_counters_read_up_to_the_edges_of_windows_are_exact_too(extrapolate):
    """A step between two windows is a difference of exact numbers before it is shared by time."""
    from tiltframe import FrameStore, TiltFrame, rollup
    from tiltframe.store.testing import MemoryBackend

    base = 2**62
    times = pa.array([30, 90], pa.timestamp("s", "UTC"))
    rows = pa.table({"ts": times, "x": pa.array([base, base + 600], pa.int64())})
    frame = TiltFrame(["1m"], "ts", {"grown": aggr.increase("x", extrapolate=extrapolate)})
    store = FrameStore(MemoryBackend(), frame, row_schema=rows.schema)
    store.append(rollup(rows, frame), "w", 1)
    increases = store.query("1m", edges="5m")["grown"].to_pylist()
    assert increases == ([300.0, 300.0] if extrapolate is None else [None, None])


def test_sums_and_means_of_decimals_in_sketches():
    cents = pa.array([Decimal("0.10"), Decimal("0.20")])
    for function in (aggr.Dds(), aggr.Exponential()):
        states = function.reduce(cents, Groups.each(2))
        for read in (function.reduce(cents, Groups.single(2)), function.merge(states, Groups.single(2))):
            result = function.finish(read)[0].as_py()
            assert (result["sum"], result["mean"]) == (0.3, 0.15)
        weighted = function.reduce(cents, Groups.single(2), pa.array([3, 1]))
        assert function.finish(weighted)[0].as_py()["sum"] == 0.5


def test_sums_of_decimals_of_several_scales_merge_in_any_order():
    """Of columns of unequal types; a sum of 0 remembers its places, so that no order of merges shows."""
    rng = random.Random(SEED)
    for function in (aggr.Dds(), aggr.Exponential()):
        for _ in range(20):
            columns = [
                pa.array([Decimal("0.10"), Decimal("-0.10")], pa.decimal128(9, 2)),
                pa.array([Decimal("0.5")], pa.decimal128(3, 1)),
                pa.array([0.1, 1e300]),
                pa.array([2**62, 7], pa.int64()),
                pa.array([Decimal(3).scaleb(-38)], pa.decimal128(38, 38)),
            ]
            states = [function.reduce(column, Groups.each(len(column))) for column in columns]
            states = pa.concat_arrays(states)
            unsplit = function.merge(states, Groups.single(len(states)))
            order = list(range(len(states)))
            rng.shuffle(order)
            left = states.slice(order[0], 1)
            for row in order[1:]:
                left = function.merge(pa.concat_arrays([left, states.slice(row, 1)]), Groups.single(2))
            assert left.equals(unsplit)
            exact_sum = Fraction(5, 10) + Fraction(0.1) + Fraction(1e300) + 2**62 + 7 + Fraction(3, 10**38)
            assert function.finish(unsplit)[0].as_py()["sum"] == nearest(exact_sum)


def test_edges_are_the_numbers_that_are_written():
    edges = [Decimal(cent) / 100 for cent in range(1, 100)]
    cents = pa.array(edges, pa.decimal128(5, 2))
    for written_edges in ([float(edge) for edge in edges], edges, [str(edge) for edge in edges]):
        function = aggr.Histogram(written_edges)
        for values in (cents, *(pa.array([float(edge) for edge in edges], kind) for kind in FLOATS)):
            result = function.finish(function.reduce(values, Groups.single(len(values))))[0].as_py()
            assert (result["below"], result["counts"], result["above"]) == (0, [1] * 98, 1)


@pytest.mark.parametrize("bad", ["x", "nan", "inf", "0.1234567890123456789", 2**53 + 1, float("inf"), True, None, b"1"])
def test_edges_that_no_double_stores_are_refused(bad):
    with pytest.raises(ValueError, match="each edge must be a finite number"):
        aggr.histogram("x", [bad, 2**60])


def test_hdr_counts_decimals_beyond_doubles():
    def extremes_of(values: list[str], dtype: pa.DataType, unit: float | None = None) -> tuple[Any, Any]:
        function = aggr.Hdr(unit=unit)
        values = pa.array([Decimal(value) for value in values], dtype)
        result = function.finish(function.reduce(values, Groups.single(len(values))))[0].as_py()
        return result["min"], result["max"]

    for dtype in (pa.decimal128(38, 2), pa.decimal256(60, 2)):
        assert extremes_of(["9007199254740993", "9007199254740995"], dtype) == (2**53 + 1, 2**53 + 3)
        with pytest.raises(ValueError, match=r"hdr counts whole numbers; got 9007199254740993\.50"):
            extremes_of(["9007199254740993.50"], dtype)
        with pytest.raises(ValueError, match="hdr accepts only numbers of at least 0; got -9007199254740993"):
            extremes_of(["-9007199254740993", "1"], dtype)
    assert extremes_of(["9007199254740993"], pa.decimal128(38, 0), 2.0) == (2.0**53, 2.0**53)
