"""stream: the windows of a stream, emitted as they close, change, or grow old, as a streaming DataFrame.

    partition ── reduce ──▶ partial states ─┐
    partition ── reduce ──▶ partial states ─┼─ shuffle by shard of keys ──▶ open windows ──▶ emitted rows
    partition ── reduce ──▶ partial states ─┘          (state in Spark's checkpoint)

As in `spark_udaf.jobs.two_phase`, rows are reduced where they are, and a shard's states cross as one binary value. What
Spark keeps is a few values for each shard, not one for each key and window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from aggr.arguments import checked_truth, checked_whole
from aggr.extras import MissingExtra
from aggr.states.keys import plain_keys
from aggr.states.result_names import check_having
from spark_udaf.jobs.columns import check_distinct
from spark_udaf.jobs.null_times import with_times
from spark_udaf.jobs.rollup import check_frame
from spark_udaf.jobs.schema import spark_schema
from spark_udaf.jobs.session import prepare, shuffle_partitions
from spark_udaf.jobs.shard_messages import SHARD
from spark_udaf.jobs.tune_worker import tune_worker
from spark_udaf.jobs.two_phase import Batches
from spark_udaf.streaming.numbers import OBSERVED, WATERMARK, names_of
from spark_udaf.streaming.scan_stream import ParquetStream
from spark_udaf.streaming.shard_job import IN, OUT, ShardJob
from spark_udaf.streaming.shards import ARRIVAL, EVENT, NO_TIME, ShardWindows, given_by_shards
from spark_udaf.streaming.source import StreamSource, stream_source
from tiltframe import TiltFrame
from tiltframe.streaming import EmitPolicy, LatePolicy, OpenWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_GIVEN_ROWS = 2000  # emitted rows sent to the JVM at once


def stream(
    df: DataFrame | ParquetStream,
    frame: TiltFrame,
    *,
    emit: EmitPolicy | str = "after_close",
    late: LatePolicy | str = "drop",
    dropped: bool = False,
    states: bool = False,
    flat: bool = False,
    shards: int | None = None,
    max_keys: int | None = None,
    beyond: str = "error",
    on_null_time: str = "fail",
) -> DataFrame:
    """Keep the windows of a stream open, and emit them as a policy says: a streaming DataFrame for any sink.

    Parameters
    ----------
    df : streaming DataFrame, or Parquet files as `scan_parquet_stream` gives them
        Of any source, with the frame's time, keys and the columns of its measures. Its watermark, by
        ``df.withWatermark``, closes windows.
    frame : TiltFrame
    emit : EmitPolicy or str
        When windows are emitted, and what of them: of `tiltframe.streaming`, or text such as
        ``periodic(1m, having='n > 300')``.
    late : LatePolicy or str
        How long closed windows are kept, and what becomes of events that come later.
    dropped : bool
        Emit also what was dropped as late, in the batch that it came in: a row with the reason ``dropped`` for each key
        and window of the finest level (for hopping windows: the part of it that no other window begins in), of the
        dropped rows alone, in no window. ``reason = 'dropped'`` tells them apart, for a sink of their own.
    states : bool
        Give a struct for each state, as `rollup` does, in place of results.
    flat : bool
        Give results as plain columns in place of records: ``latency_count``, ``latency_p50``.
    shards : int, optional
        Into how many parts the keys are split, each a task's work at a time; as many as Spark shuffles into
        (``spark.sql.shuffle.partitions``) unless given. Part of the checkpoint; 1 where the frame has no keys.
    max_keys : int, optional
        How many distinct keys one shard may hold at once.
    beyond : str
        What becomes of rows of more keys: ``error``, or ``drop``, which counts them.
    on_null_time : str
        What becomes of rows of a DataFrame whose time is null: they ``fail`` the job, or it can ``skip`` them.

    Returns
    -------
    streaming DataFrame
        ``level``, ``window_start``, ``window_end`` (both null of a window over all time), keys, a column for each
        measure, ``span`` (of keys that expire), ``reason``, ``revision``, ``partial``, ``change`` (in a changelog), as
        `tiltframe.streaming.OpenWindows.advance` explains them. Write it in the output mode ``append``. `progress` has
        the numbers of the query that does.

    Raises
    ------
    ValueError, TypeError
        If arguments cannot be read, rows do not fit the frame, or the policy emits by a watermark that ``df`` has not.
        Nothing has started. A checkpoint of another frame or of other shards fails the query's first batch, and the
        difference is named; measures may be added, and begin there.

    Guarantee
    ---------
    The last that is emitted of a window in the mode ``accumulating`` is, bit for bit, what `rollup` makes of its rows,
    those left out that were late for it, whatever the batches, partitions and shards, and the restarts between them.

    Notes
    -----
    Spark keeps the state in RocksDB: this is set for the session, which only then can run it. Where a policy counts by
    the clock (periods, timeouts), Spark runs a batch at every trigger, with rows or without: give the query a trigger
    such as ``processingTime="1 second"``. ``availableNow`` would not end.

    Examples
    --------
    docs/streams.md has one that runs::

        emitted = su.stream(requests.withWatermark("ts", "10 seconds"), frame, emit="on_update(batch=2s)")
        query = emitted.writeStream.option("checkpointLocation", "s3://bucket/checkpoints/emitted").toTable("emitted")
    """
    df = with_times(df, check_frame(frame).time, on_null_time)
    source = stream_source(df, "su.rollup and su.finish give the results of its windows")
    windows = OpenWindows(frame, emit, late, max_keys=max_keys, beyond=beyond)
    checked_truth(dropped, "dropped")
    checked_truth(states, "states")
    checked_truth(flat, "flat")
    spark = source.spark
    _prepare(spark)
    given = source.given(windows.partial_frame.columns_in)
    timers = _timers(source.marked, windows)
    parts = _shards(shards, frame, spark)
    job = ShardJob(given, frame, windows.emit, windows.late, max_keys, beyond, dropped, parts)
    schema = job.result(states, flat)
    check_distinct(schema.names, spark)
    check_having(windows.emit.having, job.result(states=False, flat=False), frame.timezone)
    return _read(_sharded(source, job, timers), job, schema, states, flat)


def _sharded(source: StreamSource, job: ShardJob, timers: str) -> DataFrame:
    """Reduce rows where they are, and give them to the shards; what comes back are messages and numbers."""

    def reduce(batches: Batches, first: bool) -> Batches:
        tune_worker()
        yield from job.reduced(batches, first)

    processor = ShardWindows(job, timers)
    messages = source.map(job.columns, plain_keys(job.frame.keyed_by), job.frame.time, reduce, IN).groupBy(SHARD)
    return messages.transformWithState(processor, given_by_shards(job.frame), "Append", timers)


def _read(told: DataFrame, job: ShardJob, schema: pa.Schema, states: bool, flat: bool) -> DataFrame:
    """Read what shards give: their numbers into the query's progress, their messages into rows."""

    def read(batches: Batches) -> Batches:
        tune_worker()
        for batch in batches:
            for message in batch.column(0).drop_null():
                given = job.read(message.as_buffer(), schema, states, flat)
                yield from given.to_batches(max_chunksize=_GIVEN_ROWS)

    totals = [(F.max if name == WATERMARK else F.sum)(F.col(f"`{name}`")).alias(name) for name in names_of(job.frame)]
    return told.observe(OBSERVED, *totals).select(OUT).mapInArrow(read, spark_schema(schema))


def _timers(marked: bool, windows: OpenWindows) -> str:
    """Choose what Spark's timers are told by; raises ``ValueError`` where nothing would ever be emitted."""
    emit = windows.emit
    if emit.by_arrival:
        return ARRIVAL
    if not marked and (emit.by_event or not (emit.emits_open or windows.late.closes_by_events)):
        raise ValueError(
            f"{emit} emits by the watermark, and this stream has none: give "
            f"df.withWatermark({windows.frame.time!r}, '10 seconds'), and keep that column, or watermark='10s' to "
            "su.scan_parquet_stream"
        )
    return EVENT if marked else NO_TIME


def _shards(given: int | None, frame: TiltFrame, spark: SparkSession) -> int:
    """Choose how many shards there are; without keys, all windows are of one."""
    wanted = shuffle_partitions(spark) if given is None else given
    return checked_whole(wanted, "shards", 1, 10_000) if frame.keys else 1


def _prepare(spark: SparkSession) -> None:
    """Set what `transformWithState` needs, and what keeps a checkpoint small; the latter unless it is set."""
    prepare(spark)
    if "RocksDB" not in str(spark.conf.get(_PROVIDER)):
        spark.conf.set(_PROVIDER, _ROCKS)
    if spark.conf.get(_CHANGELOG, None) is None:
        spark.conf.set(_CHANGELOG, "true")
    try:
        import google.protobuf  # noqa: F401
    except ImportError as error:
        raise MissingExtra("su.stream, whose state Spark asks for by protobuf,", "spark", error) from None
