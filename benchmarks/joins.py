"""Joins of events with a store, compared with one plain query per distinct range of the events.

    python -m benchmarks.joins [--quick] [--out FILE]

Each event has a range of time and a window size, and is joined with the results of the store in these windows. In the
first case, each of 10,000 events has a year of daily windows or an hour of one-second windows. The events have two
distinct ranges, and millions of joined rows. In the second case, each of 500 events has a minute of one-second windows
that begins at a random second of the hour. These events have hundreds of distinct ranges. Before anything is timed, the
joined rows of some events are compared with one query per event.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench.timing import circumstances, one_round
from benchmarks.musthold import LimitedFigure, show_limits
from tiltframe import FrameStore, TiltFrame

BEGIN = 1_704_067_200_000  # 2024-01-01 in milliseconds since 1970
HOUR = 3_600_000
YEAR = 366 * 86_400_000
KEYS = 50
ROUNDS = 5
FRAME = TiltFrame(["1s", "1m", "1h", "1d"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, ["host"])
RANGE_COLUMNS = ("start", "end")


def store_of_a_year(folder: Path, rows: int) -> FrameStore:
    """Return a new store in ``folder``. It has ``rows`` rows at random times of a year, and ``rows`` further rows at
    random times of the first hour of this year.
    """
    rng = np.random.default_rng(1)
    offsets = np.concatenate([rng.integers(0, YEAR, rows), rng.integers(0, HOUR, rows)])
    hosts = rng.integers(0, KEYS, len(offsets))
    store = FrameStore(folder / "store", FRAME)
    data = pa.table({"ts": BEGIN + offsets, "host": hosts, "x": rng.random(len(offsets))})
    store.append_rows(data, writer="benchmark", commit=1)
    return store


def year_or_hour_events(count: int) -> pa.Table:
    """Return a table of ``count`` events. About nine of ten ask for a year of daily windows, and the others for an hour
    of one-second windows.
    """
    rng = np.random.default_rng(2)
    is_year = rng.random(count) < 0.9
    return pa.table(
        {
            "host": rng.integers(0, KEYS, count),
            "start": np.full(count, BEGIN),
            "end": BEGIN + np.where(is_year, YEAR, HOUR),
            "size": np.where(is_year, "1d", "1s"),
        }
    )


def minute_events(count: int) -> pa.Table:
    """Return a table of ``count`` events. Each event asks for a minute of one-second windows. The minute begins at a
    random second of the hour.
    """
    rng = np.random.default_rng(3)
    starts = BEGIN + rng.integers(0, HOUR // 1000 - 60, count) * 1000
    return pa.table(
        {"host": rng.integers(0, KEYS, count), "start": starts, "end": starts + 60_000, "size": ["1s"] * count}
    )


def join_events(store: FrameStore, events: pa.Table) -> pa.Table:
    """Return the events joined with the results of the store for their host and their range."""
    return store.join(events, "host", within=RANGE_COLUMNS, per="size")


def query_distinct_ranges(store: FrameStore, events: pa.Table) -> list[pa.Table]:
    """Return the results of one plain query for each distinct combination of a range and a window size."""
    distinct = events.select([*RANGE_COLUMNS, "size"]).group_by([*RANGE_COLUMNS, "size"]).aggregate([]).to_pylist()
    return [store.query(event["size"], (event["start"], event["end"])) for event in distinct]


def check(store: FrameStore, events: pa.Table) -> None:
    """Raise ``AssertionError`` if the join of the first 20 events differs from one query per event."""
    sample = events.slice(0, 20)
    expected: list[dict[str, Any]] = []
    for event in sample.to_pylist():
        results = store.query(event["size"], (event["start"], event["end"]), where=f"host = {event['host']}")
        expected += [event | result for result in results.to_pylist()] or [event]
    results_of_join = join_events(store, sample).to_pylist()
    assert [row["total"] for row in results_of_join] == [row.get("total") for row in expected]
    assert [row["window_start"] for row in results_of_join] == [row.get("window_start") for row in expected]


def main(events: int, rows: int, out: Path | None) -> list[LimitedFigure]:
    """Measure and print the figures, write them to ``out`` if it is passed, and return the ratios with their limits."""
    limited_figures = []
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        store = store_of_a_year(Path(folder), rows)
        for name, data in (
            ("a year of days or an hour of seconds", year_or_hour_events(events)),
            ("any minute", minute_events(events // 20)),
        ):
            check(store, data)
            calls: dict[str, Callable[[], object]] = {
                "join": partial(join_events, store, data),
                "queries": partial(query_distinct_ranges, store, data),
            }
            rounds = [one_round(calls, number) for number in range(ROUNDS)]
            seconds[name] = {call: [times[call] for times in rounds] for call in calls}
            ratio = median(seconds[name]["join"]) / median(seconds[name]["queries"])
            limited_figures.append(
                LimitedFigure(f"{data.num_rows:,} events, {name}: join / queries of distinct ranges", 5, ratio)
            )
    show_limits(limited_figures)
    if out is not None:
        about = circumstances(("deltalake", "pyarrow", "numpy"))
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        out.write_text(json.dumps({**about, "seconds": seconds, "must_hold": limits}, indent=1) + "\n")
    return limited_figures


@click.command()
@click.option("--quick", is_flag=True, help="200 events and 4,000 rows.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Compare joins with plain queries; exit with status 1 if a limit is exceeded."""
    limited_figures = main(200, 4_000, out) if quick else main(10_000, 100_000, out)
    if not quick and any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
