"""Columns of states remain known through tables, folders, views and unions, and states of other measures are
rejected.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = pytest.mark.spark


def frame(status: int) -> TiltFrame:
    return TiltFrame(["1h"], "ts", {"errors": aggr.count(where=f"status >= {status}")})


@pytest.fixture(scope="module")
def df(spark):
    return spark.sql("""
        SELECT id % 2 AS k, id AS lat, id * 10 AS amount, timestamp_seconds(id) AS ts,
               CAST(400 + id % 2 * 100 AS int) AS status
        FROM range(10)""")


def ways(spark, states, folder, name):
    """Move states by plain Spark."""
    yield states
    states.write.parquet(f"{folder}/plain")
    yield spark.read.parquet(f"{folder}/plain")
    first = states.columns[0]
    states.write.partitionBy(first).parquet(f"{folder}/parted")
    yield spark.read.parquet(f"{folder}/parted")
    states.where("false").write.option("path", f"{folder}/table").saveAsTable(name)
    states.write.insertInto(name)
    yield spark.table(name)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW view_of_{name} AS SELECT * FROM {name} WHERE {first} IS NOT NULL")
    yield spark.table(f"view_of_{name}").union(states.where("false"))


@pytest.mark.long
def test_states_of_a_frame(spark, df, tmp_path):
    import spark_udaf as su

    store = FrameStore(str(tmp_path / "store"), frame(400))
    try:
        for states in ways(spark, su.rollup(df, frame(500)), tmp_path, "identity_frame"):
            assert su.finish(states, frame(500)).first().errors == 5
            with pytest.raises(ValueError, match="these are not states of this frame: 'errors' is"):
                su.finish(states, frame(400))
            with pytest.raises(ValueError, match="these are not states of this frame: 'errors' is"):
                su.append(states, store, "writer", 1)
    finally:
        spark.sql("DROP TABLE IF EXISTS identity_frame")


@pytest.mark.long
def test_states_by_keys(spark, df, tmp_path):
    import spark_udaf as su

    grouped_states = su.aggregate(df, ["k"], {"a": aggr.avg("lat"), "n": aggr.count(where="status >= 500")})
    try:
        for states in ways(spark, grouped_states, tmp_path, "identity_keys"):
            merged = su.merge(states, [])
            assert su.finish(merged, {"a": aggr.avg("lat")}).first().a == 4.5
            assert su.finish(merged, {"a": aggr.sum("lat")}).first().a == 45
            for other in ({"a": aggr.avg("amount")}, {"n": aggr.count(where="status >= 400")}, {"n": aggr.count()}):
                with pytest.raises(
                    ValueError, match=r"these are not states of .*: .*, from which .* cannot be read; pass trust=True"
                ):
                    su.finish(merged, other)
        assert su.finish(merged, {"a": aggr.avg("amount")}, trust=True).first().a == 4.5
    finally:
        spark.sql("DROP TABLE IF EXISTS identity_keys")


@pytest.mark.long
def test_states_that_do_not_say_what_they_are_of_need_trust(spark, df):
    import spark_udaf as su

    measures = {"a": aggr.avg("lat")}
    states = su.aggregate(df, ["k"], measures)
    unnamed = states.select("k", F.col("a").alias("a", metadata={}))
    with pytest.raises(ValueError, match=r"the column 'a' does not record the measures of its states.*trust=True"):
        su.finish(unnamed, measures)
    assert sorted(su.finish(unnamed, measures, trust=True).collect()) == [(0, 4.0), (1, 5.0)]
    rolled = su.rollup(df, frame(500))
    unnamed = rolled.select(*(F.col(name).alias(name, metadata={}) for name in rolled.columns))
    with pytest.raises(ValueError, match="the column 'level' does not record the measures"):
        su.finish(unnamed, frame(400))
    assert su.finish(unnamed, frame(500), trust=True).first().errors == 5


@pytest.mark.long
def test_a_union_of_different_states_is_refused(spark, df, tmp_path):
    """Spark keeps the metadata of the first side alone."""
    import spark_udaf as su

    few, many = (su.aggregate(df, ["k"], {"a": aggr.avg(column)}) for column in ("lat", "amount"))
    for united in (few.union(many), few.unionByName(many).where("k = 0").select("k", "a")):
        with pytest.raises(
            ValueError, match="a union combined these states, and the column 'a' contains states of different measures"
        ):
            su.finish(united, {"a": aggr.avg("lat")})
        with pytest.raises(ValueError, match="contains states of different measures"):
            su.merge(united, ["k"])
    assert su.finish(su.merge(few.union(few), []), {"a": aggr.avg("lat")}).first().a == 4.5
    rolled = su.rollup(df, frame(500)).union(su.rollup(df, frame(400)))
    store = FrameStore(str(tmp_path / "store"), frame(500))
    with pytest.raises(ValueError, match="contains states of different measures"):
        su.append(rolled, store, "writer", 1)
    with pytest.raises(ValueError, match="contains states of different measures"):
        su.finish(rolled, frame(500))
