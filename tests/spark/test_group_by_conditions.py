"""Conditions of `aggr` calls in `su.group_by` read the columns and fields of the DataFrame, whatever its keys are."""

import pytest
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from spark_udaf import functions as A


@pytest.fixture(scope="module")
def df(spark):
    rows = spark.sql(
        "SELECT id, id % 2 k, named_struct('a', id, 'b', named_struct('c', id * 10)) s, "
        "named_struct('a', 0L, 'b', named_struct('c', 0L)) o, map('p', id) m, CAST(id AS double) x, "
        "id AS `s.d`, timestamp_seconds(id * 1800) ts FROM range(4)"
    )
    return rows.withColumn("window", F.window("ts", "1 hour"))


CONDITIONS = [
    "s.a > 1",
    "s.b.c > 10",
    "`s.d` > 1",
    "m['p'] > 1",
    "window.start > TIMESTAMP '1970-01-01 00:30:00Z'",
    "s.a > 1 AND o.a = 0 AND x > 1.5",
]
KEYS = {
    "a column": lambda: ["k"],
    "no key": lambda: [],
    "a struct": lambda: ["o"],
    "another struct under its name": lambda: [F.col("o").alias("s")],
    "another column under its name": lambda: [F.lit(0).alias("s")],
    "a window under its name": lambda: [F.window("ts", "1 day")],
    "a constant under the name of a number": lambda: [F.lit(0).alias("x")],
}


@pytest.mark.spark
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("keys", KEYS)
def test_conditions_count_the_rows_that_spark_counts(df, condition, keys):
    columns = KEYS[keys]()
    result = su.group_by(df, *columns).agg(
        n=aggr.count(where=condition), total=aggr.sum("x", where=condition), a=A.count(where=F.expr(condition))
    )
    rows = result.select("n", "total", "a").collect()
    assert [row.n for row in rows] == [row.a for row in rows]
    assert sum(row.n for row in rows) == df.where(condition).count()
    assert sum(row.total or 0 for row in rows) == (df.where(condition).agg(F.sum("x")).first()[0] or 0)


@pytest.mark.spark
@pytest.mark.parametrize("condition", ["nope > 5", "S.a > 1"])
def test_a_missing_column_is_named_with_those_of_the_dataframe(df, condition):
    with pytest.raises(ValueError, match=r"there are id, k, s, o, m, x, s\.d, ts, window"):
        su.group_by(df, "k").agg(n=aggr.count(where=condition)).collect()
