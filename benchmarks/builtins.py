"""Functions of tiltframe on Spark, compared with Spark's functions that return the same results. The jobs read files
and return results by key.

python -m benchmarks.builtins [--quick] [--out benchmarks/results/builtins.json]

`spark_udaf.bench` runs the two functions of a pair alternately in one session. The ratio of their median times is
compared with a limit.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from aggr.bench.report import Report
from aggr.bench.timing import circumstances
from benchmarks.jobs import session
from benchmarks.musthold import LimitedFigure, show_limits
from spark_udaf.bench import bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 36_000
FILES = 4
FROM_FILES = "su.aggregate of files"


@dataclass(frozen=True)
class FunctionPair:
    """A measure of tiltframe and one or several functions of Spark that return the same result. ``name`` has the names
    of Spark's functions, and ``expression`` is their call in SQL. ``limit`` is the largest allowed time of tiltframe
    divided by that of Spark.
    """

    measure: aggr.Measure
    name: str
    expression: str
    limit: float


def function_pairs() -> list[FunctionPair]:
    """List the pairs of functions that are compared."""
    candle = (
        "struct(min_by(x, ts), max_by(x, ts), min(x), max(x), min_by(ts, x), max_by(ts, x), min(ts), max(ts), sum(y), "
        "sum(x * y) / sum(y))"
    )
    distinct = aggr.approx_count_distinct("id")
    return [
        FunctionPair(distinct, "theta_sketch_agg", "theta_sketch_estimate(theta_sketch_agg(id))", 0.5),
        FunctionPair(distinct, "approx_count_distinct", "approx_count_distinct(id)", 1.0),
        FunctionPair(aggr.candlestick("x", "y", by="ts"), "min_by, max_by, min, max, sum", candle, 1.0),
        FunctionPair(aggr.corr("x", "y"), "corr", "corr(x, y)", 1.0),
    ]


def write_rows(folder: Path, rows: int) -> None:
    """Write `FILES` Parquet files of rows in the order of time. Each row has a random key, a random integer and two
    doubles. Most integers occur only once.
    """
    rng = np.random.default_rng(11)
    rows_per_file = rows // FILES
    for number in range(FILES):
        table = {
            "ts": pa.array(number * rows_per_file + np.arange(rows_per_file)).cast(pa.timestamp("us", "UTC")),
            "g": rng.integers(0, GROUPS, rows_per_file),
            "id": rng.integers(0, 1 << 40, rows_per_file),
            "x": rng.lognormal(3, 1, rows_per_file),
            "y": rng.lognormal(1, 1, rows_per_file),
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet")


def median_seconds(spark: SparkSession, folder: str, pair: FunctionPair, rounds: int) -> dict[str, float]:
    """Return a dict from the names of jobs to their median seconds. There is one job for each interface of tiltframe,
    such as `FROM_FILES`, and one for the expression of Spark.
    """
    report: Report = bench(
        spark, pair.measure, against=f"spark:{pair.expression}", data=folder, keys=["g"], rounds=rounds
    )
    return {timing.by: timing.ns * timing.rows / 1e9 for timing in report.timings}


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the rows, fewer rounds.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(quick: bool, out: Path | None) -> None:
    """Compare functions of tiltframe with Spark's built-in functions. Exit with status 1 if a limit is exceeded."""
    rows, rounds = (2_000_000, 3) if quick else (10_000_000, 7)
    limited_figures = []
    figures = []
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        write_rows(Path(folder), rows)
        for pair in function_pairs():
            seconds = median_seconds(spark, folder, pair, rounds)
            label = f"{pair.measure.function.name} / {pair.name}, {GROUPS:,} groups"
            limited_figure = LimitedFigure(label, pair.limit, seconds[FROM_FILES] / seconds[f"spark:{pair.expression}"])
            limited_figures.append(limited_figure)
            figures.append({**asdict(limited_figure), "seconds": seconds})
    show_limits(limited_figures)
    for figure in figures:
        click.echo(
            f"{figure['what']}: "
            + ", ".join(f"{job} {job_seconds:.2f} s" for job, job_seconds in figure["seconds"].items())
        )
    if out is not None:
        about = {**circumstances(("pyspark", "pyarrow", "numba")), "rows": rows, "must hold": figures}
        out.write_text(json.dumps(about, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    main()
