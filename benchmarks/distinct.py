"""approx_count_distinct compared with DuckDB on one core; benchmarks.builtins compares it with Spark.

    python -m benchmarks.distinct [--quick]

`aggr.bench` measures both functions. DuckDB groups rows by an integer key and returns counts. The stage ``answers`` of
tiltframe also groups rows and returns counts. The stage ``reduce`` only reduces rows whose groups are known. The median
time of ``reduce``, divided by the median time of DuckDB, is compared with a limit.
"""

from __future__ import annotations

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench import as_text, bench, one_core
from aggr.bench.report import OURS
from benchmarks.musthold import LimitedFigure, show_limits

GROUPS = (1, 36_000)
LIMIT = 1.0  # the largest allowed ratio of the time of ``reduce`` to DuckDB's time
DUCKDB = "duckdb:approx_count_distinct(x)"


def sample(rows: int) -> pa.Table:
    """Return a table with a column ``x`` of random integers. Few values occur more than once."""
    return pa.table({"x": np.random.default_rng(11).integers(0, 1 << 40, rows)})


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the rows, fewer rounds.")
def command(quick: bool) -> None:
    """Compare approx_count_distinct with DuckDB's function of the same name. Exit with status 1 if a limit is
    exceeded.
    """
    one_core()
    rows, rounds = (2_000_000, 3) if quick else (10_000_000, 5)
    report = bench(
        aggr.approx_count_distinct("x"),
        against=DUCKDB,
        data=sample(rows),
        groups=GROUPS,
        rounds=rounds,
        memory=False,
    )
    click.echo(as_text(report))
    ns = {(timing.by, timing.stage, timing.groups): timing.ns for timing in report.timings}
    limited_figures = [
        LimitedFigure(
            f"approx_count_distinct, reduce / DuckDB, {groups:,} groups",
            LIMIT,
            ns[OURS, "reduce", groups] / ns[DUCKDB, "answers", groups],
        )
        for groups in GROUPS
    ]
    show_limits(limited_figures)
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    command()
