"""Results as doubles: a number that a double cannot represent is rejected."""

from __future__ import annotations

import os
import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from spark_udaf.udaf.exact_cast import exact_cast

TRIALS = int(os.environ.get("TRIALS", "300"))


def draw_type(rng: random.Random) -> pa.DataType:
    precision = rng.randint(1, 38)
    return rng.choice([pa.int8(), pa.int32(), pa.int64(), pa.decimal128(precision, rng.randint(0, precision))])


def draw_value(rng: random.Random, dtype: pa.DataType) -> int | Decimal:
    if pa.types.is_integer(dtype):
        bound = 2 ** (dtype.bit_width - 1)
        return max(-bound, min(bound - 1, rng.choice([-1, 1]) * (2 ** rng.randint(0, 63) + rng.randint(-1, 1))))
    digits = rng.randrange(10 ** rng.randint(1, dtype.precision))
    if rng.random() < 0.5:  # a multiple of 5^s is a double
        digits = digits // 5**dtype.scale * 5**dtype.scale
    return Decimal(digits * rng.choice([-1, 1])).scaleb(-dtype.scale)


def test_every_number_is_the_same_or_refused():
    rng = random.Random(7)
    outcomes = set()
    for _ in range(TRIALS):
        dtype = draw_type(rng)
        values = [None if rng.random() < 0.1 else draw_value(rng, dtype) for _ in range(rng.randint(1, 3))]
        is_exact = all(value is None or Fraction(float(value)) == Fraction(value) for value in values)
        outcomes.add(is_exact)
        column = pa.array([None, *values], dtype).slice(1)
        if not is_exact:
            with pytest.raises(ValueError, match=r"a double cannot represent .* exactly"):
                exact_cast(column, pa.float64())
            continue
        result = exact_cast(column, pa.float64()).to_pylist()
        assert [None if value is None else Fraction(value) for value in result] == [
            None if value is None else Fraction(value) for value in values
        ]
    assert outcomes == {True, False}


def test_numbers_inside_of_lists_and_structs():
    column = pa.array([[{"n": 1}], None, [], [{"n": None}, {"n": 2**60}]], pa.list_(pa.struct([("n", pa.int64())])))
    target = pa.list_(pa.struct([("n", pa.float64())]))
    assert exact_cast(column.slice(1), target).to_pylist() == column.slice(1).to_pylist()
    with pytest.raises(ValueError, match=f"cannot represent {2**60 + 1} exactly"):
        exact_cast(pa.array([[{"n": 2**60 + 1}]], column.type), target)
