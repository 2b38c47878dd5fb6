"""Complete windows: those that no other task has rows of, which are merged and finished where they were reduced.

    task ── reduce ──▶ states of 10s ─┬─ complete ── merge ──▶ 1m ─┬─ complete ── merge ──▶ 10m … ──▶ results
                                      └─ others ──────────┐        └─ others ───┐
                                                          └── shuffle, merge ◀──┘ ──▶ results

Where files are in the order of time, as logs are, hardly a window has rows in two tasks. What each task has is told by
the statistics of its row groups: from its first event time to its last. A window that is part of one that is not
complete gives its results where it is, and its state goes on, for the levels above alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tiltframe import TiltFrame
from tiltframe.frame import END, START
from tiltframe.level_chain import climb, instants_of, merge_level, merge_panes, taken
from windows import TimeWindow
from windows.timezone import Instants

Levels = list[tuple[TimeWindow, pa.Table]]


@dataclass(frozen=True)
class CompleteWindows:
    """Which windows of a frame are complete in a task.

    Parameters
    ----------
    frame : TiltFrame
        Of levels whose windows are aligned.
    spans : array of int64, shape (tasks, 2)
        The first and the last event time of each task, microseconds UTC; of a task without rows, the first is later.
    """

    frame: TiltFrame
    spans: NDArray[np.int64]

    def split(self, task: int, states: pa.Table) -> tuple[Levels, pa.Table, dict[int, pa.Table]] | None:
        """Merge a task's states as far as they are complete.

        Parameters
        ----------
        task : int
        states : table
            All states of the task, of the finest windows: window_start, window_end, keys, states.

        Returns
        -------
        None where no window is complete, otherwise

        levels : list of level and states
            The complete windows of each level.
        others : table
            States of the finest windows that are not.
        carried : place of a level -> states
            Complete windows of that level, in a window of the next level that is not.

        Raises
        ------
        ValueError
            If the task has rows that its span does not hold: the statistics of its files are wrong.
        """
        starts, ends = (instants_of(states, name) for name in (START, END))
        self._check_own(task, starts, ends)
        known = self._complete(task, starts, ends)
        if not known.any():
            return None
        below = merge_panes(_rows(states, known), self.frame)
        levels: Levels = [(self.frame.levels[0], below)]
        carried: dict[int, pa.Table] = {}
        for place, level in enumerate(self.frame.levels[1:]):
            above = level.assign(instants_of(below, START))
            whole = self._complete(task, above.starts, above.ends)
            if not whole.all():
                carried[place] = _rows(below, ~whole)
            below = merge_level(_rows(below, whole), self.frame, level, trusted=True)
            levels.append((level, below))
        return levels, _rows(states, ~known), carried

    def merge(self, others: pa.Table, carried: Mapping[int, pa.Table]) -> Levels:
        """Merge what `split` left of all tasks, whole coarsest windows at a time, up through all levels."""
        return list(climb(merge_panes(others, self.frame), self.frame, carried))

    def _complete(self, task: int, starts: Instants, ends: Instants) -> NDArray[np.bool_]:
        """Say of intervals which hold no event time of another task."""
        others = np.delete(self.spans, task, axis=0)
        first, last = np.sort(others[others[:, 0] <= others[:, 1]], axis=0).T
        begun, over = np.searchsorted(first, ends), np.searchsorted(last, starts)
        complete: NDArray[np.bool_] = begun == over  # each that begins before the end is over before the start
        return complete

    def _check_own(self, task: int, starts: Instants, ends: Instants) -> None:
        first, last = self.spans[task]
        if len(starts) and (ends.min() <= first or starts.max() > last):
            raise ValueError(
                f"a Parquet file has rows that the statistics of {self.frame.time!r} in its row groups do not hold; "
                "write the file anew, or give spark.read.parquet(…) in place of su.scan_parquet(…)"
            )


def _rows(table: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    return taken(table, np.flatnonzero(mask))
