"""backfill: the past of a DataFrame or table into a store by Spark, range by range, each a commit of its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from aggr.arguments import checked_truth
from spark_udaf.store.write import check_store, rollup_into
from tiltframe import FrameStore
from tiltframe.store.backfill import follow, plan_by
from tiltframe.store.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def backfill(
    rows: DataFrame,
    store: FrameStore,
    writer: str,
    chunk: str = "1d",
    *,
    within: Any = None,
    newest_first: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
    scan: Literal["auto"] | None = None,
) -> int:
    """Add the past to a store, range by range of time, each by a job and in a commit of its own, as `rollup_into` does.

    Parameters
    ----------
    rows : DataFrame
        With the time, a TIMESTAMP, keys and columns of the store's frame. Each range reads it, filtered by the time.
    store : FrameStore
        Driver and tasks must reach it. Others may write into it meanwhile.
    writer : str
        Whose commits these are.
    chunk, within, newest_first, progress : optional
        As of `tiltframe.FrameStore.backfill`. Without both ends of ``within``, a job finds the first and the last time.
    scan : "auto", optional
        As of `rollup_into`: files that the DataFrame merely chooses rows of are read by the tasks themselves.

    Returns
    -------
    int
        How many ranges were added now.

    Raises
    ------
    ValueError
        If the writer's ranges were others before: of another chunk, order or range; for a time of another type.
    StoreError
        As `rollup_into`. The ranges before are in the store.

    Guarantee
    ---------
    Each range counts once. Killed at any moment, it goes on behind the last range that is in the store.

    Examples
    --------
    The docs have one that runs::

        su.backfill(spark.table("requests"), store, "archive", "1d", newest_first=True)
    """
    check_store(store)
    time = store.frame.time
    if time not in rows.columns or not isinstance(rows.schema[time].dataType, TimestampType):
        raise ValueError(f"a backfill on Spark is cut by the column {time}, which must be a TIMESTAMP of the DataFrame")

    def times() -> Range:
        first, last = rows.select(F.unix_micros(F.min(time)), F.unix_micros(F.max(time))).collect()[0]
        return (0, 0) if first is None else (first, last + 1)

    def add(_: object, of: Range, by: str, number: int, recorded: Mapping[str, Any] | None) -> bool:
        low, high = (F.lit(_EPOCH + dt.timedelta(microseconds=at)) for at in of)
        chosen = ((F.col(time) >= low) & (F.col(time) < high)) | F.col(time).isNull()  # which fails the job
        return rollup_into(rows.where(chosen), store, by, number, recorded, scan=scan)

    newest_first = checked_truth(newest_first, "newest_first")
    return follow(store, plan_by(store.frame, writer, chunk, newest_first, within, times, add), {}, progress)
