"""A struct as a key on Spark: states in a store, the data source, and streams give the results of the local rollup."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tiltframe import FrameStore, OrderedFrame, TiltFrame, finish, finish_ordered, ordered_rollup, rollup

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TAGS = pa.struct([("host", pa.string()), ("at", pa.struct([("load", pa.float64())]))])
ROWS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("tags", TAGS), ("x", pa.int64())])
FRAME = TiltFrame(["1s", "1m"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, ["tags"])


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    draws, values = random.Random(8), []
    for second in range(300):
        place = draws.choice([None, {"load": draws.choice([0.0, -0.0, 1.5, float("nan"), None])}])
        tags = draws.choice([None, {"host": draws.choice(["a", "b", None]), "at": place}])
        values.append({"ts": 300_000 * second, "tags": tags, "x": second})
    return pa.Table.from_pylist(values, schema=ROWS)


@pytest.fixture
def files(rows, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        pq.write_table(rows.slice(100 * number, 100), folder / f"{number}.parquet")
        # A stream reads files in the order of their times, which have to differ.
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))
    return str(folder)


def texts(rows) -> list[str]:
    return sorted(repr((row["level"], row["tags"], row["n"], row["total"])) for row in rows)


def of_spark(df) -> list[str]:
    return texts(row.asDict(recursive=True) for row in df.collect())


@pytest.mark.long
def test_a_store_that_tasks_write(spark, rows, files, tmp_path):
    import spark_udaf as su

    local = FrameStore(tmp_path / "local", FRAME)
    local.append_rows(rows, "w", 1)
    stores = [FrameStore(tmp_path / name, FRAME) for name in ("rows", "files", "states")]
    df = spark.read.parquet(files)
    su.rollup_into(df, stores[0], "w", 1)
    su.rollup_into(su.scan_parquet(spark, files), stores[1], "w", 1)
    su.append(su.rollup(df, FRAME), stores[2], "w", 1)
    for store in stores:
        for level in ("1s", "1m"):
            states, expected = store.states(level), local.states(level)
            assert all(same_bits(states[name], expected[name]) for name in expected.column_names), level
    by_host = su.read(spark, stores[0].uri, per="1m", keys=["tags.host"]).where("`tags.host` = 'a'")
    expected = local.query(per="1m", keys=["tags.host"], where="tags.host = 'a'")
    assert sorted(row.total for row in by_host.collect()) == sorted(expected["total"].to_pylist())
    of_field = su.read(spark, stores[0].uri, per="1m").where("tags.host = 'a'")
    assert of_spark(of_field) == texts(local.query(per="1m", where="tags.host = 'a'").to_pylist())


@pytest.mark.long
def test_streams(spark, rows, files, tmp_path):
    import spark_udaf as su

    expected = texts(finish(rollup(rows, FRAME), FRAME).to_pylist())
    store, emitted = FrameStore(tmp_path / "store", FRAME), []
    arriving = spark.readStream.schema(spark.read.parquet(files).schema).option("maxFilesPerTrigger", 1).parquet(files)

    def run(df, use_batch, name):
        writer = df.writeStream.foreachBatch(use_batch).option("checkpointLocation", str(tmp_path / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(arriving, lambda batch, number: su.rollup_into(batch, store, "w", number), "into")
    queried = [row for level in ("1s", "1m") for row in store.query(per=level).to_pylist()]
    assert texts(queried) == expected

    emitting = su.stream(arriving.withWatermark("ts", "0 seconds"), FRAME, emit="on_update")
    run(emitting, lambda batch, _: emitted.extend(row.asDict(recursive=True) for row in batch.collect()), "emitting")
    last = {(row["level"], row["window_start"], repr(row["tags"])): row for row in emitted}
    assert texts(last.values()) == expected

    pairs, frame = [], OrderedFrame(["count(2)"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, keys=["tags"])
    ordered = su.stream(arriving.withWatermark("ts", "0 seconds"), frame)
    run(ordered, lambda batch, _: pairs.extend(row.asDict(recursive=True) for row in batch.collect()), "ordered")
    of_batch = texts(finish_ordered(ordered_rollup(rows, frame), frame).to_pylist())
    assert set(texts(pairs)) <= set(of_batch)
    assert len(pairs) > 0.9 * len(of_batch)
