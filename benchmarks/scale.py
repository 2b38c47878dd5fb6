"""Roll up 1, 10 and 100 days of files into a store with Spark, and compare the costs with those that `explain`
predicts. Each day has the same number of rows.

python -m benchmarks.scale [--days 1,10,100] [--rows-per-day 10000000] [--master local[2]] [--out FILE]

A day has 24 Parquet files, one per hour, in the order of time, with latencies of 1,000 hosts. Each day is one commit,
as in a backfill. A first run, which compiles loops, is not measured. Memory is the peak of all Python workers together,
and shuffled bytes are those of the last day.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from aggr.bench.timing import circumstances
from benchmarks.account import costs_of_stages
from tiltframe import FrameStore, TiltFrame
from tiltframe.capacity import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiltframe.capacity import Capacity

# 2023-11-15 in microseconds since 1970.
BEGIN = 1_700_006_400_000_000
# The length of an hour in microseconds.
HOUR = 3_600_000_000
KEYS = 1000
FRAME = TiltFrame(
    ["1m", "10m", "1h", "1d"],
    "ts",
    {
        "n": aggr.count(),
        "sum": aggr.sum("ms"),
        "avg": aggr.avg("ms"),
        "stdev": aggr.stdev("ms"),
        "least": aggr.min("ms"),
        "most": aggr.max("ms"),
        "p": aggr.dds("ms", [0.5, 0.99]),
    },
    ["host"],
)


def rows_of(begin: int, length: int, count: int, seed: int, keys: int = KEYS, first_key_share: float = 0) -> pa.Table:
    """Return ``count`` rows in the order of time, with random keys. The times of the rows lie in the ``length``
    microseconds after the time ``begin``. A share ``first_key_share`` of the rows gets the first key instead of a
    random one.
    """
    rng = np.random.default_rng(seed)
    key_ids = rng.integers(0, keys, count)
    if first_key_share:
        key_ids[rng.random(count) < first_key_share] = 0
    hosts = pa.DictionaryArray.from_arrays(pa.array(key_ids, pa.int32()), [f"host-{i:04}" for i in range(keys)])
    times = pa.array(np.sort(rng.integers(0, length, count)) + begin, pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "host": hosts.cast(pa.string()), "ms": np.round(rng.lognormal(3, 1, count), 3)})


def write_hour(folder: Path, keys: int, first_key_share: float, hour: int, count: int) -> None:
    """Write the Parquet file of one hour, with ``count`` rows."""
    rows = rows_of(BEGIN + hour * HOUR, length=HOUR, count=count, seed=hour, keys=keys, first_key_share=first_key_share)
    pq.write_table(rows, folder / f"hour-{hour:05}.parquet")


def write_hours(folder: Path, counts: list[int], keys: int = KEYS, first_key_share: float = 0) -> None:
    """Write one file per hour to a new folder. The file of an hour has ``counts[hour]`` rows."""
    folder.mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(write_hour, folder, keys, first_key_share), range(len(counts)), counts))


@contextmanager
def measure_processes() -> Iterator[dict[str, float]]:
    """Within the block, measure this process and its descendants. After the block, the yielded dict has two numbers:
    ``core_seconds``, the CPU seconds of all these processes, and ``peak_bytes``, the largest total memory of the
    descendants that run Python.
    """
    process_costs = {"peak_bytes": 0.0}
    has_ended = threading.Event()
    cpu_seconds: dict[int, float] = {}
    seconds_before = {process: _cpu_seconds(process) for process in [os.getpid(), *_descendants(os.getpid())]}

    def take_sample() -> None:
        workers = _descendants(os.getpid())
        for process in [os.getpid(), *workers]:
            cpu_seconds[process] = max(cpu_seconds.get(process, 0.0), _cpu_seconds(process))
        process_costs["peak_bytes"] = max(process_costs["peak_bytes"], sum(map(_python_bytes, workers)))

    def take_samples() -> None:
        while not has_ended.wait(0.2):
            take_sample()

    thread = threading.Thread(target=take_samples, daemon=True)
    thread.start()
    yield process_costs
    has_ended.set()
    thread.join()
    take_sample()
    process_costs["core_seconds"] = sum(
        max(seconds - seconds_before.get(process, 0.0), 0.0) for process, seconds in cpu_seconds.items()
    )


def _descendants(process: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after_name[1]), []).append(int(path.parent.name))
    processes = [process]
    for parent in processes:
        processes += children.get(parent, [])
    return processes[1:]


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process. Return 0 if the process has ended. `measure_processes` therefore uses the
    largest value that was returned for a process.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _python_bytes(process: int) -> int:
    """Return the memory of a process in bytes if the process runs Python, and otherwise 0. Memory that several
    processes share is divided by their number.
    """
    try:
        if "python" not in Path(f"/proc/{process}/comm").read_text():
            return 0
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def predict_costs(rows_per_day: int) -> Capacity:
    """Return the costs that `explain` predicts from a random sample of a hundredth of a day's rows."""
    rng = np.random.default_rng(1)
    hours = [rows_of(BEGIN + hour * HOUR, HOUR, rows_per_day // 24, hour) for hour in range(24)]
    rows = pa.concat_tables(hours)
    return explain(rows.filter(pa.array(rng.random(rows.num_rows) < 0.01)), FRAME, rows_per_day)


def roll_up(master: str, folder: Path, files: Path, days: int, rounds: int, frame: TiltFrame = FRAME) -> dict[str, Any]:
    """Roll up the files of the first ``days`` days ``rounds`` times in one session, each time into a new store. Return
    the costs of the last run.
    """
    import spark_udaf as su
    from spark_udaf.plan.session import local_session

    logs = folder / f"log-{days}"
    logs.mkdir()
    settings = {
        "spark.master": master,
        "spark.driver.memory": "4g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    spark = local_session("scale", settings)
    paths = [str(files / f"hour-{hour:05}.parquet") for hour in range(24 * days)]
    for number in range(rounds):
        store = FrameStore(str(folder / f"store-{days}-{number}"), frame)
        start = time.perf_counter()
        with measure_processes() as process_costs:
            for day in range(days):
                scan = su.scan_parquet(spark, paths[24 * day : 24 * day + 24])
                su.rollup_into(scan, store, "scale", day)
        seconds = time.perf_counter() - start
    spark.stop()
    (log,) = (path for path in logs.rglob("*") if path.is_file())
    stages = costs_of_stages(json.loads(line) for line in log.read_text().splitlines())
    levels = store.inspect().levels
    return {
        "seconds": seconds,
        "shuffle_bytes": sum(stage["bytes"]["shuffle written"] for stage in stages),
        **process_costs,
        "states": {level.level: level.rows for level in levels},
        "bytes": {level.level: level.bytes for level in levels},
        "files": sum(level.parts for level in levels),
    }


@click.command()
@click.option("--days", default="1,10,100", show_default=True, help="The numbers of days, one per run.")
@click.option("--rows-per-day", default=10_000_000, show_default=True, help="The number of rows of a day.")
@click.option("--master", default="local[2]", show_default=True, help="The master URL of Spark.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(days: str, rows_per_day: int, master: str, out: Path | None) -> None:
    """Measure the costs of each number of days, and print them together with the predicted costs."""
    day_counts = [int(text) for text in days.split(",")]
    capacity = predict_costs(rows_per_day)
    click.echo(repr(capacity))
    runs: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder_name:
        files = Path(folder_name) / "rows"
        write_hours(files, [rows_per_day // 24] * 24 * max(day_counts))
        for day_count in day_counts:
            run = roll_up(master, Path(folder_name), files, days=day_count, rounds=1 if runs else 2)
            runs[str(day_count)] = run
            rows = day_count * rows_per_day
            states = sum(run["states"].values())
            size = sum(run["bytes"].values())
            click.echo(
                f"{rows:,} rows: {run['seconds']:.1f} s, {run['core_seconds'] / rows * 1e9:.0f} core-ns per row, "
                f"peak {run['peak_bytes'] / 1e6:,.0f} MB, shuffled {run['shuffle_bytes'] / 1e6:,.1f} MB per day, "
                f"{run['files']} files; measured / predicted: "
                f"states {states / capacity.states_per_day / day_count:.3f}, "
                f"bytes {size / capacity.bytes_per_day / day_count:.3f}, core-seconds "
                f"{run['core_seconds'] / capacity.core_seconds_per_day / day_count:.2f}"
            )
    if out is not None:
        prediction = json.loads(capacity.to_json())
        figures = {**circumstances(("pyspark", "pyarrow")), "rows_per_day": rows_per_day, "master": master}
        out.write_text(json.dumps({**figures, "predicted a day": prediction, "days": runs}, indent=1))


if __name__ == "__main__":
    main()
