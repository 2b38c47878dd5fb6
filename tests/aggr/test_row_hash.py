"""Row hashes are equal for equal rows, however they are stored, and different for all other rows that were tried."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.row_hash import row_hashes
from tests.engines import FRAME, rows
from tiltframe import rollup

DIFFERENT = {
    "int64": pa.array([*range(-50, 50), 2**63 - 1, -(2**63), None]),
    "int8": pa.array([*range(-128, 128), None], pa.int8()),
    "float64": pa.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 5e-324, None]),
    "bool": pa.array([True, False, None]),
    "string": pa.array(["", "\0", "\0\0", "a", "b", "ab", "ba", "ä", "a" * 9, "a" * 10, None]),
    "binary": pa.array([b"", b"\0", b"\0\0", b"\1", None]),
    "decimal": pa.array([Decimal(10) ** 37, -(Decimal(10) ** 37), Decimal(0), Decimal(1), Decimal(2) ** 64, None]),
    "time": pa.array([0, 1, -1, None], pa.timestamp("us", "UTC")),
    "list": pa.array([[], [0], [0, 0], [None], [1, 2], [2, 1], [1], None], pa.list_(pa.int32())),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}, None]),
    "list of text": pa.array([["a", "b"], ["ab"], ["", "ab"], ["ab", ""], [], [""], None]),
}


def hashes(*columns) -> list[tuple[int, int]]:
    return [tuple(row) for row in row_hashes(columns).T.tolist()]


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_values_have_different_hashes_in_either_lane(kind):
    result = hashes(DIFFERENT[kind])
    assert len({first for first, _ in result}) == len({second for _, second in result}) == len(result)


@pytest.mark.parametrize("kind", DIFFERENT)
def test_the_same_values_have_the_same_hashes_however_they_lie(kind):
    values = DIFFERENT[kind]
    result = hashes(values)
    assert hashes(values.slice(1, 2)) == result[1:3]
    assert hashes(pa.chunked_array([values.slice(0, 2), values.slice(2)])) == result
    order = np.random.default_rng(0).permutation(len(values))
    assert hashes(values.take(pa.array(order))) == [result[i] for i in order]
    assert hashes(pa.concat_arrays([values, values])[len(values) :]) == result
    assert hashes(values.slice(0, 0)) == []


def test_columns_are_told_apart():
    a, b = pa.array([1, 2]), pa.array([2, 1])
    assert hashes(a, b) == hashes(b, a)[::-1]
    assert len(set(hashes(a, b) + hashes(a) + hashes(a, a))) == 6


def test_states_of_all_functions_hardly_collide():
    states = rollup(rows(20_000), FRAME)
    first, second = row_hashes(states.columns)
    assert len(np.unique(first)) == len(np.unique(second)) == states.num_rows
    assert aggr.arrow.row_hash.row_hashes(states.slice(7, 100).columns).tolist() == [
        first[7:107].tolist(),
        second[7:107].tolist(),
    ]


@pytest.mark.long
@pytest.mark.slow
def test_compiled_or_not_the_bits_are_the_same(monkeypatch):
    import aggr.arrow.row_hash as module

    states = rollup(rows(300), FRAME)
    compiled = row_hashes(states.columns)
    for name in ("_mix", "_mix_hashes", "_mix_pieces", "_hash_pieces", "_fnv_hashes"):
        monkeypatch.setattr(module, name, getattr(module, name).__compiled_loop__)
    assert (row_hashes(states.columns) == compiled).all()
