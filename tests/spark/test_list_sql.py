"""SQL over lists of values: many groups per call, FILTER, DISTINCT and Spark's own aggregates in one query."""

from __future__ import annotations

import pytest

import aggr
from spark_udaf.udaf.list_sql import with_lists

FUNCTIONS = {f"aggr_{name}": aggr.get(name)() for name in ("dds", "count", "sum", "first", "weighted_avg")}


def rewritten(query: str) -> str:
    return with_lists(query, FUNCTIONS, 1000)[0]


def test_only_calls_of_our_aggregates_change():
    query = "SELECT k, 'aggr_dds(x)' AS t, aggr_dds(x) OVER (PARTITION BY k), aggr_other(x) FROM t -- aggr_dds(x)"
    assert rewritten(query) == query
    assert rewritten("SELECT aggr_count(*) FROM t") == "SELECT count(*) AS `aggr_count(*)` FROM t"
    assert rewritten("SELECT max(n) FROM (SELECT 1 + aggr_count(DISTINCT x, y) AS n FROM t)") == (
        "SELECT max(n) FROM (SELECT 1 + count(DISTINCT x, y) AS n FROM t)"
    )
    text = rewritten("SELECT k, aggr_dds(x, array(0.5D)) FILTER (WHERE f(x, 1) > 0) AS d FROM t")
    assert text.startswith("SELECT k, aggr_dds_list(IF(sum(")
    assert text.endswith("collect_list(x) FILTER (WHERE f(x, 1) > 0), array()), array(0.5D)) AS d FROM t")
    assert "collect_set(x)" in rewritten("SELECT aggr_sum(DISTINCT x) FROM t")
    assert "'value', i, 'time', ts)" in rewritten("SELECT aggr_first(i, BY => ts) FROM t")
    assert "'value', p, 'weight', n)" in rewritten("SELECT aggr_weighted_avg(p, weight => n) FROM t")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT DISTINCT aggr_count(x) FROM t", "SELECT DISTINCT count(x) AS `aggr_count(x)` FROM t"),
        ("SELECT /*+ COALESCE(1) */ aggr_count(x)", "SELECT /*+ COALESCE(1) */ count(x) AS `aggr_count(x)`"),
        ("SELECT ALL aggr_count(x) UNION SELECT 1", "SELECT ALL count(x) AS `aggr_count(x)` UNION SELECT 1"),
        ("SELECT k, 2 *\n aggr_count(x), k FROM t", "SELECT k, 2 *\n count(x) AS `2 * aggr_count(x)`, k FROM t"),
        (
            "SELECT aggr_count(x) IS DISTINCT FROM 3, window(ts, '1 hour'), aggr_count(y) FROM t",
            "SELECT count(x) IS DISTINCT FROM 3 AS `aggr_count(x) IS DISTINCT FROM 3`, window(ts, '1 hour'), "
            "count(y) AS `aggr_count(y)` FROM t",
        ),
        (
            "SELECT aggr_count(x) n, (SELECT * EXCEPT (y) FROM u), aggr_count(x) WHERE k",
            "SELECT count(x) n, (SELECT * EXCEPT (y) FROM u), count(x) AS `aggr_count(x)` WHERE k",
        ),
        ("SELECT k FROM t ORDER BY aggr_count(x)", "SELECT k FROM t ORDER BY count(x)"),
    ],
)
def test_results_are_named_by_the_text_of_the_query(query, expected):
    assert rewritten(query) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("aggr_dds(*)", r"^aggr_dds: \* stands for all columns; pass one column by its name"),
        ("aggr_first(t.*)", r"^aggr_first: t\.\* stands for all columns"),
        ("aggr_dds()", "^aggr_dds: the call needs a column as its first argument"),
        ("aggr_dds_merge(*)", r"^aggr_dds_merge: \* stands for all columns"),
    ],
)
def test_a_call_without_a_column_is_refused(call, message):
    functions = FUNCTIONS | {"aggr_dds_merge": FUNCTIONS["aggr_dds"]}
    with pytest.raises(ValueError, match=message):
        with_lists(f"SELECT {call} FROM t", functions, 1000)


@pytest.fixture(scope="module")
def spark_with_rows(spark):
    import spark_udaf as su

    rows = spark.sql("""
        SELECT id % 3 AS k, CAST(id % 5 AS bigint) AS i, id / 2 AS x, timestamp_seconds(id) AS ts, id AS n
        FROM range(20)""")
    rows.createOrReplaceTempView("rows_of_lists")
    su.register(spark, "dds", "sum", "first", "hll")
    return spark


@pytest.mark.long
@pytest.mark.spark
def test_a_query_with_filter_distinct_and_aggregates_of_spark(spark_with_rows):
    import spark_udaf as su

    spark = spark_with_rows
    ours = su.sql(
        spark,
        """SELECT k, aggr_sum_bigint(i), max(x), aggr_sum_bigint(i) FILTER (WHERE n > 9) AS late,
                  aggr_sum_bigint(DISTINCT i) AS once, aggr_count(*) AS n, aggr_first_bigint(i, ts) AS first,
                  aggr_sum_bigint(i, weight => n) AS w, aggr_dds(x).count AS d
           FROM rows_of_lists GROUP BY k HAVING aggr_count(1) > 6 ORDER BY k""",
    )
    expected = spark.sql(
        """SELECT k, sum(i), max(x), sum(i) FILTER (WHERE n > 9) AS late, sum(DISTINCT i) AS once, count(*) AS n,
                  min_by(i, ts) AS first, sum(i * n) AS w, count(x) AS d
           FROM rows_of_lists GROUP BY k HAVING count(1) > 6 ORDER BY k"""
    )
    assert ours.columns == ["k", "aggr_sum_bigint(i)", *expected.columns[2:]]
    assert ours.collect() == expected.collect()
    none = su.sql(spark, "SELECT aggr_count(*), aggr_sum(i) FROM rows_of_lists WHERE false").collect()
    assert none == [(0, None)]


@pytest.mark.spark
def test_a_query_over_a_stream_is_refused(spark_with_rows):
    import spark_udaf as su

    spark_with_rows.readStream.format("rate").load().createOrReplaceTempView("arriving")
    with pytest.raises(ValueError, match=r"calls aggr_sum_list over a stream.*su\.stream"):
        su.sql(spark_with_rows, "SELECT aggr_sum(value) FROM arriving")
    assert su.sql(spark_with_rows, "SELECT count(*) FROM arriving").isStreaming


def test_functions_of_lists_and_states(spark_with_rows):
    spark = spark_with_rows
    row = spark.sql("""
        SELECT aggr_sum_list(collect_list(i)) AS s, sum(i) AS wanted, aggr_first_list(collect_list(struct(x, ts))) AS f,
               aggr_sum_list(collect_list(struct(i, n))) AS w, sum(i * n) AS wanted_w, aggr_sum_list(array()) AS none
        FROM rows_of_lists""").first()
    assert row[:] == (row.wanted, row.wanted, 0.0, row.wanted_w, row.wanted_w, None)
    by_name = spark.sql("SELECT aggr_first_bigint(i, by => ts) FROM rows_of_lists")
    assert by_name.first()[0] == 0
    merged = spark.sql("""
        SELECT aggr_hll_finish(aggr_hll_merge_list(collect_list(s))) AS n, count(*) AS groups FROM (
            SELECT k, aggr_hll_state_list(collect_list(n), 8) AS s FROM rows_of_lists GROUP BY k)""").first()
    assert merged[:] == (20, 3)


@pytest.mark.spark
def test_mistakes_are_told_in_a_sentence(spark_with_rows):
    from pyspark.errors import AnalysisException

    import spark_udaf as su

    spark = spark_with_rows
    with pytest.raises(ValueError, match="aggr_first takes several columns, but DISTINCT works only with one"):
        su.sql(spark, "SELECT aggr_first(DISTINCT i, ts) FROM rows_of_lists")
    with pytest.raises(ValueError, match="dds is not a function of Spark; use aggr_dds"):
        su.sql(spark, "SELECT dds(i) FROM rows_of_lists")
    with pytest.raises(AnalysisException, match="ddz"):
        su.sql(spark, "SELECT ddz(i) FROM rows_of_lists")
    with pytest.raises(TypeError, match=r"write su\.sql\(spark, query\), or su\.sql\(query, store\)"):
        su.sql("SELECT 1")
    with pytest.raises(TypeError, match=r"write su\.sql\(spark, query\)"):
        su.sql(spark, 3)
    with pytest.raises(ValueError, match="there is no function 'ddz'; did you mean 'dds'"):
        su.register(spark, "ddz")
    with pytest.raises(AttributeError, match=r"no function count; for a column of states, use su\.states\.count"):
        _ = su.count


@pytest.mark.spark
def test_parameters_of_a_query(spark_with_rows):
    import spark_udaf as su

    spark = spark_with_rows
    named = su.sql(
        spark,
        "SELECT aggr_sum_bigint(i + :step) AS s, max(x) AS m, aggr_dds(x, :q).quantiles AS q FROM rows_of_lists "
        "WHERE n > :low",
        args={"step": 2, "low": 5, "q": [0.25]},
    )
    expected = spark.sql("SELECT sum(i + 2), max(x) FROM rows_of_lists WHERE n > 5").first()
    row = named.first()
    assert (row.s, row.m) == expected[:]
    assert list(row.q) == ["0.25"]
    query = "SELECT aggr_sum_bigint(i + ?), max(x) FROM rows_of_lists WHERE n > ?"
    assert su.sql(spark, query, args=[2, 5]).first()[:] == expected[:]
    with pytest.raises(ValueError, match=r"args must have a value for each of the 2 markers"):
        su.sql(spark, query, args=[2])
    with pytest.raises(TypeError, match=r"args must be a dict of the parameters' names, or a list"):
        su.sql(spark, query, args="2")
    with pytest.raises(TypeError, match=r"with parameters as args=…; got \[2, 5\] as third argument"):
        su.sql(spark, query, [2, 5])
    with pytest.raises(ValueError, match=r"^aggr_dds: a quantile must be a number from 0 to 1; got 2"):
        su.sql(spark, "SELECT aggr_dds(x, array(:q)) FROM rows_of_lists", args={"q": 2})
    with pytest.raises(TypeError, match=r"args is for su\.sql\(spark, query\)"):
        su.sql("SELECT count(*) FROM rows_of_lists", object(), args={})


@pytest.mark.spark
def test_functions_registered_with_a_type(spark_with_rows):
    import spark_udaf as su

    spark = spark_with_rows
    su.register(spark, "sum", types=["decimal(20,2)"])
    query = "SELECT aggr_sum_decimal_20_2(CAST(i AS decimal(20, 2))) AS s, max(x) AS m FROM rows_of_lists"
    assert su.sql(spark, query).first() == spark.sql("SELECT sum(i) AS s, max(x) AS m FROM rows_of_lists").first()
    with pytest.raises(Exception, match=r"^aggr_sum_decimal_20_2 cannot be called next to .*; use su\.sql"):
        spark.sql(query).collect()


@pytest.mark.long
@pytest.mark.spark
def test_a_list_beyond_its_bound_ends_in_a_sentence(spark_with_rows, monkeypatch):
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A
    from spark_udaf.udaf import bounded_lists, list_errors, query

    spark = spark_with_rows
    monkeypatch.setattr(bounded_lists, "max_list_values", lambda session: 10)
    monkeypatch.setattr(query, "max_list_values", lambda session: 10)
    rows = spark.table("rows_of_lists")
    assert rows.where("n < 10").agg(A.dds("x")).first()[0]["count"] == 10
    assert rows.groupBy("k").agg(A.sum("i").alias("s"), F.sum("i").alias("t")).where("s != t").count() == 0
    message = r"^avg\(x\): a group has more than 10 values, which do not fit into a list .*su\.group_by"
    for ansi in (True, False):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        with pytest.raises(Exception, match=message):
            rows.agg(A.avg("x"), F.max("x")).collect()
    spark.conf.unset("spark.sql.ansi.enabled")
    with pytest.raises(Exception, match=r"^aggr_dds: a group has more than 10 values"):
        su.sql(spark, "SELECT aggr_dds(x) FROM rows_of_lists").collect()
    monkeypatch.setattr(list_errors, "_COUNT_SECONDS", 300.0)  # on a busy machine
    kind = F.expr("IF(n < 13, 'many', 'few')").alias("kind")
    late = A.avg("x", where="n > 1").alias("m")
    with pytest.raises(
        Exception, match=r"^avg\(x\): a group has more than 10 values \(the group .*='many' has 11\), w"
    ):
        rows.groupBy(kind).agg(late, F.max("x")).where("m > 0").write.format("noop").mode("overwrite").save()
    with pytest.raises(
        Exception, match=r"^aggr_dds: a group has more than 10 values \(the group o='many' has 11\), which"
    ):
        su.sql(
            spark,
            "WITH named AS (SELECT IF(n < 13, 'many', 'few') AS o, n, x FROM rows_of_lists) "
            "SELECT o, max(x), aggr_dds(x) FILTER (WHERE n > 1) FROM named GROUP BY o HAVING max(x) > 0",
        ).collect()
    large = rows.agg(A.dds("x", groups="large")).first()[0]
    assert large["count"] == 20
    assert rows.agg(A.count("x")).first()[0] == 20


@pytest.mark.long
@pytest.mark.spark
def test_large_groups_have_the_answers_of_lists(spark_with_rows):
    from spark_udaf import functions as A

    rows = spark_with_rows.table("rows_of_lists").repartition(4)
    for name, arguments in {
        "sum": {"where": "n > 3"},
        "avg": {"weight": "n"},
        "last": {"by": "ts"},
        "hdr": {"unit": 0.5},
        "min": {"type": "double"},
    }.items():
        lists, large = (
            rows.groupBy("k").agg(getattr(A, name)("x", groups=groups, **arguments)).orderBy("k").collect()
            for groups in (None, "large")
        )
        assert lists == large
    with pytest.raises(ValueError, match="groups must be None, or 'large'"):
        A.sum("x", groups="huge")
