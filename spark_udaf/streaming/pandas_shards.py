"""Shards of open windows for ``transformWithStateInPandas``, the stateful function of PySpark 4.0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from spark_udaf.streaming.ordered_job import OrderedJob
from spark_udaf.streaming.shard_job import EMITTED_MESSAGE_COLUMN, ShardJob, metric_names
from spark_udaf.streaming.shards import ShardWindows
from spark_udaf.versions.same_version import SentWithVersion


class PandasShardWindows(SentWithVersion, StatefulProcessor):
    """A stateful processor like `spark_udaf.streaming.shards.ShardWindows`, which receives and returns pandas
    DataFrames instead of rows.
    """

    def __init__(self, job: ShardJob | OrderedJob, timer_clock: str) -> None:
        """Store the job, and Spark's name of the clock that timers follow, such as "EventTime". Spark sends both to the
        tasks.
        """
        self._shards = ShardWindows(job, timer_clock)
        self._column_names = (EMITTED_MESSAGE_COLUMN, *metric_names(job.levels))

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._shards.init(handle)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        shard = key[0] if isinstance(key, tuple) else key
        yield from self._frames(self._shards.handleInputRows(shard, _rows_of(rows), timerValues))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        yield from self._frames(self._shards.handleExpiredTimer(key, timerValues, expiredTimerInfo))

    def close(self) -> None:
        """Do nothing, because the processor has no open resources."""

    def _frames(self, rows: Iterator[Row]) -> Iterator[pd.DataFrame]:
        for row in rows:
            values = row.asDict()
            yield pd.DataFrame({name: pd.Series([values.get(name)], dtype=object) for name in self._column_names})


def _rows_of(frames: Iterator[pd.DataFrame]) -> Iterator[Row]:
    for frame in frames:
        for values in frame.to_dict("records"):
            yield Row(**_without_nan(values))


def _without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row with None in the place of NaN, and with ``int`` in the place of ``float``.

    Messages have no columns of doubles. A float is therefore a null, which pandas converts to NaN, or a whole number in
    a column with nulls, which pandas converts to a float. Floats represent whole numbers up to 2^53 exactly.
    """
    return {name: _whole_number(value) if isinstance(value, float) else value for name, value in values.items()}


def _whole_number(value: float) -> int | None:
    return None if value != value else int(value)
