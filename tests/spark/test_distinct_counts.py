"""Distinct counts and Spark's own sketches: each can read the other's; set operations of states."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.tables import set_operations
from aggr.tables.accessors import bounds
from tests.aggr.test_approx_count_distinct import SPARK

pytestmark = pytest.mark.spark

COLUMNS = {"whole": "bigint", "small": "int", "x": "double", "f": "float", "word": "string", "raw": "binary"}


@pytest.fixture(scope="module")
def df(spark):
    rng, n = np.random.default_rng(4), 20_000
    integers = rng.integers(-(2**62), 2**62, n)
    x = np.where(rng.random(n) < 0.1, rng.choice([np.nan, 0.0, -0.0, np.inf, 1e-320], n), rng.normal(size=n))
    columns = {
        "g": pa.array(np.minimum(np.arange(n) % 40, 5)),  # one large group, and some small ones
        "whole": pa.array(integers),
        "small": pa.array(integers % 9000, pa.int32()),
        "x": pa.array(x),
        "f": pa.array(x.astype(np.float32)),
        "word": pa.array([f"é{v % 7000}" * (v % 5 + 1) for v in integers.tolist()]),
        "raw": pa.array([v.to_bytes(8, "little", signed=True)[: v % 8 + 1] for v in integers.tolist()]),
    }
    return spark.createDataFrame(pa.table(columns)).repartition(4).localCheckpoint()


@pytest.mark.long
def test_each_reads_the_others(df):
    from pyspark.sql import functions as F

    import spark_udaf as su

    measures = {name: aggr.approx_count_distinct(name, k=1024) for name in COLUMNS}
    ours = su.aggregate(df, ["g"], measures).select("g", *(su.to_theta_sketch(name).alias(name) for name in COLUMNS))
    spark_sketches = df.groupBy("g").agg(*(F.theta_sketch_agg(name, 10).alias(name) for name in COLUMNS))
    both = ours.unionByName(spark_sketches).localCheckpoint()
    assert both.count() == 12
    estimates = [F.theta_sketch_estimate(name).alias(name) for name in COLUMNS]
    united = both.groupBy("g").agg(*(F.theta_sketch_estimate(F.theta_union_agg(n, 10)).alias(n) for n in COLUMNS))
    counted = [ours.select("g", *estimates), spark_sketches.select("g", *estimates), united]
    first, other, union = (sorted(table.collect()) for table in counted)
    assert first == other == union
    states = both.select("g", *(su.from_theta_sketch(name, 1024).alias(name) for name in COLUMNS)).toArrow()
    ids = aggr.Groups.of(states["g"].to_numpy(), 6)
    for name in COLUMNS:  # what Spark wrote is the very state, packed or not
        column = states[name].combine_chunks()
        local = df.toArrow()
        reduced = aggr.ApproxCountDistinct(1024).reduce(local[name], aggr.Groups.of(local["g"].to_numpy(), 6))
        assert column.to_pylist() == reduced.take(pa.array(ids.ids)).to_pylist(), name


def test_what_is_said_to_be_written_by_spark(spark):
    (row,) = spark.sql("SELECT theta_sketch_agg(id, 4) AS sketch FROM range(100)").collect()
    assert bytes(row.sketch).hex() == SPARK


@pytest.mark.long
def test_set_operations_are_the_local_ones(spark, df):
    import spark_udaf as su

    measures = {
        "a": aggr.approx_count_distinct("small", k=64, where="small < 6000"),
        "b": aggr.approx_count_distinct("small", k=64, where="small > 3000 AND g < 5"),
    }
    states = su.aggregate(df, ["g"], measures).localCheckpoint()
    states.createOrReplaceTempView("sets")
    su.register(spark)
    local = states.toArrow()
    a, b = (local[name].combine_chunks() for name in measures)
    name = "aggr_approx_count_distinct"
    for operation in ("union", "intersection", "difference", "jaccard"):
        expected = getattr(set_operations, operation)(a, b)
        columns = states.select(getattr(su.states, operation)("a", "b").alias("r")).toArrow()["r"].combine_chunks()
        in_sql = spark.sql(f"SELECT {name}_{operation}(a, b) AS r FROM sets").toArrow()["r"].combine_chunks()
        assert columns.to_pylist() == in_sql.to_pylist() == expected.to_pylist()
    expected = bounds(a, 3).to_pylist()
    assert states.select(su.states.bounds("a", 3).alias("r")).toArrow()["r"].to_pylist() == expected
    assert spark.sql(f"SELECT {name}_bounds(a, 3) AS r FROM sets").toArrow()["r"].to_pylist() == expected
    assert spark.sql(f"SELECT {name}_bounds(a) AS r FROM sets").toArrow()["r"].to_pylist() == bounds(a).to_pylist()
    with pytest.raises(Exception, match=r"union: these are not states|no registered function has states"):
        spark.sql(f"SELECT {name}_union(g, g) FROM sets").collect()


@pytest.mark.long
def test_spark_reads_hll(df):
    from pyspark.sql import functions as F

    import spark_udaf as su

    names = [name for name in COLUMNS if name not in ("x", "f")]  # Spark's hll takes no floats
    measures = {name: aggr.hll(name, lg_k=10) for name in names}
    ours = su.aggregate(df, ["g"], measures).select("g", *(su.to_hll_sketch(name).alias(name) for name in names))
    spark_sketches = df.groupBy("g").agg(*(F.hll_sketch_agg(name, 10).alias(name) for name in names))
    joined = ours.alias("a").join(spark_sketches.alias("b"), "g")
    for name in names:
        columns = F.col(f"a.{name}"), F.col(f"b.{name}")
        alone = [F.hll_sketch_estimate(column) for column in columns]
        united = F.hll_sketch_estimate(F.hll_union(*columns)), F.hll_sketch_estimate(F.hll_union(*columns[1:] * 2))
        for first, other, both, twice in joined.select(*alone, *united).collect():
            assert first == pytest.approx(other, rel=0.15)  # theirs goes by the order of rows
            assert both == twice  # their union of both is that of theirs with itself: the registers are the same
