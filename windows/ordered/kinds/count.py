"""count, weighted_count: a window ends after a number of rows, or a sum of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import shown
from aggr.compiling.jit import compiled
from windows.ordered.contract import Carry, OrderedWindow, Ranges, Rows, Weight
from windows.ordered.rows_by_key import last_by_key, next_carry, non_overlapping, positions, previous

# The maximum of the argument ``n``. It is greater than the number of rows of any key, and far below the greatest int64.
_MAX_SIZE = 2**40
# The maximum number of full windows of a key that no row has closed yet. A row can fill several windows, but closes at
# most one. The maximum is greater than the number of rows of any key.
_MAX_UNCLOSED_WINDOWS = 2**61


@dataclass(frozen=True)
class Count(OrderedWindow):
    """Windows of ``n`` rows; created by `count`."""

    n: int

    def __post_init__(self) -> None:
        check_size(self.n, "count")

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        exclusive_ends = positions(rows, carry) + 1  # the position after each row
        closing_rows = np.flatnonzero(exclusive_ends % self.n == 0)
        window_ends = exclusive_ends[closing_rows]
        row_counts = carry.position + rows.lengths
        new_open_starts = row_counts - row_counts % self.n
        ranges = non_overlapping(closing_rows, window_ends - self.n, window_ends, rows)
        return ranges, next_carry(carry, rows, new_open_starts)

    def __str__(self) -> str:
        return f"count({self.n})"


@dataclass(frozen=True)
class WeightedCount(OrderedWindow):
    """Windows that end when the total weight of their rows reaches ``n``; created by `weighted_count`."""

    n: int
    weight: str

    # Saved states contain the names ``ahead`` and ``surplus``. A row can fill several windows, but closes at most one.
    # ``ahead`` is the number of full windows that no row has closed yet. ``surplus`` is the weight so far of the first
    # window that is not full.
    numbers: ClassVar = {"ahead": 0, "surplus": 0}

    def __post_init__(self) -> None:
        check_size(self.n, "weighted_count")
        Weight(self.weight)

    @property
    def reads(self) -> tuple[Weight, ...]:
        return (Weight(self.weight),)

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        weights = rows.inputs[Weight(self.weight)]
        numbers = carry.numbers["ahead"], carry.numbers["surplus"]
        is_closing, unclosed_windows, open_weight = _mask_closing_rows(
            weights, rows.heads, rows.lengths, *numbers, self.n
        )
        closing_rows = np.flatnonzero(is_closing)
        exclusive_ends = positions(rows, carry)[closing_rows] + 1
        starts = previous(exclusive_ends, closing_rows, carry.open_starts, rows)
        ranges = non_overlapping(closing_rows, starts, exclusive_ends, rows)
        new_open_starts = last_by_key(closing_rows, exclusive_ends, carry.open_starts, rows)
        return ranges, next_carry(carry, rows, new_open_starts, ahead=unclosed_windows, surplus=open_weight)

    def __str__(self) -> str:
        return f"weighted_count({self.n}, {self.weight!r})"


def count(n: int) -> Count:
    """Return windows of ``n`` consecutive rows of a key.

    Parameters
    ----------
    n : int
        At least 1.

    Returns
    -------
    Count
        The windows. A window is emitted with its n-th row; a window with fewer rows is not emitted.

    Raises
    ------
    ValueError
        If ``n`` is not an integer of at least 1.

    Examples
    --------
    >>> str(count(100))
    'count(100)'
    """
    return Count(n)


def weighted_count(n: int, weight: str) -> WeightedCount:
    """Return windows that end when the weights of their rows add up to ``n`` or more.

    Parameters
    ----------
    n : int
        At least 1.
    weight : str
        The name of the column of weights. A row with weight 0 is part of a window, but does not bring it closer to
        ``n``.

    Returns
    -------
    WeightedCount
        The windows. A window is emitted with the row whose weight makes the sum at least ``n``. Weight above ``n``
        is added to the next window, as in Tremor.

    Raises
    ------
    ValueError
        If ``n`` is not an integer of at least 1, or ``weight`` is not a name.

    Examples
    --------
    >>> str(weighted_count(100, "requests"))
    "weighted_count(100, 'requests')"
    """
    return WeightedCount(n, weight)


def check_size(n: object, function: str) -> None:
    """Raise ``ValueError`` unless ``n`` is an integer from 1 to 2^40. ``function`` is the name of the function in the
    message.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_SIZE:
        raise ValueError(f"the argument n of {function} must be a whole number from 1 to {_MAX_SIZE:,}; got {shown(n)}")


@compiled
def _mask_closing_rows(weights, heads, lengths, unclosed_windows, open_weight, size):  # type: ignore[no-untyped-def]
    """Return a mask of the rows that close a window, and for each key the new values of ``unclosed_windows`` and
    ``open_weight``.

    A row can fill several windows, but closes at most one. ``unclosed_windows`` is the number of full windows that
    later rows of the key close. ``open_weight`` is the weight so far of the first window that is not full. The total
    weight of all windows is not stored, because it could exceed the maximum of int64.
    """
    is_closing = np.zeros(len(weights), np.bool_)
    unclosed_windows = unclosed_windows + open_weight // size
    open_weight = open_weight % size
    for key in range(len(heads)):
        for row in range(heads[key], heads[key] + lengths[key]):
            open_weight[key] += weights[row] % size
            filled = min(weights[row] // size, _MAX_UNCLOSED_WINDOWS)
            unclosed_windows[key] = min(unclosed_windows[key] + filled, _MAX_UNCLOSED_WINDOWS)
            if open_weight[key] >= size:
                open_weight[key] -= size
                unclosed_windows[key] += 1
            if unclosed_windows[key] > 0:
                unclosed_windows[key] -= 1
                is_closing[row] = True
    return is_closing, unclosed_windows, open_weight
