"""source: a frame store as a data source, for DataFrames and SQL.

    spark.read.format("tiltframe").option("per", "1h").load("s3://bucket/path")
    CREATE TEMPORARY VIEW hours USING tiltframe OPTIONS (path 's3://bucket/path', per '1h')

Spark plans partitions of the range, and each task reads its own: what `tiltframe.FrameStore.query` gives for it.
Filters of Spark's are not pushed down: PySpark 4.3 keeps what one scan has pushed down with the relation, and other
scans of the same DataFrame or view then miss rows. ``within`` and ``where`` narrow what is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from aggr.arrow.normalize import one_array
from spark_udaf.plan.columns import unsliced_batches
from spark_udaf.plan.errors import raise_task_error
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.session import check_is_spark, check_session
from spark_udaf.plan.worker import tune_worker
from spark_udaf.store.options import ROWS_PER_TASK, from_options, to_options
from tiltframe.store import PlannedQuery, Query
from tiltframe.store.backends.stored_types import stored, stored_schema
from tiltframe.store.query.query import Measures
from tiltframe.store.ranges import Range
from windows import TimeWindow

_GIVEN_ROWS = 10_000  # results sent to the JVM at once: as many as Spark's own batches have by default


class TiltframeSource(DataSource):
    """The data source ``tiltframe``; `register` makes it known to a session, `read` does too."""

    @classmethod
    def name(cls) -> str:
        return "tiltframe"

    def schema(self) -> StructType:
        """Tell the schema of the results, in types that the store keeps where Spark lacks theirs, or of states."""
        query, _ = from_options(self.options)
        return _spark_schema(query)

    def reader(self, schema: StructType) -> TiltframeReader:
        """Read the options anew; raises ``ValueError`` for a schema that the results do not have."""
        query, rows_per_task = from_options(self.options)
        types = {f.name: f.dataType.simpleString() for f in _spark_schema(query)}
        for f in schema:
            if types.get(f.name) != f.dataType.simpleString():
                columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
                raise ValueError(
                    f"the results have no column {f.name} {f.dataType.simpleString()}; they have {columns}"
                )
        return TiltframeReader(query, to_arrow_schema(schema, timezone="UTC"), rows_per_task)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Say that this is no source of streams, as soon as Spark listens."""
        return NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise ValueError(
            "the format tiltframe is only read; rows get into a store by su.rollup_into(df, store, writer, commit), "
            "states by su.append"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise ValueError(
            "the format tiltframe is only read; a stream gets into a store by su.stream_into and "
            "su.rollup_into(batch, store, writer, batch_id)"
        )


class NoStream(DataSourceStreamReader):
    """What Spark gets that asks for a stream: Spark loses the errors of those that make a reader."""

    def initialOffset(self) -> dict[str, int]:
        raise ValueError("tiltframe is no source of streams; read what a store holds now by su.read or spark.read")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give nothing; no query gets here."""
        return iter(())

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return self.initialOffset()


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: the windows that start in a range."""

    within: Range


@dataclass
class TiltframeReader(DataSourceReader):
    """The results of one query plan, partition by partition."""

    query: PlannedQuery
    schema: pa.Schema
    rows_per_task: int

    def partitions(self) -> list[InputPartition]:
        return [Slice(span) for span in self.query.partitions(self.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        tune_worker()
        assert isinstance(partition, Slice)
        results = self.query.read(partition.within)  # the column partial says what has expired
        if not self.query.as_states:
            columns = [stored(one_array(column)) for column in results.columns]
            results = pa.table(columns, names=results.column_names)
        yield from unsliced_batches(as_schema(results, self.schema), _GIVEN_ROWS)


def _spark_schema(query: PlannedQuery) -> StructType:
    return spark_schema(query.schema if query.as_states else stored_schema(query.schema))


def register_source(spark: SparkSession) -> None:
    """Make the data source ``tiltframe`` known to a session."""
    check_session(spark)
    spark.dataSource.register(TiltframeSource)


def _load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    register_source(spark)
    check_is_spark(spark, "a store as a table", "cannot tell the types of a data source; ask the store: store.query(…)")
    with raise_task_error():
        table = spark.read.format(TiltframeSource.name()).options(**options).load()
        _ = table.schema  # Connect looks at it only when it must
    return table


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
        Of the store; driver and tasks must reach it.
    per : str or window
        As `tiltframe.Query` takes it, but one; or give ``points``.
    within, where, measures, keys : optional
        As `tiltframe.Query` takes them.
    members : optional
        ``fill``, ``having``, ``points``, ``timezone``, ``now``, ``latest``, ``edges`` and ``flat``, as
        `tiltframe.Query` takes them; orders and limits are Spark's. Times of a DataFrame are instants, which Spark
        shows in its session's zone.
    name : str, optional
        Of the store, in a database with several.
    storage_options : str -> str, optional
        Of the object store, as deltalake names them.
    rows_per_task : int
        A task reads about so many rows of states.

    Returns
    -------
    DataFrame
        level, window_start, window_end, keys, a column per measure, or per field of its records, partial. What it is
        filtered by later is read all the same: give ``within`` and ``where`` here.

    Raises
    ------
    ValueError, StoreError
        For what cannot be asked, and where there is no store.

    Guarantee
    ---------
    Every window is as it was at one moment while the query ran, the same bits as `tiltframe.FrameStore.query`
    gives; two windows may be of two moments. Read again, the DataFrame gives what the store holds then.

    Examples
    --------
    The docs have one that runs::

        su.read(spark, "s3://bucket/path", per="1h", where="host = 'a'").show()
    """
    query = Query(per, within, where, measures, keys, **members)
    options = to_options(uri, query, storage_options, name=name, rows_per_task=rows_per_task)
    return _load(spark, options)


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
    """Read states of a level of a frame store as a DataFrame: to merge what is kept with what is new, in a job.

    Parameters
    ----------
    spark, uri, name, rows_per_task, storage_options : as of `read`
    per : str or window
        A level.
    within : (start, end) or str, optional
        Windows that start in this range, as for `tiltframe.FrameStore.query`.
    where : str, optional
        A condition in SQL on the keys.
    now : moment, optional
        For times ago; the clock's.

    Returns
    -------
    DataFrame
        level, window_start, window_end, keys, states: as `rollup` gives them, merged to one row a window and key.
        `finish`, `merge` and `append` take it, also united with others.

    Raises
    ------
    ValueError, StoreError
        For what cannot be asked, and where there is no store.
    TypeError
        For states of types that Spark does not have.

    Examples
    --------
    The docs have one that runs::

        old = su.read_states(spark, store.uri, per="1h", within="-7d")
    """
    query = Query(per, within, where, now=now)
    options = to_options(uri, query, storage_options, name=name, rows_per_task=rows_per_task, states=True)
    return _load(spark, options)
