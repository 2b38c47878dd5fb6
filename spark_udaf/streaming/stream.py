"""stream: emit the windows of a stream when they close, change or time out, as a streaming DataFrame.

partition ── reduce ──▶ partial states ── shuffle by shard of keys ──▶ open windows ──▶ emitted rows
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aggr.arguments import checked_name, checked_truth, checked_whole, shown
from aggr.extras import MissingExtra
from aggr.tables.keys import plain_keys
from aggr.tables.result_names import check_having
from spark_udaf.batch.rollup import NULL_TIMES, check_frame, without_null_times
from spark_udaf.plan.columns import Batches, arrow_schema, check_distinct_names, map_columns, unsliced_batches
from spark_udaf.plan.engine import Feature, check_supports
from spark_udaf.plan.fractions import check_no_fractions_in_query
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import shuffle_partitions, use_large_batches
from spark_udaf.plan.worker import tune_worker
from spark_udaf.streaming.ordered_job import OrderedJob
from spark_udaf.streaming.scan_stream import ParquetStream
from spark_udaf.streaming.shard_job import (
    EMITTED_MESSAGE_COLUMN,
    EVENT_TIME,
    METRICS_NAME,
    NO_TIMERS,
    PROCESSING_TIME,
    SHARD_INPUT_SCHEMA,
    WATERMARK,
    ShardJob,
    metric_names,
)
from spark_udaf.streaming.source import Read, Reduce, StreamSource
from spark_udaf.streaming.stateful import check_has_state, transform_shards
from spark_udaf.versions.same_version import TaskFunction
from tiltframe import OrderedFrame, OrderedRollup, TiltFrame
from tiltframe.event_time import event_times
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.ordered.query import OrderedQuery
from tiltframe.streaming import EmitPolicy, LatePolicy, OpenWindows
from tiltframe.streaming.ahead import NONE, check_ahead, read_ahead

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
# The number of emitted rows per batch that is passed to the JVM.
_ROWS_PER_BATCH = 2000

# Numbers the streams of this process that have no name of their own. Their metrics have the names ``tiltframe``,
# ``tiltframe 2``, ``tiltframe 3`` …
_stream_numbers = itertools.count(1)

# The key under which the metadata of a column contain the delay of its watermark.
_DELAY_KEY = "spark.watermarkDelayMs"


def stream(
    df: DataFrame | ParquetStream,
    frame: TiltFrame | OrderedFrame | OrderedAggregator,
    *,
    emit: EmitPolicy | str | None = None,
    late: LatePolicy | str = "drop",
    dropped: bool = False,
    states: bool = False,
    flat: bool = False,
    shards: int | None = None,
    max_keys: int | None = None,
    beyond: str = "error",
    on_null_time: str = "fail",
    name: str | None = None,
    ahead: str = "1h",
) -> DataFrame:
    """Keep the windows of a stream open, and emit them according to a policy, as a streaming DataFrame for any sink.

    Parameters
    ----------
    df : streaming DataFrame, or Parquet files from `scan_parquet_stream`
        A stream of any source, with the frame's time, keys and the columns of its measures. Its watermark, set by
        ``df.withWatermark``, closes windows.
    frame : TiltFrame, OrderedFrame or RunningAggregation
        An OrderedFrame or a RunningAggregation has ordered windows: a row waits until the watermark has passed the time
        of the row, and each result is emitted once. Rows behind the watermark are late, and are dropped.
    emit : EmitPolicy or str, optional
        The policy of emission, from `tiltframe.streaming`, or its text, such as ``periodic(1m, having='n > 300')``. The
        default is ``after_close``, or ``periodic(2s)`` for a frame whose only level is ``all``.
    late : LatePolicy or str
        The policy of late events, which determines how long closed windows are retained.
    dropped : bool
        Emit dropped late rows as well, in the batch of their arrival: one row with the reason ``dropped`` for each key
        and window of the finest level (for hopping windows: for each key and pane). Its measures include only the
        dropped rows. Filter by ``reason = 'dropped'`` to write them to another sink.
    states : bool
        Return a struct for each state, like `rollup`, instead of results.
    flat : bool
        Return plain columns instead of records: ``latency_count``, ``latency_p50``.
    shards : int, optional
        The number of shards, which are groups of keys that are processed in parallel. The default is
        ``spark.sql.shuffle.partitions``, or 1 if the frame has no keys. The number is part of the checkpoint.
    max_keys : int, optional
        The maximum number of distinct keys of one shard.
    beyond : str
        The treatment of rows with further keys if a shard has ``max_keys`` keys: ``error``, or ``drop``, which drops
        and counts these rows.
    on_null_time : str
        The treatment of rows of a DataFrame whose time is null: ``fail`` the job, or ``skip`` them. Each batch counts
        skipped rows in its progress, ``observedMetrics["null_times"]["rows"]``.
    name : str, optional
        The name of the stream's metrics in the query's progress, ``observedMetrics[name]``, for queries with several
        streams. By default, the first stream of a process has the name ``tiltframe``, the next one ``tiltframe 2``, and
        so on, so that streams can be chained and united. With a name, the metric of null times is ``null_times NAME``.
    ahead : str
        The maximum time by which a row may be ahead of the workers' clock, such as ``1h``; ``none`` for any time. A row
        that is further ahead fails the batch, because the watermark would make all later rows late. Filter such rows
        before ``withWatermark``.

    Returns
    -------
    streaming DataFrame
        ``level``, ``window_start``, ``window_end`` (both null for a window over all time), keys, a column for each
        measure, ``span`` (of expiring keys), ``reason``, ``revision``, ``partial``, ``change`` (in a changelog); see
        `tiltframe.streaming.OpenWindows.advance`. Write this DataFrame in the output mode ``append``. `progress`
        returns the figures of the query that writes it.

    Raises
    ------
    ValueError, TypeError
        Before a query starts: if arguments cannot be read, rows do not fit the frame, or the policy needs a watermark
        that ``df`` lacks. Later: if the checkpoint has another frame or number of shards, the first batch of the query
        fails, and the error names the difference. Measures may be added; an added measure includes only the rows after
        the restart.

    Guarantee
    ---------
    In the mode ``accumulating``, the last emission of a window equals, bit for bit, the `rollup` of its rows without
    the late rows that were dropped, for any batches, partitions, shards and restarts.

    Notes
    -----
    Spark must store the state in RocksDB; this is configured for the session. If a policy uses the clock (periods,
    timeouts), Spark runs a batch at every trigger, with or without rows. Give the query a trigger such as
    ``processingTime="1 second"``. With the trigger ``availableNow``, the query would not end.

    Examples
    --------
    docs/streams.md has a tested example::

        emitted = su.stream(requests.withWatermark("ts", "10 seconds"), frame, emit="on_update(batch=2s)")
        query = emitted.writeStream.option("checkpointLocation", "s3://bucket/checkpoints/emitted").toTable("emitted")
    """
    check_has_state()
    # After this line, every frame with ordered windows is an OrderedAggregator: an OrderedFrame is replaced by an
    # OrderedRollup, and OrderedRollup and RunningAggregation are subclasses of OrderedAggregator.
    frame_or_aggregator = OrderedRollup(frame) if isinstance(frame, OrderedFrame) else frame
    frame_or_query = (
        frame_or_aggregator.query
        if isinstance(frame_or_aggregator, OrderedAggregator)
        else check_frame(frame_or_aggregator)
    )
    read_ahead(ahead)  # This call raises an error if the value of ``ahead`` is invalid.
    metrics_name = _next_name() if name is None else checked_name(name, "name, the name of the stream,")
    null_times = NULL_TIMES if name is None else f"{NULL_TIMES} {name}"
    df = without_null_times(df, frame_or_query.time, on_null_time, null_times)
    source = stream_source(df, "su.rollup and su.finish give the results of its windows")
    for name, value in (("dropped", dropped), ("states", states), ("flat", flat)):
        checked_truth(value, name)
    spark = source.spark
    _configure_state_store(spark)
    requested = shuffle_partitions(spark) if shards is None else shards
    # Without keys, all windows are in one shard.
    shard_count = checked_whole(requested, "shards", 1, 10_000) if frame_or_query.keyed_by else 1
    if isinstance(frame_or_aggregator, OrderedAggregator):
        has_policies = (emit, late, dropped, max_keys) != (None, "drop", False, None)
        _check_ordered(has_policies, has_watermark=source.has_watermark, time=frame_or_query.time)
        input_schema = source.input_schema(frame_or_query.columns_in)
        timer_clock = EVENT_TIME
        frame_or_query.check(input_schema)
        check_no_fractions_in_query(frame_or_query, input_schema)
        job: ShardJob | OrderedJob = OrderedJob(
            input_schema=input_schema,
            aggregator_class=type(frame_or_aggregator),
            query=frame_or_aggregator.query,
            shards=shard_count,
            returns_states=states,
            is_flat=flat,
        )
    else:
        windows = OpenWindows(frame_or_aggregator, emit, late, max_keys=max_keys, beyond=beyond)
        input_schema = source.input_schema(windows.partial_frame.columns_in)
        timer_clock = _timer_clock(source.has_watermark, windows)
        check_no_fractions_in_query(frame_or_aggregator, input_schema)
        job = ShardJob(
            input_schema=input_schema,
            frame=frame_or_aggregator,
            emit=windows.emit,
            late=windows.late,
            max_keys=max_keys,
            beyond=beyond,
            emits_dropped=dropped,
            shards=shard_count,
            returns_states=states,
            is_flat=flat,
        )
        check_having(windows.emit.having, job.result_schema, frame_or_query.timezone)
    check_distinct_names(job.output_schema.names, spark)
    shard_output = transform_shards(_messages_to_shards(source, job, frame_or_query, ahead), job, timer_clock)
    totals = [
        (F.max if field == WATERMARK else F.sum)(F.col(f"`{field}`")).alias(field) for field in metric_names(job.levels)
    ]
    return _emitted_rows(shard_output.observe(metrics_name, *totals).select(EMITTED_MESSAGE_COLUMN), job)


def _next_name() -> str:
    """Return the default name of the metrics of a new stream. Each stream of the process has a different name, because
    Spark rejects a query in which two metrics have the same name.
    """
    number = next(_stream_numbers)
    return METRICS_NAME if number == 1 else f"{METRICS_NAME} {number}"


def _check_ordered(has_policies: bool, *, has_watermark: bool, time: str) -> None:
    if has_policies:
        raise ValueError(
            "ordered windows emit each result once, when the watermark has passed it, and drop later "
            "rows, so the arguments emit, late, dropped and max_keys cannot be used; leave them out"
        )
    if not has_watermark:
        raise ValueError(
            f"ordered windows need a watermark, which this stream does not have; use df.withWatermark({time!r}, "
            "'10 seconds') and keep that column, or pass watermark='10s' to su.scan_parquet_stream"
        )


def _messages_to_shards(
    source: StreamSource, job: ShardJob | OrderedJob, frame_or_query: TiltFrame | OrderedQuery, ahead: str
) -> DataFrame:

    def reduce(batches: Batches, task: int) -> Batches:
        tune_worker()
        yield from job.send_messages(_check_not_ahead(batches, frame_or_query, ahead), task)

    keys = plain_keys(frame_or_query.keyed_by)
    return source.map(
        job.columns,
        keys,
        time=frame_or_query.time,
        timezone=frame_or_query.timezone,
        reduce=reduce,
        schema=SHARD_INPUT_SCHEMA,
    )


def _check_not_ahead(batches: Batches, frame_or_query: TiltFrame | OrderedQuery, ahead: str) -> Batches:
    """Yield the batches unchanged. Raise ``ValueError`` if the time of a row is later than the present time plus the
    duration ``ahead``.
    """
    for batch in batches:
        if ahead != NONE and batch.num_rows:
            times = event_times(batch.column(frame_or_query.time), frame_or_query.time, frame_or_query.timezone)
            check_ahead(times, frame_or_query.time, ahead)
        yield batch


def _emitted_rows(messages: DataFrame, job: ShardJob | OrderedJob) -> DataFrame:
    """Return a DataFrame with the emitted rows, read from the messages of shards."""

    def read_messages(batches: Batches) -> Batches:
        tune_worker()
        for batch in batches:
            for message in batch.column(0).drop_null():
                yield from unsliced_batches(job.read_emitted(message.as_buffer()), _ROWS_PER_BATCH)

    return messages.mapInArrow(TaskFunction(read_messages), spark_schema(job.output_schema))


def _timer_clock(has_watermark: bool, windows: OpenWindows) -> str:
    """Return Spark's name of the clock that the timers of shards follow: "EventTime" or "ProcessingTime". A timer makes
    Spark call its shard in a batch without rows. Return "None" if shards need no timers.

    Raise ``ValueError`` if the emit policy needs a watermark and the stream does not have one.
    """
    emit = windows.emit
    if emit.emits_without_rows:
        return PROCESSING_TIME
    if not has_watermark and (emit.by_event or not (emit.emits_open or windows.late.closes_by_events)):
        raise ValueError(
            f"{emit} needs a watermark, which this stream does not have; "
            f"use df.withWatermark({windows.frame.time!r}, '10 seconds') and keep that column, or pass "
            "watermark='10s' to su.scan_parquet_stream"
        )
    return EVENT_TIME if has_watermark else NO_TIMERS


def _configure_state_store(spark: SparkSession) -> None:
    """Set RocksDB as the state store of the session, because `transformWithState` needs it. Enable changelog
    checkpoints, which are smaller, unless the session already has this setting. Raise `MissingExtra` if protobuf is not
    installed.
    """
    use_large_batches(spark)
    if "RocksDB" not in str(spark.conf.get(_PROVIDER)):
        spark.conf.set(_PROVIDER, _ROCKS)
    if spark.conf.get(_CHANGELOG, None) is None:
        spark.conf.set(_CHANGELOG, "true")
    try:
        import google.protobuf  # noqa: F401
    except ImportError as error:
        raise MissingExtra(what="su.stream, which needs protobuf,", extra="spark", error=error) from None


@dataclass(frozen=True)
class DataFrameStream:
    """A source of a stream whose rows are those of a streaming DataFrame."""

    df: DataFrame

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrame."""
        return self.df.sparkSession

    @property
    def has_watermark(self) -> bool:
        """Whether a column of the DataFrame has a watermark."""
        return any(_DELAY_KEY in (field.metadata or {}) for field in self.df.schema)

    def delay_of(self, time: str) -> int | None:
        """Return the delay in microseconds of the watermark behind the latest value of the column ``time``. Return None
        if this column has no watermark.
        """
        metadata = next((field.metadata for field in self.df.schema if field.name == time), None) or {}
        return int(metadata[_DELAY_KEY]) * 1000 if _DELAY_KEY in metadata else None

    def input_schema(self, select_names: Read) -> pa.Schema:
        """Return the schema of the rows. ``select_names`` selects the columns to read. Other columns may have any
        type.
        """
        return arrow_schema(self.df, select_names(self.df.columns))

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
        """Return a streaming DataFrame of messages with the columns of ``schema``. Each task calls ``reduce`` with the
        batches of its partition, which have only the columns ``columns``, and with the index of the partition;
        ``reduce`` yields batches of messages.
        """

        def reduce_partition(batches: Batches) -> Batches:
            context = TaskContext.get()
            yield from reduce(batches, 0 if context is None else context.partitionId())

        return map_columns(self.df, columns, reduce_partition, schema)


def stream_source(rows: DataFrame | ParquetStream, remedy: str) -> StreamSource:
    """Return a streaming DataFrame or a stream of files as a source.

    Raise ``TypeError`` for other values. For the message, ``remedy`` says which function accepts an ordinary
    DataFrame.
    """
    if isinstance(rows, ParquetStream):
        return rows
    if not hasattr(rows, "isStreaming") or isinstance(rows, type):
        raise TypeError(
            f"expected a streaming DataFrame from spark.readStream, or files from su.scan_parquet_stream; "
            f"got {shown(rows)}"
        )
    if not rows.isStreaming:
        raise TypeError(f"this DataFrame is not a stream; {remedy}")
    check_supports(rows.sparkSession, Feature.STREAMS, "a stream of windows", "use Spark, or tiltframe stream")
    return DataFrameStream(rows)
