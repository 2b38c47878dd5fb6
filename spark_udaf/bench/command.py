"""tiltframe bench --spark: start a Spark session and benchmark measures on it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession

from aggr.arguments import shown
from aggr.bench.report import Report
from aggr.measure import Measure
from spark_udaf.bench.rows import random_table
from spark_udaf.bench.run import bench, checked_peers
from spark_udaf.plan.session import PARTITIONS_SETTING, is_client_only, parallelism, start_session
from tiltframe.java import find_java
from tiltframe.tabular import rows_of

_TEXT_FILES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".bz2", ".xz")
_TRIAL_ROWS = 10  # the size of a random table that is generated only to check the measures and the distribution
_SUBMIT = "submit"
_DEFAULT_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "spark_udaf.daemon",
}


def run(
    measures: Sequence[Measure],
    *,
    against: str | Sequence[str],
    data: str | None,
    table: str | None,
    master: str,
    settings: Sequence[str],
    keys: Sequence[str],
    time: str | None,
    levels: Sequence[str],
    rows: int,
    groups: Sequence[int],
    skewed: bool,
    distribution: str,
    rounds: int,
    seed: int,
    folder: str | None,
    progress: Callable[[int, int, str], None],
) -> Report:
    """Start a Spark session and run the benchmark. The arguments are the options of the command."""
    configuration = dict(_parse_setting(text) for text in settings)
    if data is not None and table is not None:
        raise ValueError("--data and --table cannot be used together; pass one of them")
    if data is None and table is None:
        if keys or time is not None:
            raise ValueError("--key and --time are columns of your own rows; pass --data or --table as well")
        random_table(measures, _TRIAL_ROWS, distribution, seed)
    for measure in measures:
        checked_peers(against, measure)
    if is_client_only():
        raise ValueError(
            "bench --spark needs classic Spark, but only the client of Spark Connect is installed; install the package "
            "pyspark"
        )
    find_java()
    input_columns = [*dict.fromkeys([name for measure in measures for name in measure.columns()]), *keys]
    with tempfile.TemporaryDirectory() as temporary:
        path = None if data is None else _parquet_path(data, input_columns, time, Path(temporary))
        if path is not None:
            _check_columns(path, measures, [*keys, *([] if time is None else [time])])
        with _session(master, configuration) as spark:
            return bench(
                spark,
                measures,
                against=against,
                data=_read_table(spark, table) if table is not None else path,
                keys=keys,
                time=time,
                levels=levels,
                rows=rows,
                groups=groups,
                skewed=skewed,
                distribution=distribution,
                rounds=rounds,
                seed=seed,
                folder=folder,
                progress=progress,
            )


@contextmanager
def _session(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a session, and stop it at the end of the block. If ``master`` is ``submit``, the session uses the master
    that was passed to ``spark-submit``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.appName("tiltframe bench")
    if master != _SUBMIT:
        builder = builder.master(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # For a local-cluster master, Spark starts executors with the scripts in this folder.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    for name, value in {**_DEFAULT_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = start_session(builder)
    try:
        cores = parallelism(spark)
        if PARTITIONS_SETTING not in settings and cores is not None:
            spark.conf.set(PARTITIONS_SETTING, str(cores))
        yield spark
    finally:
        spark.stop()


def _read_table(spark: SparkSession, name: str) -> DataFrame:
    try:
        return spark.table(name)
    except Exception as error:  # Spark's parser and its catalog raise errors of different classes.
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"cannot read the table {shown(name)}; pass a table or a view of Spark's catalog: {reason}"
        ) from None


def _parquet_path(data: str, columns: Sequence[str], time: str | None, folder: Path) -> str:
    """Return a path of Parquet files. If ``data`` is a CSV or JSON file, write its needed columns to a Parquet file in
    ``folder``, and return the path of the new file. Otherwise return ``data``.
    """
    if not data.lower().endswith(_TEXT_FILES):
        return data

    def needed_columns(available: Sequence[str]) -> list[str]:
        return [name for name in dict.fromkeys([*columns, *([] if time is None else [time])]) if name in available]

    rows = rows_of(data, "data", needed_columns, time=time or "")
    target = folder / "rows.parquet"
    with pq.ParquetWriter(target, rows.schema) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)
    return str(target)


def _check_columns(path: str, measures: Sequence[Measure], columns: Sequence[str]) -> None:
    """Raise an error if a measure cannot be computed from the files at ``path``, or if the files lack one of
    ``columns``. The check reads the files without Spark, so that the user sees the error before Spark starts.
    """
    import pyarrow.dataset as ds

    if "://" in path:
        # The path is a URI. This process may be unable to read it, for example if only the settings of Spark contain
        # the credentials.
        return
    schema = ds.dataset(path, format="parquet", partitioning="hive").schema
    for measure in measures:
        measure.function.zero(0, measure.input_type(schema, pa.timestamp("us", "UTC")))
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise ValueError(f"the data has no column {shown(missing[0])}; it has {', '.join(schema.names)}")


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"cannot read --conf {shown(text)}; write KEY=VALUE such as spark.driver.memory=4g")
    return key.strip(), value
