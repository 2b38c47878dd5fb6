"""top_k, bottom_k and histogram, compared with DuckDB, a naive evaluation, and PostgreSQL's rule for the edges of
buckets.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.testing.edge_cases import edge_cases
from tiltframe.text.measures import measure_from

IDS = Groups.of(np.arange(300) * 7 % 60 // 3, 20)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.timestamp("us"), pa.decimal128(9, 2)], ids=str)
@pytest.mark.parametrize(("name", "direction"), [("top_k", "DESC"), ("bottom_k", "ASC")])
def test_rows_are_duckdbs_in_its_order(name, direction, kind):
    values, by = edge_cases(kind, 300, 6), edge_cases(pa.int8(), 300, 3)
    assert values.null_count < 100 > by.null_count
    rows = pa.table({"g": IDS.ids, "x": values, "y": by})  # noqa: F841 DuckDB finds it by its name
    query = f"""SELECT g, list(x ORDER BY y {direction}, x {direction}) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
        FROM rows GROUP BY g ORDER BY g"""
    with duckdb.connect() as db:
        expected = [(rows_of_group or [])[:4] for _, rows_of_group in db.sql(query).fetchall()]
    function = aggr.get(name)(4)
    assert function.finish(function.reduce([values, by], IDS)).to_pylist() == expected


def test_nan_is_the_greatest_and_a_tie_goes_to_the_greater_value():
    columns = [pa.array(["a", "b", "c", "d"]), pa.array([1.0, math.nan, math.inf, math.inf])]
    for function, expected in (aggr.TopK(3), ["b", "d", "c"]), (aggr.BottomK(3), ["a", "c", "d"]):
        assert function.finish(function.reduce(columns, Groups.single(4))).to_pylist() == [expected]


def test_lists_of_no_row_are_empty_also_in_a_slice():
    function = aggr.TopK(2)
    states = function.reduce([pa.array([1, 2, 3]), pa.array([1, 2, 3])], Groups.of([0, 0, 2], 4))
    assert function.finish(states.slice(1, 2)).to_pylist() == [[], [3]]


EDGES = (-50.0, -0.25, 0.0, 0.5, 3.0, 2.0**53, 2.0**63)


@pytest.mark.parametrize(
    "kind",
    [pa.float64(), pa.float32(), pa.int8(), pa.int64(), pa.uint64(), pa.decimal128(12, 3), pa.decimal128(38, 20)],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_a_value_is_counted_between_its_edges(kind, seed):
    function, values = aggr.Histogram(EDGES), edge_cases(kind, 300, seed)
    counts = [Counter() for _ in range(IDS.n)]
    for group, value in zip(IDS.ids.tolist(), values.to_pylist(), strict=True):
        if value is None:
            continue
        nan = value != value
        place = -1 if nan else bisect.bisect_right(EDGES, value if value in (math.inf, -math.inf) else Fraction(value))
        counts[group][place] += 1
    for result, count in zip(function.finish(function.reduce(values, IDS)).to_pylist(), counts, strict=True):
        assert result["counts"] == [count[place] for place in range(1, len(EDGES))]
        assert (result["below"], result["above"], result["nan"]) == (count[0], count[len(EDGES)], count[-1])


def test_edges_that_a_type_does_not_reach():
    function = aggr.Histogram((-1e300, 0.5, 1e300))
    for values in (pa.array([-128, 0, 1], pa.int8()), pa.array(["-9.9", "0.4", "0.5"]).cast(pa.decimal128(2, 1))):
        result = function.finish(function.reduce(values, Groups.single(3)))[0].as_py()
        assert result == {"counts": [2, 1], "below": 0, "above": 0, "nan": 0}


def test_a_call_travels_as_text_and_as_a_description():
    for measure in aggr.histogram("x", edges=[0, 0.5]), aggr.top_k("x", by="y", k=3):
        assert measure_from(repr(measure)) == measure
        assert aggr.from_description(measure.describe()) == measure


def test_cells_of_another_number_are_damaged():
    function = aggr.Histogram((0, 1))
    states = function.reduce(pa.array([0.5]), Groups.single(1))
    fields = {field.name: states.field(field.name) for field in states.type} | {"counts": pa.array([[1, 2, 3]])}
    with pytest.raises(DamagedState, match="contains 3 counts, and must contain 4"):
        function.merge(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)), Groups.single(1))
