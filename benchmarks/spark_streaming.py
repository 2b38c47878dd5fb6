"""Streams on Spark: su.stream beside Spark's own windowed aggregation of the same files, in turn in one session.

python -m benchmarks.spark_streaming [--keys 100,10000] [--batches 10] [--rows 200000]

Each query takes the same Parquet files, one a batch, and writes nowhere. Processor time is that of the JVM and of its
Python workers together, from the system; the first run of each query, which compiles and warms up, does not count.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SECONDS = 5  # of event time in a batch
MOST_US = 10  # of processor time a key, for a batch of count and sum at 10⁵ keys
LEAST = 0.7  # of the rows per processor second of Spark's count, min, max and avg on one level


def ours(levels: list[str], names: list[str]) -> Callable[[DataFrame], DataFrame]:
    """Make a stream of some functions over levels."""
    import aggr
    import spark_udaf as su
    from tiltframe import TiltFrame

    every = {
        "count": aggr.count(), "sum": aggr.sum("x"), "min": aggr.min("x"), "max": aggr.max("x"), "avg": aggr.avg("x"),
        "var": aggr.var("x"), "stdev": aggr.stdev("x"), "dds": aggr.dds("x", [0.5, 0.99]),
        "hdr": aggr.hdr("x", [0.5, 0.99], unit=0.001),
    }  # fmt: skip
    frame = TiltFrame(levels, "ts", {name: every[name] for name in names or every}, ["key"])
    return lambda df: su.stream(df, frame)


def sparks(*names: str) -> Callable[[DataFrame], DataFrame]:
    """Make Spark's own aggregation of one level."""
    from pyspark.sql import functions as F

    every: dict[str, Callable[[str], Column]] = {"count": F.count, "min": F.min, "max": F.max, "avg": F.avg}
    every["percentile_approx"] = lambda x: F.percentile_approx(x, [0.5, 0.99])
    return lambda df: df.groupBy(F.window("ts", "10 seconds"), "key").agg(*[every[n]("x").alias(n) for n in names])


@click.command()
@click.option("--keys", default="100,10000", help="How many keys, for each run.")
@click.option("--batches", default=10, help="How many batches.")
@click.option("--rows", default=200_000, help="How many rows a batch has, at least one a key.")
@click.option("--repeats", default=1, help="How often each query is timed.")
def main(keys: str, batches: int, rows: int, repeats: int) -> None:
    """Time each query in turn, and print rows per processor second, latencies of batches and bytes of state."""
    from spark_udaf.jobs.session import local_session

    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "3g",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
        spark = local_session("streams", settings)
        for count in map(int, keys.split(",")):
            run(spark, Path(folder), count, batches, max(rows, count), repeats)


def run(spark: SparkSession, folder: Path, keys: int, batches: int, rows: int, repeats: int) -> None:
    """Run all queries over one set of files."""
    source = folder / str(keys)
    write_files(source, keys, batches, rows)
    queries = {
        "spark count min max avg, 1 level": sparks("count", "min", "max", "avg"),
        "ours count sum, 1 level": ours(["10s"], ["count", "sum"]),
        "ours nine functions, 4 levels": ours(["10s", "1m", "10m", "1h"], []),
        "spark percentile_approx, 1 level": sparks("percentile_approx"),
    }
    click.echo(f"{keys:,} keys, {batches} batches of {rows:,} rows")
    base = None
    for name, make in queries.items():
        taken = min((timed(spark, source, folder, make) for _ in range(1 + repeats)), key=lambda t: t["cpu"])
        rate = batches * rows / taken["cpu"]
        base = base or rate
        micros = taken["cpu"] * 1e6 / batches / keys
        click.echo(
            f"  {name:34} {rate / 1e3:8.0f} thousand rows per processor second ({rate / base:5.2f} ×), "
            f"{micros:9.2f} µs a key and batch, batches p50 {taken['p50']:6.2f} s p99 {taken['p99']:6.2f} s, "
            f"state {taken['memory'] / 1e6:7.1f} MB, checkpoint {taken['disk'] / 1e6:7.1f} MB"
        )


def timed(spark: SparkSession, source: Path, folder: Path, make: Callable[[DataFrame], DataFrame]) -> dict[str, Any]:
    """Run a query over all files, once."""
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    rows = spark.readStream.schema("ts timestamp, key string, x double, ms bigint").option("maxFilesPerTrigger", 1)
    out = make(rows.parquet(str(source)).withWatermark("ts", "10 seconds"))
    begin = processor_seconds()
    writer = out.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    told = query.recentProgress
    took = sorted(each.durationMs["triggerExecution"] / 1e3 for each in told[1:])  # the first starts workers
    return {
        "cpu": processor_seconds() - begin,
        "p50": took[len(took) // 2],
        "p99": took[-1 - len(took) // 100],
        "memory": max(each.stateOperators[0].memoryUsedBytes for each in told),
        "disk": sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file()),
    }


def processor_seconds() -> float:
    """Sum the processor time of all processes that this one has started, those that have ended included (Linux)."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, open_ = 0, [os.getpid()]
    while open_:
        process = open_.pop()
        found += ticks.get(process, 0)
        open_ += children.get(process, [])
    return found / os.sysconf("SC_CLK_TCK")


def write_files(source: Path, keys: int, batches: int, rows: int) -> None:
    """Write one file a batch; each key is in each batch where rows suffice."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    source.mkdir()
    rng = np.random.default_rng(0)
    for batch in range(batches):
        times = 1_700_000_000_000_000 + batch * SECONDS * 1_000_000 + rng.integers(0, SECONDS * 1_000_000, rows)
        x = rng.lognormal(3, 1, rows)
        table = pa.table(
            {
                "ts": pa.array(np.sort(times)).cast(pa.timestamp("us", "UTC")),
                "key": pa.array([f"k{key}" for key in rng.permutation(rows) % keys]),
                "x": x,
                "ms": (x * 1000).astype(np.int64),
            }
        )
        path = source / f"{batch:04}.parquet"
        pq.write_table(table, path)
        os.utime(path, (batch + 1, batch + 1))


if __name__ == "__main__":
    main()
