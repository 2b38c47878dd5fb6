"""The time and the memory of a Spark job for growing numbers of rows and of groups."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import aggr
import spark_udaf as su
from benchmarks.costs import create_table, print_table
from benchmarks.jobs import run_and_discard
from spark_udaf.bench.traffic import largest_worker, reset_worker_peaks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 10_000
MEASURES = {"n": aggr.count(), "sum": aggr.sum("x"), "dds": aggr.dds("x")}


@dataclass(frozen=True)
class RunSize:
    """The sizes of the measured data. In one series, each number of rows in ``rows`` is divided into `GROUPS` groups.
    In the other series, ``rows_for_groups`` rows are divided into each number of groups in ``groups``.
    """

    rows: Sequence[int]
    groups: Sequence[int]
    rows_for_groups: int


FULL = RunSize((1_000_000, 10_000_000, 100_000_000), (100, 10_000, 1_000_000), 10_000_000)
QUICK = RunSize((100_000, 1_000_000), (100, 10_000), 1_000_000)


@dataclass(frozen=True)
class SizeCost:
    """The cost of the job for one size of the data: the seconds, and the peak memory of the largest Python worker."""

    rows: int
    groups: int
    seconds: float
    worker_bytes: int


def measure_sizes(spark: SparkSession, folder: Path, run_size: RunSize) -> list[SizeCost]:
    """Return the costs of a job that reads files and computes count, sum and dds by a key, for each size."""
    sizes = [(rows, GROUPS) for rows in run_size.rows] + [
        (run_size.rows_for_groups, groups) for groups in run_size.groups
    ]
    return [measure_size(spark, folder, rows, groups) for rows, groups in dict.fromkeys(sizes)]


def measure_size(spark: SparkSession, folder: Path, rows: int, groups: int) -> SizeCost:
    """Run the job for one size twice. Return the seconds of the faster run, and the peak memory of a worker over the
    two runs.
    """
    scan = su.scan_parquet(spark, files(folder, rows, groups))
    reset_worker_peaks(spark)
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        run_and_discard(su.aggregate(scan, ["k"], MEASURES))
        times.append(time.perf_counter() - begin)
    return SizeCost(rows, groups, min(times), largest_worker(spark) or 0)


def show_sizes(costs: Sequence[SizeCost]) -> None:
    """Print a table with the costs of the job, one line per size of the data."""
    table = create_table(
        "Costs of count, sum and dds by key, from files", ["rows", "groups", "s", "ns per row", "MiB per worker"]
    )
    for cost in costs:
        ns_per_row = cost.seconds / cost.rows * 1e9
        mebibytes = cost.worker_bytes / 2**20
        cells = [f"{cost.rows:,}", f"{cost.groups:,}", f"{cost.seconds:.2f}", f"{ns_per_row:,.0f}", f"{mebibytes:,.0f}"]
        table.add_row(*cells)
    print_table(table)


def files(folder: Path, rows: int, groups: int) -> list[str]:
    """Write a Parquet file of at most ten million rows, and hard links to it. All links together have ``rows`` rows, so
    that the same rows are read several times. Return the paths of the links.
    """
    rows_per_file = min(rows, 10_000_000)
    file = folder / f"{rows_per_file}-{groups}.parquet"
    if not file.exists():
        rng = np.random.default_rng(groups)
        table = pa.table({"k": rng.integers(0, groups, rows_per_file), "x": rng.lognormal(3, 1, rows_per_file)})
        pq.write_table(table, file, row_group_size=1_000_000)
    names = [folder / f"{rows_per_file}-{groups}-{copy}.parquet" for copy in range(rows // rows_per_file)]
    for name in names:
        if not name.exists():
            os.link(file, name)
    return [str(name) for name in names]
