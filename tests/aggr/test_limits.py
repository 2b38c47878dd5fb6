"""Limits: counts up to 2^63 - 1 and sums of 10^9 or more numbers do not overflow, compared with fractions."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.groups.groups import Groups
from aggr.testing.edge_cases import edge_cases
from tests.aggr.test_laws import TAKES, source_of

INT64_MAX = 2**63 - 1


def merged(function: aggr.Function, states: list[pa.Array]) -> pa.Array:
    return function.merge(pa.concat_arrays(states), Groups.single(len(states)))


def times(function: aggr.Function, state: pa.Array, count: int) -> pa.Array:
    """Merge a state with itself, so that it counts so often: by doubling."""
    powers, doubled = [], state
    while count:
        if count % 2:
            powers.append(doubled)
        count //= 2
        doubled = merged(function, [doubled, doubled]) if count else doubled
    return merged(function, powers)


def state_of(function: aggr.Function, counts: dict, kind: pa.DataType) -> pa.Array:
    """Make the state of values that come so often each."""
    states_and_counts = [
        (function.reduce(pa.array([value], kind), Groups.single(1)), often) for value, often in counts.items()
    ]
    return merged(function, [times(function, *state_and_count) for state_and_count in states_and_counts])


def whole_numbers(column: pa.Array, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Give the fields of a state that are int64, by their paths."""
    if pa.types.is_struct(column.type):
        for field in column.type:
            yield from whole_numbers(column.field(field.name), f"{path}.{field.name}")
    elif pa.types.is_list(column.type):
        yield from whole_numbers(column.flatten(), f"{path}[]")
    elif column.type == pa.int64():
        yield path, column.to_numpy(zero_copy_only=False)


def rows_for(function: aggr.Function, kind: pa.DataType) -> pa.Array:
    """Draw some rows that are not null, and neither is anything in them."""
    draw = source_of(function, kind) or (lambda size, seed: edge_cases(kind, size, seed, special=False))
    drawn = (pa.table({"rows": draw(60, seed)}).flatten().drop_null() for seed in range(9))
    columns = next(table.combine_chunks() for table in drawn if len(table) > 5).columns
    chunks = [column.chunk(0) for column in columns]
    return pa.StructArray.from_arrays(chunks, fields=list(kind)) if pa.types.is_struct(kind) else chunks[0]


def doubled(function: aggr.Function, state: pa.Array) -> pa.Array | str:
    """Merge a state with itself, and read it; or say why not."""
    try:
        both = merged(function, [state, state])
        function.finish(both)
    except (OverflowError, ValueError) as error:
        return str(error)
    return both


ONE_KIND = {function: kind for cases in TAKES.values() for function, kind in reversed(cases)}


@pytest.mark.parametrize("function", ONE_KIND, ids=repr)
def test_a_state_doubled_64_times_counts_exactly_or_is_refused(function):
    rows = rows_for(function, ONE_KIND[function])
    state = function.reduce(rows, Groups.single(len(rows)))
    once, counts = dict(whole_numbers(state)), {}
    for doublings in range(1, 65):
        state = doubled(function, state)
        if isinstance(state, str):
            full = "a count exceeds int64" in state and sum(counts.values()) << doublings >= INT64_MAX
            long = "holds at most max=10000 values" in state and len(rows) << doublings > 10_000
            assert full or long, (doublings, state)
            return
        for path, numbers in whole_numbers(state):
            if doublings == 1 and numbers.tolist() == (2 * once[path]).tolist():
                counts[path] = int(once[path].sum())
            expected = [number << doublings if path in counts else number for number in once[path].tolist()]
            assert path == ".bits" or len(numbers) > len(expected) or numbers.tolist() == expected, path
    assert not any(counts.values())


COUNTS = {0.1: 2**62 + 3, 0.7: 2**61 + 9, 1e16: 5, -3.0: INT64_MAX - 2**62 - 3 - 2**61 - 9 - 5}
COUNTS_OF_INTEGERS = {7: 2**62 + 3, 0: 2**61 + 9, -5: INT64_MAX - 2**62 - 3 - 2**61 - 9}


def moment(counts: dict, power: int, about: Fraction = Fraction(0)) -> Fraction:
    """Sum the powers of all rows."""
    return sum(((Fraction(x) - about) ** power * often for x, often in counts.items()), Fraction(0))


def central(counts: dict, power: int) -> Fraction:
    """Take the mean power of the distances from the mean."""
    n = sum(counts.values())
    return moment(counts, power, moment(counts, 1) / n) / n


def root(x: Fraction) -> float:
    with localcontext() as context:
        context.prec = 80
        return float((Decimal(x.numerator) / Decimal(x.denominator)).sqrt())


EXPECTED = {
    aggr.Count(): lambda c: sum(c.values()),
    aggr.Avg(): lambda c: float(moment(c, 1) / INT64_MAX),
    aggr.Sum(dtype="float64"): lambda c: float(moment(c, 1)),
    aggr.Var(0): lambda c: float(central(c, 2)),
    aggr.Var(1): lambda c: float(central(c, 2) * INT64_MAX / (INT64_MAX - 1)),
    aggr.Stdev(1): lambda c: root(central(c, 2) * INT64_MAX / (INT64_MAX - 1)),
    aggr.SumOfSquares(): lambda c: float(moment(c, 2)),
    aggr.Rms(): lambda c: root(moment(c, 2) / INT64_MAX),
    aggr.Skewness(): lambda c: math.copysign(root(central(c, 3) ** 2 / central(c, 2) ** 3), central(c, 3)),
    aggr.Kurtosis(): lambda c: float(central(c, 4) / central(c, 2) ** 2 - 3),
}


@pytest.mark.parametrize(
    ("counts", "kind"), [(COUNTS, pa.float64()), (COUNTS_OF_INTEGERS, pa.int64())], ids=["floats", "whole"]
)
@pytest.mark.parametrize("function", EXPECTED, ids=repr)
def test_as_many_rows_as_int64_counts(function, counts, kind):
    state = state_of(function, counts, kind)
    assert function.finish(state)[0].as_py() == EXPECTED[function](counts)
    state_of_one_row = function.reduce(pa.array([next(iter(counts))], kind), Groups.single(1))
    with pytest.raises(OverflowError, match="a count exceeds int64"):
        merged(function, [state, state_of_one_row])


@pytest.mark.parametrize("count", [2**63 - 1, 2**63 - 2, 2**63 - 512, 2**63 - 513, 2**63 - 1536, 2**53 + 1])
def test_quotients_by_counts_that_doubles_round(count):
    state = state_of(aggr.Avg(), {3: count // 3, 1: count - count // 3}, pa.int64())
    assert aggr.Avg().finish(state)[0].as_py() == float(Fraction(count + 2 * (count // 3), count))


PAIRS = {(3.0, 1.0): 2**62, (7.5, -2.0): 2**61, (0.1, 1e6): INT64_MAX - 2**62 - 2**61}  # y, x


def products(i: int, j: int, about: tuple[Fraction, ...] = (Fraction(0),) * 2) -> Fraction:
    """Sum over all rows the products of two of their columns, each less a number."""
    return sum(((Fraction(p[i]) - about[i]) * (Fraction(p[j]) - about[j]) * n for p, n in PAIRS.items()), Fraction(0))


MEANS = tuple(sum(Fraction(pair[i]) * often for pair, often in PAIRS.items()) / INT64_MAX for i in (0, 1))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (aggr.Covar(0), products(0, 1, MEANS) / INT64_MAX),
        (aggr.Covar(1), products(0, 1, MEANS) / (INT64_MAX - 1)),
        (aggr.Slope(), products(0, 1, MEANS) / products(1, 1, MEANS)),
        (aggr.WeightedAvg(), products(0, 1) / (MEANS[1] * INT64_MAX)),
    ],
    ids=["covar(0)", "covar(1)", "slope", "weighted_avg"],
)
def test_pairs_as_many_as_int64_counts(function, expected):
    kind, states = pa.struct([(name, pa.float64()) for name in function.inputs]), []
    for pair, often in PAIRS.items():
        row = pa.array([dict(zip(function.inputs, pair, strict=True))], kind)
        states.append(times(function, function.reduce(row, Groups.single(1)), often))
    assert function.finish(merged(function, states))[0].as_py() == float(expected)


@pytest.mark.parametrize("function", [aggr.GeometricMean(), aggr.HarmonicMean()], ids=repr)
def test_means_of_one_value_are_that_value(function):
    assert function.finish(state_of(function, {3.0: INT64_MAX}, pa.float64()))[0].as_py() == 3.0


QUANTILES = (0.0, 0.5, 1.0)


@pytest.mark.parametrize("function", [aggr.Dds(QUANTILES), aggr.Exponential(QUANTILES), aggr.Hdr(QUANTILES)])
def test_sketches_of_as_many_rows_as_int64_counts(function):
    counts = {1: 2**61, 3: 2**62, 90: INT64_MAX - 1 - 2**62 - 2**61}  # one less: the last number is of more
    state = state_of(function, counts, pa.int64())
    result = function.finish(state)[0].as_py()
    assert (result["count"], result["min"], result["max"]) == (INT64_MAX - 1, 1, 90)
    accuracy = result.get("relative_accuracy", 0.01)
    assert result["mean"] == pytest.approx(float(moment(counts, 1) / (INT64_MAX - 1)), rel=accuracy)
    assert list(result["quantiles"].values()) == pytest.approx([1, 3, 90], rel=accuracy)
    state_of_one_row = function.reduce(pa.array([1]), Groups.single(1))
    with pytest.raises(OverflowError, match="a count exceeds int64"):
        function.finish(merged(function, [state, state_of_one_row]))


@pytest.mark.parametrize(
    "function", [aggr.Histogram((0, 2, 100)), aggr.ValueCounts(), aggr.Mode(), aggr.Per()], ids=repr
)
def test_counts_of_values_up_to_int64(function):
    state = state_of(function, {1: INT64_MAX, 3: INT64_MAX - 1}, pa.int64())
    expected = {
        "histogram": {"counts": [INT64_MAX, INT64_MAX - 1], "below": 0, "above": 0, "nan": 0},
        "value_counts": [{"value": 1, "count": INT64_MAX}, {"value": 3, "count": INT64_MAX - 1}],
        "mode": 1,
        "per": {"share": 1.0, "entries": [{"key": 1, "n": INT64_MAX}, {"key": 3, "n": INT64_MAX - 1}]},
    }
    result = function.finish(state)[0].as_py()
    assert (dict(result) if isinstance(result, dict) else result) == expected[function.name]
    with pytest.raises(OverflowError, match="a count exceeds int64"):
        merged(function, [state, function.reduce(pa.array([1]), Groups.single(1))])


def test_frequent_counts_each_row_in_five_cells_and_says_when_they_are_full():
    function, values = aggr.Frequent(0.1), pa.StructArray.from_arrays([pa.array([5]), pa.array([0])], ["value", "time"])
    state = function.reduce(values, Groups.single(1))
    limit = INT64_MAX // 5
    result = function.finish(times(function, state, limit))[0].as_py()
    assert (result["count"], result["values"]) == (limit, [{"value": 5, "count": limit}])
    with pytest.raises(OverflowError, match="a count exceeds int64"):
        times(function, state, limit + 1)


def test_sums_up_to_int64_and_beyond():
    state = state_of(aggr.Sum(), {1: INT64_MAX - 1, 0: 1}, pa.int64())
    assert aggr.Sum().finish(state)[0].as_py() == INT64_MAX - 1
    wide = state_of(aggr.Sum(), {2: 2**62, INT64_MAX: 2}, pa.int64())
    with pytest.raises(OverflowError, match=rf"the sum {2**63 + 2 * INT64_MAX} does not fit into int64"):
        aggr.Sum().finish(wide)
    assert aggr.Sum(dtype="decimal").finish(wide)[0].as_py() == 2**63 + 2 * INT64_MAX
    money = state_of(aggr.Sum(), {Decimal("0.01"): 2**62, Decimal("-9999.99"): 2**61}, pa.decimal128(6, 2))
    with pytest.raises(OverflowError, match="does not fit into decimal"):
        aggr.Sum().finish(money)
    with localcontext() as context:
        context.prec = 60
        assert aggr.Sum(dtype="decimal").finish(money)[0].as_py() == Decimal(2**62 - 999_999 * 2**61) / 100


def test_the_mean_time_of_as_many_rows_as_int64_counts():
    counts = {0: 2**61, 1: 2**61 + 1, 1_700_000_000_000_001: INT64_MAX - 2**62 - 1}
    for value_counts in (counts, {0: 2**62, 1: 2**62 - 1}):
        result = aggr.Avg().finish(state_of(aggr.Avg(), value_counts, pa.timestamp("us")))[0].as_py()
        assert result == dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=round(moment(value_counts, 1) / INT64_MAX))


BILLION = 10**9
EDGES = {0.1: BILLION, 1e16: BILLION, -1e16: BILLION, 1e-300: BILLION, 5e-324: BILLION, 2.5: BILLION + 1}


@pytest.mark.parametrize(
    "counts", [{0.1: BILLION}, EDGES, {1.7976931348623157e308: INT64_MAX - 1}], ids=["0.1", "edges", "huge"]
)
def test_sums_of_a_billion_additions_are_exact(counts):
    state = state_of(aggr.Sum(), counts, pa.float64())
    try:
        expected = float(moment(counts, 1))
    except OverflowError:
        expected = np.inf
    assert aggr.Sum().finish(state)[0].as_py() == expected
    assert same_bits(state, state_of(aggr.Sum(), dict(reversed(counts.items())), pa.float64()))


def test_the_greatest_doubles_cancel_out_however_many():
    huge, half = 1.7976931348623157e308, 2**62 - 1
    state = state_of(aggr.Sum(), {huge: half, -huge: half, 0.1: 1}, pa.float64())
    assert aggr.Sum().finish(state)[0].as_py() == 0.1


@pytest.mark.long
def test_a_billion_rows_in_one_sum():
    draws, values = np.random.default_rng(3), np.random.default_rng(4).normal(0.1, 1e3, 1000)
    values[:4] = 0.1, 1e16, -1e16, 1e-300
    counts, states = np.zeros(1000, np.int64), []
    for _ in range(100):
        drawn = draws.integers(0, 1000, BILLION // 100)
        counts += np.bincount(drawn, minlength=1000)
        states.append(aggr.Sum().reduce(pa.array(values[drawn]), Groups.single(len(drawn))))
    exact = sum(Fraction(float(x)) * int(n) for x, n in zip(values, counts, strict=True))
    result = merged(aggr.Sum(), states)
    assert aggr.Sum().finish(result)[0].as_py() == float(exact)
