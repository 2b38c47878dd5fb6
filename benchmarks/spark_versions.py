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
from benchmarks.spark import FULL, PACKAGES, QUICK, RunSize, medians_of, show_seconds, time_jobs

FILES_JOB = "rollup of files, to answers"
PERCENTILE_JOB = "percentile_approx"
SIMPLE_JOB = "count … variance"
LIMIT = 0.2
# The titles of the elapsed time and of the CPU time in the JSON file.
ELAPSED = "by the clock"
CPU = "CPU time"

Times = dict[str, dict[str, list[float]]]


def measure_versions(run_size: RunSize) -> tuple[Times, Times]:
    """Return the elapsed seconds and the CPU seconds of each job and round, by the name of the data set."""
    elapsed_seconds: Times = {}
    cpu_seconds: Times = {}
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        for number, data_set in enumerate(run_size.data_sets):
            files = Path(folder) / f"data-set-{number}"
            write_rows(files, run_size.rows, run_size.groups, data_set)
            all_jobs = jobs(spark, str(files), data_set)
            cpu_seconds_of_job: dict[str, list[float]] = {}
            timed_jobs = {
                name: with_cpu_time(all_jobs[name], cpu_seconds_of_job.setdefault(name, []))
                for name in (PERCENTILE_JOB, SIMPLE_JOB, FILES_JOB)
            }
            elapsed_seconds[data_set.name] = time_jobs(timed_jobs, run_size.rounds)
            cpu_seconds[data_set.name] = {name: seconds[1:] for name, seconds in cpu_seconds_of_job.items()}
    return elapsed_seconds, cpu_seconds


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
    """Compare tiltframe's jobs with Spark's own aggregates. Exit with status 1 if a full run exceeds the limit."""
    run_size = QUICK if quick else FULL
    times_by_kind = dict(zip((ELAPSED, CPU), measure_versions(run_size), strict=True))
    medians = {kind: medians_of(times) for kind, times in times_by_kind.items()}
    for kind, seconds_of_data_sets in medians.items():
        for name, seconds in seconds_of_data_sets.items():
            show_seconds(seconds, run_size.rows, f"{name}, {kind}")
    limited_figures = [
        LimitedFigure(
            f"{FILES_JOB} / {PERCENTILE_JOB}, {name}, {kind}", LIMIT, seconds[FILES_JOB] / seconds[PERCENTILE_JOB]
        )
        for kind, seconds_of_data_sets in medians.items()
        for name, seconds in seconds_of_data_sets.items()
    ]
    limited_figures = without_verdicts(limited_figures) if quick else limited_figures
    show_limits(limited_figures)
    if out is not None:
        about = circumstances(PACKAGES)
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        size = {"rows": run_size.rows, "finest windows": run_size.groups, "rounds": run_size.rounds}
        runs = json.loads(out.read_text()) if out.exists() else {}
        runs[str(about["pyspark"])] = {**about, **size, "seconds": medians, "all": times_by_kind, "must_hold": limits}
        out.write_text(json.dumps(runs, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    main()
