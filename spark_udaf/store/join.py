"""join: join the rows of an ordinary or streaming DataFrame with the results of a frame store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_udaf.plan.columns import arrow_schema, check_distinct_names, map_columns, unsliced_batches
from spark_udaf.plan.gathering import gather_batches
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.session import use_large_batches
from spark_udaf.plan.worker import tune_worker
from spark_udaf.store.write import check_store
from tiltframe import FrameStore
from tiltframe.store import Join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The number of rows per batch that is passed to the JVM: the default size of Spark's own batches.
_BATCH_ROWS = 10_000


def join(
    df: DataFrame,
    store: FrameStore,
    on: Any,
    *,
    within: Any = None,
    per: Any = None,
    how: str = "left",
    prefix: str = "",
    **options: Any,
) -> DataFrame:
    """Join each row of a DataFrame with the results of a store for the keys, the range of time and the windows of the
    row.

    Parameters
    ----------
    df : DataFrame
        Rows of a batch or of a stream. In a stream, the store is read again for each micro-batch.
    store : FrameStore
        A store that is accessible to the driver and the tasks.
    on : str, list of str, or key -> expression
        The condition that matches keys of the store with the rows, as in `tiltframe.FrameStore.join`.
    within : range, column, or pair of moments or columns, optional
    per : windows or column, optional
    how : "left" or "inner"
    prefix : str
    options : values by name
        As in `tiltframe.FrameStore.join`.

    Returns
    -------
    DataFrame
        The columns of ``df``, followed by those of `tiltframe.FrameStore.query`, except keys that ``df`` has under the
        same name. A watermark of ``df`` is not passed on; call ``withWatermark`` on the result.

    Raises
    ------
    ValueError, TypeError, StoreError
        Before any job starts: if the columns of ``df`` or the arguments do not match the frame of the store. Later: if
        a range or windows in a column cannot be read.

    Guarantee
    ---------
    The results of a row equal, bit for bit, those of `tiltframe.FrameStore.query` with the row's range and windows and
    a condition on its keys. Rows are not shuffled. All queries of a task read the same snapshot of the store. A task
    joins about 64 MB of rows at a time. Rows whose ranges overlap can share one query of the store. No warning is
    emitted for expired windows; the column ``partial`` marks them.

    Examples
    --------
    docs/store.md describes the arguments::

        su.join(trades, store, on="ticker = symbol", within=("start", "end"), per="1h", how="inner")
    """
    check_store(store)
    arguments = Join(on, within=within, per=per, how=how, prefix=prefix, options=options)
    join_plan = store.plan_join(arrow_schema(df), arguments)
    check_distinct_names(join_plan.schema.names, df.sparkSession)
    use_large_batches(df.sparkSession)
    schema = join_plan.schema

    def join_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        for table in join_plan.joined(gather_batches(batches)):
            yield from unsliced_batches(as_schema(table, schema), _BATCH_ROWS)

    return map_columns(df, df.columns, join_rows, schema)
