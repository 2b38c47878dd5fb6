"""A stream into a store: each micro-batch is one commit, and counts once, whatever is run again.

Spark numbers batches in its checkpoint and runs the last one again after a failure. A store takes a number of a writer
once, so the two together count every row once. Late rows need nothing: reading merges them into their windows.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aggr.arguments import checked_name, checked_whole
from aggr.duration import read_duration
from spark_udaf.batch.rollup import with_times
from spark_udaf.plan.session import prepare
from spark_udaf.plan.two_phase import source_of
from spark_udaf.store.write import check_store, rollup_into
from spark_udaf.streaming.progress import query_id, record_of, recorded_ids, remember, writer_of
from spark_udaf.streaming.scan_stream import Arriving, ParquetStream
from spark_udaf.streaming.stream import stream_source
from tiltframe import FrameStore, StoreError
from tiltframe.store.changes.commit import check_writer
from tiltframe.store.closed_windows import compact_or_warn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ALL_THERE = "available_now"
COMPACT_EVERY = 50  # batches; some hundred parts a level then wait at most, where a batch has a few tasks


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
    df : streaming DataFrame, or Parquet files as `scan_parquet_stream` gives them
        Of any source that can be read again after a failure, with the time, keys and columns of the store's frame.
    store : FrameStore
        Driver and tasks must reach it. It may be new; others may write into it at the same time.
    name : str
        Of the stream, and of the query in Spark. Batches are in the store under the writer ``NAME ID``, with the id
        that Spark gave the checkpoint's query.
    checkpoint : path or URI
        A folder of this stream's own that Spark reaches; the stream goes on from it.
    trigger : duration or "available_now", optional
        How often a batch is begun, such as ``10s``; ``available_now`` takes all that is there, and ends. By default a
        batch begins when the one before is done.
    compact_every : int, optional
        The store is compacted after so many batches, open windows too; None leaves that to `FrameStore.compact`.
    on_null_time : as of `stream`

    Returns
    -------
    StreamingQuery
        That has started. `progress` says how far it is in the store.

    Warns
    -----
    UserWarning
        If the store has rows of this stream, and they are of another checkpoint: rows that are read again count again,
        under a writer of their own. The former writer is named.

    Raises
    ------
    ValueError, TypeError, StoreError
        If arguments cannot be read, rows do not fit the store's frame, or give states of other types than those in
        the store. Nothing has started.

    Guarantee
    ---------
    The states of the store are, bit for bit, those of a rollup of all rows that came, however they were cut into
    batches, and however often the query failed and was started again. A row that comes late is merged into its window.
    If the checkpoint counts batches as done that the store does not hold, the query fails, and says so.

    Examples
    --------
    docs/streams.md has one that runs::

        query = su.stream_into(requests, store, name="requests", checkpoint="s3://bucket/checkpoints/requests")
    """
    check_store(store)
    check_writer(checked_name(name, "name, which the stream and its writer are called by,"), 0)
    given = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
    folder = checked_name(given, "checkpoint, the folder in which Spark keeps how far the stream is,")
    starts = _checked_trigger(trigger)
    if compact_every is not None:
        checked_whole(compact_every, "compact_every, a number of batches,", 1)
    df = with_times(df, store.frame.time, on_null_time)
    source = stream_source(df, "su.rollup_into writes its rows into a store")
    prepare(source.spark)
    store.check_states(store.frame.states_schema(source.given(store.frame.columns_in)))
    former = recorded_ids(store, name)
    arriving, batches = (df.arriving, df.paths()) if isinstance(df, ParquetStream) else (None, df)
    into = _Batches(store, name, folder, compact_every, arriving)
    writer = batches.writeStream.queryName(name).option("checkpointLocation", folder).foreachBatch(into)
    query = writer.trigger(**starts).start()
    remember(query, store, name)
    if former and query.id not in former:
        _warn_of_former(query, store, name, former[-1])
    return query


@dataclass(frozen=True)
class _Batches:
    """What is done with each micro-batch; it pickles, for Spark Connect runs it in a process of its own."""

    store: FrameStore
    stream: str
    checkpoint: str
    compact_every: int | None
    arriving: Arriving | None  # where batches are paths of files that the tasks read themselves

    def __call__(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        rows = batch if self.arriving is None else self.arriving.scan(spark, [path for path, _ in batch.collect()])
        self.store.ensure_created(self.store.frame.states_schema(source_of(rows, self.store.frame.columns_in)[1]))
        mine = query_id(spark, self.checkpoint)
        writer = writer_of(self.stream, mine)
        last = self.store.last_commit(writer)
        if (-1 if last is None else last) < number - 1:
            raise StoreError(_missing(self, writer, number, last))
        ids = {record_of(self.stream): [*recorded_ids(self.store, self.stream), mine]} if last is None else None
        rollup_into(rows, self.store, writer, number, ids)
        if self.compact_every is not None and (number + 1) % self.compact_every == 0:
            compact_or_warn(self.store)  # open windows too: they have most of the parts


def _missing(into: _Batches, writer: str, number: int, last: int | None) -> str:
    batches = f"no batch after {last} of them" if last is not None else "none of them"
    return (
        f"the checkpoint {into.checkpoint} says that the batches before {number} are done, and the store "
        f"{into.store.display_uri} holds {batches} by {writer!r}: rows would be missing. Give the store and the name "
        "that the checkpoint was made with, or a new checkpoint, which reads all rows again"
    )


def _checked_trigger(trigger: object) -> dict[str, Any]:
    if trigger == ALL_THERE:
        return {"availableNow": True}
    if trigger is None:
        return {"processingTime": "0 seconds"}
    try:
        length = read_duration(trigger, "trigger")  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{error}; or {ALL_THERE!r} for what is there now") from None
    return {"processingTime": f"{length} microseconds"}


def _warn_of_former(query: StreamingQuery, store: FrameStore, stream: str, former: str) -> None:
    """Say that a query begins a stream again; where warnings are errors, it does not go on."""
    try:
        warnings.warn(
            f"the store {store.display_uri} has rows of the stream {stream!r} by the writer "
            f"{writer_of(stream, former)!r}, and this checkpoint is another: the stream begins again as "
            f"{writer_of(stream, query.id)!r}, and rows that it reads again count again. Give the former checkpoint to "
            "go on with it, or another name to other rows",
            stacklevel=3,
        )
    except UserWarning:
        query.stop()
        raise
