"""Statements from the documentation of Kaskada, Siddhi, Tektite, Timeplus and Tremor, tested on Spark: batches, streams
and SQL.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

import aggr
from tiltframe import FrameStore, RunningAggregation, TiltFrame
from windows.ordered import since, yearly

pytestmark = [pytest.mark.spark, pytest.mark.slow]

YEARS = since(yearly("UTC"))
YEARLY = [7, 0, 0, 0, 0, 0, 13, 4]
PURCHASES = [("2012-03-01", 5), ("2012-09-01", 2), ("2018-05-05", 13), ("2019-02-02", 4)]
BEGIN = dt.datetime(2024, 5, 1, 6, tzinfo=dt.UTC)


def arriving(spark, folder: Path, schema: str, *batches: list[dict]):
    """Return a stream of one file for each batch."""
    folder.mkdir()
    for number, batch in enumerate(batches):
        path = folder / f"{number}.json"
        path.write_text("\n".join(json.dumps(row) for row in batch))
        import os

        os.utime(path, (number + 1, number + 1))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def emitted_rows(emitted, folder: Path, **trigger) -> list:
    rows: list = []
    writer = emitted.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(folder)).trigger(**(trigger or {"availableNow": True})).start()
    if trigger:
        query.awaitTermination(20)
        query.stop()
    else:
        query.awaitTermination()
    return rows


def second(number: float) -> str:
    return (BEGIN + dt.timedelta(seconds=number)).isoformat()


@pytest.mark.long
def test_kaskada_yearly_sums(spark):
    import spark_udaf as su

    df = spark.createDataFrame(
        [(dt.datetime.fromisoformat(f"{day}T00:00:00+00:00"), n) for day, n in PURCHASES], "ts timestamp, n int"
    )
    sums = su.running(df, {"n": aggr.sum("n")}, YEARS, time="ts", emit="ticks", until="next", fill="zero")
    assert [row.n for row in sums.orderBy("ts").collect()] == YEARLY


@pytest.mark.long
def test_kaskada_yearly_sums_of_a_stream(spark, tmp_path):
    import spark_udaf as su

    lines = [{"ts": f"{day}T00:00:00Z", "n": n} for day, n in [*PURCHASES, ("2020-06-01", 0)]]
    rows = arriving(spark, tmp_path / "in", "ts timestamp, n int", *[[line] for line in lines]).withWatermark(
        "ts", "0 seconds"
    )
    aggregation = RunningAggregation({"n": aggr.sum("n")}, YEARS, time="ts", emit="ticks", fill="zero")
    results = emitted_rows(su.stream(rows, aggregation), tmp_path / "checkpoint")
    assert [row.n for row in sorted(results, key=lambda row: row.ts)][: len(YEARLY)] == YEARLY


@pytest.mark.long
def test_kaskada_an_aggregation_of_an_aggregation_in_one_stream(spark, tmp_path):
    """sum() | mean() of 5, 2, 13, 4: the sums are 5, 7, 20, 24, and their means 5, 6, 10.667, 14."""
    import spark_udaf as su

    batches = [[{"ts": second(number), "n": n}] for number, n in enumerate([5, 2, 13, 4])]
    rows = arriving(spark, tmp_path / "in", "ts timestamp, n long", *batches)
    sums = TiltFrame(["all"], "ts", {"total": aggr.sum("n"), "at": aggr.max("ts")})
    of_rows = su.stream(rows, sums, emit="on_update", name="sums").select("at", "total")
    means = TiltFrame(["all"], "at", {"mean": aggr.avg("total")})
    results = emitted_rows(su.stream(of_rows, means, emit="on_update", name="means"), tmp_path / "checkpoint")
    assert [round(row.mean, 3) for row in results] == [5.0, 6.0, 10.667, 14.0]


@pytest.fixture
def in_utc(spark):
    """Set the time zone of the session to UTC, as windows of SQL need, and restore it afterwards."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.long
@pytest.mark.usefixtures("in_utc")
def test_siddhi_the_average_of_a_raw_query_from_a_store(spark, tmp_path):
    import spark_udaf as su

    rows = [("WSO2", 50.0, 0), ("WSO2", 70.0, 0), ("IBM", 100.0, 1)]
    df = spark.createDataFrame(
        [(s, p, BEGIN + dt.timedelta(hours=h)) for s, p, h in rows], "symbol string, price double, ts timestamp"
    )
    df.createOrReplaceTempView("trades_of_siddhi")
    store = FrameStore(tmp_path / "store", TiltFrame(["1h"], "ts", {"avg": aggr.avg("price")}, ["symbol"]))
    su.rollup_into(df, store, "w", 1)
    query = "SELECT symbol, avg(price), sum(price) FROM trades_of_siddhi GROUP BY symbol ORDER BY symbol"
    assert [tuple(row) for row in su.sql(query, store, exact=False).collect()] == [
        ("IBM", 100.0, 100.0),
        ("WSO2", 60.0, 120.0),
    ]
    fields = [(f.name, f.dataType) for f in su.sql(query, store, exact=False).schema]
    assert fields == [(f.name, f.dataType) for f in spark.sql(query).schema]
    with pytest.raises(ValueError, match="exact=False"):
        su.sql(query, store)
    with pytest.raises(ValueError, match="exact=False"):
        su.sql("SELECT sum(price) FROM trades_of_siddhi", store)


@pytest.mark.long
def test_tektite_half_a_second(spark, tmp_path):
    import spark_udaf as su

    batches = [[{"ts": second(0)}, {"ts": second(0.4)}, {"ts": second(0.5)}], [{"ts": second(9)}], [{"ts": second(10)}]]
    rows = arriving(spark, tmp_path / "in", "ts timestamp", *batches).withWatermark("ts", "0 seconds")
    results = emitted_rows(su.stream(rows, TiltFrame(["500ms"], "ts", {"n": aggr.count()})), tmp_path / "checkpoint")
    assert [row.n for row in sorted(results, key=lambda row: row.window_start)][:2] == [2, 1]


@pytest.mark.long
def test_timeplus_policies(spark, tmp_path):
    import spark_udaf as su

    lines = [{"ts": second(0), "k": "a", "x": 3.0}, {"ts": second(1), "k": "a", "x": 2.0}]
    rows = arriving(spark, tmp_path / "in", "ts timestamp, k string, x double", *[[line] for line in lines])
    greatest = TiltFrame(["all"], "ts", {"max": aggr.max("x")})
    assert [
        row.max for row in emitted_rows(su.stream(rows, greatest, emit="on_update(changed=result)"), tmp_path / "1")
    ] == [3.0]


def test_tremor_records(spark):
    import spark_udaf as su

    df = spark.sql(
        "SELECT timestamp_seconds(id) AS ts, named_struct('host', if(id = 1, 'b', 'a')) AS tags, "
        "map('idle', 10 * id, 'user', id) AS fields FROM range(3)"
    )
    by_host = TiltFrame(["10s"], "ts", {"n": aggr.count()}, {"host": "tags.host"})
    hosts = su.finish(su.rollup(df, by_host), by_host).orderBy("host").collect()
    assert [(row.host, row.n) for row in hosts] == [("a", 2), ("b", 1)]
    by_class = TiltFrame(["10s"], "ts", {"h": aggr.hdr("fields[class]")}, {"class": "each(map_keys(fields))"})
    classes = su.finish(su.rollup(df, by_class), by_class).orderBy("class").collect()
    assert [(row["class"], row.h["mean"]) for row in classes] == [("idle", 10.0), ("user", 1.0)]
