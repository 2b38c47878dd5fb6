"""The rows of a benchmark: random rows in Parquet files, or the rows of the user, copied with random keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_udaf as su
from aggr.bench.costs import GROUP
from aggr.bench.distributions import table_for
from aggr.measure import Measure
from spark_udaf.bench.ways import Rows

TIME = "bench_time"  # the name of the column of event times of random rows; all times are in one day
EVEN = "even"
SKEWED = "skewed"
_FILES = 8
# The first event time of random rows, 2024-05-01T00:00:00Z, and the length of a day, both in microseconds.
_FIRST_TIME = 1_714_521_600_000_000
_DAY = 86_400_000_000

_SHARE_OF_FIRST_KEY = 0.5  # the share of rows that have the key 0 if keys are skewed


def random_table(measures: Sequence[Measure], rows: int, distribution: str, seed: int) -> pa.Table:
    """Return random rows with the columns of measures, and with ascending event times of one day.

    Parameters
    ----------
    measures : sequence of Measure
    rows : int
    distribution : str
    seed : int
        As in `aggr.bench.bench`.

    Returns
    -------
    pa.Table
    """
    times = _FIRST_TIME + np.arange(rows) * (_DAY // max(rows, 1))
    table = table_for(measures, rows, distribution, seed)
    return table.append_column(TIME, pa.array(times).cast(pa.timestamp("us", "UTC")))


def write_random(table: pa.Table, folder: Path, groups: int, *, key_distribution: str, seed: int) -> Path:
    """Write rows with random keys to Parquet files in a new folder.

    Parameters
    ----------
    table : pa.Table
    folder : Path
        The folder in which the new folder is created.
    groups : int
    key_distribution : str
        ``even``: all keys are about equally frequent. ``skewed``: half of the rows have the key 0.
    seed : int

    Returns
    -------
    Path
        The new folder.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, groups, len(table))
    if key_distribution == SKEWED:
        ids[rng.random(len(table)) < _SHARE_OF_FIRST_KEY] = 0
    keyed = table.append_column(GROUP, pa.array(ids))
    target = folder / f"{groups}-{key_distribution}"
    target.mkdir()
    rows_per_file = -(-len(table) // _FILES)
    for number in range(_FILES):
        part = keyed.slice(number * rows_per_file, rows_per_file)
        pq.write_table(part, target / f"part-{number}.parquet", row_group_size=1_000_000)
    return target


def parquet_rows(spark: SparkSession, path: str | Path) -> Rows:
    """Return the rows of Parquet files as a `Rows` object, which has both a DataFrame and a scan of the files."""
    return Rows(spark.read.parquet(str(path)), su.scan_parquet(spark, str(path)))


def copy_with_keys(df: DataFrame, folder: Path, groups: int, *, key_distribution: str, seed: int) -> Rows:
    """Add a column of random keys to rows, write them to Parquet files in a new folder inside ``folder``, and return
    the written rows.
    """
    target = folder / f"copy-{groups}-{key_distribution}"
    df.withColumn(GROUP, _random_key(groups, key_distribution, seed)).write.parquet(str(target))
    return parquet_rows(df.sparkSession, target)


def _random_key(groups: int, key_distribution: str, seed: int) -> Column:
    even_keys = F.expr(f"pmod(xxhash64(monotonically_increasing_id(), {seed}), {groups})")
    if key_distribution == EVEN:
        return even_keys
    return F.when(F.rand(seed) < _SHARE_OF_FIRST_KEY, F.lit(0).cast("bigint")).otherwise(even_keys)
