"""The time from rows to results on Spark's JVM and on Sail, which needs no Java. Both engines read the same files
alternately.

    make .venv-sail/.ready
    python -m benchmarks.without_java [--quick] [--sail .venv-sail/bin/python] [--out FILE]

Each engine has its own process and Python environment. The engines take turns: one of them runs a job and transfers the
results to Python, and then the other one runs the same job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from aggr.bench.timing import circumstances
from benchmarks.data_sets import INTEGER_KEYS, X
from benchmarks.jobs import LEVELS, frame, session, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM = "Spark's JVM"
SAIL = "Sail"
FILES_JOB = "rollup of files"
DATAFRAME_JOB = "rollup of a DataFrame"
BUILT_IN_JOB = "count … avg, the finest windows"
# A line in which a worker prints its figures begins with this text.
RESULT_PREFIX = "answers "


def jobs(spark: SparkSession, folder: str) -> dict[str, Callable[[], int]]:
    """Return the jobs by name. Each job returns the number of results that it has transferred to Python."""
    from pyspark.sql import functions as F

    import spark_udaf as su

    tilt_frame = frame(LEVELS, INTEGER_KEYS)
    df = spark.read.parquet(folder)
    scan = su.scan_parquet(spark, folder)
    finest = df.groupBy(F.window("ts", "10 seconds"), "host")
    built_in = [F.count(X), F.min(X), F.max(X), F.sum(X), F.avg(X)]
    return {
        FILES_JOB: lambda: su.finish(su.rollup(scan, tilt_frame), tilt_frame).toArrow().num_rows,
        DATAFRAME_JOB: lambda: su.finish(su.rollup(df, tilt_frame), tilt_frame).toArrow().num_rows,
        BUILT_IN_JOB: lambda: finest.agg(*built_in).toArrow().num_rows,
    }


def serve_jobs(engine: str, folder: str) -> None:
    """Read the names of jobs from standard input, one per line. Run each job, and print its number of results and its
    seconds.
    """
    from spark_udaf.sail import sail_session

    with session() if engine == JVM else sail_session() as spark:
        actions = jobs(spark, folder)
        for line in sys.stdin:
            start = time.perf_counter()
            result_count = actions[line.strip()]()
            print(f"{RESULT_PREFIX}{result_count} {time.perf_counter() - start}", flush=True)


@contextmanager
def worker(python: str, engine: str, folder: str) -> Iterator[Callable[[str], tuple[int, float]]]:
    """Start a process that runs an engine, and yield a function. The function receives the name of a job, runs the job
    in this process, and returns the number of results and the seconds.
    """
    command = [python, "-m", "benchmarks.without_java", "--engine", engine, "--folder", folder]
    environment = os.environ | {"PYSPARK_PYTHON": python}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        worker_input = process.stdin
        worker_output = process.stdout
        assert worker_input is not None
        assert worker_output is not None

        def run(job: str) -> tuple[int, float]:
            print(job, file=worker_input, flush=True)
            for line in worker_output:
                if line.startswith(RESULT_PREFIX):
                    result_count, seconds = line.removeprefix(RESULT_PREFIX).split()
                    return int(result_count), float(seconds)
            raise RuntimeError(f"{engine} ended while it ran {job}; its error is printed above")

        yield run
        worker_input.close()


def median_seconds(sail: str, folder: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of each engine's jobs. The first round is not counted. Both engines must return the
    same number of results.
    """
    times_of_engine: dict[str, dict[str, list[float]]] = {engine: {} for engine in (JVM, SAIL)}
    with worker(sys.executable, JVM, folder) as jvm_worker, worker(sail, SAIL, folder) as sail_worker:
        for number in range(rounds + 1):
            for job in (FILES_JOB, DATAFRAME_JOB, BUILT_IN_JOB):
                runs = {engine: run(job) for engine, run in ((JVM, jvm_worker), (SAIL, sail_worker))}
                assert len({result_count for result_count, _ in runs.values()}) == 1, (job, runs)
                for engine, (_, seconds) in runs.items():
                    times_of_engine[engine].setdefault(job, []).extend([seconds] if number else [])
    return {
        engine: {job: median(times) for job, times in times_of_job.items()}
        for engine, times_of_job in times_of_engine.items()
    }


@click.command()
@click.option("--quick", is_flag=True, help="A fortieth of the rows, fewer rounds.")
@click.option(
    "--sail",
    default=".venv-sail/bin/python",
    show_default=True,
    help="The Python executable of an environment with Sail.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
@click.option("--engine", hidden=True)
@click.option("--folder", hidden=True)
def main(quick: bool, sail: str, out: Path | None, engine: str | None, folder: str | None) -> None:
    """Compare Sail with Spark's JVM. Exit with status 1 if a limit is exceeded."""
    if engine and folder:
        return serve_jobs(engine, folder)
    # `benchmarks.musthold` imports packages that the environment of Sail lacks. It is imported only here, because the
    # worker processes do not reach this line.
    from benchmarks.musthold import LimitedFigure, show_limits

    rows, groups, rounds = (500_000, 3_600, 1) if quick else (20_000_000, 36_000, 3)
    with tempfile.TemporaryDirectory() as folder_name:
        write_rows(Path(folder_name) / "rows", rows, groups, INTEGER_KEYS)
        seconds = median_seconds(str(Path(sail).absolute()), f"{folder_name}/rows", rounds)
    for job in (FILES_JOB, DATAFRAME_JOB, BUILT_IN_JOB):
        click.echo(
            f"{job}: " + ", ".join(f"{seconds_of_job[job]:.2f} s on {name}" for name, seconds_of_job in seconds.items())
        )
    limited_figures = [
        LimitedFigure(
            "rows of a DataFrame / files, to answers, on Sail",
            1.5,
            seconds[SAIL][DATAFRAME_JOB] / seconds[SAIL][FILES_JOB],
        )
    ]
    show_limits(limited_figures)
    if out is not None:
        about: dict[str, Any] = {**circumstances(("pyspark", "pyarrow")), "rows": rows, "seconds": seconds}
        limits = [asdict(figure) for figure in limited_figures]
        out.write_text(json.dumps({**about, "must_hold": limits}, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    main()
