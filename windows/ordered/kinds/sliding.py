"""running, since, sliding: windows with one output per row, over all previous rows of the key or over the rows since a
reset.

A reset is a row that meets a condition, or a tick: the beginning of an hour or another unit of the clock. Each row has
its own window, which ends with the row. A reset does not shorten its own window: only the windows of later rows begin
after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import checked_whole, shown
from windows.ordered.contract import EVERY_ROW, Carry, Condition, Flags, Input, OrderedWindow, Ranges, Rows
from windows.ordered.kinds.count import check_size
from windows.ordered.rows_by_key import positions
from windows.ordered.ticks import Tick


@dataclass(frozen=True)
class Sliding(OrderedWindow):
    """For each row, a window that begins after the n-th last reset before the row, and ends with the row. With ``n=1``,
    the window begins after the last reset. Without ``n``, the window has all rows of the key up to this row. Created by
    `running`, `since` and `sliding`.

    If ``n`` is set and there is neither a condition nor a tick, every row is a reset.
    """

    n: int | None = None
    condition: str | None = None
    tick: Tick | None = None
    min_rows: int = 0

    per_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n is not None:
            check_size(self.n, "sliding")
        if self.condition is not None:
            Condition(self.condition)
        if self.tick is not None and not isinstance(self.tick, Tick):
            raise ValueError(f"a tick must be a value such as hourly() or daily('UTC'); got {shown(self.tick)}")
        checked_whole(self.min_rows, "min_rows", 0)
        if self.n is not None and self.condition is None and self.tick is None and self.min_rows > self.n:
            raise ValueError(f"min_rows must be at most {self.n}, the number of rows in a window; got {self.min_rows}")

    @property
    def least_rows(self) -> int:
        return self.min_rows

    @property
    def reads(self) -> tuple[Input, ...]:
        conditions = () if self.condition is None else (Condition(self.condition),)
        inputs: tuple[Input, ...] = conditions if self.tick is None else (*conditions, self.tick)
        return inputs or (() if self.n is None else (EVERY_ROW,))

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        key = rows.keys
        position = positions(rows, carry)
        resets = np.flatnonzero(self._reset_mask(rows))
        # All positions at which a range may begin, sorted by key: first the positions in the carry, then the positions
        # after the resets in this batch.
        key_of_start = np.concatenate([np.repeat(np.arange(len(carry.counts)), carry.counts), key[resets]])
        order = np.argsort(key_of_start, kind="stable")
        candidate_starts = np.concatenate([carry.open_starts, position[resets] + 1])[order]
        counts_by_key = np.bincount(key_of_start, minlength=len(carry.counts))
        first_index = np.cumsum(counts_by_key) - counts_by_key
        # the number of resets before each row of the batch
        resets_before = np.append(0, np.cumsum(self._reset_mask(rows)))
        # For each row, the number of positions at which its range may begin.
        candidate_counts = carry.counts[key] + resets_before[:-1] - resets_before[rows.heads][key]
        n = self.n or 1
        first = candidate_starts[first_index[key] + np.maximum(candidate_counts - n, 0)]
        open_counts = np.minimum(counts_by_key, n)
        first_kept_index = first_index + counts_by_key - open_counts
        is_kept = np.arange(len(candidate_starts)) >= np.repeat(first_kept_index, counts_by_key)
        carry_after = Carry(carry.position + rows.lengths, open_counts, candidate_starts[is_kept], {})
        return Ranges(key, first, position + 1, np.arange(len(key))), carry_after

    def _reset_mask(self, rows: Rows) -> Flags:
        """Return a mask of the rows that are resets. ``rows`` includes the rows that were inserted at ticks."""
        flags: Flags = np.zeros(len(rows.times), np.bool_)
        for reset_input in self.reads:
            flags = flags | rows.inputs[reset_input]
        return flags

    def __str__(self) -> str:
        arguments = ([repr(self.condition)] if self.condition is not None else []) + (
            [str(self.tick)] if self.tick else []
        )
        options = [f"min_rows={self.min_rows}"] if self.min_rows else []
        if self.n is None:
            return f"running({', '.join(options)})"
        if self.n == 1 and arguments:
            return f"since({', '.join([*arguments, *options])})"
        return f"sliding({', '.join([str(self.n), *arguments, *options])})"


def running(*, min_rows: int = 0) -> Sliding:
    """Return the window that contains, for each row, all rows of the key up to this one.

    Parameters
    ----------
    min_rows : int
        The minimum number of rows. Results of windows with fewer rows are null.

    Returns
    -------
    Sliding

    Raises
    ------
    ValueError
        If ``min_rows`` is not an integer of at least 0.

    Examples
    --------
    >>> str(running())
    'running()'
    """
    return Sliding(min_rows=min_rows)


def since(*resets: str | Tick, min_rows: int = 0) -> Sliding:
    """Return the window that contains, for each row, this row and the rows before it that come after the last reset.

    A reset is an earlier row that meets a condition, or a tick. A tick is the beginning of a unit of the clock, such as
    an hour.

    Parameters
    ----------
    resets : a condition in SQL, a tick, or both
        The events after which a new window begins. If both are passed, a new window begins after each of them.
    min_rows : int
        The minimum number of rows. Results of windows with fewer rows are null. A result is also emitted at each
        tick. If the window of a tick has no rows, the result of ``count`` is 0, or null if ``min_rows`` is at least 1.

    Returns
    -------
    Sliding
        The window, with one output per row. A reset does not shorten its own window, as in Kaskada: only the windows of
        later rows begin after it.

    Raises
    ------
    ValueError
        If there is neither a condition nor a tick, or there are two of one kind; if ``min_rows`` is not an integer of
        at least 0.

    Examples
    --------
    >>> from windows.ordered import daily
    >>> str(since("n > 5")), str(since("n > 5", daily("UTC")))
    ("since('n > 5')", "since('n > 5', daily('UTC'))")
    """
    if not resets:
        raise ValueError("since needs a condition or a tick, and got none; write since('n > 5') or since(hourly())")
    return Sliding(1, *_condition_and_tick(resets, "since"), min_rows)


def sliding(n: int, *resets: str | Tick, min_rows: int = 0) -> Sliding:
    """Return the window that contains, for each row, this row and the rows before it that come after the n-th last
    reset.

    A reset is a row that meets the condition, or a tick: the beginning of a unit of the clock, such as an hour. If
    there is no condition and no tick, every row is a reset.

    Parameters
    ----------
    n : int
        The number of resets, at least 1. ``sliding(1, …)`` with a condition or tick is ``since(…)``.
    resets : a condition in SQL, a tick, both, or none
        The events that are resets. Without them, every row is a reset: ``sliding(10)`` has the last ten rows.
    min_rows : int
        The minimum number of rows. Results of windows with fewer rows are null: ``sliding(10, min_rows=10)`` gives null
        for the first nine rows.

    Returns
    -------
    Sliding
        The window, with one output per row. A reset does not shorten its own window: only the windows of later rows
        begin after it.

    Raises
    ------
    ValueError
        If ``n`` is not an integer of at least 1, there are two conditions or two ticks, or no window can have
        ``min_rows`` rows.

    Examples
    --------
    >>> from windows.ordered import hourly
    >>> str(sliding(10)), str(sliding(24, hourly()))
    ('sliding(10)', 'sliding(24, hourly())')
    """
    check_size(n, "sliding")
    return Sliding(n, *_condition_and_tick(resets, "sliding"), min_rows)


def _condition_and_tick(resets: tuple[str | Tick, ...], function: str) -> tuple[str | None, Tick | None]:
    """Return the condition and the tick among the arguments, each None if it was not passed. Raise ``ValueError`` if
    there are several conditions or several ticks.
    """
    ticks = [reset for reset in resets if isinstance(reset, Tick)]
    conditions = [reset for reset in resets if not isinstance(reset, Tick)]
    if len(ticks) > 1 or len(conditions) > 1:
        raise ValueError(f"{function} accepts at most one condition and one tick; got {', '.join(map(shown, resets))}")
    for condition in conditions:
        Condition(condition)
    return (conditions[0] if conditions else None), (ticks[0] if ticks else None)
