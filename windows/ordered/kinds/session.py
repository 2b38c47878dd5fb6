"""session: rows that follow each other within a gap, cut short by a longest length or by conditions.

A session that conditions begin and end need not hold all rows: those between two sessions are in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import shown
from aggr.duration import duration_text, read_duration
from windows.ordered.contract import Carry, Condition, Flags, Ints, OrderedWindow, Ranges, Rows
from windows.ordered.jumps import first_at_least, next_true, visited
from windows.ordered.kinds.interval import check_length
from windows.ordered.rows_by_key import last_by_key, positions

_BOUNDS = ("[]", "[)", "(]", "()")


@dataclass(frozen=True)
class OrderedSession(OrderedWindow):
    """Sessions by a gap, a longest length, both in microseconds, and conditions; `session` makes them."""

    gap: int
    longest: int | None = None
    start_condition: str | None = None
    end_condition: str | None = None
    bounds: str = "[]"

    numbers: ClassVar = {"opened": 0, "open": 0, "seen": 0, "latest": 0}

    def __post_init__(self) -> None:
        check_length(self.gap, "the gap of a session", "session('30m')")
        if self.longest is not None:
            check_length(self.longest, "the longest length of a session", "session('30m', max='8h')")
        for condition in (self.start_condition, self.end_condition):
            if condition is not None:
                Condition(condition)
        if not isinstance(self.bounds, str) or self.bounds not in _BOUNDS:
            raise ValueError(f"the bounds of a session are one of {', '.join(_BOUNDS)}; got {shown(self.bounds)}")

    @property
    def reads(self) -> tuple[Condition, ...]:
        return tuple(Condition(text) for text in (self.start_condition, self.end_condition) if text is not None)

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        n, ends = len(rows.times), rows.heads + rows.lengths
        broken = self._broken(rows, carry)
        each, each_end = np.arange(n), np.repeat(ends, rows.lengths)
        close, onward = self._close(rows, broken, each + 1, each_end, rows.times)
        following = self._opening(rows, onward, each_end)
        following[following == each_end] = n
        was_open = carry.numbers["open"] == 1
        close_held, onward_held = self._close(rows, broken, rows.heads, ends, carry.numbers["opened"])
        firsts = self._opening(rows, np.where(was_open, onward_held, rows.heads), ends)
        opening = visited(np.where(firsts < ends, firsts, n), following)
        place = np.append(positions(rows, carry), 0)
        closing = np.flatnonzero(was_open & (close_held < ends))
        closed = opening[close[opening] < each_end[opening]]
        skip = int(self.bounds[0] == "(" and self.start_condition is not None)
        row = np.concatenate([close_held[closing], close[closed]])
        included = np.concatenate([onward_held[closing], onward[closed]]) - row
        first = np.concatenate([carry.open_starts[closing], place[closed] + skip])
        ranges = _ranges(row, first, place[row] + included, rows)
        return ranges, self._after(rows, carry, opening, place[opening] + skip, close, was_open & (close_held == ends))

    def _broken(self, rows: Rows, carry: Carry) -> Flags:
        """Find the rows that come more than a gap after the row before them."""
        before = np.append(0, rows.times)[:-1]
        heads = rows.heads[rows.lengths > 0]
        seen = carry.numbers["seen"][rows.lengths > 0] == 1
        before[heads] = np.where(seen, carry.numbers["latest"][rows.lengths > 0], rows.times[heads])
        broken: Flags = rows.times - before > self.gap
        return broken

    def _close(self, rows: Rows, broken: Flags, begin: Ints, end: Ints, opened: Ints) -> tuple[Ints, Ints]:
        """Find the row that closes a session which goes on at ``begin``, and where the next may begin."""
        closes = next_true(broken, begin, end)
        if self.longest is not None:
            closes = np.minimum(closes, first_at_least(rows.times, np.minimum(begin, end), end, opened + self.longest))
        if self.end_condition is None:
            return closes, closes
        ended = next_true(rows.inputs[Condition(self.end_condition)], begin, end)
        included = (ended < closes) & (self.bounds[1] == "]")
        closes = np.minimum(closes, ended)
        return closes, closes + included

    def _opening(self, rows: Rows, begin: Ints, end: Ints) -> Ints:
        if self.start_condition is None:
            return np.minimum(begin, end)
        return next_true(rows.inputs[Condition(self.start_condition)], begin, end)

    def _after(self, rows: Rows, carry: Carry, opening: Ints, place: Ints, close: Ints, still: Flags) -> Carry:
        """Return the carry behind a batch: the session that its last opening row has begun, if nothing closes it."""
        ends = rows.heads + rows.lengths
        position = carry.position + rows.lengths
        last = last_by_key(opening, opening, np.full(len(ends), -1), rows)
        fresh = (last >= 0) & (np.append(close, 0)[last] == ends)
        marks = np.where(
            still, carry.open_starts, np.where(fresh, last_by_key(opening, place, position, rows), position)
        )
        opened = np.where(fresh, np.append(rows.times, 0)[last], carry.numbers["opened"])
        some = rows.lengths > 0
        latest = np.where(some, np.append(rows.times, 0)[ends - 1], carry.numbers["latest"])
        numbers = {
            "opened": opened,
            "open": (still | fresh).astype(np.int64),
            "seen": np.maximum(carry.numbers["seen"], some),
            "latest": latest,
        }
        return Carry(position, np.ones(len(ends), np.int64), marks, numbers)

    def __str__(self) -> str:
        arguments = [repr(duration_text(self.gap))]
        arguments += [f"max={duration_text(self.longest)!r}"] if self.longest is not None else []
        arguments += [f"start={self.start_condition!r}"] if self.start_condition is not None else []
        arguments += [f"end={self.end_condition!r}"] if self.end_condition is not None else []
        arguments += [f"bounds={self.bounds!r}"] if self.bounds != "[]" else []
        return f"session({', '.join(arguments)})"


def session(
    gap: str, max: str | None = None, start: str | None = None, end: str | None = None, bounds: str = "[]"
) -> OrderedSession:
    """Sessions of rows that follow each other within a gap.

    Parameters
    ----------
    gap : str
        A whole number and a unit, from microseconds (``us``) to weeks. Rows just a gap apart are of one session.
    max : str, optional
        The longest that a session may be: a row that comes so long after its first one begins the next session.
    start : str, optional
        A condition in SQL. A session begins with a row that makes it true; rows before that are in none.
    end : str, optional
        A condition in SQL. The first row after the one that begins a session and makes it true ends the session.
    bounds : str
        Whether the rows that begin and end a session by ``start`` and ``end`` are in it: ``[]``, ``[)``, ``(]`` or
        ``()``. A row that ends a session and is not in it may begin the next one.

    Returns
    -------
    OrderedSession
        A session is emitted with the row that closes it, unless it is empty.

    Raises
    ------
    ValueError
        If a length cannot be read or is 0, or the bounds are none of the four.

    Examples
    --------
    >>> str(session("30m", max="8h"))
    "session('30m', max='8h')"
    """
    longest = None if max is None else read_duration(max, "longest length")
    return OrderedSession(read_duration(gap, "gap"), longest, start, end, bounds)


def _ranges(row: Ints, first: Ints, last: Ints, rows: Rows) -> Ranges:
    """Make outputs in the order of their rows, without those that are empty."""
    some = np.flatnonzero(last > first)
    order = some[np.lexsort((first[some], row[some]))]
    key = np.searchsorted(rows.heads + rows.lengths, row[order], side="right")
    return Ranges(key, first[order], last[order], row[order])
