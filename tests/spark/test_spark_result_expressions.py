"""Expressions over results and lists of records on Spark: rollups, streams, stores, agg() and SQL."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, finish, rollup, running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEGIN = dt.datetime(2024, 5, 1, 6, tzinfo=dt.UTC)
MEASURES = {
    "span_ms": "date_diff('ms', first, last)",
    "first": aggr.min("ts"),
    "last": aggr.max("ts"),
    "n": aggr.count(),
    "mean": "total / n",
    "total": aggr.sum("x"),
    "spans": aggr.collect(["k", "x"]),
}
FRAME = TiltFrame(["10s", "1m"], "ts", MEASURES, ["k"])
ROWS = pa.table(
    {
        "ts": pa.array([BEGIN + dt.timedelta(seconds=s) for s in (0, 1, 4, 12, 70)], pa.timestamp("us", "UTC")),
        "k": ["a", "b", "a", "a", "b"],
        "x": [1, 2, 4, 8, 16],
    }
)
NAMES = ["level", "k", *MEASURES]


def plain(rows) -> list[str]:
    return sorted(repr([row.asDict(recursive=True)[name] for name in NAMES]) for row in rows)


def expected() -> list[str]:
    local = finish(rollup(ROWS, FRAME), FRAME)
    naive = [local.schema.get_field_index(name) for name in ("first", "last")]
    for at in naive:
        local = local.set_column(at, local.schema.field(at).name, local.column(at).cast(pa.timestamp("us")))
    return sorted(repr([row[name] for name in NAMES]) for row in local.to_pylist())


@pytest.fixture
def rows(spark):
    return spark.createDataFrame(ROWS.to_pandas())


def test_a_rollup_has_expressions_and_records(spark, rows):
    import spark_udaf as su

    states = su.rollup(rows, FRAME)
    results = su.finish(states, FRAME)
    assert results.columns == ["level", "window_start", "window_end", "k", *MEASURES]
    assert plain(results.collect()) == expected()
    flat = su.finish(states, FRAME, flat=True)
    assert flat.where("level = '1m' and k = 'a'").collect()[0].span_ms == 12_000


@pytest.mark.long
@pytest.mark.store
def test_a_store_that_spark_writes_has_expressions(spark, rows, tmp_path):
    import spark_udaf as su

    store = FrameStore(tmp_path / "store", FRAME)
    su.rollup_into(rows, store, "w", 1)
    results = su.read(spark, str(tmp_path / "store"), per="1m", measures=["mean", "span_ms"]).orderBy(
        "window_start", "k"
    )
    assert [(row.k, row.mean, row.span_ms) for row in results.collect()] == [
        ("a", 13 / 3, 12_000),
        ("b", 2.0, 0),
        ("b", 16.0, 0),
    ]
    totals = su.read(
        spark, str(tmp_path / "store"), per="10s", running=True, measures=["total", "mean"], where="k = 'a'"
    )
    assert [row.total for row in totals.orderBy("window_start").collect()] == [5, 13]


@pytest.mark.long
def test_a_stream_emits_expressions(spark, tmp_path):
    import spark_udaf as su

    (tmp_path / "in").mkdir()
    lines = [json.dumps({**row, "ts": row["ts"].isoformat()}) for row in ROWS.to_pylist()]
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    source = spark.readStream.schema("ts timestamp, k string, x long").json(str(tmp_path / "in"))
    emitted = su.stream(source, FRAME, emit="on_update(having='mean > 0')")
    collected: list = []
    writer = emitted.writeStream.foreachBatch(lambda batch, _: collected.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert plain(collected) == expected()


def test_running_results_have_expressions(spark, rows):
    import spark_udaf as su

    measures = {"n": aggr.count(), "total": aggr.sum("x"), "mean": "total / n"}
    results = su.running(rows, measures, "sliding(2)", time="ts", keys=["k"]).orderBy("k", "ts").collect()
    local = running(ROWS, measures, "sliding(2)", time="ts", keys=["k"])
    assert [(row.k, row.mean) for row in results] == [(row["k"], row["mean"]) for row in local.to_pylist()]


def test_records_in_agg_group_by_and_sql(spark, rows):
    import spark_udaf as su
    from spark_udaf import functions as A

    both = [("a", [("a", 1), ("a", 4), ("a", 8)]), ("b", [("b", 2), ("b", 16)])]

    def listed(df):
        return [(row.k, [tuple(span) for span in row.spans]) for row in df.orderBy("k").collect()]

    of_rows = A.of(rows)
    assert listed(rows.groupBy("k").agg(of_rows.collect(["k", "x"], by="ts").alias("spans"))) == both
    assert listed(su.group_by(rows, "k").agg(spans=A.collect(["k", "x"], by="ts"))) == both
    assert (
        listed(
            su.finish(
                su.aggregate(rows, ["k"], {"spans": aggr.collect(["k", "x"], by="ts")}),
                {"spans": aggr.collect(["k", "x"], by="ts")},
            )
        )
        == both
    )
    with pytest.raises(TypeError, match="a column must be a Column or a name; got"):
        of_rows.sum(["k", "x"])
    rows.createOrReplaceTempView("spans_of_records")
    su.register(spark, "collect", types=["struct<k:string,x:bigint>"])
    function = "aggr_collect_struct_k_string_x_bigint"
    assert (
        listed(spark.sql(f"SELECT k, {function}(struct(k, x), ts) AS spans FROM spans_of_records GROUP BY k")) == both
    )
