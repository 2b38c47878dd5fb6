"""store: write states from Spark jobs into a frame store. Tasks write parts, which readers do not see before the driver
commits them.

A part consists of the states of one level and one bucket of time (an hour, day, month or year) that one task writes. A
task returns only receipts, which are texts that identify the parts in the store. If a task fails and is repeated, it
writes new parts. Only the parts of successful attempts are committed; `FrameStore.vacuum` removes the other parts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from aggr.arguments import checked_truth
from aggr.tables.by_key import key_column
from spark_udaf.batch.rollup import LevelTables, plan_rollup, with_coarsest_start, without_null_times
from spark_udaf.batch.running import quoted_column
from spark_udaf.plan.columns import Batches
from spark_udaf.plan.conservation import check_all_shards
from spark_udaf.plan.errors import unwrapped_task_errors
from spark_udaf.plan.gathering import gather_batches
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.shard_messages import Content
from spark_udaf.plan.two_phase import SHARDS, Source, TwoPhasePlan, as_states, source_of
from spark_udaf.plan.united_states import check_unions
from tiltframe import FrameStore, TiltFrame
from tiltframe.event_time import INSTANT
from tiltframe.instants import checked_instants
from tiltframe.level_chain import join_levels
from tiltframe.names import COARSE, START
from tiltframe.ranges import Range
from tiltframe.store import Backfill

RECEIPTS = pa.schema([("receipt", pa.string()), (SHARDS, pa.list_(pa.int32()))])
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def append(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
) -> bool:
    """Add states to a frame store under a writer's commit number, in one transaction.

    The states are shuffled once by key and coarsest window. All states of a key in one coarsest window, at all levels,
    are then in the same task. The task checks that the states of the coarser levels equal the merged states of the
    finest level.

    Parameters
    ----------
    states : DataFrame, or Parquet files from `scan_parquet`
        The result of `rollup`, which may have been written and read back, filtered, or united with other states. If the
        coarser levels are missing, their states are derived from the finer levels.
    store : FrameStore
        A store that is accessible to the driver and the tasks.
    writer : str
        The name of the writer.
    commit : int
        A number that increases from commit to commit of one writer.
    recorded : name -> plain data, optional
        Data to record in the same commit, as in `tiltframe.FrameStore.append`.

    Returns
    -------
    bool
        Whether the states were added. If the store already has this commit, the states are compared with the states of
        the commit, and nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        Before any job starts: if ``states`` are not states of the store's frame, or if their types differ from the
        types in the store. Later: if `tiltframe.FrameStore.append` would reject windows, levels or results, if the
        commit exists with other states, or if a task cannot write. In these cases, nothing is committed.

    Guarantee
    ---------
    If Spark repeats a task, its states count once. A task has about 64 MB of states in memory at a time.

    Examples
    --------
    The documentation has a tested example::

        su.append(su.rollup(df, store.frame), store, writer="nightly", commit=20240501)
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    check_unions(states)
    return _write_states(source, store.check_states(schema), store.begin(writer, commit, schema, recorded))


def replace(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    within: Any,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
) -> None:
    """Replace the windows of a range of a frame store in every level, in one transaction.

    Tasks write the states of the finest level. The driver derives the coarser levels, a few windows at a time.

    Parameters
    ----------
    states : DataFrame, or Parquet files from `scan_parquet`
        States of rows in the range, as in `append`.
    store : FrameStore
        A store that is accessible to the driver and the tasks.
    within : range
        A range of complete windows of the finest level, as in `tiltframe.Query`.
    recorded, replacing : name -> plain data, optional
        ``recorded`` is data to record in the same commit. ``replacing`` is the data that the store must have under the
        same names before the commit. See `tiltframe.FrameStore.replace`.

    Raises
    ------
    ValueError, TypeError, StoreError
        For the same reasons as `append` and `tiltframe.FrameStore.replace`, and if states lie outside the range.
        In these cases, nothing is replaced.

    Examples
    --------
    Roll up a day again::

        su.replace(su.rollup(day, store.frame), store, within="2024-05-01")
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    check_unions(states)
    states_schema = store.check_states(schema)
    _write_states(source, states_schema, store.begin_replacement(within, schema, recorded, replacing))


def retract(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
) -> bool:
    """Subtract states from a frame store at every level, in one transaction.

    Tasks write the states to subtract. The driver subtracts them from the windows, a few windows at a time.

    Parameters
    ----------
    states : DataFrame, or Parquet files from `scan_parquet`
        States of the rows to remove, as in `append`.
    store, writer, commit, recorded : as in `append`

    Returns
    -------
    bool
        Whether the states were subtracted by this call.

    Raises
    ------
    TypeError
        If the states of some measures cannot be subtracted; the message names all these measures.
    ValueError, StoreError
        See `tiltframe.FrameStore.retract`. In these cases, nothing is changed.

    Examples
    --------
    Remove the rows of a customer::

        su.retract(su.rollup(rows_of_a_customer, store.frame), store, writer="eraser", commit=1)
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    check_unions(states)
    return _write_states(source, store.check_states(schema), store.begin_retraction(writer, commit, schema, recorded))


Result = TypeVar("Result", covariant=True)


class Change(Protocol[Result]):
    """A change of a store. Tasks write the states of the change and return receipts, and the driver passes all receipts
    to ``commit``.
    """

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""

    def write(self, states: pa.Table) -> str:
        """Write a table of states as parts of the store, and return a receipt, which `commit` accepts."""

    def commit(self, receipts: Iterable[str]) -> Result:
        """Commit the parts of the store that the receipts identify, in one transaction."""


def _write_states(source: Source, states_schema: pa.Schema, change: Change[Result]) -> Result:
    """Run a job whose tasks write states to a store, and commit the states on the driver. Return the result of
    ``change.commit``. Before the tasks call ``change.write``, the states are shuffled by key and coarsest window.
    """
    frame = change.frame
    shuffled_schema = states_schema.insert(0, pa.field(COARSE, INSTANT))

    def checked_states(batches: Batches) -> Iterator[pa.Table]:
        for table in gather_batches(batches):
            states = as_schema(table, states_schema)
            checked_instants(states, START)
            for column_index, name in enumerate(states_schema.names):
                # `key_column` replaces -0.0 by 0.0, and gives every NaN the same bits, so that equal keys have the same
                # shard.
                if name in frame.keys:
                    states = states.set_column(column_index, name, key_column(states.column(name)))
            yield with_coarsest_start(states, frame)

    def reduce(batches: Batches, _: int) -> Iterator[tuple[Content, pa.Table]]:
        return as_states(checked_states(batches))

    def merge(states: pa.Table) -> pa.Table:
        return _receipt_table(change.write(states.drop_columns([COARSE])))

    def create_plan() -> TwoPhasePlan:
        return TwoPhasePlan(
            source=source,
            columns=states_schema.names,
            keys=frame.keys,
            reduce=reduce,
            partial_schema=shuffled_schema,
            shard_by=[COARSE, *frame.keys],
            merge=merge,
            result_schema=RECEIPTS,
        )

    return change.commit(_run_job(create_plan))


def rollup_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    on_null_time: str | Observation = "fail",
    scan: Literal["auto"] | None = None,
) -> bool:
    """Roll up rows into a frame store. In contrast to `append` of the result of `rollup`, the states do not pass
    through the JVM after they are merged.

    Parameters
    ----------
    rows : DataFrame, or Parquet files from `scan_parquet`
        Rows with the time, keys and columns of the store's frame.
    store, writer, commit, recorded : as in `append`
    on_null_time, scan : as in `rollup`

    Returns
    -------
    bool
        Whether the rows were added. If the store already has this commit, the rows are rolled up to states, which are
        compared with the states of the commit, and nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        Before any job starts: if the rows lack a column of the store's frame, or the types of their states differ from
        the types in the store. Later: if a task cannot read its rows or cannot write, or if the commit exists with
        other states.
    OverflowError
        If the result of a state could not be computed.

    Examples
    --------
    The documentation has a tested example::

        su.rollup_into(df, store, writer="nightly", commit=20240501)
    """
    return _roll_up_into(rows, store, writer, commit, recorded=recorded, on_null_time=on_null_time, scan=scan)


def rollup_batch_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    *,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None,
    stream: str,
    delay_us: int | None,
) -> bool:
    """Roll up a micro-batch of a stream into a frame store, like `rollup_into`.

    ``stream`` is the name of the stream. ``delay_us`` is the delay of its watermark in microseconds, or None without a
    watermark. With a delay, the store also records the watermark of the stream.
    """
    watermark = None if delay_us is None else (stream, delay_us)
    return _roll_up_into(rows, store, writer, commit, recorded=recorded, watermark=watermark)


def _roll_up_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    *,
    recorded: Mapping[str, Any] | None,
    on_null_time: str | Observation = "fail",
    scan: Literal["auto"] | None = None,
    watermark: tuple[str, int] | None = None,
) -> bool:
    """Roll up rows in a job whose tasks write the states, and commit the states. Return whether the commit is new.

    ``watermark`` is a pair: the name of a stream, and the delay of its watermark in microseconds. If it is passed, also
    record the watermark of this stream.
    """
    check_store(store)
    source, schema = source_of(without_null_times(rows, store.frame.time, on_null_time), store.frame.columns_in, scan)
    store.frame.check(schema)
    change = store.begin(writer, commit, store.frame.states_schema(schema), recorded)

    def write_levels(levels: LevelTables) -> pa.Table:
        return _receipt_table(change.write_rolled_up(join_levels(levels, change.frame)))

    def create_plan() -> TwoPhasePlan:
        # Only tasks of the second phase write into the store. A task of the first phase must not write, because Spark
        # may repeat it after other tasks have read a part of its output. The states of the task could then be committed
        # twice.
        return plan_rollup(
            source, schema, change.frame, convert_levels=write_levels, result_schema=RECEIPTS, can_finish_early=False
        )

    receipts = _run_job(create_plan)
    if watermark is not None:
        stream, delay_us = watermark
        change = change.with_stream_watermark(stream, receipts, delay_us)
    return change.commit(receipts)


def check_store(store: FrameStore) -> None:
    """Raise ``TypeError`` unless the argument is a store."""
    if not isinstance(store, FrameStore):
        raise TypeError(f"expected a store, such as tiltframe.FrameStore('s3://bucket/path', frame); got {store!r}")


def _receipt_table(receipt: str) -> pa.Table:
    return pa.table({"receipt": [receipt]})


def _run_job(create_plan: Callable[[], TwoPhasePlan]) -> list[str]:
    """Create a plan, run its job, and return the receipts of its tasks. Raise `NotConserved` if the results of some
    shards are missing or repeated. A job without any results is accepted.
    """
    with unwrapped_task_errors():
        job = create_plan()
        rows = job.run().collect()
    check_all_shards([shard for row in rows for shard in row[SHARDS]], job.shuffle_keys)
    return [row["receipt"] for row in rows if row["receipt"] is not None]


def backfill(
    rows: DataFrame,
    store: FrameStore,
    writer: str,
    chunk: str = "1d",
    *,
    within: Any = None,
    newest_first: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    scan: Literal["auto"] | None = None,
) -> int:
    """Add past rows to a store, one range of time after another. Each range is one job and one commit of `rollup_into`.

    Parameters
    ----------
    rows : DataFrame
        Rows with the time (a TIMESTAMP), the keys and the columns of the store's frame. For each range, the DataFrame
        is read with a filter on the time.
    store : FrameStore
        A store that is accessible to the driver and the tasks. Other writers may use it at the same time.
    writer : str
        The name of the writer of the commits.
    chunk, within, newest_first, progress : optional
        See `tiltframe.FrameStore.backfill`. Unless ``within`` has both bounds, a job determines the first and the last
        time.
    scan : "auto", optional
        As in `rollup_into`: if the DataFrame only selects rows and columns of Parquet files, the tasks read these files
        themselves.

    Returns
    -------
    int
        The number of ranges that this call added.

    Raises
    ------
    ValueError
        If earlier calls of the writer had another chunk, order or range, or if the column of times is not a TIMESTAMP.
    StoreError
        See `rollup_into`. The previous ranges stay in the store.

    Guarantee
    ---------
    Each range counts once. After an interruption, the next call continues after the last committed range.

    Examples
    --------
    The documentation has a tested example::

        su.backfill(spark.table("requests"), store, "archive", "1d", newest_first=True)
    """
    check_store(store)
    time = store.frame.time
    if time not in rows.columns or not isinstance(rows.schema[time].dataType, TimestampType):
        raise ValueError(
            f"a backfill on Spark divides the rows by ranges of the column {time}, which must be a TIMESTAMP; the "
            f"DataFrame has {dict(rows.dtypes).get(time, 'no such column')}; add the column, or cast it to TIMESTAMP"
        )

    time_column = quoted_column(time)

    def time_range_of_rows() -> Range:
        first, last = rows.select(F.unix_micros(F.min(time_column)), F.unix_micros(F.max(time_column))).collect()[0]
        return (0, 0) if first is None else (first, last + 1)

    def add(_: object, time_range: Range, writer_name: str, number: int, recorded: Mapping[str, Any] | None) -> bool:
        low, high = (F.lit(_EPOCH + dt.timedelta(microseconds=moment)) for moment in time_range)
        # Rows without a time do not belong to any range. They are included in every range, so that the rollup raises an
        # error for them. Otherwise, they would be skipped silently.
        is_in_range = ((time_column >= low) & (time_column < high)) | time_column.isNull()
        return rollup_into(rows.where(is_in_range), store, writer_name, number, recorded=recorded, scan=scan)

    newest_first = checked_truth(newest_first, "newest_first")
    backfill_plan = Backfill.by(
        store.frame,
        writer,
        chunk=chunk,
        newest_first=newest_first,
        within=within,
        times=time_range_of_rows,
        add=add,
    )
    return backfill_plan.follow(store, {}, progress)
