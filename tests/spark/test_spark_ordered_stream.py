"""Ordered windows of streams on Spark: real queries, also killed and restarted, emit the results of a batch job."""

from __future__ import annotations

import datetime as dt
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
import tiltframe.cli as cli
from tests.spark_queries import START
from tiltframe import OrderedFrame, RunningAggregation, finish_ordered, ordered_rollup, running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MEASURES = {"n": aggr.count(), "total": aggr.sum("x")}
DELAY = 120  # seconds


def events(seed: int, n: int = 80) -> pa.Table:
    """Make rows in a disorder of two minutes, for which no row is late, of times that are distinct in a key."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.choice(3000, n, replace=False))
    arrival = np.argsort(seconds + rng.integers(0, DELAY - 10, n), kind="stable")
    times = pa.array(seconds * 1000 + START).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "k": rng.choice(["a", "b", "c"], n), "x": rng.integers(0, 100, n)})
    return table.take(pa.array(arrival))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for number, start in enumerate(range(0, 80, 20)):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(events(1).slice(start, 20), path)
        os.utime(path, (number + 1, number + 1))
    return tmp_path


def passed(table: pa.Table) -> list[tuple]:
    """Name the results of rows that the watermark has passed."""
    until = max(events(1).column("ts").to_pylist()) - dt.timedelta(seconds=DELAY)
    names = [name for name in ("level", "k", "ts", "n", "total") if name in table.column_names]
    rows = [tuple(row[name] for name in names) for row in table.to_pylist() if row["ts"] < until]
    return sorted(rows)


@pytest.mark.parametrize("kind", ["sliding", "chain"])
@pytest.mark.long
def test_a_query_that_fails_and_goes_on_emits_what_the_batch_job_computes(spark, folder, kind):
    import spark_udaf as su

    chain = OrderedFrame(["count(2)", "sliding(2)"], "ts", MEASURES, ["k"])
    aggregation = RunningAggregation(MEASURES, "sliding(3)", time="ts", keys=["k"])
    rows = spark.readStream.schema("ts timestamp, k string, x long").option("maxFilesPerTrigger", 1)
    rows = rows.parquet(str(folder / "in")).withWatermark("ts", f"{DELAY} seconds")
    emitted = su.stream(rows, chain if kind == "chain" else aggregation, shards=2)
    batches, failed = {}, []

    def keep(batch, number: int) -> None:
        batches[number] = batch.toArrow()
        if number == 2 and not failed:
            failed.append(number)
            raise RuntimeError("killed here")

    def run() -> None:
        writer = emitted.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(keep)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert su.progress(query).late_rows == 0

    with pytest.raises(Exception, match="killed here"):
        run()
    run()
    result = passed(pa.concat_tables(batches.values()))
    if kind == "chain":
        unsplit = finish_ordered(ordered_rollup(events(1), chain), chain)
    else:
        unsplit = running(events(1), MEASURES, "sliding(3)", time="ts", keys=["k"])
    assert result == passed(unsplit)
    assert len(result) > 20


@pytest.mark.long
def test_the_command_prints_the_results_of_ordered_windows(spark, folder, capfd):
    command = ["stream", str(folder / "in"), "--spark", "--format", "parquet", "--once", "--time", "ts", "--key", "k"]
    command += ["--measure", "n=count()", "--measure", "total=sum(x)", "--disorder", f"{DELAY}s", "--shards", "2"]
    cli.main([*command, "--ordered", "sliding(3)", "--state", str(folder / "checkpoint")])
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    unsplit = running(events(1), MEASURES, "sliding(3)", time="ts", keys=["k"])
    assert sorted((r["k"], r["n"], r["total"]) for r in lines) == sorted((k, n, t) for k, _, n, t in passed(unsplit))


def test_what_ordered_windows_do_not_take_is_refused(spark, folder):
    import spark_udaf as su

    rows = spark.readStream.schema("ts timestamp, k string, x long").parquet(str(folder / "in"))
    aggregation = RunningAggregation(MEASURES, "count(2)", time="ts", keys=["k"])
    with pytest.raises(ValueError, match="which this stream does not have"):
        su.stream(rows, aggregation)
    with pytest.raises(ValueError, match="emit, late, dropped and max_keys cannot be used"):
        su.stream(rows.withWatermark("ts", "1 second"), aggregation, emit="on_update")
    with pytest.raises(ValueError, match="no column 'y'"):
        su.stream(rows.withWatermark("ts", "1 second"), RunningAggregation({"n": aggr.sum("y")}, time="ts"))
