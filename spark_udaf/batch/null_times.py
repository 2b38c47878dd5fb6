"""Rows without a time: they fail a job, for they belong to no window, or are left out where that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggr.arguments import shown
from spark_udaf.plan.session import check_is_spark

if TYPE_CHECKING:
    from pyspark.sql import Observation

ON_NULL_TIME = ("fail", "skip")
NULL_TIMES = "null_times"  # the metric of each batch of a stream
_OF_STREAMS = f"its batches count them in observedMetrics[{NULL_TIMES!r}] of their progress"


def with_times(rows: Any, time: str, on_null_time: str | Observation) -> Any:
    """Leave out the rows of a DataFrame that have no time, and count them, if that is asked for.

    Raises ``ValueError`` for anything that is not asked for so, or that has nobody to count.
    """
    observation = on_null_time if type(on_null_time).__name__ == "Observation" else None  # Connect has one of its own
    if observation is None and on_null_time not in ON_NULL_TIME:
        raise ValueError(
            f"on_null_time must be one of {', '.join(ON_NULL_TIME)}, or an Observation; got {shown(on_null_time)}"
        )
    if on_null_time == "fail" or isinstance(rows, type) or not hasattr(rows, "mapInArrow"):
        if on_null_time != "fail" and hasattr(rows, "schema"):
            raise ValueError("on_null_time='skip' is of DataFrames; files that tasks read must have a time in each row")
        return rows  # what is no DataFrame is refused later, and so is one without the column
    if time not in rows.columns:
        return rows
    column = rows[f"`{time.replace('`', '``')}`"]
    if rows.isStreaming or observation is not None:
        if rows.isStreaming and observation is not None:
            raise ValueError(f"an Observation is of one job; of a stream say on_null_time='skip': {_OF_STREAMS}")
        from pyspark.sql import functions as F

        check_is_spark(rows.sparkSession, "an Observation", "counts nothing on the way; say on_null_time='skip'")
        rows = rows.observe(observation or NULL_TIMES, F.count_if(column.isNull()).alias("rows"))
    return rows.where(column.isNotNull())
