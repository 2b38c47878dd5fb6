"""Progress of streams: how far one is in its store, by its checkpoint and writer, or what windows it holds open.

A writer is named by its stream and by the query's own id, which Spark draws for each new checkpoint and keeps in it.
Batches are numbered from 0 for each checkpoint, so those of another checkpoint are another writer's. With its first
batch the ids of all queries of a stream are recorded in the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggr.arguments import listed, nearest, shown
from spark_udaf.plan.session import PARTITIONS
from spark_udaf.streaming.shard_job import OBSERVED, read_counted
from tiltframe import FrameStore
from tiltframe.streaming import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# What each query writes into, by its id: a StreamingQuery has no place for it, and Spark makes a new one when asked.
_started: dict[str, tuple[FrameStore, str]] = {}


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Read the id that Spark has written into a checkpoint before the first batch.

    Spark reads its own file: wherever it can keep a checkpoint, it can read one, on classic Spark and on Spark Connect.
    """
    lines = [row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()]
    return str(json.loads("".join(lines))["id"])


def kept_partitions(checkpoint: Path) -> int | None:
    """Read into how many partitions the state in a folder is shuffled, as Spark notes with each batch; None before."""
    batches = [path for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    if not batches:
        return None
    offsets = json.loads(max(batches, key=lambda path: int(path.name)).read_text().splitlines()[1])
    return int(offsets["conf"][PARTITIONS])


def writer_of(stream: str, query_id: str) -> str:
    """Name the writer of a query: ``requests 6b0e…``, the stream and the query's id."""
    return f"{stream} {query_id}"


def recorded_ids(store: FrameStore, stream: str) -> list[str]:
    """Return the ids of the queries that have written a stream into a store, the first one first."""
    ids: list[str] = store.recorded([record_of(stream)]).get(record_of(stream), [])
    return ids


def record_of(stream: str) -> str:
    """Name what is recorded of a stream."""
    return f"{stream} queries"


@dataclass(frozen=True)
class IntoProgress:
    """How far a stream into a store is.

    Parameters
    ----------
    writer : str
        Under which its batches are in the store.
    batch : int, optional
        The number of the last batch in the store; None before the first.
    waiting_parts : level -> int
        Parts that compaction has still to merge, whoever wrote them. Results take longer to read the more there are.
    """

    writer: str
    batch: int | None
    waiting_parts: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Give the numbers as plain data, for JSON."""
        return asdict(self)


def remember(query: StreamingQuery, store: FrameStore, stream: str) -> None:
    """Keep what a query writes into, for `progress`."""
    _started[query.id] = (store, stream)


def _is_ours(numbers: Any) -> bool:
    """Say whether a metric of Spark's progress has the numbers of a stream of open windows."""
    return numbers is not None and {"late_rows", "emitted_rows"} <= numbers.asDict().keys()


def progress(query: StreamingQuery, name: str | None = None) -> IntoProgress | Progress:
    """Say how far a stream is; it may run, or have ended.

    Parameters
    ----------
    query : StreamingQuery
        As `stream_into` returned it in this process, or any over what `stream` gave; before its first batch all
        numbers are 0. ``query.lastProgress`` has Spark's own numbers.
    name : str, optional
        Which of several streams in the query, as it was given to `stream`.

    Returns
    -------
    IntoProgress or `tiltframe.streaming.Progress`
        Of a stream into a store ``writer``, ``batch``, ``waiting_parts``. Of open windows ``rows``, ``late_rows``,
        ``open_windows``, ``watermark`` and the other numbers, of all shards together, as of the last batch that Spark
        still tells of.

    Raises
    ------
    ValueError
        For anything else.
    StoreError
        If the store cannot be read.

    Examples
    --------
    docs/streams.md has two that run::

        su.progress(query).waiting_parts
        su.progress(query).late_rows
    """
    if getattr(query, "id", None) in _started:
        store, stream = _started[query.id]
        writer = writer_of(stream, query.id)
        return IntoProgress(writer, store.last_commit(writer), store.waiting_parts())
    batches = list(getattr(query, "recentProgress", ()))
    metrics = [batch["observedMetrics"] or {} for batch in batches]
    names = sorted({each for of_batch in metrics for each, numbers in of_batch.items() if _is_ours(numbers)})
    if name is None and len(names) > 1:
        raise ValueError(f"the query has several streams, {listed(names)}; name one of them: progress(query, name=…)")
    if name is not None and names and name not in names:
        raise ValueError(f"the query has no stream {shown(name)}; {nearest(name, names)}")
    chosen = name or (names[0] if names else OBSERVED)
    observed = [of_batch.get(chosen) for of_batch in metrics]
    for numbers in reversed(observed):
        if numbers is not None and numbers["rows"] is not None:
            return read_counted(numbers.asDict())
    others = [
        batch for batch, numbers in zip(batches, observed, strict=True) if numbers is None and batch["numInputRows"]
    ]
    if hasattr(query, "recentProgress") and not others:
        return Progress()
    raise ValueError(
        f"progress takes a query that su.stream_into started in this process, or one over su.stream; got {shown(query)}"
    )
