"""The time from files to results, compared with that of Spark's own aggregates, on the installed version of PySpark.

    .venv-spark-3.5/bin/python -m benchmarks.spark_versions [--quick] [--out benchmarks/results/spark_versions.json]

`make bench-spark-versions` runs this benchmark on PySpark 3.5 and 4.0. Jobs and rows are those of `benchmarks.spark`:
nine functions on four levels, and Spark's aggregates of the finest level alone. All jobs alternate in one session. Both
the elapsed time of a job and the CPU time of the JVM and all Python processes are measured; other processes on the
machine affect the CPU time less. The JSON file contains one run of each version.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from aggr.bench.timing import circumstances
from benchmarks.jobs import jobs, session, write_rows
from benchmarks.musthold import LimitedFigure, show_limits, without_verdicts
from benchmarks.scale import measure_processes
from benchmarks.spark import FULL, PACKAGES, QUICK, Extent, medians_of, show_seconds, time_jobs

FILES = "rollup of files, to answers"
PERCENTILES = "percentile_approx"
SIMPLE = "count … variance"
LIMIT = 0.2
CLOCK = "by the clock"
PROCESSORS = "CPU time"

Times = dict[str, dict[str, list[float]]]


def measure_versions(extent: Extent) -> tuple[Times, Times]:
    """Return the seconds by the clock and the CPU seconds of each job and round, by the shape of the rows."""
    clock: Times = {}
    processors: Times = {}
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        for data in extent.shapes:
            files = Path(folder) / str(data.digits)
            write_rows(files, extent.rows, extent.groups, data)
            all_jobs = jobs(spark, str(files), data)
            cpu_seconds: dict[str, list[float]] = {}
            timed_jobs = {
                name: with_cpu_time(all_jobs[name], cpu_seconds.setdefault(name, []))
                for name in (PERCENTILES, SIMPLE, FILES)
            }
            clock[data.name] = time_jobs(timed_jobs, extent.rounds)
            processors[data.name] = {name: seconds[1:] for name, seconds in cpu_seconds.items()}
    return clock, processors


def with_cpu_time(job: Callable[[], None], cpu_seconds: list[float]) -> Callable[[], None]:
    """Return a job that calls ``job``, and then appends to ``cpu_seconds`` the CPU seconds that this process and all
    its descendants have used during the call.
    """

    def run() -> None:
        with measure_processes() as cost:
            job()
        cpu_seconds.append(cost["core_seconds"])

    return run


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rows, one round, without a judgement.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the run to this JSON file.")
def main(quick: bool, out: Path | None) -> None:
    """Compare with Spark's own aggregates. Exit with status 1 if a full run exceeds the limit."""
    extent = QUICK if quick else FULL
    times_by_kind = dict(zip((CLOCK, PROCESSORS), measure_versions(extent), strict=True))
    medians = {kind: medians_of(times) for kind, times in times_by_kind.items()}
    for kind, shapes in medians.items():
        for name, seconds in shapes.items():
            show_seconds(seconds, extent.rows, f"{name}, {kind}")
    lines = [
        LimitedFigure(f"{FILES} / {PERCENTILES}, {name}, {kind}", LIMIT, seconds[FILES] / seconds[PERCENTILES])
        for kind, shapes in medians.items()
        for name, seconds in shapes.items()
    ]
    lines = without_verdicts(lines) if quick else lines
    show_limits(lines)
    if out is not None:
        about = circumstances(PACKAGES)
        limits = [{**asdict(line), "verdict": line.verdict} for line in lines]
        size = {"rows": extent.rows, "finest windows": extent.groups, "rounds": extent.rounds}
        runs = json.loads(out.read_text()) if out.exists() else {}
        runs[str(about["pyspark"])] = {**about, **size, "seconds": medians, "all": times_by_kind, "must_hold": limits}
        out.write_text(json.dumps(runs, indent=1) + "\n")
    raise SystemExit(any(line.verdict == "FAIL" for line in lines))


if __name__ == "__main__":
    main()
