"""Backfills on Spark, which may be killed at any time: each range is counted once."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe import FrameStore, TiltFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow]
KILLS = int(os.environ.get("TRIALS", "2"))
FRAME = TiltFrame(["10m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
RUN = """
import sys
import spark_udaf as su
from tests import engines
from tests.spark.test_spark_backfill import FRAME
from tiltframe import FrameStore
with engines.session("classic") as spark:
    rows = spark.read.parquet(sys.argv[1])
    print("ready", flush=True)
    store = FrameStore(sys.argv[2], FRAME)
    su.backfill(rows, store, "archive", "2h", progress=lambda *at: print(*at, flush=True))
    print("done", flush=True)
"""


def past(path, hours=24):
    draws, begin = random.Random(5), dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    times = [begin + dt.timedelta(seconds=draws.randrange(hours * 3600)) for _ in range(2000)]
    values = [draws.choice([0.1, 1e16, -1e16]) for _ in times]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": ["a", "b"] * 1000, "x": values})
    pq.write_table(table, path)
    return table


def same(store, table, place):
    complete = FrameStore(place, FRAME)
    complete.append_rows(table, "w", 1)
    for level in FRAME.levels:
        tables = [each_store.query(level.name, now="2030-01-01") for each_store in (store, complete)]
        assert [digest(column) for column in tables[0].columns] == [digest(column) for column in tables[1].columns]


@pytest.mark.long
def test_ranges_come_one_by_one_and_once(spark, tmp_path):
    import spark_udaf as su

    table = past(tmp_path / "a.parquet", hours=5)
    rows, store, seen = spark.read.parquet(str(tmp_path / "a.parquet")), FrameStore(tmp_path / "s", FRAME), []

    def stopping(done, range_count):
        seen.append((done, range_count, store.query("1h", keys=[])["window_start"].to_pylist()[0].hour))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        su.backfill(rows, store, "archive", "2h", newest_first=True, progress=stopping)
    assert seen == [(1, 3, 4), (2, 3, 2)]
    with pytest.raises(ValueError, match="was begun with another value of chunk"):
        su.backfill(rows, store, "archive", "1h", newest_first=True)
    assert su.backfill(rows, store, "archive", "2h", newest_first=True, scan="auto") == 1
    assert su.backfill(rows, store, "archive", "2h", newest_first=True) == 0
    same(store, table, tmp_path / "whole")
    nulls = rows.selectExpr("CAST(NULL AS TIMESTAMP) AS ts", "k", "x").union(rows)
    with pytest.raises(Exception, match="no event time"):
        su.backfill(nulls, store, "nulls", "2h")
    with pytest.raises(ValueError, match="must be a TIMESTAMP"):
        su.backfill(rows.selectExpr("CAST(ts AS DATE) AS ts", "k", "x"), store, "dates", "2h")


@pytest.mark.long
def test_kills_lose_no_range_and_count_none_twice(tmp_path):
    # six ranges: kills come in the first two to four, and each range is committed by the same code
    table, chance, kills = past(tmp_path / "a.parquet", hours=12), random.Random(int(os.environ.get("SEED", "7"))), 0
    path, number = str(tmp_path / "s"), 0
    while kills < KILLS:
        command = [sys.executable, "-c", RUN, str(tmp_path / "a.parquet"), f"{path}{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 4)
            os.killpg(process.pid, signal.SIGKILL)
            output_lines = process.stdout.read().splitlines()
        kills += 1
        if "done" in output_lines:
            same(FrameStore(f"{path}{number}", FRAME), table, tmp_path / f"whole{number}")
            number += 1
        elif output_lines:
            last = FrameStore(f"{path}{number}", FRAME).last_commit("archive")
            assert last + 1 >= int(output_lines[-1].split()[0])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    same(FrameStore(command[-1], FRAME), table, tmp_path / "whole")
