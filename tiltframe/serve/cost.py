"""Cost: what a query would read and give, told by the store's parts before anything is read, and its limits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from aggr.arguments import checked_whole
from tiltframe.frame import TiltFrame
from tiltframe.ranges import as_text
from tiltframe.serve.errors import Refused
from tiltframe.serve.observed import Metrics
from tiltframe.store import FrameStore, Query
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.query.execution import moment, planned_ranges, plans_of
from tiltframe.store.query.plan import QueryPlan
from tiltframe.time_range import closed

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

    def spend_on_query(self, name: str, store: FrameStore, snapshot: Snapshot, query: Query) -> None:
        """Spend what a query costs; raises ``ValueError`` if the store cannot be asked it."""
        now = moment(query.now, query.timezone or store.frame.timezone)
        self.spend(name, plans_of(store.manifest, query, snapshot, now), snapshot, bool(query.fill))

    def spend(self, store: str, plans: Iterable[QueryPlan], snapshot: Snapshot, fill: bool = False) -> None:
        """Refuse more than the limits allow by `Refused`; count the rows of what is read."""
        rows, windows = cost_of(plans, snapshot, fill)
        most = self.limits
        for what, much, limit in (("rows of states", rows, most.rows), ("windows", windows, most.windows)):
            if much > limit:
                said = f"this is about {much:,} {what}, and the server's limit is {limit:,}"
                raise Refused(422, f"{said}; ask for a shorter range or coarser windows")
        self.metrics.add("rows_read_total", rows, store=store)


def cost_of(plans: Iterable[QueryPlan], snapshot: Snapshot, fill: bool) -> tuple[int, int]:
    """Tell rows of states that are read, about, and windows that there are; ``fill`` gives more of these."""
    rows = windows = 0.0
    for plan in plans:
        part_ranges, _ = planned_ranges(plan, snapshot)
        rows += sum(
            part.rows * (high - low) / (part.last_start + 1 - part.first_start) for part, (low, high) in part_ranges
        )
        if not plan.whole:
            spans = [span for _, span in part_ranges] or [(0, 0)]
            held = min(low for low, _ in spans), max(high for _, high in spans)
            low, high = closed(plan.within, held) if fill else held
            windows += max(high - low, 0) / plan.window.length * plan.window.max_overlap
    return round(rows), round(windows)


def at_a_moment(query: Query, frame: TiltFrame) -> Query:
    """Name the moment of a query that does not, so that equal versions of a store give equal answers.

    It is the last one of the finest window that is open: until then the same windows are over.
    """
    if query.now is not None:
        return query
    finest = frame.levels[0]
    end = int(finest.ends(finest.starts(np.array([int(time.time() * 1e6)], np.int64)))[0])
    return replace(query, now=as_text(end - 1))
