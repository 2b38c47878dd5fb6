"""Joins of DataFrames with a store, in batches and streams: each row has the results of one query of the store."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

BEGIN = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, ["host", "code"])
NAMES = ["number", "window_start", "n", "total"]


@pytest.fixture
def store(tmp_path):
    draws = random.Random(5)
    rows = [
        {
            "ts": BEGIN + dt.timedelta(seconds=draws.randrange(36_000)),
            "host": draws.choice("abc"),
            "code": i % 2,
            "x": i / 7,
        }
        for i in range(400)
    ]
    store = FrameStore(tmp_path / "store", FRAME)
    store.append_rows(pa.Table.from_pylist(rows), writer="test", commit=0)
    return store


def events(count: int) -> pa.Table:
    draws = random.Random(count)
    starts = [BEGIN + dt.timedelta(minutes=draws.randrange(500)) for _ in range(count)]
    return pa.table(
        {
            "number": pa.array(range(count), pa.int32()),
            "where it is": draws.choices(["A", "B", "Z", None], k=count),
            "code": pa.array(draws.choices([0, 1], k=count), pa.int16()),
            "from": pa.array(starts, pa.timestamp("us", "UTC")),
            "to": pa.array(
                [at + dt.timedelta(hours=draws.randrange(1, 4)) for at in starts], pa.timestamp("us", "UTC")
            ),
            "size": draws.choices(["1h", "2m", "all"], k=count),
        }
    )


def expected(store: FrameStore, rows: pa.Table, how: str) -> list[tuple]:
    """One query of the store for each row."""
    results = []
    for row in rows.to_pylist():
        where = f"host = '{(row['where it is'] or '?').lower()}' AND code = {row['code']}"
        answer = store.query(row["size"], (row["from"], row["to"]), where=where).to_pylist()
        of_row = [(row["number"], result["window_start"], result["n"], result["total"]) for result in answer]
        results += of_row or ([(row["number"], None, None, None)] if how == "left" else [])
    return sorted(results, key=str)


def selected(rows) -> list[tuple]:
    values = [[row[name] for name in NAMES] for row in rows]
    return sorted([(n, at and at.astimezone(dt.UTC), *results) for n, at, *results in values], key=str)


def test_every_row_has_the_results_of_its_query_in_a_batch_and_in_a_stream(spark, store, tmp_path):
    import spark_udaf as su

    arguments = {"on": "lower(`where it is`) = host AND row.code = store.code", "within": ("from", "to"), "per": "size"}
    rows = events(60)
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "1.parquet")
    batch = spark.read.parquet(str(tmp_path / "in"))
    assert selected(su.join(batch.repartition(3), store, how="inner", **arguments).collect()) == expected(
        store, rows, "inner"
    )

    stream = spark.readStream.schema(batch.schema).parquet(str(tmp_path / "in"))
    joined = su.join(stream, store, **arguments)
    assert joined.isStreaming

    def run() -> list[tuple]:
        arrived: list = []
        writer = joined.writeStream.foreachBatch(lambda batch, _: arrived.extend(batch.collect()))
        checkpointed = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        checkpointed.trigger(availableNow=True).start().awaitTermination()
        return selected(arrived)

    assert run() == expected(store, rows, "left")
    store.append_rows(rows.select([]).append_column("ts", rows["from"]).append_column("host", pa.array(["b"] * 60))
                      .append_column("code", rows["code"].cast("int64")).append_column("x", pa.array([0.5] * 60)),
                      writer="test", commit=1)  # fmt: skip
    pq.write_table(events(20), tmp_path / "in" / "2.parquet")
    assert run() == expected(store, events(20), "left")  # a later batch reads the new commit
    with pytest.raises(ValueError, match="the store has no key 'hots' to join on; did you mean 'host'"):
        su.join(batch, store, "hots")
