"""rollup, cube, pivot and Spark's own aggregates in `su.group_by` give the rows of Spark's groupBy."""

from __future__ import annotations

import pytest

import aggr

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def df(spark):
    return spark.sql("""
        SELECT IF(id % 5 = 0, NULL, 'h' || id % 3) AS host, struct(id % 2 AS shelf) AS place,
               IF(id % 7 = 0, NULL, CAST(id AS double)) AS x, id AS `a.b`
        FROM range(60)""").repartition(3)


def same(ours, spark_rows) -> bool:
    return sorted(map(str, ours.collect())) == sorted(map(str, spark_rows.collect()))


@pytest.mark.long
@pytest.mark.parametrize("totals", ["rollup", "cube"])
def test_totals_are_those_of_spark(df, totals):
    from pyspark.sql import functions as F

    import spark_udaf as su

    ours = getattr(su.group_by(df), totals)("host", "place")
    spark_groups = getattr(df, totals)("host", "place")
    expected = spark_groups.agg(F.count("x").alias("n"), F.max("x").alias("hi"))
    assert same(ours.agg(n=aggr.count("x"), hi=aggr.max("x")), expected)
    mixed = ours.agg(n=aggr.count("x"), hi=F.max("x"))
    assert mixed.columns == expected.columns
    assert same(mixed, expected)
    assert same(ours.agg(F.count("x").alias("n"), F.max("x").alias("hi")), expected)


@pytest.mark.long
def test_beside_aggregates_of_spark_the_order_and_the_names_are_those_of_the_calls(df):
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    result = su.group_by(df, "host", "place").agg(F.max("x"), A.max("x").alias("hi"), m=F.sum("`a.b`"), n=aggr.count())
    expected = df.groupBy("host", "place").agg(
        F.max("x"), F.max("x").alias("hi"), F.sum("`a.b`").alias("m"), F.count("*").alias("n")
    )
    assert result.columns == expected.columns
    assert same(result, expected)
    total = su.group_by(df).agg(F.max("x"), A.count(), having="`count()` > 1")
    assert total.collect() == [(59.0, 60)]
    with pytest.raises(ValueError, match="the name 'host' is used twice"):
        su.group_by(df, "host").agg(A.count(), host=F.max("x"))


@pytest.mark.long
@pytest.mark.parametrize("values", [None, ["h1", "h9"]])
def test_pivot_is_that_of_spark(df, values):
    from pyspark.sql import functions as F

    import spark_udaf as su

    ours = su.group_by(df, "place").pivot("host", values)
    spark_groups = df.groupBy("place").pivot("host", values)
    one_aggregate, two = ours.agg(hi=aggr.max("x")), ours.agg(hi=aggr.max("x"), lo=F.min("x"))
    assert one_aggregate.columns == spark_groups.agg(F.max("x").alias("hi")).columns
    assert same(one_aggregate, spark_groups.agg(F.max("x").alias("hi")))
    assert two.columns == spark_groups.agg(F.max("x").alias("hi"), F.min("x").alias("lo")).columns
    assert same(two, spark_groups.agg(F.max("x").alias("hi"), F.min("x").alias("lo")))


def test_keys_are_named_once(df):
    import spark_udaf as su

    with pytest.raises(ValueError, match=r"pass all keys to cube\(…\)"):
        su.group_by(df, "host").cube("place")
    with pytest.raises(ValueError, match="pivot cannot follow rollup"):
        su.group_by(df).rollup("host").pivot("place")
    with pytest.raises(
        TypeError, match=r"agg accepts calls of aggr, of spark_udaf\.functions and Spark's own aggregates"
    ):
        su.group_by(df, "host").agg(3)
