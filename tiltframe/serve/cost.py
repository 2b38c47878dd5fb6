"""Cost: what a query would read and give, told by the store's parts before anything is read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from tiltframe.frame import TiltFrame
from tiltframe.serve.errors import Refused
from tiltframe.serve.limits import Limits
from tiltframe.store import FrameStore, Query
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.query.execution import moment, planned_ranges, plans_of
from tiltframe.store.query.time_range import closed
from tiltframe.store.ranges import as_text


@dataclass(frozen=True)
class Cost:
    """Rows of states that are read, about, and windows that the range has."""

    rows: int
    windows: int

    def check(self, limits: Limits) -> None:
        """Refuse more than the limits allow."""
        for what, much, most in (("rows of states", self.rows, limits.rows), ("windows", self.windows, limits.windows)):
            if much > most:
                raise Refused(
                    422,
                    f"this is about {much:,} {what}, and the server's limit is {most:,}; ask for a shorter range or "
                    "coarser windows",
                )


def cost_of(store: FrameStore, snapshot: Snapshot, query: Query) -> Cost:
    """Tell what a query costs; raises ``ValueError`` if the store cannot be asked it."""
    rows = windows = 0.0
    for plan in plans_of(store.manifest, query, snapshot, moment(query.now, query.timezone or store.frame.timezone)):
        part_ranges, _ = planned_ranges(plan, snapshot)
        rows += sum(
            part.rows * (high - low) / (part.last_start + 1 - part.first_start) for part, (low, high) in part_ranges
        )
        if not plan.whole:
            spans = [span for _, span in part_ranges] or [(0, 0)]
            held = min(low for low, _ in spans), max(high for _, high in spans)
            low, high = closed(plan.within, held) if query.fill else held
            windows += max(high - low, 0) / plan.window.length * plan.window.max_overlap
    return Cost(round(rows), round(windows))


def at_a_moment(query: Query, frame: TiltFrame) -> Query:
    """Name the moment of a query that does not, so that equal versions of a store give equal answers.

    It is the last one of the finest window that is open: until then the same windows are over.
    """
    if query.now is not None:
        return query
    finest = frame.levels[0]
    end = int(finest.ends(finest.starts(np.array([int(time.time() * 1e6)], np.int64)))[0])
    return replace(query, now=as_text(end - 1))
