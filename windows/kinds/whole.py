"""The whole: one window per key, which has no start, no end, and never closes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windows.contract import BEGINNING, NEVER, Intervals, TimeWindow, checked_finer
from windows.timezone import Instants, checked_instants


@dataclass(frozen=True)
class Whole(TimeWindow):
    """One window per key over all of time; in tables its start and end are null.

    Examples
    --------
    >>> Whole().name
    'all'
    """

    @property
    def name(self) -> str:
        """What `windows.read_window` reads, ``all``."""
        return "all"

    def assign(self, times: Instants) -> Intervals:
        """Put every time into the one interval, from `windows.contract.BEGINNING` to `windows.contract.NEVER`."""
        n = len(checked_instants(times, "times"))
        if n and (times.min() < BEGINNING or times.max() >= NEVER):
            raise ValueError(
                f"times must be microseconds from {BEGINNING} to {NEVER - 1}; got {times.min()} to {times.max()}"
            )
        return Intervals(np.arange(n), np.full(n, BEGINNING), np.full(n, NEVER))

    def nesting_problem(self, finer: TimeWindow) -> str | None:
        """All of time is made of whatever does not depend on rows."""
        return f"{finer.name} is a level alone" if checked_finer(finer).unites else None
