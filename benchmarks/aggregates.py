"""Aggregate functions in an existing Spark job, compared with Spark's own functions: one group, many groups, and SQL.

    python -m benchmarks.aggregates [--rounds N] [--out FILE]

All jobs alternate in one session. Limits apply to the median time of a job of tiltframe divided by the median time of a
job of Spark, and not to the times themselves, because the speed of a machine varies.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
import pyarrow as pa
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from aggr.bench.timing import circumstances
from benchmarks.jobs import run_and_discard, session
from benchmarks.musthold import LimitedFigure, show_limits
from benchmarks.quantiles import QUANTILES
from benchmarks.spark import PACKAGES, show_seconds, time_jobs
from spark_udaf import functions as A

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

ROWS = 500_000
SQL_GROUPS = 20_000
HOSTS = 100
# This number of seconds is added to the time of Spark's avg. The time of aggr_avg may be at most three times this sum.
AVG_ALLOWANCE_SECONDS = 0.1


def jobs(spark: SparkSession, folder: str) -> dict[str, Callable[[], None]]:
    """Write a file of ``ROWS`` rows with the keys ``k`` and ``host``. Return the jobs that aggregate it, by name."""
    columns = ["exp(3 + randn(1)) AS x", f"id % {SQL_GROUPS} AS k", f"id % {HOSTS} AS host"]
    spark.range(0, ROWS, 1, 2).selectExpr(*columns).write.parquet(folder)
    df = spark.read.parquet(folder)
    df.createOrReplaceTempView("bench_rows")
    built_in = [F.count("x"), F.min("x"), F.max("x"), F.sum("x"), F.avg("x"), F.stddev("x"), F.variance("x")]
    library_measures = [
        aggr.count("x"),
        aggr.min("x"),
        aggr.max("x"),
        aggr.sum("x"),
        aggr.avg("x"),
        aggr.stdev("x"),
        aggr.var("x"),
    ]
    quantiles = ", ".join(map(str, QUANTILES))
    query = "SELECT k, {} FROM bench_rows GROUP BY k"
    return {
        "one group: percentile_approx": lambda: run_and_discard(df.agg(F.percentile_approx("x", QUANTILES))),
        "one group: A.dds": lambda: run_and_discard(df.agg(A.dds("x", QUANTILES))),
        "one group: A.dds, groups='large'": lambda: run_and_discard(df.agg(A.dds("x", QUANTILES, groups="large"))),
        "one group: su.group_by of dds": lambda: run_and_discard(su.group_by(df).agg(aggr.dds("x", QUANTILES))),
        "SQL: percentile_approx": lambda: run_and_discard(
            spark.sql(query.format(f"percentile_approx(x, array({quantiles}))"))
        ),
        "SQL: aggr_dds": lambda: run_and_discard(su.sql(spark, query.format(f"aggr_dds(x, array({quantiles}))"))),
        "SQL: avg": lambda: run_and_discard(spark.sql(query.format("avg(x)"))),
        "SQL: aggr_avg": lambda: run_and_discard(su.sql(spark, query.format("aggr_avg(x)"))),
        "count … variance": lambda: run_and_discard(df.groupBy("host").agg(*built_in)),
        "su.group_by of count … variance": lambda: run_and_discard(su.group_by(df, "host").agg(*library_measures)),
        "su.group_by of dds": lambda: run_and_discard(su.group_by(df, "host").agg(aggr.dds("x", QUANTILES))),
        "two stages of Python that compute nothing": lambda: run_and_discard(two_empty_stages(df.select("host", "x"))),
    }


def two_empty_stages(df: DataFrame) -> DataFrame:
    """Send rows through a stage of Python workers that drop all rows, a shuffle into one partition, and a second stage.

    `su.group_by` has the same two stages, so it takes at least the time of this job.
    """

    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 0)

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return df.mapInArrow(drop, df.schema).repartition(1).mapInArrow(keep, df.schema)


def limited_figures(seconds: Mapping[str, float]) -> list[LimitedFigure]:
    """Return the ratios of the median seconds of tiltframe's jobs to those of Spark's jobs, with their limits."""

    def ratio(own: str, built_in: str, limit: float) -> LimitedFigure:
        return LimitedFigure(f"{own} / {built_in}", limit, seconds[own] / seconds[built_in])

    avg = seconds["SQL: avg"]
    return [
        ratio("one group: A.dds", "one group: percentile_approx", 5),
        ratio("SQL: aggr_dds", "SQL: percentile_approx", 3),
        LimitedFigure(
            f"SQL: aggr_avg / (avg + {AVG_ALLOWANCE_SECONDS} s)",
            3,
            seconds["SQL: aggr_avg"] / (avg + AVG_ALLOWANCE_SECONDS),
        ),
        ratio("su.group_by of count … variance", "count … variance", 1.3),
        ratio("su.group_by of dds", "count … variance", 1.3),
    ]


def registration_seconds(spark: SparkSession, rounds: int) -> list[float]:
    """Return the seconds that `su.register` takes in each of ``rounds + 1`` new sessions. The first call also compiles
    Java code.
    """
    seconds = []
    for _ in range(rounds + 1):
        new_session = spark.newSession()
        start = time.perf_counter()
        su.register(new_session)
        seconds.append(time.perf_counter() - start)
    return seconds


@click.command()
@click.option("--rounds", default=7, help="The number of rounds after the first one, which is not counted.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A JSON file for the figures.")
def main(rounds: int, out: Path | None) -> None:
    """Measure all jobs, print the figures, and write them to ``out`` if it is passed."""
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        first, *later = registration_seconds(spark, rounds)
        times = time_jobs(jobs(spark, f"{folder}/rows"), rounds)
    medians = {name: median(seconds) for name, seconds in times.items()}
    registration = {"su.register, first": first, "su.register, later": median(later)}
    show_seconds(medians, ROWS, f"{SQL_GROUPS:,} groups in SQL, {HOSTS} hosts")
    for name, seconds in registration.items():
        click.echo(f"{name}: {seconds:.2f} s")
    figures_with_limits = [
        *limited_figures(medians),
        LimitedFigure("su.register of all functions, s", 0.5, registration["su.register, later"]),
    ]
    show_limits(figures_with_limits)
    if out is not None:
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in figures_with_limits]
        figures = {"rows": ROWS, "rounds": rounds, "seconds": medians | registration, "all": times, "must_hold": limits}
        out.write_text(json.dumps({**circumstances(PACKAGES), **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
