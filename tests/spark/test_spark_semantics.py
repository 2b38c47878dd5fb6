"""Rows, groups and nulls are counted as by Spark's own aggregates: single rows, no rows, collations, null states,
names.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def su(spark):
    import spark_udaf

    return spark_udaf


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 7, 20])
def test_rows_that_are_alone_in_their_partition_are_counted(spark, su, partitions, tmp_path):
    from spark_udaf import functions as A

    rows, counted = spark.range(0, 20, 1, partitions), {"n": aggr.count()}
    assert su.group_by(rows).agg(A.count()).collect() == [(20,)]
    assert su.group_by(rows.where("id > 3")).agg(aggr.count()).collect() == [(16,)]
    assert su.finish(su.aggregate(rows, [], counted), counted).collect() == [(20,)]
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    scan = su.scan_parquet(spark, tmp_path, rows_per_task=1)
    assert su.finish(su.aggregate(scan, [], counted), counted).collect() == [(3,)]


@pytest.mark.long
def test_no_rows_and_no_keys_give_one_row(spark, su):
    from spark_udaf import functions as A

    measures = {"n": aggr.count(), "s": aggr.sum("id"), "d": aggr.approx_count_distinct("id", k=64)}
    for rows in (spark.range(5).where("id > 9"), spark.createDataFrame([], "id bigint")):
        assert su.group_by(rows).agg(A.count(), A.sum("id")).collect() == [(0, None)]
        states = su.aggregate(rows, [], measures)
        assert su.finish(states, measures).collect() == [(0, None, 0)]
        assert su.finish(su.merge(states, []), measures).collect() == [(0, None, 0)]
        assert su.finish(su.merge(states.where("false"), []), measures).collect() == [(0, None, 0)]
        assert su.finish(su.aggregate(rows, ["id"], measures), measures).collect() == []


def test_no_rows_and_no_keys_in_files(spark, su, tmp_path):
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "0.parquet")
    measures = {"n": aggr.count(), "s": aggr.sum("id")}
    states = su.aggregate(su.scan_parquet(spark, tmp_path), [], measures)
    assert su.finish(states, measures).collect() == [(0, None)]


@pytest.mark.parametrize("columns", ["x", "x, y"])
def test_count_of_an_asterisk_counts_rows(spark, su, columns):
    from spark_udaf import functions as A

    rows = spark.sql(f"SELECT {columns} FROM VALUES (1, 2), (NULL, 3), (3, 4) AS t(x, y)")
    for answer in (rows.agg(A.count("*")), su.group_by(rows).agg(A.count("*")), su.group_by(rows).agg(aggr.count("*"))):
        assert answer.columns == ["count(*)"]
        assert answer.collect() == [(3,)]


@pytest.mark.long
def test_strings_that_are_not_compared_by_bytes_are_refused_by_name(spark, su):
    from spark_udaf import functions as A

    rows = spark.sql("SELECT k COLLATE UTF8_LCASE AS k, 1 AS x FROM VALUES ('HELLO'), ('hello') AS t(k)")
    message = "the column 'k' has the collation UTF8_LCASE in Spark"
    with pytest.raises(TypeError, match=message):
        su.group_by(rows, "k").agg(A.count())
    with pytest.raises(TypeError, match=message):
        su.group_by(rows).agg(aggr.mode("k"))
    with pytest.raises(TypeError, match=message):
        su.aggregate(rows, ["k"], {"n": aggr.count()})
    with pytest.raises(TypeError, match=message):
        su.aggregate(rows, [], {"n": aggr.count(where="k = 'hello'")})
    with pytest.raises(TypeError, match=message):
        rows.agg(A.of(rows).approx_count_distinct("k"))
    for answer in (rows.agg(A.approx_count_distinct("k")), rows.agg(A.mode(rows.k)), rows.agg(A.first("x", by="k"))):
        with pytest.raises(Exception, match="has a collation in Spark, but tiltframe compares its bytes"):
            answer.collect()
    rows.createOrReplaceTempView("collated")
    with pytest.raises(Exception, match="a column of aggr_mode has a collation in Spark"):
        su.sql(spark, "SELECT aggr_mode(k) FROM collated").collect()
    assert su.sql(spark, "SELECT aggr_count(k), aggr_sum(x) FROM collated").first()[:] == (2, 2)
    plain = rows.selectExpr("CAST(k AS STRING COLLATE UTF8_BINARY) AS k", "x")
    answer = plain.agg(A.approx_count_distinct("k"), A.sum("x"), A.count("k"))
    assert answer.first()[:] == (2, 2.0, 2)
    assert rows.agg(A.count("k")).first()[0] == 2
    assert su.group_by(rows, "lower(k) COLLATE UTF8_BINARY").agg(A.sum("x")).first()[1] == 2


@pytest.mark.long
def test_null_states_are_an_identity_of_any_parameters(spark, su):
    rows = spark.sql("SELECT id AS k, id AS x FROM range(6)").repartition(3)
    few, many = {"a": aggr.hll("x", lg_k=8)}, {"b": aggr.dds("x", [0.5], relative_accuracy=0.05)}
    states = su.aggregate(rows, ["k"], few).unionByName(su.aggregate(rows, ["k"], many), allowMissingColumns=True)
    states = states.repartition(4)
    answer = su.finish(su.merge(states, []), {**few, **many}).first()
    assert answer.a == 6
    assert answer.b["count"] == 6
    by_key = su.merge(states, ["k"])
    assert su.finish(su.merge(by_key, []), {**few, **many}).first() == answer
    su.register(spark)
    states.createOrReplaceTempView("states_and_nulls")
    grouped = "SELECT k, aggr_hll_merge(a) AS a FROM states_and_nulls WHERE a IS NULL OR k > 2 GROUP BY k"
    assert spark.sql(f"SELECT aggr_hll_finish(aggr_hll_merge(a)) AS n FROM ({grouped})").first().n == 3


@pytest.mark.long
def test_names_like_those_used_inside(spark, su):
    rows = spark.sql("SELECT 1 AS `key 0`, 2 AS x, 3 AS c, 4 AS nothing, 5 AS shard")
    for name in rows.columns:
        assert su.group_by(rows, f"`{name}`").agg(aggr.sum("`key 0`"), n=aggr.sum("nothing")).first()[1:] == (1, 4)
