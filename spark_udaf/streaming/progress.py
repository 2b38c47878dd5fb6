"""Progress of streams.

The progress of a stream into a store is the number of the last batch in the store. The progress of a stream that
keeps windows open consists of the metrics of the open windows.

The name of a writer consists of the name of the stream and the id of the query. Spark generates a new id for each new
checkpoint. Batches are numbered from 0 in each checkpoint, so each checkpoint has a separate writer. The first batch of
each checkpoint adds the id of its query to a record in the store, which contains the ids of all queries of the stream
so far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggr.arguments import listed, nearest, shown
from spark_udaf.plan.session import PARTITIONS_SETTING
from spark_udaf.streaming.shard_job import METRICS_NAME, read_metrics
from tiltframe import FrameStore
from tiltframe.streaming import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A dict from the id of a query to two values: the store, and the name of the stream. These values cannot be attributes
# of the query object, because Spark may create another StreamingQuery object for the same query.
_stores_and_streams: dict[str, tuple[FrameStore, str]] = {}


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query to which a checkpoint belongs. Spark writes the id into a file of the checkpoint
    before the first batch.

    Spark reads this file, because this process may not have access to the checkpoint, for example on Spark Connect.
    """
    lines = [row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()]
    return str(json.loads("".join(lines))["id"])


def recorded_partition_count(checkpoint: Path) -> int | None:
    """Return the number of shuffle partitions that a checkpoint records, or None before its first batch."""
    batches = [path for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    if not batches:
        return None
    offsets = json.loads(max(batches, key=lambda path: int(path.name)).read_text().splitlines()[1])
    return int(offsets["conf"][PARTITIONS_SETTING])


def writer_of(stream: str, query_id: str) -> str:
    """Return the name of the writer of a query: the stream and the query's id, such as ``requests 6b0e…``."""
    return f"{stream} {query_id}"


def recorded_ids(store: FrameStore, stream: str) -> list[str]:
    """Return the ids of the queries that have written a stream into a store. The first query is the first element."""
    ids: list[str] = store.recorded([record_of(stream)]).get(record_of(stream), [])
    return ids


def record_of(stream: str) -> str:
    """Return the name of the record in a store that contains the ids of all queries of a stream."""
    return f"{stream} queries"


@dataclass(frozen=True)
class IntoProgress:
    """The progress of a stream into a store.

    Parameters
    ----------
    writer : str
        The writer of the stream's batches in the store.
    batch : int, optional
        The number of the last batch in the store; None before the first.
    waiting_parts : level -> int
        For each level, the number of parts that are not compacted, written by any writer. Many such parts make queries
        slower.
    """

    writer: str
    batch: int | None
    waiting_parts: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, which can be written as JSON."""
        return asdict(self)


def register_query(query: StreamingQuery, store: FrameStore, stream: str) -> None:
    """Register the store and the stream of a query, so that `progress` finds them."""
    _stores_and_streams[query.id] = (store, stream)


def _is_of_open_windows(numbers: Any) -> bool:
    """Return whether a metric in Spark's progress belongs to a stream of open windows."""
    return numbers is not None and {"late_rows", "emitted_rows"} <= numbers.asDict().keys()


def progress(query: StreamingQuery, name: str | None = None) -> IntoProgress | Progress:
    """Return the progress of a stream that runs or has ended.

    Parameters
    ----------
    query : StreamingQuery
        A query that `stream_into` returned in this process, or a query over the result of `stream`.
        ``query.lastProgress`` has Spark's own figures.
    name : str, optional
        The name of one of several streams in the query, see `stream`.

    Returns
    -------
    IntoProgress or `tiltframe.streaming.Progress`
        For a stream into a store: ``writer``, ``batch``, ``waiting_parts``. For open windows: ``rows``, ``late_rows``,
        ``open_windows``, ``watermark`` and others, combined for all shards. These figures are from the latest batch in
        ``query.recentProgress`` that reports them. Before the first batch, the counts are 0.

    Raises
    ------
    ValueError
        If the query is of another kind, if it does not have a stream called ``name``, or if it has several streams and
        ``name`` is missing.
    StoreError
        If the store cannot be read.

    Examples
    --------
    docs/streams.md has tested examples::

        su.progress(query).waiting_parts
        su.progress(query).late_rows
    """
    if getattr(query, "id", None) in _stores_and_streams:
        store, stream = _stores_and_streams[query.id]
        writer = writer_of(stream, query.id)
        return IntoProgress(writer, store.last_commit(writer), store.waiting_parts())
    batches = list(getattr(query, "recentProgress", ()))
    metrics = [batch["observedMetrics"] or {} for batch in batches]
    names = sorted(
        {
            metric
            for batch_metrics in metrics
            for metric, numbers in batch_metrics.items()
            if _is_of_open_windows(numbers)
        }
    )
    if name is None and len(names) > 1:
        raise ValueError(f"the query has several streams, {listed(names)}; choose one with progress(query, name=…)")
    if name is not None and names and name not in names:
        raise ValueError(f"the query has no stream {shown(name)}; {nearest(name, names)}")
    stream_name = name or (names[0] if names else METRICS_NAME)
    numbers_of_batches = [batch_metrics.get(stream_name) for batch_metrics in metrics]
    for numbers in reversed(numbers_of_batches):
        if numbers is not None and numbers["rows"] is not None:
            return read_metrics(numbers.asDict())
    batches_without_numbers = [
        batch
        for batch, numbers in zip(batches, numbers_of_batches, strict=True)
        if numbers is None and batch["numInputRows"]
    ]
    if hasattr(query, "recentProgress") and not batches_without_numbers:
        return Progress()
    raise ValueError(
        "progress needs a query that su.stream_into started in this process, or a query over the result of "
        f"su.stream; got {shown(query)}"
    )
