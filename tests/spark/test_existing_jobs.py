"""Typical Spark jobs in Spark's own form and in ours, which differs in one or two lines, give the same rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import aggr

pytestmark = [pytest.mark.spark, pytest.mark.long]


def requests(spark):
    """Return the rows of all jobs, which are also the view ``existing_requests``."""
    rows = spark.sql("""
        SELECT 'h' || id % 3 AS host, IF(id % 4 = 0, 500, 200) AS status, CAST(id % 50 AS double) AS ms, id AS bytes,
               timestamp_seconds(id * 600) AS ts, CAST(id % 7 AS decimal(10, 2)) AS price, array(id % 2, 5) AS tags
        FROM range(300)""").repartition(3)
    rows.createOrReplaceTempView("existing_requests")
    return rows


@pytest.fixture(scope="module")
def df(spark):
    return requests(spark)


def spark_job(df, F, spark) -> dict[str, Callable[[], Any]]:
    by_host = df.groupBy("host")
    hour = F.window("ts", "1 hour")
    return {
        "nightly": lambda: by_host.agg(F.count("*").alias("n"), F.avg("ms").alias("m")),
        "mixed": lambda: by_host.agg(F.max("ms").alias("hi"), F.sum("bytes").alias("b")),
        "whole table": lambda: df.agg(F.count("ms").alias("n"), F.min("ms").alias("lo")),
        "condition": lambda: by_host.agg(F.count_if(F.expr("status >= 500")).alias("errors")),
        "expression": lambda: by_host.agg(F.sum(F.col("bytes") * 2).alias("b")),
        "windows of time": lambda: df.groupBy("host", hour).agg(F.max("ms").alias("hi")),
        "several keys": lambda: df.groupBy("host", "status").agg(F.min("price").alias("p")),
        "last by time": lambda: by_host.agg(F.max_by("bytes", "ts").alias("last")),
        "variance": lambda: by_host.agg(F.round(F.stddev("ms"), 9).alias("s")),
        "rollup": lambda: df.rollup("host", "status").agg(F.sum("bytes").alias("b")),
        "cube": lambda: df.cube("host", "status").agg(F.count("*").alias("n"), F.max("ms").alias("hi")),
        "pivot": lambda: by_host.pivot("status").agg(F.sum("bytes").alias("b")),
        "pivot of named values": lambda: by_host.pivot("status", [500]).agg(F.max("ms").alias("hi")),
        "distinct": lambda: by_host.agg(F.count_distinct("ms").alias("d")),
        "over a window": lambda: df.select("bytes", F.sum("ms").over(_window(df)).alias("s")),
        "after a join": lambda: (
            df.join(by_host.agg(F.avg("ms").alias("m")), "host").groupBy("host").agg(F.max("m").alias("m"))
        ),
        "exploded": lambda: df.select(F.explode("tags").alias("tag")).groupBy("tag").agg(F.count("*").alias("n")),
        "SQL": lambda: spark.sql("SELECT host, sum(bytes) AS b FROM existing_requests GROUP BY host"),
        "SQL with conditions": lambda: spark.sql(
            "SELECT host, sum(bytes) FILTER (WHERE ms > 9) AS b, max(ms) AS hi FROM existing_requests GROUP BY host"
        ),
        "SQL with HAVING": lambda: spark.sql(
            "SELECT status, count(*) AS n FROM existing_requests GROUP BY status HAVING count(*) > 100"
        ),
    }


def our_job(df, F, spark) -> dict[str, Callable[[], Any]]:
    import spark_udaf as su
    from spark_udaf import functions as A

    by_host, types = su.group_by(df, "host"), A.of(df)
    hour = F.window("ts", "1 hour")
    return {
        "nightly": lambda: df.groupBy("host").agg(A.count("*").alias("n"), A.avg("ms").alias("m")),
        "mixed": lambda: df.groupBy("host").agg(F.max("ms").alias("hi"), types.sum("bytes").alias("b")),
        "whole table": lambda: df.agg(A.count("ms").alias("n"), A.min("ms").alias("lo")),
        "condition": lambda: df.groupBy("host").agg(A.count(where="status >= 500").alias("errors")),
        "expression": lambda: by_host.agg(A.sum(F.col("bytes") * 2).alias("b")),
        "windows of time": lambda: su.group_by(df, "host", hour).agg(A.max("ms").alias("hi")),
        "several keys": lambda: su.group_by(df, "host", "status").agg(p=aggr.min("price")),
        "last by time": lambda: by_host.agg(A.last("bytes", by="ts").alias("last")),
        "variance": lambda: by_host.agg(A.stdev("ms").alias("s")).select("host", F.round("s", 9).alias("s")),
        "rollup": lambda: su.group_by(df).rollup("host", "status").agg(A.sum("bytes").alias("b")),
        "cube": lambda: su.group_by(df).cube("host", "status").agg(A.count("*").alias("n"), F.max("ms").alias("hi")),
        "pivot": lambda: by_host.pivot("status").agg(A.sum("bytes").alias("b")),
        "pivot of named values": lambda: by_host.pivot("status", [500]).agg(A.max("ms").alias("hi")),
        "distinct": lambda: df.groupBy("host").agg(A.count_distinct("ms").alias("d")),
        "over a window": lambda: df.select("bytes", A.sum("ms").over(_window(df)).alias("s")),
        "after a join": lambda: (
            df.join(by_host.agg(A.avg("ms").alias("m")), "host").groupBy("host").agg(A.max("m").alias("m"))
        ),
        "exploded": lambda: su.group_by(df.select(F.explode("tags").alias("tag")), "tag").agg(n=aggr.count()),
        "SQL": lambda: su.sql(spark, "SELECT host, aggr_sum_bigint(bytes) AS b FROM existing_requests GROUP BY host"),
        "SQL with conditions": lambda: su.sql(
            spark,
            "SELECT host, aggr_sum_bigint(bytes) FILTER (WHERE ms > 9) AS b, max(ms) AS hi FROM existing_requests "
            "GROUP BY host",
        ),
        "SQL with HAVING": lambda: su.sql(
            spark,
            "SELECT status, aggr_count(*) AS n FROM existing_requests GROUP BY status HAVING aggr_count(*) > 100",
        ),
    }


def _window(df):
    from pyspark.sql import Window

    return Window.partitionBy("host")


def rows_of(answer) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in answer.collect())


def differing_jobs(spark, df) -> list[str]:
    """Return the names of the jobs whose rows differ between Spark's form and ours."""
    from pyspark.sql import functions as F

    spark_results, ours = spark_job(df, F, spark), our_job(df, F, spark)
    assert len(spark_results) == 20
    return [name for name in spark_results if rows_of(spark_results[name]()) != rows_of(ours[name]())]


def test_jobs(spark, df):
    assert differing_jobs(spark, df) == []


CONNECT = """
from tests import engines
from tests.spark.test_existing_jobs import differing_jobs, requests
with engines.session("connect") as spark:
    print("differing", differing_jobs(spark, requests(spark)))
"""


def test_jobs_on_spark_connect():
    done = subprocess.run([sys.executable, "-c", CONNECT], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.splitlines()[-1:] == ["differing []"], done.stderr[-3000:]


def test_functions_of_the_user_next_to_ours(df):
    """Spark combines scalar functions with ours; `su.group_by` also combines aggregate functions of pandas."""
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    @F.pandas_udf("double")
    def spread(values: pd.Series) -> float:
        return float(values.max() - values.min())

    @F.pandas_udf("double")
    def halved(values: pd.Series) -> pd.Series:
        return values / 2

    @F.udf("double")
    def doubled(value):
        return 2 * value

    by_host = df.groupBy("host")
    scalar = by_host.agg(A.avg(doubled("ms")).alias("m"), F.max(halved("ms")).alias("h")).select("*", doubled("m"))
    plain = by_host.agg(F.avg(F.col("ms") * 2).alias("m"), F.max(F.col("ms") / 2).alias("h"))
    assert rows_of(scalar) == rows_of(plain.select("*", (F.col("m") * 2).alias("doubled(m)")))
    both = su.group_by(df, "host").agg(spread("ms").alias("r"), A.avg("ms").alias("m"))
    assert rows_of(both) == rows_of(by_host.agg((F.max("ms") - F.min("ms")).alias("r"), F.avg("ms").alias("m")))


def test_a_batch_of_a_stream(spark, df, tmp_path):
    import spark_udaf as su
    from spark_udaf import functions as A

    df.coalesce(1).write.parquet(f"{tmp_path}/in")
    answers = []

    def write(batch, number):
        answers.extend(su.group_by(batch, "host").agg(A.sum("bytes").alias("b")).collect())
        answers.extend(batch.groupBy("host").agg(A.of(batch).sum("bytes").alias("b")).collect())

    stream = spark.readStream.schema(df.schema).parquet(f"{tmp_path}/in")
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{tmp_path}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    expected = sorted(df.groupBy("host").agg({"bytes": "sum"}).collect())
    assert sorted(answers) == sorted([*expected, *expected])
