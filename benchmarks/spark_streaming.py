"""Streams on Spark: su.stream and Spark's own windowed aggregation read the same files, alternately in one session.

python -m benchmarks.spark_streaming [--keys 100,10000] [--rows 4000000] [--batches 6] [--repeats 3] [--out FILE]

Each query reads the same Parquet files, one per batch, and discards its output. The first file has rows at three times
in the hour before the times of the other files, so that older windows of every level are open. Rows per second are
measured for the median batch of all repeats, including the work of Spark itself. The first run of each query is not
counted, because it compiles loops. The first two batches of each run are not counted either, because they start workers
and close older windows. Batches are large, as in a stream that cannot keep up with its source.

With --keys 100 --rows 10000 --batches 14, batches are so small that their times are fixed costs, which have a limit of
their own.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from aggr.bench.timing import circumstances
from benchmarks.musthold import LimitedFigure, show_limits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LEVELS = ["10s", "1m", "10m", "1h"]
# The number of seconds of event time in a batch.
SECONDS = 5
# Five minutes before a full hour, in microseconds since 1970.
START = 1_699_999_200_000_000 + 3_300_000_000
# The first file has rows at three times, which lie this number of seconds before `START`. The rows open windows of 10m,
# 1m and 10s that are older than the windows of all other files.
EARLIER_SECONDS = (50 * 60, 7 * 60, 20)
BUILT_IN = "spark: count, min, max, avg, 1 level"
SKETCH = "spark: percentile_approx, 1 level"
NINE = "ours: nine functions, 4 levels"
TWO = "ours: count, sum, 1 level"
SCAN = "ours: nine functions, 4 levels, scan_parquet_stream"
# A batch of at most this number of rows takes about as long as an empty batch.
SMALL_BATCH_ROWS = 10_000
# The maximum number of seconds of such a batch.
MAX_FIXED_SECONDS = 0.3
ONE_FILE = {"maxFilesPerTrigger": "1"}
Query: TypeAlias = "Callable[[SparkSession, Path], DataFrame]"


def library_query(levels: list[str], names: list[str], scan: bool = False) -> Query:
    """Return a function that creates tiltframe's streaming query of the functions ``names``, or of all nine if
    ``names`` is empty. The query reads a streaming DataFrame or, if ``scan`` is true, files that its tasks open.
    """
    import aggr
    import spark_udaf as su
    from tiltframe import TiltFrame

    all_functions = {
        "count": aggr.count(), "sum": aggr.sum("x"), "min": aggr.min("x"), "max": aggr.max("x"), "avg": aggr.avg("x"),
        "var": aggr.var("x"), "stdev": aggr.stdev("x"), "dds": aggr.dds("x", [0.5, 0.99]),
        "hdr": aggr.hdr("x", [0.5, 0.99], unit=0.001),
    }  # fmt: skip
    frame = TiltFrame(levels, "ts", {name: all_functions[name] for name in names or all_functions}, ["key"])

    def create_query(spark: SparkSession, source: Path) -> DataFrame:
        if not scan:
            return su.stream(rows_of(spark, source), frame)
        return su.stream(su.scan_parquet_stream(spark, source, watermark="10s", options=ONE_FILE), frame)

    return create_query


def spark_query(*names: str) -> Query:
    """Return a function that creates Spark's own streaming aggregation of the functions ``names`` in windows of ten
    seconds.
    """
    from pyspark.sql import functions as F

    all_functions: dict[str, Callable[[str], Column]] = {"count": F.count, "min": F.min, "max": F.max, "avg": F.avg}
    all_functions["percentile_approx"] = lambda x: F.percentile_approx(x, [0.5, 0.99])
    aggregates = [all_functions[name]("x").alias(name) for name in names]
    return lambda spark, source: rows_of(spark, source).groupBy(F.window("ts", "10 seconds"), "key").agg(*aggregates)


def rows_of(spark: SparkSession, source: Path) -> DataFrame:
    """Return a streaming DataFrame of the Parquet files in ``source``, one file per batch, with a watermark of ten
    seconds.
    """
    reader = spark.readStream.schema("ts timestamp, key string, x double").options(**ONE_FILE)
    return reader.parquet(str(source)).withWatermark("ts", "10 seconds")


@click.command()
@click.option("--keys", default="100,10000", help="The numbers of keys, one per run.")
@click.option("--batches", default=6, help="The number of batches.")
@click.option("--rows", default=4_000_000, help="The number of rows per batch, at least one per key.")
@click.option("--repeats", default=3, help="The number of timed runs of each query.")
@click.option("--query", "name_parts", multiple=True, help="Run only the queries whose names contain this text.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the figures to this JSON file.")
def main(keys: str, batches: int, rows: int, repeats: int, name_parts: tuple[str, ...], out: Path | None) -> None:
    """Measure the queries alternately, and print rows per second, latencies of batches and bytes of state."""
    from spark_udaf.plan.session import local_session

    figures: dict[str, Any] = {
        **circumstances(["pyspark", "pyarrow", "numpy"]),
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "6g",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
        spark = local_session("streams", settings)
        queries = {
            name: create_query
            for name, create_query in all_queries().items()
            if any(part in name for part in name_parts or [""])
        }
        for count in map(int, keys.split(",")):
            figures_of_run = run(
                spark,
                Path(folder),
                queries=queries,
                keys=count,
                batches=batches,
                rows=max(rows, count),
                repeats=repeats,
            )
            figures["runs"].append(figures_of_run)
            if out is not None:
                out.write_text(json.dumps(figures, indent=1) + "\n")
    show_limits([figure for figures_of_run in figures["runs"] for figure in limited_figures(figures_of_run)])


def limited_figures(figures: dict[str, Any]) -> list[LimitedFigure]:
    """Return the ratios of tiltframe's seconds per batch to Spark's, with their limits. tiltframe must process at least
    as many rows per second as Spark's built-in functions and as Spark's sketch. For small batches, return the seconds
    per batch of tiltframe's queries instead.
    """
    seconds = {name: figures_of_query["p50"] for name, figures_of_query in figures["queries"].items()}
    if figures["rows"] <= SMALL_BATCH_ROWS:
        return [
            LimitedFigure(f"{name}, fixed seconds of a batch", MAX_FIXED_SECONDS, seconds[name])
            for name in (TWO, NINE, SCAN)
            if name in seconds
        ]
    return [
        LimitedFigure(
            f"{own_query} / {spark_query}, {figures['keys']:,} keys", 1.0, seconds[own_query] / seconds[spark_query]
        )
        for own_query in (SCAN, NINE)
        for spark_query in (BUILT_IN, SKETCH)
        if own_query in seconds and spark_query in seconds
    ]


def all_queries() -> dict[str, Query]:
    """Return all queries by name. The first query is the one with which the others are compared."""
    return {
        BUILT_IN: spark_query("count", "min", "max", "avg"),
        SCAN: library_query(LEVELS, [], scan=True),
        NINE: library_query(LEVELS, []),
        TWO: library_query(["10s"], ["count", "sum"]),
        SKETCH: spark_query("percentile_approx"),
    }


def run(
    spark: SparkSession,
    folder: Path,
    queries: dict[str, Query],
    keys: int,
    batches: int,
    rows: int,
    repeats: int,
) -> dict[str, Any]:
    """Write files with ``keys`` keys, run the queries alternately over them, and return the figures of each query."""
    source = folder / str(keys)
    write_files(source, keys, batches, rows)
    click.echo(f"{keys:,} keys, {batches} batches of {rows:,} rows")
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    last_figures: dict[str, dict[str, Any]] = {}
    for round_number in range(1 + repeats):
        for name, create_query in queries.items():
            last_figures[name] = run_query(spark, source, folder, create_query)
            seconds[name] += last_figures[name]["seconds"] if round_number else []
    shutil.rmtree(source)
    figures_of_query = {}
    base = median(next(iter(seconds.values())))
    for name, batch_seconds in seconds.items():
        figures_of_query[name] = {
            "rows_per_second": rows / median(batch_seconds),
            "ratio": base / median(batch_seconds),
            "p50": median(batch_seconds),
            "p99": sorted(batch_seconds)[-1 - len(batch_seconds) // 100],
            "state_bytes": last_figures[name]["memory"],
            "checkpoint_bytes": last_figures[name]["disk"],
        }
        click.echo(
            f"  {name:38} {rows / median(batch_seconds) / 1e3:8.0f} thousand rows/s "
            f"({base / median(batch_seconds):5.2f} ×), "
            f"{median(batch_seconds) * 1e6 / keys:9.2f} µs a key, batches p50 {median(batch_seconds):6.2f} s "
            f"p99 {figures_of_query[name]['p99']:6.2f} s, state {last_figures[name]['memory'] / 1e6:7.1f} MB, "
            f"checkpoint {last_figures[name]['disk'] / 1e6:7.1f} MB"
        )
    return {"keys": keys, "rows": rows, "batches": batches, "repeats": repeats, "queries": figures_of_query}


def run_query(spark: SparkSession, source: Path, folder: Path, create_query: Query) -> dict[str, Any]:
    """Run a query once over all files. Return the seconds of its batches, without the first two, and the bytes of its
    state and of its checkpoint.
    """
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = create_query(spark, source).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.recentProgress
    batches_with_rows = [batch_progress for batch_progress in progress if batch_progress.numInputRows]
    return {
        "seconds": [batch_progress.durationMs["triggerExecution"] / 1e3 for batch_progress in batches_with_rows[2:]],
        "memory": max(batch_progress.stateOperators[0].memoryUsedBytes for batch_progress in progress),
        "disk": sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file()),
    }


def write_files(source: Path, keys: int, batches: int, rows: int) -> None:
    """Write one file per batch. Each key occurs in each batch if there are enough rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    source.mkdir()
    rng = np.random.default_rng(0)
    for batch in range(batches):
        times = START + batch * SECONDS * 1_000_000 + rng.integers(0, SECONDS * 1_000_000, rows)
        times -= 0 if batch else rng.choice(EARLIER_SECONDS, rows) * 1_000_000
        table = pa.table(
            {
                "ts": pa.array(np.sort(times)).cast(pa.timestamp("us", "UTC")),
                "key": pa.array([f"k{key}" for key in rng.permutation(rows) % keys]),
                "x": rng.lognormal(3, 1, rows),
            }
        )
        path = source / f"{batch:04}.parquet"
        # Row groups have the same size, so that two tasks have the same amount of work.
        pq.write_table(table, path, row_group_size=-(-rows // 16))
        os.utime(path, (batch + 1, batch + 1))


if __name__ == "__main__":
    main()
