"""Built-ins: functions of ours on Spark next to what Spark itself has for the same, from files to answers by key.

python -m benchmarks.builtins [--quick] [--out benchmarks/results/builtins.json]

All sides alternate in one session; ratios of medians are compared.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from aggr.bench.timing import alternate, circumstances
from benchmarks.jobs import session, throw_away
from benchmarks.musthold import MustHold, show_must_hold

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

GROUPS, FILES = 36_000, 4
FROM_FILES, FROM_ROWS, SPARK = "su.aggregate of files", "su.group_by of a DataFrame", "Spark"


@dataclass(frozen=True)
class Rival:
    """Spark's counterpart of one of our functions. ``limit`` is the largest allowed ratio of our time to Spark's."""

    ours: aggr.Measure
    name: str
    columns: Sequence[Column]
    limit: float


def rivals() -> list[Rival]:
    """List the functions, once Spark runs."""
    traded = F.sum(F.col("x") * F.col("y"))
    candle = [
        *(pick("x", "ts") for pick in (F.min_by, F.max_by)),
        *(pick("x") for pick in (F.min, F.max)),
        *(pick("ts", "x") for pick in (F.min_by, F.max_by)),
        *(pick("ts") for pick in (F.min, F.max)),
        F.sum("y"),
        traded / F.sum("y"),
    ]
    distinct = aggr.approx_count_distinct("id")
    theta = F.theta_sketch_estimate(F.theta_sketch_agg("id"))
    return [
        Rival(distinct, "theta_sketch_agg", [theta], 0.5),
        Rival(distinct, "approx_count_distinct", [F.approx_count_distinct("id")], 1.0),
        Rival(aggr.candlestick("x", "y", by="ts"), "min_by, max_by, min, max, sum", candle, 1.0),
        Rival(aggr.corr("x", "y"), "corr", [F.corr("x", "y")], 1.0),
    ]


def write_rows(folder: Path, rows: int) -> None:
    """Write rows of random keys in the order of their times: whole numbers, few of them twice, and two doubles."""
    draws = np.random.default_rng(11)
    per = rows // FILES
    for number in range(FILES):
        table = {
            "ts": pa.array(number * per + np.arange(per)).cast(pa.timestamp("us", "UTC")),
            "g": draws.integers(0, GROUPS, per),
            "id": draws.integers(0, 1 << 40, per),
            "x": draws.lognormal(3, 1, per),
            "y": draws.lognormal(1, 1, per),
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet")


def measured(spark: SparkSession, folder: str, rival: Rival, rounds: int) -> dict[str, float]:
    """Return the seconds of ours, read from files and from a DataFrame, and of Spark's built-ins."""
    scan, df = su.scan_parquet(spark, folder), spark.read.parquet(folder)
    calls: dict[str, Callable[[], None]] = {
        FROM_FILES: lambda: throw_away(su.aggregate(scan, ["g"], {"result": rival.ours})),
        FROM_ROWS: lambda: throw_away(su.group_by(df, "g").agg(rival.ours)),
        SPARK: lambda: throw_away(df.groupBy("g").agg(*rival.columns)),
    }
    for call in calls.values():
        call()
    return dict(zip(calls, alternate(list(calls.values()), rounds), strict=True))


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the rows, fewer rounds.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here, as JSON.")
def main(quick: bool, out: Path | None) -> None:
    """Compare with Spark's built-ins; exit status 1 if something that must hold does not."""
    rows, rounds = (2_000_000, 3) if quick else (10_000_000, 7)
    lines, figures = [], []
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        write_rows(Path(folder), rows)
        for rival in rivals():
            seconds = measured(spark, folder, rival, rounds)
            label = f"{rival.ours.function.name} / {rival.name}, {GROUPS:,} groups"
            line = MustHold(label, rival.limit, seconds[FROM_FILES] / seconds[SPARK])
            lines.append(line)
            figures.append({**asdict(line), "seconds": seconds})
    show_must_hold(lines)
    for figure in figures:
        click.echo(f"{figure['what']}: " + ", ".join(f"{who} {took:.2f} s" for who, took in figure["seconds"].items()))
    if out is not None:
        about = {**circumstances(("pyspark", "pyarrow", "numba")), "rows": rows, "must hold": figures}
        out.write_text(json.dumps(about, indent=1) + "\n")
    raise SystemExit(any(line.verdict == "FAIL" for line in lines))


if __name__ == "__main__":
    main()
