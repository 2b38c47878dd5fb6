"""Stateful processing of shards by `transformWithState`, or by `transformWithStateInPandas` if PySpark lacks
`transformWithState`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_udaf.plan.shard_messages import SHARD
from spark_udaf.versions.features import has_row_state, has_state, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_udaf.streaming.ordered_job import OrderedJob
    from spark_udaf.streaming.shard_job import ShardJob


def check_has_state() -> None:
    """Raise ``ValueError`` if the installed PySpark does not support stateful streams in Python."""
    if not has_state():
        refuse("su.stream", "4.0", "write the stream to a store with su.stream_into, and read the store with su.read")


def transform_shards(messages: DataFrame, job: ShardJob | OrderedJob, timer_clock: str) -> DataFrame:
    """Return a streaming DataFrame with the messages and metrics that the shards emit in each batch. Spark keeps the
    state of each shard from batch to batch.
    """
    from spark_udaf.streaming.shards import ShardWindows, output_schema

    messages_by_shard = messages.groupBy(SHARD)
    schema = output_schema(job.levels)
    if has_row_state():
        return messages_by_shard.transformWithState(ShardWindows(job, timer_clock), schema, "Append", timer_clock)
    from spark_udaf.streaming.pandas_shards import PandasShardWindows

    return messages_by_shard.transformWithStateInPandas(
        PandasShardWindows(job, timer_clock), schema, "Append", timer_clock
    )
