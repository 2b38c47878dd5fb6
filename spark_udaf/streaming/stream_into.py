"""A stream into a store: each micro-batch is one commit, which counts once even if it is repeated.

Spark numbers batches in its checkpoint, and repeats the last batch after a failure. A store accepts each commit number
of a writer only once, so every row counts once. Late rows need no treatment, because readers merge them into their
windows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from aggr.arguments import checked_name, checked_whole
from aggr.duration import read_duration
from spark_udaf.batch.rollup import without_null_times
from spark_udaf.plan.fractions import check_no_fractions_in_query
from spark_udaf.plan.session import use_large_batches
from spark_udaf.plan.two_phase import source_of
from spark_udaf.store.write import check_store, rollup_batch_into
from spark_udaf.streaming.progress import query_id, record_of, recorded_ids, register_query, writer_of
from spark_udaf.streaming.scan_stream import ArrivingFiles, ParquetStream
from spark_udaf.streaming.shard_job import METRICS_NAME
from spark_udaf.streaming.stream import stream_source
from tiltframe import FrameStore, StoreError
from tiltframe.caller_warnings import warn_caller
from tiltframe.store import check_writer
from tiltframe.store.closed_windows import compact_or_warn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available_now"
# The default number of batches between compactions. If the job of a batch has few tasks, a level then has at most a few
# hundred parts before each compaction.
COMPACT_EVERY = 50


def stream_into(
    df: DataFrame | ParquetStream,
    store: FrameStore,
    *,
    name: str,
    checkpoint: str | os.PathLike[str],
    trigger: str | None = None,
    compact_every: int | None = COMPACT_EVERY,
    on_null_time: str = "fail",
) -> StreamingQuery:
    """Start a query that rolls up a stream into a frame store, each row exactly once.

    Parameters
    ----------
    df : streaming DataFrame, or Parquet files from `scan_parquet_stream`
        A stream with the time, keys and columns of the store's frame. After a failure, its source must be able to
        repeat the rows of the last batch.
    store : FrameStore
        A store that is accessible to the driver and the tasks. It may be new, and may have other writers.
    name : str
        The name of the stream, and of the query in Spark. In the store, the batches have the writer ``NAME ID``, which
        consists of this name and the id of the query to which the checkpoint belongs.
    checkpoint : path or URI
        A separate folder for this stream that is accessible to Spark. The stream continues from it.
    trigger : duration or "available_now", optional
        The interval of batches, such as ``10s``. ``available_now`` processes the available data, and ends. By default,
        a batch begins when the previous one is done.
    compact_every : int, optional
        The number of batches after which the store is compacted, including open windows. With None, call
        `FrameStore.compact` separately.
    on_null_time : as in `stream`

    Returns
    -------
    StreamingQuery
        The running query. `progress` returns its progress. If ``df`` is a DataFrame, the progress of each batch also
        has the number of its rows, ``observedMetrics["tiltframe"]["rows"]``.

    Warns
    -----
    UserWarning
        If the store has rows of this stream from another checkpoint. Rows that the new query reads again are counted
        again, under another writer. The message names the former writer.

    Raises
    ------
    ValueError, TypeError, StoreError
        Before the query starts: if arguments cannot be read, rows do not fit the store's frame, or the types of their
        states differ from the types in the store.

    Guarantee
    ---------
    The states of the store equal, bit for bit, those of a rollup of all rows, for any batches, failures and restarts. A
    late row is merged into its window. If the column of event times has a watermark, each batch also records a
    watermark in the store: the start of the newest window of the batch minus the delay. Queries of closed windows use
    this watermark. If completed batches of the checkpoint are missing from the store, the query fails with a message.

    Examples
    --------
    docs/streams.md has a tested example::

        query = su.stream_into(requests, store, name="requests", checkpoint="s3://bucket/checkpoints/requests")
    """
    check_store(store)
    check_writer(checked_name(name, "name, the name of the stream,"), 0)
    path = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
    folder = checked_name(path, "checkpoint, the folder of Spark's checkpoint,")
    trigger_options = _trigger_options(trigger)
    if compact_every is not None:
        checked_whole(compact_every, "compact_every, a number of batches,", 1)
    df = without_null_times(df, store.frame.time, on_null_time)
    source = stream_source(df, "su.rollup_into writes its rows into a store")
    use_large_batches(source.spark)
    input_schema = source.input_schema(store.frame.columns_in)
    store.check_states(store.frame.states_schema(input_schema))
    check_no_fractions_in_query(store.frame, input_schema)
    former_ids = recorded_ids(store, name)
    files, batches = (df.files, df.paths()) if isinstance(df, ParquetStream) else (None, df)
    commit_batch = _BatchWriter(
        store=store,
        stream=name,
        checkpoint=folder,
        compact_every=compact_every,
        files=files,
        delay_us=source.delay_of(store.frame.time),
    )
    if files is None:
        batches = batches.observe(METRICS_NAME, F.count(F.lit(1)).alias("rows"))
    writer = batches.writeStream.queryName(name).option("checkpointLocation", folder).foreachBatch(commit_batch)
    query = writer.trigger(**trigger_options).start()
    register_query(query, store, name)
    if former_ids and query.id not in former_ids:
        _warn_of_other_checkpoint(query, store, name, former_ids[-1])
    return query


@dataclass(frozen=True)
class _BatchWriter:
    """The function that commits each micro-batch. This object can be pickled, because Spark Connect calls it in another
    process.
    """

    store: FrameStore
    stream: str
    checkpoint: str
    compact_every: int | None
    # The folder of the files to read, if a batch consists of paths of files. None if a batch consists of rows.
    files: ArrivingFiles | None

    # The delay of the watermark in microseconds, or None without a watermark.
    delay_us: int | None

    def __call__(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        rows = batch if self.files is None else self.files.scan(spark, [path for path, _ in batch.collect()])
        self.store.ensure_created(self.store.frame.states_schema(source_of(rows, self.store.frame.columns_in)[1]))
        own_id = query_id(spark, self.checkpoint)
        writer = writer_of(self.stream, own_id)
        last_number = self.store.last_commit(writer)
        if (-1 if last_number is None else last_number) < number - 1:
            raise StoreError(_missing_batches_message(self, writer, number, last_number))
        ids = (
            {record_of(self.stream): [*recorded_ids(self.store, self.stream), own_id]} if last_number is None else None
        )
        rollup_batch_into(
            rows,
            self.store,
            writer=writer,
            commit=number,
            recorded=ids,
            stream=self.stream,
            delay_us=self.delay_us,
        )
        if self.compact_every is not None and (number + 1) % self.compact_every == 0:
            compact_or_warn(self.store)  # Open windows are compacted as well, because most parts belong to them.


def _missing_batches_message(batch_writer: _BatchWriter, writer: str, number: int, last_number: int | None) -> str:
    committed_batches = f"only the batches up to {last_number}" if last_number is not None else "no batches"
    return (
        f"the checkpoint {batch_writer.checkpoint} records that the batches before {number} are done, but the store "
        f"{batch_writer.store.display_uri} has {committed_batches} of the writer {writer!r}; rows would be missing. "
        "Use the store and the name with which the checkpoint was created, or a new checkpoint, "
        "which reads all rows again"
    )


def _trigger_options(trigger: object) -> dict[str, Any]:
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    if trigger is None:
        return {"processingTime": "0 seconds"}
    try:
        length = read_duration(trigger, "trigger")  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{error}; to read the available data and stop, pass {AVAILABLE_NOW!r}") from None
    return {"processingTime": f"{length} microseconds"}


def _warn_of_other_checkpoint(query: StreamingQuery, store: FrameStore, stream: str, former_id: str) -> None:
    """Warn that a query with a new checkpoint reads a stream from its beginning, although the store has rows of the
    stream from another query. If Python is configured to raise warnings as errors, stop the query and raise the
    warning.
    """
    try:
        warn_caller(
            f"the store {store.display_uri} has rows of the stream {stream!r} by the writer "
            f"{writer_of(stream, former_id)!r}, but this is another checkpoint: the stream starts again "
            f"as {writer_of(stream, query.id)!r}, and rows that it reads again are counted again. Use the former "
            "checkpoint to continue the stream, or another name for other rows"
        )
    except UserWarning:
        query.stop()
        raise
