"""Results of all nested shapes on Spark: states and results, in agg, in SQL, from lists and from a store."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggr
from tests.result_shapes import FUNCTIONS, SHAPES, expected
from tiltframe import FrameStore, TiltFrame

ROWS = {"a": [1.0, -2.5, 4.0], "b": [0.5]}


@pytest.fixture(autouse=True, scope="module")
def registered():
    for function in FUNCTIONS.values():
        aggr.register(function)
    yield
    for function in FUNCTIONS.values():
        aggr.unregister(function.name)


@pytest.fixture(scope="module")
def df(spark):
    rows = [(float(place), k, x) for k, values in ROWS.items() for place, x in enumerate(values)]
    df = spark.createDataFrame(rows, "ts double, k string, x double").selectExpr("timestamp_micros(0) AS ts", "k", "x")
    df.createOrReplaceTempView("shaped_rows")
    return df


def plain(value, dtype):
    """Convert a value of Spark to the form of Arrow: rows are dictionaries, and dictionaries of maps are pairs."""
    if value is None:
        return None
    if pa.types.is_map(dtype):
        return [(key, plain(item, dtype.item_type)) for key, item in value.items()]
    if pa.types.is_struct(dtype):
        return {field.name: plain(value[field.name], field.type) for field in dtype}
    return [plain(part, dtype.value_type) for part in value] if pa.types.is_list(dtype) else value


def in_order(value):
    """Sort pairs of maps by their keys, which Spark does not keep in order."""
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return sorted((key, in_order(item)) for key, item in value)
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    return value


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_returns_every_shape(shape, spark, df, tmp_path):
    import spark_udaf as su
    from spark_udaf import functions as A

    measure = aggr.Measure(FUNCTIONS[shape](), "x")
    frame = TiltFrame(["1s"], "ts", {"result": measure}, ["k"])
    store = FrameStore(tmp_path / "s", frame)
    su.rollup_into(df, store, "me", 1)
    name = FUNCTIONS[shape].name
    query = f"SELECT k, aggr_{name}(x) AS result FROM shaped_rows GROUP BY k"
    su.register(spark, name)
    ways = {
        "su.rollup": su.finish(su.rollup(df, frame), frame),
        "su.group_by": su.group_by(df, "k").agg(result=measure),
        "A": df.groupBy("k").agg(getattr(A.of(df), name)("x").alias("result")),
        "su.sql": su.sql(spark, query),
        "spark.sql": spark.sql(query),
    }
    dtype = SHAPES[shape][0]
    exact = {k: in_order(expected(shape, values)) for k, values in ROWS.items()}
    if shape == "map_of_lists":  # pyarrow cannot convert the scalar of a map with a null list, which PySpark does
        del ways["spark.sql"]
    for way, results in ways.items():
        got = {row["k"]: in_order(plain(row["result"], dtype)) for row in results.select("k", "result").collect()}
        assert got == exact, way


def test_sql_knows_functions_that_were_registered_after_an_earlier_query(spark, df):
    import spark_udaf as su

    function = FUNCTIONS["map_of_lists"]
    query = f"SELECT k, aggr_{function.name}(x) AS result FROM shaped_rows GROUP BY k"
    aggr.unregister(function.name)
    try:
        su.sql(spark, "SELECT aggr_avg(x) FROM shaped_rows")
    finally:
        aggr.register(function)
    dtype = SHAPES["map_of_lists"][0]
    got = {row["k"]: in_order(plain(row["result"], dtype)) for row in su.sql(spark, query).collect()}
    assert got == {k: in_order(expected("map_of_lists", values)) for k, values in ROWS.items()}
