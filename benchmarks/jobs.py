"""The jobs that are compared on Spark. They read the same rows and columns, and their output is discarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.pandas import functions as pandas_functions

import aggr
import spark_udaf as su
from benchmarks.data_sets import TEXTS, DataSet, X
from benchmarks.quantiles import QUANTILES
from spark_udaf import functions as A
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.session import local_session
from spark_udaf.versions.column_functions import arrow_udf
from tiltframe import TiltFrame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FILES = 8
FINEST = "10s"
LEVELS = ["10s", "1m", "10m", "1h"]
START = 1_714_521_600_000_000  # 2024-05-01 in microseconds since 1970
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def frame(levels: list[str], data_set: DataSet) -> TiltFrame:
    """Return a frame with the levels ``levels``, the key ``host`` and the nine measures of ``data_set``."""
    return TiltFrame(levels, "ts", data_set.nine_measures, ["host"])


def write_rows(folder: Path, rows: int, groups: int, data_set: DataSet, in_order: bool = True) -> None:
    """Write `FILES` Parquet files with the columns ts, host and latency_ms (lognormal doubles). ``groups`` is the
    number of pairs of a host and a window of the finest level. Rows are in the order of time if ``in_order`` is true.
    Otherwise each file has rows from the complete range of time.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    rows_per_file = rows // FILES
    span = groups * 10_000_000 // len(data_set.keys)
    for number in range(FILES):
        times_in_order = (number * rows_per_file + np.arange(rows_per_file)) * span // rows
        times = START + (times_in_order if in_order else rng.integers(0, span, rows_per_file))
        table = pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "host": data_set.keys.take(pa.array(rng.integers(0, len(data_set.keys), rows_per_file))),
                X: rng.lognormal(3, 1, rows_per_file),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=1_000_000)


@contextmanager
def session() -> Iterator[SparkSession]:
    """Yield a Spark session on two cores, with four shuffle partitions and 6 GB of memory for the driver."""
    spark = local_session("benchmarks", {"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "4"})
    try:
        yield spark
    finally:
        spark.stop()


def jobs(spark: SparkSession, folder: str, data_set: DataSet) -> dict[str, Callable[[], None]]:
    """Return all jobs by name. They read the Parquet files in ``folder``, which have rows of ``data_set``."""
    df = spark.read.parquet(folder)
    scan = su.scan_parquet(spark, folder)
    group_columns = (F.window("ts", "10 seconds"), "host")
    groups = df.groupBy(*group_columns)
    one_host = df.where(F.col("host") == data_set.keys[0].as_py())
    groups_of_host = one_host.groupBy(*group_columns)
    builtin_aggregates = [F.count(X), F.min(X), F.max(X), F.sum(X), F.avg(X), F.stddev(X), F.variance(X)]

    def count_job(bytes_: str) -> Callable[[], None]:
        def run() -> None:
            previous_setting = spark.conf.get(BATCH_BYTES, None)
            spark.conf.set(BATCH_BYTES, bytes_)
            run_and_discard(df.mapInArrow(_count, "n long"))
            spark.conf.unset(BATCH_BYTES) if previous_setting is None else spark.conf.set(BATCH_BYTES, previous_setting)

        return run

    def rollup_job(source: DataFrame | ParquetScan, *level_lists: list[str]) -> Callable[[], None]:
        def run() -> None:
            for levels in level_lists:
                run_and_discard(su.rollup(source, frame(levels, data_set)))

        return run

    def results_job(source: DataFrame | ParquetScan) -> Callable[[], None]:
        return lambda: run_and_discard(su.finish(su.rollup(source, frame(LEVELS, data_set)), frame(LEVELS, data_set)))

    dataframe_label = "rollup of a DataFrame"
    files_label = "rollup of files"
    single_levels = [[level] for level in LEVELS]
    return {
        "percentile_approx": lambda: run_and_discard(groups.agg(F.percentile_approx(X, QUANTILES))),
        "kll_sketch_agg_double": lambda: run_and_discard(groups.agg(F.kll_sketch_agg_double(X))),
        "count … variance": lambda: run_and_discard(groups.agg(*builtin_aggregates)),
        "mapInArrow that counts": count_job(str(2**31 - 1)),
        "mapInArrow that counts, Spark's own settings": count_job("64m"),
        "pandas UDAF of a mean, a tenth of the rows": lambda: run_and_discard(groups_of_host.agg(_mean(X))),
        "Arrow UDAF that counts": lambda: run_and_discard(groups.agg(_size(X))),
        "A.dds": lambda: run_and_discard(groups.agg(A.dds(X, QUANTILES))),
        "su.group_by of dds": lambda: run_and_discard(su.group_by(df, *group_columns).agg(aggr.dds(X, QUANTILES))),
        f"{dataframe_label}, to answers": results_job(df),
        f"{files_label}, to answers": results_job(scan),
        dataframe_label: rollup_job(df, LEVELS),
        f"{dataframe_label}, {FINEST} alone": rollup_job(df, [FINEST]),
        f"{dataframe_label}, four queries": rollup_job(df, *single_levels),
        files_label: rollup_job(scan, LEVELS),
        f"{files_label}, {FINEST} alone": rollup_job(scan, [FINEST]),
        f"{files_label}, four queries": rollup_job(scan, *single_levels),
    }


def many_keys(spark: SparkSession, files: list[str]) -> dict[str, Callable[[], None]]:
    """Return the jobs that group by a column ``k`` with many keys. Two jobs of tiltframe compute count, sum and dds.
    One job of Spark computes percentile_approx, and another one computes count and sum.
    """
    scan = su.scan_parquet(spark, files)
    df = spark.read.parquet(*files)
    measures = {"n": aggr.count(), "sum": aggr.sum("x"), "dds": aggr.dds("x", QUANTILES)}
    return {
        "many keys: files to answers": lambda: run_and_discard(
            su.finish(su.aggregate(scan, ["k"], measures), measures)
        ),
        "many keys: su.group_by": lambda: run_and_discard(su.group_by(df, "k").agg(*measures.values())),
        "many keys: percentile_approx": lambda: run_and_discard(
            df.groupBy("k").agg(F.percentile_approx("x", QUANTILES))
        ),
        "many keys: count and sum": lambda: run_and_discard(df.groupBy("k").agg(F.count("x"), F.sum("x"))),
    }


def run_and_discard(df: DataFrame) -> None:
    """Compute all columns of a DataFrame, and discard the rows."""
    df.write.format("noop").mode("overwrite").save()


def check(spark: SparkSession, folder: str) -> None:
    """Raise ``AssertionError`` if rollups of a DataFrame and of files have different states, or if the results of the
    first ten minutes differ from those of Spark and from true quantiles.
    """
    tilt_frame = frame(LEVELS, TEXTS)
    df = spark.read.parquet(folder)
    dataframe_states = su.rollup(df, tilt_frame)
    file_states = su.rollup(su.scan_parquet(spark, folder), tilt_frame)
    order = [(name, "ascending") for name in ("level", "window_start", "host")]
    states_of_hour = [
        states.where("level = '1h'").toArrow().sort_by(order) for states in (dataframe_states, file_states)
    ]
    if states_of_hour[0] != states_of_hour[1]:
        raise AssertionError("the rollups of the DataFrame and of the files have different states")
    first_window = f"window_start = timestamp_micros({START})"
    library_results = (
        su.finish(file_states, tilt_frame).where(f"level = '10m' AND {first_window}").toArrow().sort_by(order)
    )
    exact_aggregates = [F.count(X), F.min(X), F.max(X), F.sum(X), F.sort_array(F.collect_list(X))]
    spark_results = df.groupBy(F.window("ts", "10 minutes").start.alias("at"), "host").agg(*exact_aggregates)
    spark_results = spark_results.where(first_window.replace("window_start", "at")).toArrow()
    spark_results = spark_results.sort_by([("at", "ascending"), ("host", "ascending")])
    for name, column in zip(("count", "min", "max", "sum"), spark_results.columns[2:6], strict=True):
        np.testing.assert_allclose(library_results[name].to_numpy(), column.to_numpy(), rtol=1e-12)
    for row, values in zip(library_results["dds"].to_pylist(), spark_results.columns[6].to_pylist(), strict=True):
        true_quantiles = [values[int(q * (len(values) - 1))] for q in QUANTILES]
        np.testing.assert_allclose(list(row["quantiles"].values()), true_quantiles, rtol=0.0101)


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows])], names=["n"])


def _size(column: str) -> Column:
    def size(values: pa.Array) -> pa.Scalar:
        return pa.scalar(len(values))

    return arrow_udf(size, "bigint", is_aggregate=True)(column)


def _mean(column: str) -> Column:
    def mean(values: pd.Series) -> float:
        return float(values.mean())

    # Spark reads the types in the annotations, but `from __future__ import annotations` has made them text, which Spark
    # rejects. They are therefore set to types again.
    mean.__annotations__ = {"values": pd.Series, "return": float}
    pandas_udf: Any = pandas_functions.pandas_udf
    udf_column: Column = pandas_udf(mean, "double")(column)
    return udf_column
