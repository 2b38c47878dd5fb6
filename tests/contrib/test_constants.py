"""Constants of funnel and duration_in: values that the column's type does not have, and NaN; and times far apart."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, finish, rollup

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def result_of(measure, values):
    frame = TiltFrame(["1m"], "ts", {"r": measure})
    return finish(rollup(pa.table({"ts": [0, 1000, 2000], "x": values}), frame), frame)["r"].to_pylist()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("value", [1.5, Decimal("1.5"), 0.1, 2**70, -(2**70), math.inf, "1"])
def test_values_that_the_type_does_not_have_are_refused(dtype, value):
    values = pa.array([1, 2, 1], dtype)
    with pytest.raises(TypeError, match="pass a state of that type"):
        result_of(aggr.duration_in("x", value), values)
    with pytest.raises(TypeError, match="write the steps in that type"):
        result_of(aggr.funnel("x", [value]), values)


@pytest.mark.parametrize("dtype", [*INTEGERS, pa.float32(), pa.float64(), pa.decimal128(9, 2)], ids=str)
@pytest.mark.parametrize("value", [1, Decimal(1)])
def test_equal_values_of_other_types_are_found(dtype, value):
    values = pa.array([1, 2, 1]).cast(pa.float64() if pa.types.is_floating(dtype) else pa.int64())
    values = pa.array([Decimal(1), Decimal(2), Decimal(1)], dtype) if pa.types.is_decimal(dtype) else values.cast(dtype)
    if pa.types.is_floating(dtype) and isinstance(value, Decimal):
        value = float(value)  # Arrow does not convert decimals to doubles
    assert result_of(aggr.duration_in("x", value), values) == [1.0]
    assert result_of(aggr.funnel("x", [value]), values) == [1]


def test_fractions_of_days_are_refused():
    days = pa.array([dt.date(1970, 1, 2)] * 3)
    with pytest.raises(TypeError, match="pass a state of that type"):
        result_of(aggr.duration_in("x", 1.5), days)


@pytest.mark.parametrize("value", [math.nan, Decimal("NaN")])
def test_nan_is_refused(value):
    with pytest.raises(ValueError, match="must not be NaN"):
        aggr.duration_in("x", value)
    with pytest.raises(ValueError, match="must not contain NaN"):
        aggr.funnel("x", [1.0, value])


FUNCTIONS = [
    aggr.Rate(),
    aggr.Increase(),
    aggr.Funnel((1, 2), "1h"),
    aggr.Integral(),
    aggr.TimeWeightedAvg(),
    aggr.DurationIn(1),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_times_that_are_too_far_apart_are_refused(function):
    """The distance does not fit into int64. Times that are far apart in different groups do not matter."""
    times = pa.array([-(2**63) + 1, 2**63 - 1], pa.timestamp("us"))
    values = pa.array([1, 2])
    with pytest.raises(OverflowError, match=r"292,000 years apart"):
        function.finish(function.reduce([values, times], aggr.Groups.single(2)))
    apart = function.finish(function.reduce([values, times], aggr.Groups.each(2)))
    assert len(apart) == 2


def test_the_geometric_mean_of_the_greatest_doubles():
    greatest = 1.7976931348623157e308
    function = aggr.GeometricMean()
    for values in ([greatest], [greatest] * 3, [greatest] * 1000):
        assert (
            function.finish(function.reduce(pa.array(values), aggr.Groups.single(len(values))))[0].as_py() == greatest
        )
    below = math.nextafter(greatest, 0)
    mean = function.finish(function.reduce(pa.array([below] * 3), aggr.Groups.single(3)))[0].as_py()
    assert abs(mean / greatest - 1) < 2**-51
