"""candlestick and m4, compared with a naive evaluation and with fractions for special values; frames with several
levels.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.testing.edge_cases import edge_cases
from tiltframe import TiltFrame, finish, rollup

IDS = Groups.of(np.arange(300) * 7 % 90 // 3, 31)  # and a group without rows
TIMES = edge_cases(pa.timestamp("us", "UTC"), 300, 5)


def spark_order(value: object) -> tuple:
    """Order values as Spark does, and -0.0 before 0.0."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value, math.copysign(1, value))
    return (value,)


def corners(rows: list[tuple]) -> list[tuple]:
    """Find the first, least, greatest and last of (value, time): ties go by value, then by the earliest time."""

    def by_time(row: tuple) -> tuple:
        return (row[1], spark_order(row[0]))

    low = min(rows, key=lambda row: (spark_order(row[0]), row[1]))
    highest = max(spark_order(value) for value, _ in rows)
    high = min((row for row in rows if spark_order(row[0]) == highest), key=lambda row: row[1])
    return [min(rows, key=by_time), low, high, max(rows, key=by_time)]


def grouped(*columns: pa.Array) -> list[list[tuple]]:
    rows = [[] for _ in range(IDS.n)]
    for group, row in zip(IDS.ids.tolist(), zip(*(c.to_pylist() for c in columns), strict=True), strict=True):
        if None not in row:
            rows[group].append(row)
    return rows


@pytest.mark.parametrize("kind", [pa.float64(), pa.int8(), pa.string(), pa.decimal128(38, 20), pa.bool_()], ids=str)
def test_m4_is_the_four_points_of_a_naive_evaluation(kind):
    values, function = edge_cases(kind, 300, 2), aggr.M4()
    result = function.finish(function.reduce([values, TIMES], IDS)).to_pylist()
    names = [f"{name}{suffix}" for name in ("first", "min", "max", "last") for suffix in ("", "_time")]
    for record, rows in zip(result, grouped(values, TIMES), strict=True):
        if rows:
            assert repr(list(record.items())) == repr(list(zip(names, sum(corners(rows), ()), strict=True)))
        else:
            assert record is None


def rounded(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@pytest.mark.parametrize("volume", [pa.float64(), pa.int16(), pa.decimal128(10, 2)], ids=str)
@pytest.mark.parametrize("price", [pa.float64(), pa.int64(), pa.decimal128(20, 3)], ids=str)
def test_candlesticks_are_exact(price, volume):
    prices, volumes = edge_cases(price, 300, 3, special=False), edge_cases(volume, 300, 4, special=False)
    function = aggr.Candlestick()
    result = function.finish(function.reduce([prices, volumes, TIMES], IDS)).to_pylist()
    for record, rows in zip(result, grouped(prices, volumes, TIMES), strict=True):
        if not rows:
            assert record is None
            continue
        first, low, high, last = corners([(p, at) for p, _, at in rows])
        for name, point in (("open", first), ("high", high), ("low", low), ("close", last)):
            assert repr((record[name], record[f"{name}_time"])) == repr(point)
        total = sum(Fraction(v) for _, v, _ in rows)
        assert record["volume"] == rounded(total)
        exact = total and sum(Fraction(p) * Fraction(v) for p, v, _ in rows) / total
        assert record["vwap"] == (rounded(exact) if total else None)


def test_candlesticks_of_special_values():
    prices, volumes = pa.array([math.nan, 2.0, math.inf, 4.0]), pa.array([1.0, math.inf, 1.0, None])
    function, times = aggr.Candlestick(), pa.array([1, 2, 3, 4])
    (record,) = function.finish(function.reduce([prices, volumes, times], Groups.single(4))).to_pylist()
    assert repr({name: value for name, value in record.items() if "_" not in name}) == (
        "{'open': nan, 'high': nan, 'low': 2.0, 'close': inf, 'volume': inf, 'vwap': nan}"
    )


def test_a_frame_of_trades():
    measures = {"candle": aggr.candlestick("price", volume="size"), "n": aggr.count(), "first": aggr.first("price")}
    frame = TiltFrame(["1m", "1h"], "ts", measures, ["symbol"])
    trades = pa.table(
        {
            "ts": pa.array([0, 30, 61, 59], pa.timestamp("s", "UTC")),
            "symbol": ["A"] * 4,
            "price": pa.array([Decimal("10.00"), Decimal("12.50"), Decimal("9.75"), Decimal("11.00")]),
            "size": [100, 50, 10, 1],
        }
    )
    results = finish(rollup(trades, frame), frame, flat=True)
    hour = results.filter(pa.array(np.array(results["level"].to_pylist()) == "1h")).to_pylist()[0]
    assert (hour["candle_open"], hour["candle_high"], hour["candle_low"], hour["candle_close"]) == (
        10,
        12.5,
        9.75,
        9.75,
    )
    assert (hour["candle_volume"], hour["candle_vwap"], hour["n"]) == (161, float(Fraction(173350, 16100)), 4)
    assert hour["candle_high_time"].second == 30


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([pa.string(), pa.int64(), pa.int64()], "candlestick cannot take a column of type string; it takes integers"),
        ([pa.int64(), pa.bool_(), pa.int64()], "candlestick cannot take a column of type bool; it takes integers"),
        ([pa.int64(), pa.int64(), pa.list_(pa.int64())], r"of type list<.*>; it takes types that have an order"),
    ],
    ids=["price", "volume", "time"],
)
def test_columns_of_other_types_are_refused(types, message):
    with pytest.raises(TypeError, match=message):
        aggr.Candlestick().zero(1, pa.struct(list(zip(aggr.Candlestick.inputs, types, strict=True))))


@pytest.mark.parametrize(("first", "other"), [("lowest", "highest"), ("earliest", "latest")])
def test_points_that_contradict_each_other_are_damaged(first, other):
    function = aggr.M4()
    states = function.reduce([pa.array([1.0, 2.0, 0.5]), pa.array([1, 2, 3])], Groups.single(3))
    fields = {field.name: states.field(field.name) for field in states.type}
    fields[first], fields[other] = fields[other], fields[first]
    with pytest.raises(
        DamagedState, match=r"outside the range from its (lowest|earliest) to its (highest|latest) point"
    ):
        function.finish(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))
    fields[first] = pa.nulls(1, fields[first].type)
    with pytest.raises(DamagedState, match="cannot come from the same rows"):
        function.finish(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))
