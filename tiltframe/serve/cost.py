"""Cost: limit the number of rows that a query reads, and the number of windows that it returns. These numbers are
estimated before the store is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from aggr.extend.arguments import checked_whole
from tiltframe.serve.errors import Refused
from tiltframe.serve.observed import Metrics
from tiltframe.store import Cost

# the maximum number of bytes in the body of a request that contains rows to write or rows to join
BODY_BYTES = 16 << 20
# the maximum number of bytes in the body of a request that contains a query
QUERY_BYTES = 1 << 20


@dataclass(frozen=True)
class Limits:
    """The limits of the server. Each is a whole number of at least 1; for other values, ``ValueError`` is raised."""

    # the maximum number of rows of states that a query reads, estimated from the sizes of the stored parts that overlap
    # the range of the query
    rows: int = 10_000_000
    # the maximum number of windows in the range of a query; if a query requests windows of several lengths, the windows
    # of all lengths are counted
    windows: int = 100_000
    # the maximum number of seconds for an answer, including the time of waiting for other queries
    seconds: int = 30
    # the maximum memory of all caches, in bytes
    memory: int = 128 << 20
    # the maximum number of queries that run at the same time; others wait
    queries: int = 4

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checked_whole(value, f"the limit {name}", 1)


@dataclass(frozen=True)
class Budget:
    """The limits that apply to each query, and the metrics that count the rows which all queries have read."""

    limits: Limits
    metrics: Metrics

    def spend(self, store: str, cost: Cost) -> None:
        """Raise `Refused` if ``cost`` exceeds the limits. Otherwise add its rows to the metrics of ``store``."""
        limits = self.limits
        for what, much, limit in (
            ("rows of states", cost.rows, limits.rows),
            ("windows", cost.windows, limits.windows),
        ):
            if much > limit:
                raise Refused(
                    422,
                    f"the query would read about {much:,} {what}, and the server's limit is {limit:,}; use a shorter "
                    "range or coarser windows",
                )
        self.metrics.rows_read.labels(store).inc(cost.rows)
