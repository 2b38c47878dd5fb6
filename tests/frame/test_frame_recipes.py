"""Recipes with time windows: windows that contain their end, (start, end], and aggregates of aggregates."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.streaming import OpenWindows

MINUTE = 60_000_000
RIGHT = [f"tumbling({size}, offset=1us)" for size in ("1m", "10m")]


def rows(seed: int) -> pa.Table:
    """Draw times of which many are full minutes."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 60, 300) * MINUTE + rng.choice([0, 0, 1, -1, 30_000_000], 300)
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": rng.integers(0, 9, 300)})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_windows_that_are_closed_at_their_end(seed, tmp_path):
    """As pandas resamples with closed='right': by a rollup, from a store, and as a stream closes them."""
    table, frame = rows(seed), TiltFrame(RIGHT, "ts", {"n": aggr.count(), "total": aggr.sum("x")})
    states = rollup(table, frame)
    store = FrameStore(tmp_path / "store", frame)
    store.append(states, "test", 1)
    windows = OpenWindows(frame)
    windows.add_rows(table)
    streamed = windows.results(windows.close())
    for level, size in zip(frame.levels, ("1min", "10min"), strict=True):
        by_time = table.to_pandas().set_index("ts")["x"]
        expected = by_time.resample(size, closed="right", label="right").agg(["size", "sum"])
        expected = {at: (row["size"], row["sum"]) for at, row in expected.iterrows() if row["size"]}
        for results in (finish(states, frame), store.query(level.name), streamed):
            rows_of_level = [row for row in results.to_pylist() if row["level"] == level.name]
            values_by_end = {
                pd.Timestamp(row["window_end"]) - pd.Timedelta("1us"): (row["n"], row["total"]) for row in rows_of_level
            }
            assert values_by_end == expected


def test_an_aggregate_of_aggregates_is_a_rollup_of_results():
    table = rows(4)
    minutes = TiltFrame(["1m"], "ts", {"total": aggr.sum("x")})
    tens = TiltFrame(["10m"], "window_start", {"mean": aggr.avg("total"), "most": aggr.max("total")})
    result = finish(rollup(finish(rollup(table, minutes), minutes), tens), tens)
    expected = duckdb.from_arrow(table).query(
        "rows",
        "WITH minutes AS (SELECT time_bucket(INTERVAL '1 minute', ts) AS m, sum(x) AS total FROM rows GROUP BY m) "
        "SELECT time_bucket(INTERVAL '10 minutes', m) AS tens, avg(total), max(total) FROM minutes "
        "GROUP BY tens ORDER BY tens",
    )
    expected = expected.fetchall()
    assert list(zip(result["mean"].to_pylist(), result["most"].to_pylist(), strict=True)) == [
        row[1:] for row in expected
    ]
