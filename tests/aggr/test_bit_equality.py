"""Equality of bits does not depend on how two columns are stored in memory."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from aggr.arrow.bit_equality import same_bits

WHOLE = pa.array([1, 1, 2, None])
TEXT = pa.array(["a", "a", "", None])


def struct_of(column: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([column], names=["member"])


def lists_of(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)


@pytest.mark.parametrize(
    "nested", [lambda column: column, struct_of, lists_of, lambda column: lists_of(struct_of(column))]
)
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (WHOLE[:2], WHOLE[:2], True),
        (WHOLE[:2], WHOLE[1:3], False),  # two slices of one buffer
        (WHOLE[2:], pa.array([2, None]), True),
        (TEXT[1:], pa.array(["a", "", None]), True),
        (TEXT[:2], TEXT[1:3], False),
        (pa.array([0.0]), pa.array([-0.0]), False),
        (pa.array([math.nan]), pa.array([math.nan]), True),
        (pa.array([1]), pa.array([1], pa.int32()), False),
        (pa.array([7, None]), pa.array([7, 8], mask=pa.array([False, True]).to_numpy(zero_copy_only=False)), True),
        (pa.array(["x", "y"]).dictionary_encode(), pa.array(["x", "z"]).dictionary_encode(), False),
        (pa.array(["x", "y"]).dictionary_encode(), pa.array(["x", "y"]).dictionary_encode(), True),
    ],
)
def test_columns_have_the_same_bits_if_their_values_have(a, b, expected, nested):
    assert same_bits(nested(a), nested(b)) is expected
