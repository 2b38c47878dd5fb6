"""source: results and states of a frame store as DataFrames.

    spark.read.format("tiltframe").option("per", "1h").load("s3://bucket/path")
    CREATE TEMPORARY VIEW hours USING tiltframe OPTIONS (path 's3://bucket/path', per '1h')

The time range of the query is divided into partitions, and each task reads the results of `tiltframe.FrameStore.query`
for its partition. Spark's filters are not pushed down, because PySpark 4.3 stores the filters of one scan in the
relation, so that other scans of the same DataFrame or view would miss rows. Pass ``within`` and ``where`` to read fewer
rows. `read` and `read_states` also work with PySpark 3.5, which has no data sources in Python: tasks then read their
ranges in ``mapInArrow``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_udaf.plan.engine import Feature, check_supports
from spark_udaf.plan.errors import unwrapped_task_errors
from spark_udaf.plan.session import check_session
from spark_udaf.store.options import ROWS_PER_TASK, from_options, to_options
from spark_udaf.store.read_range import SOURCE_NAME, read_range, result_schema
from spark_udaf.versions.arrow_types import to_arrow_schema
from spark_udaf.versions.data_sources import register_data_source
from spark_udaf.versions.features import has_data_source
from spark_udaf.versions.same_version import TaskFunction
from tiltframe.store import Measures, Query
from windows import TimeWindow


def register_source(spark: SparkSession) -> None:
    """Register the data source ``tiltframe`` in a session, if this PySpark has data sources."""
    check_session(spark)
    if has_data_source():
        from spark_udaf.store.data_source import TiltframeSource

        register_data_source(spark, TiltframeSource)


def _load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    register_source(spark)
    check_supports(spark, Feature.DATA_SOURCES, "a store as a table", "use store.query(…)")
    if not has_data_source():
        return _map_ranges(spark, options)
    with unwrapped_task_errors():
        table = spark.read.format(SOURCE_NAME).options(**options).load()
        _ = table.schema  # On Spark Connect, errors for invalid options are raised only when the schema is read.
    return table


def _map_ranges(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return a DataFrame with the results or states of a query, for a PySpark without data sources. Each task reads one
    range of windows.

    The ranges are computed when the DataFrame is created. Together, they cover the complete range of the query.
    Windows that are added to the store later, before the DataFrame is evaluated, are therefore read as well.
    """
    query, rows_per_task = from_options(options)
    ranges = query.partitions(rows_per_task)
    schema = result_schema(query)
    arrow_schema = to_arrow_schema(schema)

    def read_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_range(query, ranges[number], arrow_schema)

    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(TaskFunction(read_ranges), schema)


def read(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    per: str | TimeWindow | None = None,
    within: Any = None,
    where: str | None = None,
    measures: Measures = None,
    keys: Sequence[str] | None = None,
    *,
    name: str | None = None,
    rows_per_task: int = ROWS_PER_TASK,
    storage_options: Mapping[str, str] | None = None,
    **members: Any,
) -> DataFrame:
    """Read results of a frame store as a DataFrame.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    uri : str or path
        The location of the store, accessible to the driver and the tasks.
    per : str or window
        The windows of the results, as in `tiltframe.Query`, but not a list of windows. Alternatively, pass
        ``points``.
    within, where, measures, keys : optional
        As in `tiltframe.Query`.
    members : optional
        ``fill``, ``having``, ``points``, ``timezone``, ``now``, ``latest``, ``closed``, ``edges``, ``running``
        and ``flat``, as in `tiltframe.Query`. Use Spark to order and limit. Times of a DataFrame are instants, which
        Spark shows in the zone of its session.
    name : str, optional
        The name of the store, in a database with several stores.
    storage_options : str -> str, optional
        Options of the object store, with the names of deltalake.
    rows_per_task : int
        The approximate number of rows of states that a task reads.

    Returns
    -------
    DataFrame
        The columns level, window_start, window_end, the keys, one column per measure (with ``flat``, one per field of
        its records), and partial. Later filters of the DataFrame do not reduce the rows that are read: pass ``within``
        and ``where`` here.

    Raises
    ------
    ValueError, StoreError
        If the query is invalid, or the store does not exist.

    Warns
    -----
    tiltframe.store.Expired
        If some windows of the range have expired. The column ``partial`` is true for a window if some of its finer
        windows have expired.
    tiltframe.store.NotKnown
        If a measure was added to the store after rows of the range were written.

    Guarantee
    ---------
    The results of each window equal, bit for bit, those of `tiltframe.FrameStore.query` at a moment while the job runs.
    For different windows, these may be different moments. The DataFrame reads the store again each time it is
    evaluated.

    Examples
    --------
    The documentation has a tested example::

        su.read(spark, "s3://bucket/path", per="1h", where="host = 'a'").show()
    """
    query = Query(per, within=within, where=where, measures=measures, keys=keys, **members)
    options = to_options(uri, query, storage_options, name=name, rows_per_task=rows_per_task, warn=False)
    return _with_warnings(_load(spark, options), options)


def read_states(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    per: str | TimeWindow,
    within: Any = None,
    where: str | None = None,
    now: Any = None,
    *,
    name: str | None = None,
    rows_per_task: int = ROWS_PER_TASK,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the states of a level of a frame store as a DataFrame, for example to merge them with new states.

    Parameters
    ----------
    spark, uri, name, rows_per_task, storage_options : as in `read`
    per : str or window
        A level.
    within : (start, end) or str, optional
        The range of window starts, as in `tiltframe.FrameStore.query`.
    where : str, optional
        A condition in SQL on the keys.
    now : moment, optional
        The time to which relative times such as ``-7d`` refer; the default is the present time.

    Returns
    -------
    DataFrame
        level, window_start, window_end, keys, states, like the result of `rollup`, with one row per window and key.
        `finish`, `merge` and `append` accept this DataFrame, and also its union with other states.

    Raises
    ------
    ValueError, StoreError
        If the query is invalid, or the store does not exist.
    TypeError
        If states have types that Spark lacks.

    Examples
    --------
    The documentation has a tested example::

        old = su.read_states(spark, store.uri, per="1h", within="-7d")
    """
    query = Query(per, within, where, now=now)
    options = to_options(uri, query, storage_options, name=name, rows_per_task=rows_per_task, states=True, warn=False)
    return _with_warnings(_load(spark, options), options)


def _with_warnings(table: DataFrame, options: dict[str, str]) -> DataFrame:
    """Emit the warnings that `tiltframe.FrameStore.query` emits for the query in ``options``, and return the DataFrame
    unchanged. The data source cannot emit these warnings, because Spark plans the query in another process.
    """
    query, _ = from_options(options)
    query.warn_of_missing()
    return table
