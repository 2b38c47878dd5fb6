"""interval: windows of a fixed duration that begin at the time of a row, and not at a time of the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import shown
from aggr.duration import duration_text, read_duration
from windows.ordered.contract import Carry, OrderedWindow, Ranges, Rows
from windows.ordered.jumps import first_at_least, reachable_rows
from windows.ordered.rows_by_key import last_by_key, next_carry, non_overlapping, positions, previous


@dataclass(frozen=True)
class Interval(OrderedWindow):
    """Windows of a fixed duration that begin at the time of a row; created by `interval`. The length is in
    microseconds.
    """

    length: int

    # Saved states contain the names ``opened`` and ``open``. ``open`` is 1 if the key has an open window, otherwise 0.
    # ``opened`` is the time at which the open window began.
    numbers: ClassVar = {"opened": 0, "open": 0}

    def __post_init__(self) -> None:
        check_length(self.length, "the length of an interval", "interval('15s')")

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        after_key = rows.heads + rows.lengths
        has_no_window = carry.numbers["open"] == 0
        all_rows = np.arange(len(rows.times))
        after_key_of_row = np.repeat(after_key, rows.lengths)
        # For each row, the row that would close a window that begins with this row, or the number of rows of the batch
        # if no row would close such a window.
        next_rows = first_at_least(rows.times, all_rows, after_key_of_row, rows.times + self.length)
        next_rows[next_rows == after_key_of_row] = len(all_rows)
        # For each key, the row that closes the window from an earlier batch.
        first_closing_rows = first_at_least(rows.times, rows.heads, after_key, carry.numbers["opened"] + self.length)
        first_opening_rows = np.where(has_no_window, rows.heads, first_closing_rows)
        opening_rows = reachable_rows(
            np.where(first_opening_rows < after_key, first_opening_rows, len(all_rows)), next_rows
        )
        opening_positions = positions(rows, carry)[opening_rows]
        new_keys = np.flatnonzero(has_no_window & (rows.lengths > 0))
        # a row that begins a window closes the previous window, unless the row is the first of its key
        closes_window = ~np.isin(opening_rows, rows.heads[new_keys])
        starts = previous(opening_positions, opening_rows, carry.open_starts, rows)
        numbers = {
            "opened": last_by_key(opening_rows, rows.times[opening_rows], carry.numbers["opened"], rows),
            "open": np.maximum(carry.numbers["open"], rows.lengths > 0),
        }
        new_open_starts = last_by_key(opening_rows, opening_positions, carry.open_starts, rows)
        ranges = non_overlapping(
            opening_rows[closes_window], starts[closes_window], opening_positions[closes_window], rows
        )
        return ranges, next_carry(carry, rows, new_open_starts, **numbers)

    def __str__(self) -> str:
        return f"interval({duration_text(self.length)!r})"


def interval(length: str) -> Interval:
    """Return windows of a fixed duration. The first window of a key begins with the first row of the key. Every later
    window begins with the first row that is not in the previous window.

    Parameters
    ----------
    length : str
        The duration: an integer and a unit, from ``us`` to weeks, such as ``15s``.

    Returns
    -------
    Interval
        The windows. A window is emitted with the first row of the next window.

    Raises
    ------
    ValueError
        If the length cannot be read, is 0, or is in months or longer units.

    Examples
    --------
    >>> str(interval("90 seconds"))
    "interval('90s')"
    """
    return Interval(read_duration(length, "length"))


def check_length(length: object, what: str, example: str) -> None:
    """Raise ``ValueError`` unless ``length`` is an integer of at least 1, in microseconds. ``what`` and ``example`` are
    used in the message.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ValueError(f"{what} must be at least one microsecond; got {shown(length)}: write {example}")
