"""Writers of streams: the name under which a query's batches are in a store, and which queries came before it.

A writer is named by its stream and by the query's own id, which Spark draws for each new checkpoint and keeps in it.
Batches are numbered from 0 for each checkpoint, so those of another checkpoint are another writer's. With its first
batch the ids of all queries of a stream are recorded in the store.
"""

from __future__ import annotations

from tiltframe import FrameStore


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
