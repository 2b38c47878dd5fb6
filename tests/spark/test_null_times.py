"""Rows without a time fail a Spark job, or are skipped if this is requested."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = pytest.mark.spark

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")})
AT = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)


@pytest.fixture
def folder(tmp_path):
    times = [AT, None, AT + dt.timedelta(seconds=5), None, AT + dt.timedelta(hours=2)]
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": [1, 2, 4, 8, 16]})
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "rows.parquet")
    return tmp_path / "in"


def left_out(query):
    return sum(
        batch["observedMetrics"]["null_times"]["rows"] for batch in query.recentProgress if batch["numInputRows"]
    )


def test_an_observation_counts_them(spark, folder, tmp_path):
    from pyspark.sql import Observation

    import spark_udaf as su

    rows = spark.read.parquet(str(folder))
    of_rollup, of_store = Observation("of a rollup"), Observation()
    result = su.finish(su.rollup(rows, FRAME, on_null_time=of_rollup), FRAME).where("level = '1h'").collect()
    assert sorted((row.n, row.s) for row in result) == [(1, 16), (2, 5)]
    assert of_rollup.get == {"rows": 2}
    store = FrameStore(str(tmp_path / "store"), FRAME)
    assert su.rollup_into(rows, store, "w", 1, on_null_time=of_store)
    assert (store.query(keys=[])["s"].to_pylist(), of_store.get) == ([21], {"rows": 2})
    arriving = spark.readStream.schema(rows.schema).parquet(str(folder))
    with pytest.raises(
        ValueError, match="an Observation works for one job only; for a stream, pass on_null_time='skip'"
    ):
        su.stream(arriving, FRAME, on_null_time=Observation())


@pytest.mark.long
def test_rollups_and_streams_leave_them_out(spark, folder, tmp_path):
    import spark_udaf as su

    rows = spark.read.parquet(str(folder))
    result = su.finish(su.rollup(rows, FRAME, on_null_time="skip"), FRAME).where("level = '1h'").collect()
    assert sorted((row.n, row.s) for row in result) == [(1, 16), (2, 5)]
    store = FrameStore(str(tmp_path / "store"), FRAME)
    assert su.rollup_into(rows, store, "w", 1, on_null_time="skip")
    assert store.query(keys=[])["s"].to_pylist() == [21]
    arriving = spark.readStream.schema(rows.schema).parquet(str(folder))
    other = FrameStore(str(tmp_path / "other"), FRAME)
    options = {"name": "times", "checkpoint": str(tmp_path / "check"), "trigger": "available_now"}
    query = su.stream_into(arriving, other, on_null_time="skip", **options)
    query.awaitTermination()
    assert left_out(query) == 2
    assert other.query(keys=[])["s"].to_pylist() == [21]
    emitted = su.stream(arriving.withWatermark("ts", "0 seconds"), FRAME, shards=1, on_null_time="skip")
    query = emitted.writeStream.format("memory").queryName("null_times").outputMode("update")
    query = query.option("checkpointLocation", str(tmp_path / "emitted")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert left_out(query) == 2
    assert [(row.n, row.s) for row in spark.table("null_times").where("level = '1m'").collect()][:1] == [(2, 5)]


def test_they_fail_unless_that_is_asked_for(spark, folder):
    import spark_udaf as su

    rows = spark.read.parquet(str(folder))
    with pytest.raises(Exception, match="no event time"):
        su.rollup(rows, FRAME).collect()
    with pytest.raises(ValueError, match="on_null_time must be one of fail, skip, or an Observation; got 'drop'"):
        su.rollup(rows, FRAME, on_null_time="drop")
    with pytest.raises(ValueError, match="on_null_time='skip' works only with a DataFrame"):
        su.rollup(su.scan_parquet(spark, str(folder)), FRAME, on_null_time="skip")
