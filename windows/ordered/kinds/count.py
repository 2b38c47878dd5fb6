"""count, weighted_count: a window ends after a number of rows, or a sum of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import shown
from aggr.compiling.jit import compiled
from windows.ordered.contract import Carry, OrderedWindow, Ranges, Rows, Weight
from windows.ordered.rows_by_key import last_by_key, next_carry, non_overlapping, positions, previous

_MAX_SIZE = 2**40  # the maximum size: more than the number of rows of any key, and far below the maximum of int64
# The maximum of ``ahead``, the number of complete windows of a key that wait for a row to close them. This maximum is
# greater than the number of rows of any key.
_MAX_AHEAD = 2**61


@dataclass(frozen=True)
class Count(OrderedWindow):
    """Windows of ``n`` rows; created by `count`."""

    n: int

    def __post_init__(self) -> None:
        check_size(self.n, "count")

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        last = positions(rows, carry) + 1  # the position after each row
        row = np.flatnonzero(last % self.n == 0)
        row_counts = carry.position + rows.lengths
        return non_overlapping(row, last[row] - self.n, last[row], rows), next_carry(
            carry, rows, row_counts - row_counts % self.n
        )

    def __str__(self) -> str:
        return f"count({self.n})"


@dataclass(frozen=True)
class WeightedCount(OrderedWindow):
    """Windows that end when the total weight of their rows reaches ``n``; created by `weighted_count`."""

    n: int
    weight: str

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
        closes, ahead, surplus = _find_closing_rows(weights, rows.heads, rows.lengths, *numbers, self.n)
        row = np.flatnonzero(closes)
        last = positions(rows, carry)[row] + 1
        ranges = non_overlapping(row, previous(last, row, carry.open_starts, rows), last, rows)
        new_open_starts = last_by_key(row, last, carry.open_starts, rows)
        return ranges, next_carry(carry, rows, new_open_starts, ahead=ahead, surplus=surplus)

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
        counts for the next window, as in Tremor.

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
        raise ValueError(f"the size in {function} must be a whole number from 1 to {_MAX_SIZE:,}; got {shown(n)}")


@compiled
def _find_closing_rows(weights, heads, lengths, ahead, surplus, size):  # type: ignore[no-untyped-def]
    """Return a mask of the rows that close a window, and for each key the new values of ``ahead`` and ``surplus``.

    A row closes at most one window. ``ahead`` is the number of windows whose weight is complete, but which wait for a
    row to close them. ``surplus`` is the weight of the incomplete window. The weight of all these windows together is
    not stored, because it could exceed the maximum of int64.
    """
    closes = np.zeros(len(weights), np.bool_)
    ahead = ahead + surplus // size
    surplus = surplus % size
    for key in range(len(heads)):
        for row in range(heads[key], heads[key] + lengths[key]):
            surplus[key] += weights[row] % size
            ahead[key] = min(ahead[key] + min(weights[row] // size, _MAX_AHEAD), _MAX_AHEAD)
            if surplus[key] >= size:
                surplus[key] -= size
                ahead[key] += 1
            if ahead[key] > 0:
                ahead[key] -= 1
                closes[row] = True
    return closes, ahead, surplus
