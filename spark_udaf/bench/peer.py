"""Spark's own functions, with which `aggr.bench` compares measures: ``--against 'spark:percentile_approx(x, 0.5)'``."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aggr.bench.costs import GROUP
from aggr.bench.peers import Peer
from spark_udaf.plan.session import PARTITIONS_SETTING, local_session
from spark_udaf.versions.arrow_tables import collect_arrow
from spark_udaf.versions.java_objects import python_context_of
from tiltframe.java import NoJava, find_java

_ONE_CORE = {"spark.master": "local[1]", PARTITIONS_SETTING: "1"}


class SparkPeer(Peer):
    """An aggregate expression in Spark's SQL, such as ``percentile_approx(x, 0.5)``, which Spark evaluates on one core.

    The measured time includes the time to plan and start a job, which is about a tenth of a second.
    """

    name = "spark"
    package = "pyspark"
    is_in_process = False

    def check(self) -> None:
        """Raise ``ValueError`` if Spark cannot start Java."""
        try:
            find_java()
        except NoJava as error:
            raise ValueError(
                f"{self} needs Java: {error}; to benchmark without Java, leave this function out"
            ) from None

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Load the rows into Spark's memory, and return a function that evaluates the expression for each group."""
        spark = _session()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.parquet"
            pq.write_table(rows, file)
            # The DataFrame has one partition, so that one task on one core evaluates the expression. `count` loads the
            # rows into the cache before the file is removed.
            df = spark.read.parquet(str(file)).coalesce(1).cache()
            df.count()
        results = aggregate_in_spark(df, self.expression, [GROUP])

        def run() -> pa.Table:
            return collect_arrow(results)

        # The benchmark calls `run` repeatedly, in turn with the functions of other libraries. The rows therefore stay
        # cached until `run` is garbage-collected.
        weakref.finalize(run, df.unpersist).atexit = False
        return run

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results as a list sorted by group. ``answer`` is the table that `run` has returned."""
        results: list[Any] = answer.sort_by(GROUP).column("result").to_pylist()
        return results


def _session() -> SparkSession:
    """Return a session for a benchmark on one core. If the process has no active session, start Spark.

    Otherwise, return a new session of the running Spark, so that the settings of the active session, such as its time
    zone, are not changed. On Spark Connect, return the active session, because Spark Connect cannot create another
    session in this way before Spark 4.3.
    """
    existing = SparkSession.getActiveSession()
    if existing is None:
        return local_session("tiltframe bench", _ONE_CORE)
    if python_context_of(existing) is None:
        return existing
    new_session = existing.newSession()
    new_session.conf.set(PARTITIONS_SETTING, "1")
    return new_session


def aggregate_in_spark(df: DataFrame, expression: str, keys: Sequence[Any]) -> DataFrame:
    """Return a DataFrame with one row per group: its keys, and the value of an aggregate expression of Spark in the
    column ``result``.

    Raises
    ------
    ValueError
        If Spark cannot evaluate the expression; the message contains the first line of its error.
    """
    try:
        return df.groupBy(*keys).agg(F.expr(expression).alias("result"))
    except AnalysisException as error:  # includes ParseException, the error of Spark's parser
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"Spark cannot evaluate {expression!r}, which must be an aggregate of the columns, such as "
            f"percentile_approx(x, 0.5): {reason}"
        ) from None
