"""Names of columns are literal in every function, also with dots and backticks; and two keys may have the same name."""

import datetime as dt

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, OrderedFrame, TiltFrame, running

pytestmark = pytest.mark.spark

NAMES = {
    "dots": ("un.related", "k.ey", "t.s", "x.y"),
    "backticks": ("un`related", "k`", "`ts`", "x``y"),
    "both": ("a.`b`", "k.`", "t s.", "é."),
}


@pytest.fixture(params=NAMES)
def rows_and_names(spark, request):
    other, key, time, value = NAMES[request.param]
    begin = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    table = pa.table(
        {
            other: list(range(40)),
            key: ["ab"[i % 2] for i in range(40)],
            time: pa.array([begin + dt.timedelta(minutes=7 * i) for i in range(40)], pa.timestamp("us", "UTC")),
            value: [i * 0.5 for i in range(40)],
        }
    )
    return spark.createDataFrame(table), table, (key, time, value)


def sorted_rows(table, columns):
    return sorted((tuple(row[name] for name in columns) for row in table.to_pylist()), key=str)


@pytest.mark.parametrize("key_form", ["name", "expression"])
def test_running_results(rows_and_names, key_form):
    import spark_udaf as su

    df, table, (key, time, value) = rows_and_names
    quoted = "`" + key.replace("`", "``") + "`"
    keys = [key] if key_form == "name" else {"upper": f"upper({quoted})"}
    frame = {"time": time, "keys": keys, "order": ["un.related"] if "un.related" in table.column_names else []}
    measures = {"total": aggr.sum(value), "n": aggr.count()}
    result = su.running(df, measures, **frame).toArrow()
    expected = running(table, measures, **frame)
    columns = ["total", "n", *(["upper"] if key_form == "expression" else [key])]
    assert sorted_rows(result, columns) == sorted_rows(expected, columns)


def test_an_ordered_rollup(rows_and_names):
    import spark_udaf as su
    from tiltframe import ordered_rollup

    df, table, (key, time, value) = rows_and_names
    frame = OrderedFrame(["count(3)"], time, {"total": aggr.sum(value)}, [key])
    assert sorted_rows(su.ordered_rollup(df, frame).toArrow(), [key, "total"]) == sorted_rows(
        ordered_rollup(table, frame), [key, "total"]
    )


def test_a_backfill_reads_the_literal_column(rows_and_names, spark, tmp_path):
    """A struct with a field of the same name must not be read in its place."""
    from pyspark.sql import functions as F

    import spark_udaf as su

    df, table, (key, time, value) = rows_and_names
    prefix, _, field = time.partition(".")
    if field and "`" not in prefix:
        df = df.withColumn(prefix, F.struct(F.lit(dt.datetime(1999, 1, 1)).alias(field)))
    store = FrameStore(tmp_path / "store", TiltFrame(["10m", "1h"], time, {"s": aggr.sum(value)}, [key]))
    su.backfill(df, store, "w", "2h", within="2024-05-01,2024-05-02")
    expected = FrameStore(tmp_path / "expected", store.frame)
    expected.append_rows(table, "w", 1)
    assert sorted_rows(store.query("1h"), ["window_start", key, "s"]) == sorted_rows(
        expected.query("1h"), ["window_start", key, "s"]
    )


def test_two_keys_with_the_same_name(spark):
    from pyspark.sql import functions as F

    import spark_udaf as su

    df = spark.createDataFrame([(i % 2, i) for i in range(10)], "k int, n int")
    pairs = [(df.groupBy("k", "k"), su.group_by(df, "k", "k"))]
    keys = F.col("k").alias("x"), (F.col("n") % 3).alias("x")
    pairs.append((df.groupBy(*keys), su.group_by(df, *keys)))
    for of_spark, of_library in pairs:
        expected = sorted(map(tuple, of_spark.agg(F.max("n"), F.count("*")).collect()))
        result = of_library.agg(F.max("n"), c=aggr.count())
        assert sorted(map(tuple, result.collect())) == expected
    expected = df.groupBy("k").pivot("k").agg(F.count(F.lit(1)))
    result = su.group_by(df, "k").pivot("k").agg(n=aggr.count())
    assert result.columns == expected.columns
    assert sorted(map(tuple, result.collect()), key=str) == sorted(map(tuple, expected.collect()), key=str)


@pytest.mark.parametrize("totals", ["rollup", "cube"])
def test_a_key_of_totals_is_passed_once(spark, totals):
    from pyspark.sql import functions as F

    import spark_udaf as su

    df = spark.createDataFrame([(1, 2)], "k int, n int")
    for keys in (("k", "k"), (F.col("k"), F.col("k")), ("k", "n", "k"), (F.col("k") + 1, F.col("k") + 1)):
        with pytest.raises(ValueError, match=f"is passed to {totals} twice"):
            getattr(su.group_by(df), totals)(*keys)
    assert getattr(su.group_by(df), totals)("k", F.col("k") + 1).agg(n=aggr.count()).count() >= 3


@pytest.mark.parametrize("word", ["EXPLAIN", "explain extended", "EXPLAIN FORMATTED"])
def test_explain_is_refused(spark, word):
    import spark_udaf as su

    spark.createDataFrame([(1, 2)], "k int, n int").createOrReplaceTempView("t_explain")
    with pytest.raises(ValueError, match="pass the query without EXPLAIN"):
        su.sql(spark, f"{word} SELECT aggr_sum_bigint(n) FROM t_explain")
    assert "Physical Plan" in su.sql(spark, f"{word} SELECT sum(n) FROM t_explain").collect()[0][0]
