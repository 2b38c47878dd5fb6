"""bad_values="skip": values that hdr refuses are skipped, and counted in the state."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

import aggr
from aggr.groups.groups import Groups
from aggr.tables.identify import function_of
from aggr.testing.laws import check
from tiltframe import TiltFrame, rollup

KINDS = [pa.float64(), pa.float32(), pa.int64(), pa.uint64(), pa.decimal128(10, 2), pa.decimal128(38, 10)]
UNITS = [None, 0.25, 0.1]
VALUES: dict[str, list] = {
    "float": [0.0, -0.0, 1.0, 2.5, -1.0, -1e-300, float("inf"), -float("inf"), 2.0**63, 1e300, 1e15, 0.1],
    "int": [0, 1, -1, 2**53 + 1, -(2**63), 2**63 - 1],
    "uint": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    "decimal": [Decimal(text) for text in ("0", "1", "-0.01", "0.25", "0.1", "-99999999.99", "7.00", "12345678.25")],
}


def is_refused(value, unit: float | None) -> bool:
    """Say by exact numbers whether hdr can count a value: from 0 and below 2^63 units, and whole without a unit."""
    if isinstance(value, float) and abs(value) == float("inf"):
        return True
    number = Fraction(value)
    size = Fraction(1) if unit is None else Fraction(1, 10) if unit == 0.1 else Fraction(unit)
    return number < 0 or round(number / size) >= 2**63 or (unit is None and number.denominator != 1)


def values_of(kind: pa.DataType) -> list:
    name = "uint" if kind == pa.uint64() else next(name for name in VALUES if name in str(kind) or str(kind) in name)
    return VALUES[name]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.uint64(), pa.decimal128(10, 2)], ids=str)
def test_what_is_skipped_is_what_exact_numbers_say(kind, unit):
    values = {pa.float64(): "float", pa.int64(): "int", pa.uint64(): "uint"}.get(kind, "decimal")
    rng = random.Random(f"{kind} {unit}")
    skipping, strict = aggr.Hdr(unit=unit, bad_values="skip"), aggr.Hdr(unit=unit)
    for _ in range(20):
        chosen = [rng.choice(VALUES[values]) for _ in range(rng.randrange(1, 6))]
        good = [value for value in chosen if not is_refused(value, unit)]
        state = skipping.reduce(pa.array(chosen, kind), Groups.single(len(chosen)))
        assert state.field("refused").to_pylist() == [len(chosen) - len(good)], chosen
        expected = strict.finish(strict.reduce(pa.array(good, kind), Groups.single(len(good))))
        assert skipping.finish(state).equals(expected)
        if len(good) < len(chosen):
            with pytest.raises(ValueError, match="hdr"):
                strict.reduce(pa.array(chosen, kind), Groups.single(len(chosen)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_laws(kind):
    check(aggr.Hdr(digits=2, unit=0.25, bad_values="skip"), kind, rounds=5)


def test_rows_can_be_subtracted_and_states_are_identified():
    function = aggr.Hdr(bad_values="skip")
    both, refused = (function.reduce(pa.array(x), Groups.single(len(x))) for x in ([5, -1, -2], [-1]))
    left = function.subtract(both, refused)
    assert (left.field("refused").to_pylist(), function.finish(left)[0].as_py()["count"]) == ([1], 1)
    assert function_of(both) == function
    weighted = function.reduce(pa.array([5, -1]), Groups.single(2), pa.array([1, 7]))
    assert weighted.field("refused").to_pylist() == [7]


WEIGHTS: dict[pa.DataType, list] = {
    pa.int64(): [1, 3, -1, 0, None, -(2**63)],
    pa.uint64(): [1, 2, 2**63, None],
    pa.float64(): [1.0, 2.0, 0.5, -1.0, float("nan"), float("inf"), 2.0**63, None, -0.0],
    pa.decimal128(38, 1): [Decimal(text) for text in ("1.0", "2.0", "0.5", "-1.0", "9223372036854775808.0")],
    pa.decimal128(2, 2): [Decimal("0.50"), Decimal("0.00"), None],  # without digits before the point
}


@pytest.mark.parametrize("kind", WEIGHTS, ids=str)
def test_values_of_refused_weights_are_skipped_and_counted_once(kind):
    rng = random.Random(str(kind))
    skipping, strict = aggr.Hdr(bad_values="skip"), aggr.Hdr()
    for _ in range(40):
        weights = [rng.choice(WEIGHTS[kind]) for _ in range(rng.randrange(1, 6))]
        values = [rng.choice([None, -3, 5, 8]) for _ in weights]
        refused, good = 0, []
        for value, weight in zip(values, weights, strict=True):
            is_weight = weight is None or (0 <= weight < 2**63 and weight == int(weight))
            if value is None or not weight:
                continue
            if not is_weight:
                refused += 1
            elif value < 0:
                refused += int(weight)
            else:
                good += [value] * int(weight)
        state = skipping.reduce(pa.array(values, pa.int64()), Groups.single(len(values)), pa.array(weights, kind))
        assert state.field("refused").to_pylist() == [refused], (values, weights)
        expected = strict.finish(strict.reduce(pa.array(good, pa.int64()), Groups.single(len(good))))
        assert skipping.finish(state).equals(expected)


def test_measures_of_one_column_and_weight_that_refuse_and_skip():
    measures = {"p": aggr.hdr("x", weight="w", bad_values="skip"), "mean": aggr.avg("x", weight="w")}
    rows = pa.table({"ts": [0, 0], "x": [1, 2], "w": [1, -1]})
    with pytest.raises(ValueError, match=r"avg\('x', weight='w'\): a weight is the number of rows .*; got -1"):
        rollup(rows, TiltFrame(["1s"], "ts", measures))


def test_states_and_words_that_do_not_fit():
    skipping, strict = aggr.Hdr(bad_values="skip"), aggr.Hdr()
    for written, read in [(skipping, strict), (strict, skipping)]:
        with pytest.raises(ValueError, match="bad_values="):
            read.finish(written.reduce(pa.array([5]), Groups.single(1)))
    with pytest.raises(ValueError, match="bad_values must be 'error' or 'skip'; got 'drop'"):
        aggr.hdr("ms", bad_values="drop")
