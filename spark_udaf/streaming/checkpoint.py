"""Queries of streams: what Spark keeps of each in its checkpoint, and under which writer its batches are in a store.

A writer is named by its stream and by the query's own id, which Spark draws for each new checkpoint and keeps in it.
Batches are numbered from 0 for each checkpoint, so those of another checkpoint are another writer's. With its first
batch the ids of all queries of a stream are recorded in the store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from spark_udaf.plan.session import PARTITIONS
from tiltframe import FrameStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
