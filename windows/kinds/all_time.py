"""One window per key over all time. It has no start and no end, and never closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from windows.contract import MAX_INSTANT, MIN_INSTANT, Intervals, TimeWindow
from windows.timezone import Instants, checked_instants


@dataclass(frozen=True)
class AllTime(TimeWindow):
    """One window per key over all time. In tables, its start and end are null.

    Examples
    --------
    >>> AllTime().name
    'all'
    """

    kind: ClassVar[str] = "all"
    same_in_all_years: ClassVar[bool] = True

    def assign(self, times: Instants) -> Intervals:
        n = len(checked_instants(times, "times"))
        if n and (times.min() < MIN_INSTANT or times.max() >= MAX_INSTANT):
            raise ValueError(
                f"times must be microseconds from {MIN_INSTANT} to {MAX_INSTANT - 1}; got "
                f"{times.min()} to {times.max()}"
            )
        return Intervals(np.arange(n), np.full(n, MIN_INSTANT), np.full(n, MAX_INSTANT))
