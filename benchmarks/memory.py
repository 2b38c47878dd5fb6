"""Peak memory of commands for growing inputs, each command in its own process.

python -m benchmarks.memory [--files 3,10,30,60] [--out benchmarks/results/memory.json]

A file has the requests of one day: one request per minute for each of 200 hosts. It therefore has 288,000 rows, which
give 288,000 states at the level of one minute.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aggr.bench.timing import circumstances

HOSTS = 200
MINUTES = 1440
DAY = 86_400_000
MEASURES = ("n=count()", "bytes=sum(bytes)", "size=avg(bytes)", "ms=dds(ms, [0.5, 0.99])", "worst=max(ms)")
CEILING = 1.5e9  # the limit of the peak memory of a command, in bytes


def write_day(folder: Path, day: int) -> None:
    """Write a Parquet file with the requests of a day, minute by minute."""
    rng = np.random.default_rng(day)
    n = HOSTS * MINUTES
    times = np.repeat(np.arange(MINUTES) * 60_000, HOSTS) + rng.integers(0, 60_000, n) + day * DAY
    rows = {
        "ts": pa.array(times + 1_700_006_400_000, pa.timestamp("ms", "UTC")),
        "host": pa.array([f"host-{i:03}" for i in range(HOSTS)] * MINUTES),
        "bytes": rng.integers(100, 100_000, n),
        "ms": np.round(rng.lognormal(3, 1, n), 3),
    }
    pq.write_table(pa.table(rows), folder / f"day-{day:03}.parquet")


def run_command(*args: str) -> dict[str, float]:
    """Run a command of tiltframe in a new process. Return its elapsed ``seconds`` and its peak memory in ``bytes``."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", "from tiltframe.cli import main; main()", *args])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"tiltframe {args[0]} failed with the wait status {status}; its error is printed above")
    return {"seconds": time.perf_counter() - start, "bytes": usage.ru_maxrss * 1024}


def measure_commands(folder: Path, files: int) -> dict[str, dict[str, float]]:
    """Roll up ``files`` files, one per day, into a store, and query the store. Return the seconds and the peak memory
    of each command, by name.
    """
    days = folder / f"days-{files}"
    store = str(folder / f"store-{files}")
    days.mkdir()
    for day in range(files):
        write_day(days, day)
    frame = ["--time", "ts", "--key", "host", *(part for measure in MEASURES for part in ("--measure", measure))]
    query_arguments = ["query", store, "--format", "csv", "--out", str(folder / "results.csv")]
    cost_of_command = {
        "rollup": run_command("rollup", str(days), *frame, "--levels", "1m,1h,1d", "--store", store),
        "query of every window": run_command(*query_arguments, "--per", "1m"),
        "query merged over keys": run_command(*query_arguments, "--per", "1m", "--no-keys"),
    }
    shutil.rmtree(days)
    shutil.rmtree(store)
    return cost_of_command


@click.command()
@click.option(
    "--files",
    "counts",
    default="3,10,30,60",
    show_default=True,
    help="The numbers of files, one per run. A file has one day.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the figures to this JSON file.")
def main(counts: str, out: Path | None) -> None:
    """Measure all commands. Exit with status 1 if a command needs more memory than `CEILING`."""
    figures_of_files = {}
    with tempfile.TemporaryDirectory() as folder:
        for files in map(int, counts.split(",")):
            figures_of_files[files] = measure_commands(Path(folder), files)
            for name, cost in figures_of_files[files].items():
                click.echo(f"{files:3} files  {name:24} {cost['bytes'] / 1e6:8,.0f} MB {cost['seconds']:8.1f} s")
    if out is not None:
        out.write_text(json.dumps({**circumstances(), "files": figures_of_files}, indent=1) + "\n")
    if any(
        cost["bytes"] > CEILING for cost_of_command in figures_of_files.values() for cost in cost_of_command.values()
    ):
        raise SystemExit(f"a command above used more memory than the limit of {CEILING / 1e9} GB")


if __name__ == "__main__":
    main()
