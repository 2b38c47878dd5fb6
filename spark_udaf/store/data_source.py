"""data_source: a frame store as a data source for ``spark.read.format`` and SQL, which needs PySpark 4.0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from spark_udaf.store.options import from_options, should_warn
from spark_udaf.store.read_range import SOURCE_NAME, read_range, result_schema
from spark_udaf.versions.arrow_types import to_arrow_schema
from spark_udaf.versions.same_version import SentWithVersion
from tiltframe.ranges import Range
from tiltframe.store import PlannedQuery


class TiltframeSource(DataSource):
    """The data source with the name ``tiltframe``. `register` and `read` register this class in a session."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        """Return the schema of the results or of the states. A type that Spark lacks is replaced by the type in which
        stores save its values.
        """
        query, _ = from_options(self.options)
        return result_schema(query)

    def reader(self, schema: StructType) -> TiltframeReader:
        """Return a reader of the query that the options of the source describe. Raise ``ValueError`` if the results do
        not have the columns of ``schema``.
        """
        query, rows_per_task = from_options(self.options)
        if should_warn(self.options):
            # Spark calls this method in a separate process. The warnings of `warn_of_missing` therefore appear on
            # standard error, and are not raised in the process of the user.
            query.warn_of_missing()
        types = {f.name: f.dataType.simpleString() for f in result_schema(query)}
        for f in schema:
            if types.get(f.name) != f.dataType.simpleString():
                columns = ", ".join(f"{name} {type_name}" for name, type_name in types.items())
                raise ValueError(
                    f"the results have no column {f.name} {f.dataType.simpleString()}; they have {columns}; correct "
                    "the schema, or leave out the schema"
                )
        return TiltframeReader(query, to_arrow_schema(schema), rows_per_task)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that raises an error when Spark asks it for an offset, because a store cannot be streamed."""
        return UnsupportedStream()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise ValueError(
            "the format tiltframe is read-only; write rows with su.rollup_into(df, store, writer, commit), or "
            "states with su.append"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise ValueError(
            "the format tiltframe is read-only; write a stream with su.stream_into, or with "
            "su.rollup_into(batch, store, writer, batch_id)"
        )


class UnsupportedStream(DataSourceStreamReader):
    """A reader of streams that raises an error when Spark uses it. The error is not raised earlier, because Spark loses
    errors that are raised while a reader is created.
    """

    def initialOffset(self) -> dict[str, int]:
        raise ValueError("a store cannot be read as a stream; read its current content with su.read or spark.read")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return no rows. Spark does not call this method, because `initialOffset` raises an error first."""
        return iter(())

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return self.initialOffset()


@dataclass(frozen=True)
class WindowRange(InputPartition):
    """A partition of the data source: one task reads the windows that start in ``time_range``."""

    time_range: Range


@dataclass
class TiltframeReader(SentWithVersion, DataSourceReader):
    """A reader of the data source, which Spark calls for a planned query of a store. A task reads the windows that
    start in the time range of its partition.
    """

    query: PlannedQuery
    schema: pa.Schema
    rows_per_task: int

    def partitions(self) -> list[InputPartition]:
        return [WindowRange(time_range) for time_range in self.query.partitions(self.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, WindowRange)
        yield from read_range(self.query, partition.time_range, self.schema)
