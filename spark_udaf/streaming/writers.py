"""Writers of streams: the name under which a query's batches are in a store, and which queries came before it.

A writer is named by its stream and by the query's own id, which Spark draws for each new checkpoint and keeps in it.
Batches are numbered from 0 for each checkpoint, so those of another checkpoint are another writer's. With its first
batch a writer is noted in the store under the stream's name: numbers are all that a store notes, so an id is noted as
three of them.
"""

from __future__ import annotations

from uuid import UUID

from tiltframe import FrameStore

_BITS = 43  # three numbers of 43 bits hold the 128 of an id; a number in a store has 63


def writer_of(stream: str, query_id: str) -> str:
    """Name the writer of a query: ``requests 6b0e…``, the stream and the query's id."""
    return f"{stream} {query_id}"


def noted_ids(store: FrameStore, stream: str) -> list[str]:
    """Return the ids of the queries that have written a stream into a store, the first one first."""
    count = store.numbers([_count(stream)]).get(_count(stream), 0)
    names = [_parts(stream, at) for at in range(1, count + 1)]
    found = store.numbers([name for parts in names for name in parts])
    return [_id([found[name] for name in parts]) for parts in names]


def note(stream: str, query_id: str, at: int) -> dict[str, int]:
    """Say what is noted with the first batch of a query, the ``at``-th of its stream from 1 on."""
    number = UUID(query_id).int
    digits = [number >> (shift * _BITS) & ((1 << _BITS) - 1) for shift in (2, 1, 0)]
    return {_count(stream): at, **dict(zip(_parts(stream, at), digits, strict=True))}


def _id(digits: list[int]) -> str:
    high, middle, low = digits
    return str(UUID(int=(high << 2 * _BITS) | (middle << _BITS) | low))


def _count(stream: str) -> str:
    return f"{stream} queries"


def _parts(stream: str, at: int) -> list[str]:
    return [f"{stream} query {at} part {part}" for part in (1, 2, 3)]
