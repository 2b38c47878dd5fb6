"""Decimals of all precisions and scales: remainders, and columns with a negative scale."""

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.normalize import normalized_type
from aggr.sql import evaluate
from tiltframe import TiltFrame, finish, rollup

TYPES = [(3, 0), (3, 2), (5, 2), (9, 2), (12, 3), (18, 2), (19, 0), (20, 18), (30, 10)]


@pytest.mark.parametrize(("precision", "scale"), TYPES)
@pytest.mark.parametrize("divisor", ["0.1", "2.5", "p", "0.25", "0", "-0.7"])
def test_remainders(precision, scale, divisor):
    """Python's decimals have remainders with the sign of the dividend, too."""
    if not hasattr(pc, "remainder"):
        pytest.skip("this pyarrow has no remainder")
    rng = random.Random(precision * 100 + scale)
    values = [
        Decimal(rng.randrange(-(10 ** min(precision, 9)) + 1, 10 ** min(precision, 9))).scaleb(-scale)
        for _ in range(20)
    ]
    table = pa.table({"p": pa.array(values, pa.decimal128(precision, scale))})
    divisors = values if divisor == "p" else [Decimal(divisor)] * len(values)
    expected = [None if not by else value % by for value, by in zip(values, divisors, strict=True)]
    assert evaluate(f"p % {divisor}", table).to_pylist() == expected
    assert evaluate(f"mod(p, {divisor})", table).to_pylist() == expected


@pytest.mark.parametrize("scale", [-1, -2, -3, -20, -38])
@pytest.mark.parametrize("precision", [1, 5, 18, 36, 38])
def test_negative_scales_are_read_exactly_or_refused(precision, scale):
    raw = pa.array([1, 3, 4], pa.decimal128(precision, 0))
    values = pa.Array.from_buffers(pa.decimal128(precision, scale), 3, raw.buffers())
    frame = TiltFrame(
        ["1m"], "ts", {"sum": aggr.sum("x"), "avg": aggr.avg("x"), "sd": aggr.stdev("x"), "q": aggr.dds("x", [1])}
    )
    rows = pa.table({"ts": [0, 1, 2], "x": values})
    if precision - scale > 38:
        with pytest.raises(TypeError, match=r"more than 38; convert it to double, or to a decimal"):
            finish(rollup(rows, frame), frame)
        return
    [result] = finish(rollup(rows, frame), frame).to_pylist()
    unit = 10**-scale
    assert (result["sum"], result["avg"]) == (8 * unit, float(Decimal(8 * unit) / 3))
    assert result["sd"] == pytest.approx(unit * (7 / 3) ** 0.5, rel=1e-15)


def test_the_normalized_type_has_no_negative_scale():
    for precision in range(1, 39):
        for scale in range(-38, 1):
            try:
                dtype = normalized_type(pa.decimal128(precision, scale))
            except TypeError:
                assert precision - scale > 38
            else:
                assert (dtype.precision, dtype.scale) == (precision - scale, 0)
