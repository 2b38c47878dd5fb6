"""Query the hours of one day from a store with a month of one-second windows, compared with Spark over the rows.

    python -m benchmarks.retrieval [--quick] [--out FILE]

The month is written with one commit per day, and compacted. The number of files that the query reads comes from its
plan. `benchmarks.key_filter_bytes` measures the bytes that a query for one of 100 hosts reads. Results are compared
with Spark's before anything is timed. More keys give larger files, but not more files. More days give more files, but
the hours of one day stay in one file, so that the query reads the same number of files.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track

import aggr
from aggr.bench.timing import circumstances, one_round
from benchmarks.costs import create_table, print_table
from benchmarks.jobs import session
from benchmarks.key_filter_bytes import bytes_ratio_of_one_key, write_month_store
from benchmarks.musthold import LimitedFigure, show_limits
from tiltframe import FrameStore, Query, TiltFrame, rollup

# The length of a day in milliseconds.
DAY = 86_400_000
# 2024-05-01 in milliseconds since 1970.
BEGIN = 1_714_521_600_000
WITHIN = ("2024-05-02", "2024-05-03")
FRAME = TiltFrame(
    ["1s", "1m", "1h"],
    time="ts",
    keys=["host"],
    measures={"n": aggr.count(), "mean": aggr.avg("x"), "p": aggr.dds("x", [0.5, 0.99])},
)


@dataclass(frozen=True)
class RunSize:
    """The size of the data, and the number of rounds. Each host has ``rows`` events per second. The JSON file of
    results contains these fields by name.
    """

    days: int
    hosts: int
    rows: int
    rounds: int


FULL = RunSize(days=30, hosts=2, rows=20, rounds=7)
QUICK = RunSize(days=3, hosts=1, rows=2, rounds=3)


def main(run_size: RunSize, out: Path | None) -> list[LimitedFigure]:
    """Measure and print the figures, and write them to ``out`` if it is passed."""
    environment = circumstances(("pyspark", "deltalake", "pyarrow", "numpy"))
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        store = write_store(Path(folder), run_size)
        hours = store.query("1h", within=WITHIN)
        by_spark = hourly_query(spark, folder)
        check(hours, by_spark())
        calls = {"the store": lambda: store.query("1h", within=WITHIN), "Spark over the rows": by_spark}
        calls["the store, opened anew"] = lambda: FrameStore(store.uri).query("1h", within=WITHIN)
        times_of_call: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(run_size.rounds):
            for name, seconds in one_round(calls, number).items():
                times_of_call[name].append(seconds)
        files_read, files, states = count_files_and_states(store)
        bytes_ratio = bytes_ratio_of_one_key(write_month_store(Path(folder)))
    medians = {name: sorted(times)[len(times) // 2] for name, times in times_of_call.items()}
    limited_figures = [
        LimitedFigure("files read / files of the store", 0.01 * FULL.days / run_size.days, files_read / files),
        LimitedFigure(
            "the store / Spark over the rows",
            1 / 50,
            medians["the store"] / medians["Spark over the rows"],
            # Quick runs are not judged, because Spark reads their few days of rows nearly as fast as one day of rows.
            is_judged=run_size is FULL,
        ),
        LimitedFigure("bytes read for one key of 100 / for all, a month", 1 / 5, bytes_ratio),
    ]
    table = create_table(f"Hours of one day, of {states:,} states in {files:,} files", ["", "ms"])
    for name, median in medians.items():
        table.add_row(name, f"{median * 1000:,.1f}")
    print_table(table)
    show_limits(limited_figures)
    if out is not None:
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        figures = {
            "seconds": medians,
            "all": times_of_call,
            "states": states,
            "files": files,
            "read": files_read,
            "share_of_a_key": bytes_ratio,
            "must_hold": limits,
        }
        out.write_text(json.dumps({**environment, **asdict(run_size), **figures}, indent=1) + "\n")
    return limited_figures


def write_store(folder: Path, run_size: RunSize) -> FrameStore:
    """Write one Parquet file of rows per day, roll up each day in one commit, and return the compacted store."""
    store = FrameStore(folder / "store", FRAME)
    (folder / "rows").mkdir()
    console = Console(stderr=True)
    for day in track(range(run_size.days), "rolling up a month", console=console, transient=True):
        rng = np.random.default_rng(day)
        ticks = np.repeat(np.arange(0, DAY, 1000), run_size.hosts * run_size.rows)
        hosts = np.tile(np.repeat(np.arange(run_size.hosts), run_size.rows), DAY // 1000)
        rows = pa.table(
            {
                "ts": pa.array(BEGIN + day * DAY + ticks + rng.integers(0, 1000, len(ticks))).cast(
                    pa.timestamp("ms", "UTC")
                ),
                "host": pa.array(np.char.add("host-", hosts.astype(str))),
                "x": rng.lognormal(3, 1, len(ticks)),
            }
        )
        pq.write_table(rows, folder / "rows" / f"{day}.parquet")
        store.append(rollup(rows, FRAME), "month", day)
    store.compact()
    return store


def hourly_query(spark: Any, folder: str) -> Any:
    """Return a function without parameters. It runs a query of Spark over the files of rows, and returns its results as
    a table with the same groups as the query of the store.
    """
    rows = spark.read.parquet(f"{folder}/rows")
    low, high = (f"timestamp '{day} 00:00:00Z'" for day in WITHIN)
    rows.createOrReplaceTempView("rows")
    query = (
        "SELECT host, window(ts, '1 hour').start AS start, count(*) AS n, avg(x) AS mean, "
        f"percentile_approx(x, array(0.5D, 0.99D)) AS p FROM rows WHERE ts >= {low} AND ts < {high} "
        "GROUP BY host, window(ts, '1 hour') ORDER BY start, host"
    )
    return lambda: spark.sql(query).toArrow()


def check(store_results: pa.Table, expected: pa.Table) -> None:
    """Raise ``AssertionError`` if hosts, counts or means differ between two tables of results."""
    assert store_results["host"].to_pylist() == expected["host"].to_pylist()
    assert store_results["n"].to_pylist() == expected["n"].to_pylist()
    assert np.allclose(store_results["mean"].to_numpy(), expected["mean"].to_numpy(), rtol=1e-12)


def count_files_and_states(store: FrameStore) -> tuple[int, int, int]:
    """Return the number of files that the query for one day reads, the number of all files of the store, and the number
    of states in the store.
    """
    view = store.at()
    (reading,) = view.ask(Query("1h", WITHIN)).readings
    parts = view.snapshot.parts
    return len({part.name for part, _ in reading.part_ranges}), len(parts), sum(part.rows for part in parts)


@click.command()
@click.option("--quick", is_flag=True, help="Use only three days.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Compare a query of a store with Spark over the rows. Exit with status 1 if a limit is exceeded."""
    limited_figures = main(QUICK if quick else FULL, out)
    if any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
