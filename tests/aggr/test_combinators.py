"""each_column, and functions of distinct values, compared with DuckDB."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.tables.state_plan import plan_state_columns
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

RNG = np.random.default_rng(23)
IDS = Groups.of(RNG.integers(0, 5, 400), 6)
INTEGERS = RNG.integers(-9, 9, 400)


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(12, 2)], ids=str)
@pytest.mark.parametrize("name", ["sum", "avg", "count"])
def test_duckdb_agrees_on_distinct_values(name, kind):
    values = pa.array([None if v == 3 else Decimal(int(v)) / 4 for v in INTEGERS]).cast(pa.decimal128(12, 2))
    values = pa.array(INTEGERS, mask=INTEGERS == 3) if kind == pa.int64() else values.cast(kind)
    function = getattr(aggr, name)("x", distinct=True).function
    parts = function.reduce(values, Groups.each(400))
    rows = pa.table({"g": IDS.ids, "x": values})  # noqa: F841 DuckDB finds it by its name
    expected = duckdb.sql(f"SELECT g, {name}(DISTINCT x) FROM rows GROUP BY g ORDER BY g").fetchall()
    result = function.finish(function.merge(parts, IDS)).to_pylist()
    assert result == [*(value for _, value in expected), 0 if name == "count" else None]


def test_special_values_are_one_each():
    values = pa.array([math.nan, math.nan, 1.0, 0.0, -0.0, 1.0])
    function = aggr.sum("x", distinct=True).function
    assert math.isnan(function.finish(function.reduce(values, Groups.single(6)))[0].as_py())
    ids = Groups.of([0, 0, 1, 1, 1, 1], 2)
    assert aggr.AvgDistinct().finish(function.reduce(values, ids))[1].as_py() == 0.5


def test_calls_of_distinct_values_share_a_set_and_travel():
    measures = {name: getattr(aggr, name)("x", distinct=True) for name in ("sum", "avg", "count")}
    assert [column.serves for column in plan_state_columns(measures)] == [tuple(measures)]
    assert measure_from("sum(x, distinct=True, where='y > 1')") == aggr.sum_distinct("x", where="y > 1")
    assert aggr.from_description(measures["avg"].describe()) == measures["avg"]
    assert aggr.sum("x", distinct=False) == aggr.sum("x")


def test_distinct_counts_go_over_to_the_estimate():
    measure = aggr.count_distinct("x", beyond="estimate", where="y > 1")
    assert measure == aggr.approx_count_distinct("x", where="y > 1")
    assert measure_from("count_distinct(x, max=100, beyond='estimate')") == aggr.approx_count_distinct("x", k=100)
    assert aggr.count_distinct("x", 100, beyond="error") == aggr.count_distinct("x", 100)
    function, values = aggr.count_distinct("x", 100, beyond="estimate").function, pa.array(range(1000))
    counted = [function.finish(function.reduce(values[:n], Groups.single(n)))[0].as_py() for n in (100, 1000)]
    assert counted[0] == 100
    assert 0 < abs(counted[1] - 1000) < 300
    with pytest.raises(ValueError, match="beyond must be 'error', 'null' or 'estimate'; got 'sample'"):
        aggr.count_distinct("x", beyond="sample")
    with pytest.raises(ValueError, match="beyond must be 'error' or 'null'; got 'estimate'"):
        aggr.collect_set("x", beyond="estimate")


@pytest.mark.parametrize("name", ["min", "dds", "first", "var", "collect"])
def test_others_take_no_distinct(name):
    with pytest.raises(TypeError, match=f"{name}: there is no parameter 'distinct'; it takes column"):
        getattr(aggr, name)("x", distinct=True)


def test_weights_beside_distinct_are_refused():
    with pytest.raises(TypeError, match="sum_distinct: there is no parameter 'weight'"):
        aggr.sum("x", weight="w", distinct=True)
    with pytest.raises(ValueError, match="distinct must be True or False; got 'yes'"):
        aggr.sum("x", distinct="yes")


def test_each_column_in_a_frame():
    measures = aggr.each_column(["a", "b"], aggr.avg, where="a > 1") | aggr.each_column(["a"], aggr.var, 0)
    assert list(measures) == ["a_avg", "b_avg", "a_var"]
    frame = TiltFrame(["1m"], "ts", measures)
    (row,) = finish(rollup(pa.table({"ts": [0, 0, 0], "a": [1, 2, 4], "b": [5, 6, 8]}), frame), frame).to_pylist()
    assert (row["a_avg"], row["b_avg"], row["a_var"]) == (3.0, 7.0, 14 / 9)


@pytest.mark.parametrize(
    ("columns", "call"), [("ab", aggr.avg), (5, aggr.avg), (["a"], "avg")], ids=["text", "number", "name"]
)
def test_each_column_rejects_wrong_columns_and_constructors(columns, call):
    message = r"each_column takes a list of columns and a measure constructor, .*\['a', 'b'\], aggr\.avg\)"
    with pytest.raises(TypeError, match=message):
        aggr.each_column(columns, call)
