"""bool_and, bit_or, range, rms and others, compared with DuckDB and fractions for columns of special values."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.testing.edge_cases import edge_cases

IDS = Groups.of(np.arange(200) * 7 % 60 // 3, 20)


def by_duckdb(call: str, values: pa.Array) -> list:
    rows = pa.table({"g": IDS.ids, "x": values})  # noqa: F841 DuckDB finds it by its name
    with duckdb.connect() as db:
        return [value for _, value in db.sql(f"SELECT g, {call} FROM rows GROUP BY g ORDER BY g").fetchall()]


def by_hand(values: pa.Array) -> list[list]:
    values_by_group = [[] for _ in range(IDS.n)]
    for group, value in zip(IDS.ids.tolist(), values.to_pylist(), strict=True):
        if value is not None:
            values_by_group[group].append(value)
    return values_by_group


def results(name: str, values: pa.Array) -> list:
    function = aggr.get(name)()
    return function.finish(function.reduce(values, IDS)).to_pylist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["bool_and", "bool_or"])
def test_booleans(name, seed):
    values = edge_cases(pa.bool_(), 200, seed)
    assert results(name, values) == by_duckdb(f"{name}(x)", values)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()], ids=str)
@pytest.mark.parametrize("name", ["bit_and", "bit_or", "bit_xor"])
def test_bits(name, kind):
    values = edge_cases(kind, 200, 3)
    assert results(name, values) == by_duckdb(f"{name}(x)", values)


def test_any_value_is_the_earliest():
    values, times = pa.array(["b", None, "a", "c"]), pa.array([2, 0, 1, 1])
    function, single = aggr.AnyValue(), Groups.single(4)
    assert function.finish(function.reduce([values, times], single)).to_pylist() == ["a"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.decimal128(20, 3)], ids=str)
def test_range(kind):
    values = edge_cases(kind, 200, 1, special=False)
    if kind in (pa.int64(), pa.uint64()):
        values = pa.array([None if v is None else v // 2 for v in values.to_pylist()], kind)
    for result, values_of_group in zip(results("range", values), by_hand(values), strict=True):
        if not values_of_group:
            assert result is None
        elif pa.types.is_floating(kind):
            assert repr(result) == repr(rounded(Fraction(max(values_of_group)) - Fraction(min(values_of_group))))
        else:
            assert result == max(values_of_group) - min(values_of_group)


def rounded(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def test_a_range_beyond_int64_is_an_error():
    function = aggr.Range()
    states = function.reduce(pa.array([-(2**63), 2**63 - 1]), Groups.single(2))
    with pytest.raises(OverflowError, match=r"is 18446744073709551615, which does not fit into int64; cast the"):
        function.finish(states)


def test_ranges_that_contradict_themselves_are_damaged():
    function = aggr.Range()
    states = function.reduce(pa.array([1.0, 2.0]), Groups.single(2))
    fields = {field.name: states.field(field.name) for field in states.type}
    fields["least"], fields["greatest"] = fields["greatest"], fields["least"]
    with pytest.raises(DamagedState, match="its minimum is above its maximum"):
        function.finish(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.decimal128(38, 20)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_squares_are_correctly_rounded(kind, seed):
    values = edge_cases(kind, 200, seed, special=False)
    for total, root, values_of_group in zip(
        results("sum_of_squares", values), results("rms", values), by_hand(values), strict=True
    ):
        if not values_of_group:
            assert total is root is None
            continue
        exact = sum(Fraction(v) ** 2 for v in values_of_group)
        assert total == rounded(exact)
        near = [math.nextafter(root, way) for way in (-math.inf, math.inf)]  # the root lies between the middles to both
        low, high = ((Fraction(root) + Fraction(side)) / 2 for side in near)
        assert low**2 * (low > 0) <= exact / len(values_of_group) <= high**2


@pytest.mark.parametrize("name", ["sum_of_squares", "rms"])
def test_squares_of_infinities(name):
    for values, expected in ([math.inf, -math.inf], "inf"), ([math.nan, math.inf], "nan"), ([0.0, -0.0], "0.0"):
        function = aggr.get(name)()
        assert repr(function.finish(function.reduce(pa.array(values), Groups.single(2)))[0].as_py()) == expected
