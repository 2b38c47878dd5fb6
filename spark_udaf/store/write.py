"""store: states from Spark jobs into a frame store: tasks write parts that nobody reads yet, the driver commits once.

Of a part only a receipt comes back. A task that fails and is tried again writes other parts: those of the attempt that
succeeded are committed, what the others left is removed by `FrameStore.vacuum`.
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
from spark_udaf.batch.rollup import Levels, plan_rollup, with_coarsest, with_times
from spark_udaf.plan.conservation import check_covered
from spark_udaf.plan.errors import raise_task_error
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.shard_messages import Content
from spark_udaf.plan.two_phase import MOST_BYTES, SHARDS, Batches, Source, TwoPhases, as_states, source_of
from tiltframe import FrameStore, TiltFrame
from tiltframe.frame import INSTANT, START
from tiltframe.level_chain import checked_instants, joined
from tiltframe.names import COARSE
from tiltframe.ranges import Range
from tiltframe.store.changes.backfill import follow, plan_by

RECEIPTS = pa.schema([("receipt", pa.string()), (SHARDS, pa.list_(pa.int32()))])
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def append(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
) -> bool:
    """Add states to a frame store under a writer's commit number, at once or not at all.

    One shuffle brings the states of a key and coarsest window together, where they are checked against each other.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `rollup` gives it, perhaps written, read back, filtered or united with others. With rows of finer levels
        only, coarser ones are derived.
    store : FrameStore
        Driver and tasks must reach it.
    writer : str
        Who writes.
    commit : int
        Grows from commit to commit of one writer.
    recorded : name -> plain data, optional
        What the store records with it, as for `tiltframe.FrameStore.append`.

    Returns
    -------
    bool
        Whether the states were added. Those of a commit that is already there are compared with what it brought, and
        nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        If they are not states of the store's frame, or of other types than those in the store, before any job starts;
        if windows, levels or results are refused as by `tiltframe.FrameStore.append`, if the commit is there with
        other states, or if a task cannot write. Nothing is committed.

    Guarantee
    ---------
    Tasks that are tried again, or run twice, count once. A task holds some 64 MB of states at a time.

    Examples
    --------
    The docs have one that runs::

        su.append(su.rollup(df, store.frame), store, writer="nightly", commit=20240501)
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    return _write_states(source, store.check_states(schema), store.begin(writer, commit, schema, recorded))


def replace(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    within: Any,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
) -> None:
    """Replace the windows of a range of a frame store in every level, at once.

    Tasks write the states of the finest level; the driver derives the coarser ones, some windows at a time.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `append` takes them, of rows in the range.
    store : FrameStore
        Driver and tasks must reach it.
    within : range
        Of whole windows of the finest level, as `tiltframe.Query` takes it.
    recorded, replacing : name -> plain data, optional
        As `tiltframe.FrameStore.replace` takes them.

    Raises
    ------
    ValueError, TypeError, StoreError
        As `append` and `tiltframe.FrameStore.replace` do; if states lie outside the range. Nothing is replaced then.

    Examples
    --------
    A day is rolled up again::

        su.replace(su.rollup(day, store.frame), store, within="2024-05-01")
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    wanted = store.check_states(schema)
    _write_states(source, wanted, store.begin_replacement(within, schema, recorded, replacing))


def retract(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
) -> bool:
    """Take states out of a frame store again, at every level, at once or not at all.

    Tasks write the states that go; the driver takes them out of the windows that have them, some windows at a time.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `append` takes them: those of the rows that go.
    store, writer, commit, recorded : as of `append`

    Returns
    -------
    bool
        Whether the states were taken out now.

    Raises
    ------
    TypeError
        For measures whose states do not tell what is left, all named.
    ValueError, StoreError
        As `tiltframe.FrameStore.retract` does. Nothing has changed then.

    Examples
    --------
    The rows of a customer are taken out::

        su.retract(su.rollup(rows_of_a_customer, store.frame), store, writer="eraser", commit=1)
    """
    check_store(store)
    source, schema = source_of(states, lambda names: store.frame.states_columns)
    return _write_states(source, store.check_states(schema), store.begin_retraction(writer, commit, schema, recorded))


Result = TypeVar("Result", covariant=True)


class Change(Protocol[Result]):
    """A change of a store: tasks write its states, and the driver commits it by their receipts."""

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""

    def write(self, states: pa.Table) -> str:
        """Write states, and return a receipt."""

    def commit(self, receipts: Iterable[str]) -> Result:
        """Commit all that was written."""


def _write_states(source: Source, wanted: pa.Schema, change: Change[Result]) -> Result:
    """Bring the states of a key and coarsest window together, write them by tasks, and commit."""
    frame = change.frame
    sharded = wanted.insert(0, pa.field(COARSE, INSTANT))

    def first(batches: Batches) -> Iterator[pa.Table]:
        for gathered in _gathered(batches):
            some = as_schema(gathered, wanted)
            checked_instants(some, START)
            for at, name in enumerate(wanted.names):
                if name in frame.keys:  # zeros, and NaN, of equal bits
                    some = some.set_column(at, name, key_column(some.column(name)))
            yield with_coarsest(some, frame)

    def reduce(batches: Batches, _: int) -> Iterator[tuple[Content, pa.Table]]:
        return as_states(first(batches))

    def merge(some: pa.Table) -> pa.Table:
        return _receipt(change.write(some.drop_columns([COARSE])))

    def plan() -> TwoPhases:
        shards = [COARSE, *frame.keys]
        return TwoPhases(source, wanted.names, frame.keys, reduce, sharded, shards, merge, RECEIPTS)

    return change.commit(_receipts(plan))


def rollup_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    on_null_time: str | Observation = "fail",
    scan: Literal["auto"] | None = None,
) -> bool:
    """Roll up rows into a frame store: `append` of `rollup`, whose states never pass through the JVM.

    Parameters
    ----------
    rows : DataFrame, or Parquet files as `scan_parquet` gives them
        With the time, keys and columns of the store's frame.
    store, writer, commit, recorded : as of `append`
    on_null_time, scan : as of `rollup`

    Returns
    -------
    bool
        Whether the rows were added. Those of a commit that is already there are rolled up to compare them with what it
        brought, and nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        If the rows do not fit the store's frame, or give states of other types than those in the store, before any
        job starts; if a task cannot read its rows or write; if the commit is there with other rows.
    OverflowError
        If a result could not be read.

    Examples
    --------
    The docs have one that runs::

        su.rollup_into(df, store, writer="nightly", commit=20240501)
    """
    check_store(store)
    source, schema = source_of(with_times(rows, store.frame.time, on_null_time), store.frame.columns_in, scan)
    store.frame.check(schema)
    made = store.begin(writer, commit, store.frame.states_schema(schema), recorded)

    def then(levels: Levels) -> pa.Table:
        return _receipt(made.write_rolled_up(joined(levels, made.frame)))

    def plan() -> TwoPhases:
        # a task before the shuffle may run again when some of what it gave has been read: it must not write
        return plan_rollup(source, schema, made.frame, then, RECEIPTS, finishes=False)

    return made.commit(_receipts(plan))


def check_store(store: FrameStore) -> None:
    """Raise ``TypeError`` for what is no store."""
    if not isinstance(store, FrameStore):
        raise TypeError(f"give a store, say tiltframe.FrameStore('s3://bucket/path', frame); got {store!r}")


def _receipt(receipt: str) -> pa.Table:
    return pa.table({"receipt": [receipt]})


def _receipts(plan: Callable[[], TwoPhases]) -> list[str]:
    """Run the job, whose tasks write; raises `NotConserved` unless each shard has come once."""
    with raise_task_error():
        job = plan()
        rows = job.run().collect()
    check_covered([shard for row in rows for shard in row[SHARDS]], job.numbers)
    return [row["receipt"] for row in rows if row["receipt"] is not None]


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    """Gather batches into tables worth a shuffle."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= MOST_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


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
