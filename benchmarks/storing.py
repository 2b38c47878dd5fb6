"""The time to write rows to a durable store of four levels, compared with states in ClickHouse, results in DuckDB, and
a rollup with one thread.

    python -m benchmarks.storing [--quick] [--out FILE]

One day of rows is in 24 Parquet files, in the order of time. Each system runs in a new process, which reads the files
and writes count, sum, avg, stdev, min, max and quantiles by 1 minute, 10 minutes, 1 hour and 1 day, and by key.
ClickHouse (chdb) writes states (by functions such as sumState) at the finest level, and merges these states into those
of the coarser levels. DuckDB writes plain results, which cannot be merged, and computes each level from the rows. The
systems take turns, in the reverse order in every other round, and ratios of median times are compared with limits. The
first round fills caches and is not counted. In this round, the results of each system are compared with those that
Arrow computes from the rows. Packages that are not installed are left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aggr.bench.timing import circumstances
from aggr.workers import available_cores
from benchmarks.costs import create_table, print_table
from benchmarks.musthold import LimitedFigure, show_limits, without_verdicts
from tiltframe import FrameStore

# The number of hours of the rows.
HOURS = 24
# The length of an hour in microseconds.
HOUR = 3_600_000_000
# 2023-11-15 in microseconds since 1970.
BEGIN = 1_700_006_400_000_000
LEVELS = {"1m": "1 minute", "10m": "10 minutes", "1h": "1 hour", "1d": "1 day"}
MEASURES = (
    "n=count()",
    "sum=sum(ms)",
    "avg=avg(ms)",
    "stdev=stdev(ms)",
    "least=min(ms)",
    "most=max(ms)",
    "p=dds(ms, [0.5, 0.99])",
)
# The results that are compared, and the aggregates with which Arrow computes the expected results from the rows. The
# expected medians are computed by NumPy.
RESULTS = ("n", "sum", "avg", "stdev", "least", "most", "median")
_AGGREGATES = [
    *(("ms", function) for function in ("count", "sum", "mean", "min", "max")),
    ("ms", "stddev", pc.VarianceOptions(ddof=1, min_count=2)),
]
OURS = "tiltframe rollup --store"
ONE_THREAD = "tiltframe rollup --store, --jobs 1"
CLICKHOUSE = "ClickHouse, states"
DUCKDB = "DuckDB, results"

# The name of each measure → ClickHouse's aggregate function and its column, which is empty for ``count``.
_CLICKHOUSE_CALLS = {
    "n": ("count", ""),
    "sum": ("sum", "ms"),
    "avg": ("avg", "ms"),
    "stdev": ("stddevSamp", "ms"),
    "least": ("min", "ms"),
    "most": ("max", "ms"),
    "p": ("quantilesDD(0.01, 0.5, 0.99)", "ms"),
}


@dataclass(frozen=True)
class RunSize:
    """The number of rows and keys of the day, and the number of runs of each system."""

    rows: int
    keys: int
    rounds: int


@dataclass(frozen=True)
class Run:
    """The costs of one process: elapsed seconds, CPU seconds and the peak memory in bytes."""

    seconds: float
    core_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class System:
    """A system that is measured. It has a command that writes to a folder, and a function that reads the results of a
    level from this folder, as a table with the columns t, host and `RESULTS`.
    """

    command: Callable[[Path], Sequence[str]]
    read: Callable[[Path, str], pa.Table]


# A program that runs a command, and prints the seconds, the CPU seconds and the peak memory in bytes of the command.
_MEASURE = """
import json, resource, subprocess, sys, time
begun = time.perf_counter()
status = subprocess.run(sys.argv[1:]).returncode
seconds, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
sys.exit(status)
"""

FULL = RunSize(rows=6_000_000, keys=1000, rounds=4)
QUICK = RunSize(rows=240_000, keys=100, rounds=1)


def main(run_size: RunSize, out: Path | None) -> list[LimitedFigure]:
    """Measure all systems, print the figures, and write them to ``out`` if it is passed."""
    about = circumstances(("tiltframe", "pyarrow", "numpy", "duckdb", "chdb"))
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "day"
        write_day(rows, run_size)
        systems = {
            OURS: System(partial(rollup_command, rows), read_store),
            ONE_THREAD: System(partial(rollup_command, rows, jobs=1), read_store),
        }
        if importlib.util.find_spec("chdb"):
            systems[CLICKHOUSE] = System(partial(clickhouse_command, rows), read_clickhouse)
        if importlib.util.find_spec("duckdb"):
            systems[DUCKDB] = System(partial(duckdb_command, rows), read_duckdb)
        runs: dict[str, list[Run]] = {name: [] for name in systems}
        for number in range(run_size.rounds + 1):
            # Every other round has the reverse order, so that no system always follows the same other system.
            for name in list(systems)[:: -1 if number % 2 else 1]:
                system = systems[name]
                target = Path(folder) / "written"
                shutil.rmtree(target, ignore_errors=True)
                target.mkdir()
                os.sync()  # Otherwise the files of the run before would be written to disk during this run.
                run = run_process(system.command(target))
                if number:
                    runs[name].append(run)
                else:
                    check(name, partial(system.read, target), rows)
    medians = {name: statistics.median(run.seconds for run in runs_of_system) for name, runs_of_system in runs.items()}

    def ratio(numerator: str, denominator: str) -> float | None:
        return medians[numerator] / medians[denominator] if denominator in medians else None

    peak = max(run.peak_bytes for run in runs[OURS])
    limited_figures = [
        LimitedFigure("a store / ClickHouse's states", 0.30, ratio(OURS, CLICKHOUSE)),
        LimitedFigure("a store / DuckDB's results", 0.9, ratio(OURS, DUCKDB)),
        LimitedFigure("all cores / one thread", 1 / 1.8, ratio(OURS, ONE_THREAD), is_judged=available_cores() > 1),
        LimitedFigure("peak memory, GB", 1.5, peak / 1e9),
    ]
    if run_size != FULL:
        limited_figures = without_verdicts(limited_figures)
    table = create_table(f"{run_size.rows:,} rows of {run_size.keys:,} keys", ["", "s", "core s", "peak GB"])
    for name, runs_of_system in runs.items():
        core_seconds = statistics.median(run.core_seconds for run in runs_of_system)
        peak_bytes = max(run.peak_bytes for run in runs_of_system)
        table.add_row(name, f"{medians[name]:.1f}", f"{core_seconds:.1f}", f"{peak_bytes / 1e9:.2f}")
    print_table(table)
    show_limits(limited_figures)
    if out is not None:
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        figures = {"runs": {name: [asdict(run) for run in runs_of_system] for name, runs_of_system in runs.items()}}
        out.write_text(json.dumps({**about, **asdict(run_size), **figures, "must_hold": limits}, indent=1) + "\n")
    return limited_figures


def write_day(folder: Path, run_size: RunSize) -> None:
    """Write one file per hour with the columns ts, host and ms."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    hosts = pa.array([f"host-{number:04}" for number in range(run_size.keys)])
    for hour in range(HOURS):
        rows = run_size.rows // HOURS
        times = np.sort(rng.integers(0, HOUR, rows)) + BEGIN + hour * HOUR
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "host": hosts.take(pa.array(rng.integers(0, run_size.keys, rows))),
                "ms": np.round(rng.lognormal(3, 1, rows), 3),
            }
        )
        pq.write_table(table, folder / f"{hour:02}.parquet")


def rollup_command(rows: Path, target: Path, jobs: int | None = None) -> Sequence[str]:
    """Return the command that rolls up the files in ``rows`` into a new store in ``target``. If ``jobs`` is passed, the
    command uses this number of threads.
    """
    options = ["--time", "ts", "--key", "host", "--levels", ",".join(LEVELS)]
    options += [text for measure in MEASURES for text in ("--measure", measure)]
    options += [] if jobs is None else ["--jobs", str(jobs)]
    program = "from tiltframe_command import main; main()"
    return [sys.executable, "-c", program, "rollup", str(rows), "--store", str(target / "store"), *options]


def clickhouse_command(rows: Path, target: Path) -> Sequence[str]:
    """Return the command that writes states of all levels to tables of ClickHouse."""
    types = ", ".join(
        f"{name} AggregateFunction({call}, Float64)" if column else f"{name} AggregateFunction({call})"
        for name, (call, column) in _CLICKHOUSE_CALLS.items()
    )
    columns = f"t DateTime('UTC'), host LowCardinality(String), {types}"
    engine = "AggregatingMergeTree ORDER BY (host, t)"
    queries = ["CREATE DATABASE d"]
    queries += [f"CREATE TABLE d.of_{level} ({columns}) ENGINE = {engine}" for level in LEVELS]
    files = f"file('{rows}/*.parquet', Parquet, 'ts DateTime64(6, \\'UTC\\'), host String, ms Float64')"
    states = ", ".join(with_suffix(call, "State", column) for call, column in _CLICKHOUSE_CALLS.values())
    queries.append(
        f"INSERT INTO d.of_1m SELECT toStartOfMinute(ts, 'UTC') AS t, host, {states} FROM {files} GROUP BY t, host"
    )
    merge_calls = ", ".join(with_suffix(call, "MergeState", name) for name, (call, _) in _CLICKHOUSE_CALLS.items())
    for finer, (level, unit) in zip(LEVELS, list(LEVELS.items())[1:], strict=False):
        start = f"toStartOfInterval(t, INTERVAL {unit}, 'UTC')"
        queries.append(
            f"INSERT INTO d.of_{level} SELECT {start} AS w, host, {merge_calls} FROM d.of_{finer} GROUP BY w, host"
        )
    program = f"from chdb.session import Session\nsession = Session({str(target / 'chdb')!r})\n"
    program += f"for query in {queries!r}:\n    session.query(query)"
    return [sys.executable, "-c", program]


def with_suffix(call: str, suffix: str, column: str) -> str:
    """Return a call of a function of ClickHouse with a suffix after the function's name, such as ``sumState(ms)``."""
    name, parenthesis, parameters = call.partition("(")
    return f"{name}{suffix}{parenthesis}{parameters}({column})"


def duckdb_command(rows: Path, target: Path) -> Sequence[str]:
    """Return the command that writes the results of all levels to Parquet files."""
    results = (
        "count(*) n, fsum(ms) sum, avg(ms) avg, stddev_samp(ms) stdev, min(ms) least, max(ms) most, "
        "approx_quantile(ms, [0.5, 0.99]) p"
    )
    queries = ["SET TimeZone = 'UTC'", "SET enable_progress_bar = false"]
    for level, unit in LEVELS.items():
        select = f"SELECT time_bucket(INTERVAL '{unit}', ts) t, host, {results} FROM read_parquet('{rows}/*.parquet')"
        queries.append(f"COPY ({select} GROUP BY ALL ORDER BY t, host) TO '{target}/{level}.parquet'")
    program = f"import duckdb\nconnection = duckdb.connect(config={{'threads': {available_cores()}}})\n"
    program += f"for query in {queries!r}:\n    connection.execute(query)"
    return [sys.executable, "-c", program]


def run_process(command: Sequence[str]) -> Run:
    """Run a process and return its costs; raise ``SystemExit`` if it fails."""
    environment = os.environ.copy()
    # Without PYTHONDONTWRITEBYTECODE, Python stores bytecode, as for an installed package.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # On Linux, the peak memory of a new process is at least the memory of the process that starts it. The command is
    # therefore started and measured by a small process, and not by the process of the benchmark.
    measure_command = [sys.executable, "-c", _MEASURE, *command]
    process = subprocess.run(measure_command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"a process failed with the exit status {process.returncode}: {' '.join(command)}")
    return Run(*json.loads(process.stdout.splitlines()[-1]))


def read_store(target: Path, level: str) -> pa.Table:
    """Return the results of a level of a store."""
    results = FrameStore(str(target / "store")).query(level)
    median = pc.struct_field(results["p"], ["quantiles", "0.5"])
    results = results.rename_columns(["t" if name == "window_start" else name for name in results.column_names])
    return results.append_column("median", median).select(["t", "host", *RESULTS])


def read_clickhouse(target: Path, level: str) -> pa.Table:
    """Return the results of a level of ClickHouse's tables, merged from its states in another process."""
    merge_calls = {name: with_suffix(call, "Merge", name) for name, (call, _) in _CLICKHOUSE_CALLS.items()}
    merge_calls["median"] = f"arrayElement({merge_calls.pop('p')}, 1)"
    results = ", ".join(f"{call} AS r_{name}" for name, call in merge_calls.items())
    file = target / f"{level}.parquet"
    query = (
        f"SELECT toDateTime64(t, 6, 'UTC') AS window_start, toString(host) AS host_text, {results} "
        f"FROM d.of_{level} GROUP BY t, host INTO OUTFILE '{file}' FORMAT Parquet"
    )
    program = f"from chdb.session import Session\nSession({str(target / 'chdb')!r}).query({query!r})"
    run_process([sys.executable, "-c", program])
    return pq.read_table(file).rename_columns(["t", "host", *merge_calls]).select(["t", "host", *RESULTS])


def read_duckdb(target: Path, level: str) -> pa.Table:
    """Return the results of a level that DuckDB has written."""
    results = pq.read_table(target / f"{level}.parquet")
    return results.append_column("median", pc.list_element(results["p"], 0)).select(["t", "host", *RESULTS])


def check(system_name: str, read: Callable[[str], pa.Table], rows: Path) -> None:
    """Raise ``ValueError`` if results of the system ``system_name`` differ from those that Arrow computes. ``read``
    returns the results of a level. Medians are compared only for the level of a day, and may differ by 3 %, because
    sketches estimate them.
    """
    by_window_and_host = [("t", "ascending"), ("host", "ascending")]
    table = pq.read_table(rows)
    micros = table["ts"].cast(pa.int64()).to_numpy()
    for level, length in zip(LEVELS, (HOUR // 60, HOUR // 6, HOUR, 24 * HOUR), strict=True):
        groups = table.set_column(0, "t", pa.array(micros // length * length)).group_by(["t", "host"])
        expected = groups.aggregate(_AGGREGATES).sort_by(by_window_and_host)
        results = read(level)
        starts = results["t"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        results = results.set_column(0, "t", starts).sort_by(by_window_and_host)
        if any(results[name].to_pylist() != expected[name].to_pylist() for name in ("t", "host")):
            raise ValueError(
                f"{system_name}: the windows or keys of {level} differ from those that Arrow computes from the rows"
            )
        for name, function in zip(RESULTS, ("count", "sum", "mean", "stddev", "min", "max"), strict=False):
            _compare(f"{system_name}: {name} of {level}", results[name], expected[f"ms_{function}"], tolerance=1e-6)
    values_of_day = groups.aggregate([("ms", "list")]).sort_by(by_window_and_host)["ms_list"]
    medians = [np.median(values.values.to_numpy()) for values in values_of_day]
    _compare(f"{system_name}: medians of {level}", results["median"], pa.chunked_array([medians]), tolerance=0.03)


def _compare(label: str, results: pa.ChunkedArray, expected: pa.ChunkedArray, tolerance: float) -> None:
    """Raise ``ValueError``, with a message that begins with ``label``, if results differ from the expected ones by more
    than a relative tolerance.
    """
    values, expected_values = (column.cast(pa.float64()).to_numpy() for column in (results, expected))
    if not np.allclose(values, expected_values, rtol=tolerance, atol=1e-9, equal_nan=True):
        raise ValueError(f"{label} differ from the expected results by a relative error of more than {tolerance:g}")


@click.command()
@click.option("--quick", is_flag=True, help="Use few rows and one round; figures are not compared with their limits.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Compare the time in which tiltframe writes a durable store with the times of ClickHouse and DuckDB. Exit with
    status 1 if a limit is exceeded.
    """
    limited_figures = main(QUICK if quick else FULL, out)
    if any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
