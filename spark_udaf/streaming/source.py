"""Where a stream's rows come from: a streaming DataFrame, or files that the tasks read themselves as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from aggr.arguments import shown
from spark_udaf.plan.columns import arrow_schema, map_columns
from spark_udaf.plan.parquet_files import Batches
from spark_udaf.plan.session import check_is_spark
from spark_udaf.streaming.scan_stream import ParquetStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reduce: TypeAlias = Callable[[Batches, int], Batches]  # and which of the tasks it is
Read: TypeAlias = Callable[[Sequence[str]], Sequence[str]]  # columns that there are -> those that are going to be read
_WATERMARK = "spark.watermarkDelayMs"  # of a column's metadata


@dataclass(frozen=True)
class StreamRows:
    """The rows of a streaming DataFrame."""

    df: DataFrame

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrame."""
        return self.df.sparkSession

    @property
    def marked(self) -> bool:
        """Whether a column has a watermark."""
        return any(_WATERMARK in (field.metadata or {}) for field in self.df.schema)

    def given(self, read: Read) -> pa.Schema:
        """Tell the schema of the rows; columns that are not read may be of any type."""
        return arrow_schema(self.df, read(self.df.columns))

    def map(
        self, columns: Sequence[str], keys: Sequence[str], time: str, reduce: Reduce, schema: pa.Schema
    ) -> DataFrame:
        """Send only the named columns over to Python."""

        def reduce_here(batches: Batches) -> Batches:
            context = TaskContext.get()
            yield from reduce(batches, 0 if context is None else context.partitionId())

        return map_columns(self.df, columns, reduce_here, schema)


StreamSource: TypeAlias = StreamRows | ParquetStream


def stream_source(rows: DataFrame | ParquetStream, instead: str) -> StreamSource:
    """Take a streaming DataFrame, or files as they arrive, as a source.

    Raises ``TypeError`` for anything else; ``instead`` says what takes an ordinary DataFrame.
    """
    if isinstance(rows, ParquetStream):
        return rows
    if not hasattr(rows, "isStreaming") or isinstance(rows, type):
        raise TypeError(
            f"give a streaming DataFrame, as spark.readStream makes it, or files by su.scan_parquet_stream; "
            f"got {shown(rows)}"
        )
    if not rows.isStreaming:
        raise TypeError(f"this DataFrame is no stream; {instead}")
    check_is_spark(
        rows.sparkSession, "a stream of windows", "keeps no state of streams; use Spark, or tiltframe stream"
    )
    return StreamRows(rows)
