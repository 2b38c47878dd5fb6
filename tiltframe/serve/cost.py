"""Cost: the limits of the rows that a query reads and the windows that it returns, estimated before reading."""

from __future__ import annotations

from dataclasses import dataclass

from aggr.arguments import checked_whole
from tiltframe.serve.errors import Refused
from tiltframe.serve.observed import Metrics
from tiltframe.store import Cost

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


@dataclass(frozen=True)
class Budget:
    """What each query may cost, and what all have cost."""

    limits: Limits
    metrics: Metrics

    def spend(self, store: str, cost: Cost) -> None:
        """Raise `Refused` if a cost exceeds the limits; otherwise count its rows in the metrics."""
        limits = self.limits
        for what, much, limit in (
            ("rows of states", cost.rows, limits.rows),
            ("windows", cost.windows, limits.windows),
        ):
            if much > limit:
                message = f"this is about {much:,} {what}, and the server's limit is {limit:,}"
                raise Refused(422, f"{message}; ask for a shorter range or coarser windows")
        self.metrics.add("rows_read_total", cost.rows, store=store)
