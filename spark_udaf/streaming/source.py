"""The source of a stream's rows: the methods that a streaming DataFrame and a stream of files share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from spark_udaf.plan.columns import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A function with two parameters, the batches of a task and the index of the task. It returns batches of messages.
Reduce: TypeAlias = Callable[[Batches, int], Batches]
# A function that receives the names of all columns, and returns the names of the columns to read.
Read: TypeAlias = Callable[[Sequence[str]], Sequence[str]]


class StreamSource(Protocol):
    """The rows of a stream. They arrive in batches, which Spark passes to tasks."""

    @property
    def spark(self) -> SparkSession:
        """The session in which the stream runs."""

    @property
    def has_watermark(self) -> bool:
        """Whether the stream has a watermark."""

    def delay_of(self, time: str) -> int | None:
        """Return the delay in microseconds of the watermark behind the latest value of the column ``time``. Return None
        without a watermark.
        """

    def input_schema(self, select_names: Read) -> pa.Schema:
        """Return the schema of the rows. ``select_names`` selects the columns to read. The types of other
        columns in the schema may be wrong, because these columns are not read.
        """

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        *,
        time: str,
        timezone: str,
        reduce: Reduce,
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a streaming DataFrame of the messages that ``reduce`` yields, with the columns of ``schema``. In each
        task, ``reduce`` receives rows with the columns ``columns``, and the index of the task. ``keys`` are the key
        columns among ``columns``. Event times are in the column ``time``. If this column contains dates, they are days
        in ``timezone``.
        """
