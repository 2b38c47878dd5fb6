"""Limits: how much one query may take, and how many run at once."""

from __future__ import annotations

from dataclasses import dataclass

from aggr.arguments import checked_whole

BODY_BYTES = 16 << 20  # of a request that writes
QUERY_BYTES = 1 << 20  # of a request that asks


@dataclass(frozen=True)
class Limits:
    """How much a query may take: whole numbers from 1, else ``ValueError``."""

    rows: int = 10_000_000  # of states that it reads, about: what the store's parts hold of its range
    windows: int = 100_000  # that its range has, of every kind that it asks for
    seconds: int = 30  # that it computes, and that it waits for others
    queries: int = 4  # that run at once; others wait

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checked_whole(value, f"the limit {name}", 1)
