"""session: windows of rows that follow each other within a gap, optionally limited by a maximum length or by
conditions.

If conditions begin and end sessions, the rows between two sessions are in no session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.arguments import shown
from aggr.duration import duration_text, read_duration
from windows.ordered.contract import Carry, Condition, Flags, Ints, OrderedWindow, Ranges, Rows
from windows.ordered.jumps import first_at_least, next_true, reachable_rows
from windows.ordered.kinds.interval import check_length
from windows.ordered.rows_by_key import last_by_key, positions

_BOUNDS = ("[]", "[)", "(]", "()")


@dataclass(frozen=True)
class OrderedSession(OrderedWindow):
    """Sessions with a gap and a maximum length, both in microseconds, and with conditions; created by `session`."""

    gap: int
    max_length: int | None = None
    start_condition: str | None = None
    end_condition: str | None = None
    bounds: str = "[]"

    # Saved states contain these four names. ``open`` is 1 if the key has an open session, and ``opened`` is the time at
    # which the session began. ``seen`` is 1 if the key has rows, and ``latest`` is the time of the key's last row.
    numbers: ClassVar = {"opened": 0, "open": 0, "seen": 0, "latest": 0}

    def __post_init__(self) -> None:
        check_length(self.gap, "the gap of a session", "session('30m')")
        if self.max_length is not None:
            check_length(self.max_length, "the maximum length of a session", "session('30m', max='8h')")
        for condition in (self.start_condition, self.end_condition):
            if condition is not None:
                Condition(condition)
        if not isinstance(self.bounds, str) or self.bounds not in _BOUNDS:
            raise ValueError(f"the bounds of a session must be one of {', '.join(_BOUNDS)}; got {shown(self.bounds)}")

    @property
    def reads(self) -> tuple[Condition, ...]:
        return tuple(Condition(text) for text in (self.start_condition, self.end_condition) if text is not None)

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        n = len(rows.times)
        after_key = rows.heads + rows.lengths
        is_after_gap = self._rows_after_gap(rows, carry)
        after_key_of_row = np.repeat(after_key, rows.lengths)
        # For each row, the row that would close a session that begins with this row. Most rows do not begin a session.
        closing_row_by_row, rows_after_session = self._find_closing_rows(
            rows, is_after_gap, begin=np.arange(n) + 1, end=after_key_of_row, start_times=rows.times
        )
        next_opening_rows = self._find_opening_rows(rows, rows_after_session, after_key_of_row)
        next_opening_rows[next_opening_rows == after_key_of_row] = n
        was_open = carry.numbers["open"] == 1
        carried_closing_rows, carried_rows_after_session = self._find_closing_rows(
            rows, is_after_gap, begin=rows.heads, end=after_key, start_times=carry.numbers["opened"]
        )
        first_opening_rows = self._find_opening_rows(
            rows, np.where(was_open, carried_rows_after_session, rows.heads), after_key
        )
        opening_rows = reachable_rows(
            np.where(first_opening_rows < after_key, first_opening_rows, n), next_opening_rows
        )
        position_of_row = np.append(positions(rows, carry), 0)
        # the keys whose session from an earlier batch ends in this batch
        keys_of_closed = np.flatnonzero(was_open & (carried_closing_rows < after_key))
        # the rows that begin a session, if the session ends in this batch
        openings_of_closed = opening_rows[closing_row_by_row[opening_rows] < after_key_of_row[opening_rows]]
        skip = int(self.bounds[0] == "(" and self.start_condition is not None)
        row = np.concatenate([carried_closing_rows[keys_of_closed], closing_row_by_row[openings_of_closed]])
        included_count = (
            np.concatenate([carried_rows_after_session[keys_of_closed], rows_after_session[openings_of_closed]]) - row
        )
        first = np.concatenate([carry.open_starts[keys_of_closed], position_of_row[openings_of_closed] + skip])
        ranges = _ranges(row, first, position_of_row[row] + included_count, rows)
        is_still_open = was_open & (carried_closing_rows == after_key)
        carry_after = self._next_carry(
            rows,
            carry,
            opening_rows=opening_rows,
            first_positions=position_of_row[opening_rows] + skip,
            closing_row_by_row=closing_row_by_row,
            is_still_open=is_still_open,
        )
        return ranges, carry_after

    def _rows_after_gap(self, rows: Rows, carry: Carry) -> Flags:
        """Return a mask of the rows that come more than a gap after the previous row of their key."""
        previous_times = np.append(0, rows.times)[:-1]
        heads = rows.heads[rows.lengths > 0]
        seen = carry.numbers["seen"][rows.lengths > 0] == 1
        previous_times[heads] = np.where(seen, carry.numbers["latest"][rows.lengths > 0], rows.times[heads])
        is_after_gap: Flags = rows.times - previous_times > self.gap
        return is_after_gap

    def _find_closing_rows(
        self, rows: Rows, is_after_gap: Flags, *, begin: Ints, end: Ints, start_times: Ints
    ) -> tuple[Ints, Ints]:
        """Return two arrays: for each session, the row that closes the session, and the first row after the session.

        ``begin``, ``end`` and ``start_times`` have one element for each session. The caller may pass a hypothetical
        session for each row. ``is_after_gap`` is the result of `_rows_after_gap`. The search for the closing row of
        session ``i`` starts at the row ``begin[i]``. ``end[i]`` is the row after the last row of the key. If no row
        closes the session, both results are ``end[i]``. ``start_times[i]`` is the time at which the session begins, in
        microseconds UTC.
        """
        closing_rows = next_true(is_after_gap, begin, end)
        if self.max_length is not None:
            too_long_rows = first_at_least(rows.times, np.minimum(begin, end), end, start_times + self.max_length)
            closing_rows = np.minimum(closing_rows, too_long_rows)
        if self.end_condition is None:
            return closing_rows, closing_rows
        ending_rows = next_true(rows.inputs[Condition(self.end_condition)], begin, end)
        is_included = (ending_rows < closing_rows) & (self.bounds[1] == "]")
        closing_rows = np.minimum(closing_rows, ending_rows)
        return closing_rows, closing_rows + is_included

    def _find_opening_rows(self, rows: Rows, begin: Ints, end: Ints) -> Ints:
        """For each i, return the first row in ``[begin[i], end[i])`` that begins a session, or ``end[i]`` if there is
        no such row.
        """
        if self.start_condition is None:
            return np.minimum(begin, end)
        return next_true(rows.inputs[Condition(self.start_condition)], begin, end)

    def _next_carry(
        self,
        rows: Rows,
        carry: Carry,
        *,
        opening_rows: Ints,
        first_positions: Ints,
        closing_row_by_row: Ints,
        is_still_open: Flags,
    ) -> Carry:
        """Return the carry for the next batch.

        ``opening_rows`` has the rows that begin sessions, and ``first_positions`` the positions of the first rows in
        these sessions. ``closing_row_by_row`` has, for each row of the batch, the row that would close a session that
        begins with this row. ``is_still_open`` is a mask of the keys whose session from an earlier batch is still open.
        """
        after_key = rows.heads + rows.lengths
        position = carry.position + rows.lengths
        # For each key, the last row of the batch that begins a session, or -1 if there is no such row.
        last_opening_row = last_by_key(opening_rows, opening_rows, np.full(len(after_key), -1), rows)
        has_new_session = (last_opening_row >= 0) & (np.append(closing_row_by_row, 0)[last_opening_row] == after_key)
        open_starts = np.where(
            is_still_open,
            carry.open_starts,
            np.where(has_new_session, last_by_key(opening_rows, first_positions, position, rows), position),
        )
        start_times = np.where(has_new_session, np.append(rows.times, 0)[last_opening_row], carry.numbers["opened"])
        has_rows = rows.lengths > 0
        latest = np.where(has_rows, np.append(rows.times, 0)[after_key - 1], carry.numbers["latest"])
        numbers = {
            "opened": start_times,
            "open": (is_still_open | has_new_session).astype(np.int64),
            "seen": np.maximum(carry.numbers["seen"], has_rows),
            "latest": latest,
        }
        return Carry(position, np.ones(len(after_key), np.int64), open_starts, numbers)

    def __str__(self) -> str:
        arguments = [repr(duration_text(self.gap))]
        arguments += [f"max={duration_text(self.max_length)!r}"] if self.max_length is not None else []
        arguments += [f"start={self.start_condition!r}"] if self.start_condition is not None else []
        arguments += [f"end={self.end_condition!r}"] if self.end_condition is not None else []
        arguments += [f"bounds={self.bounds!r}"] if self.bounds != "[]" else []
        return f"session({', '.join(arguments)})"


def session(
    gap: str, max: str | None = None, start: str | None = None, end: str | None = None, bounds: str = "[]"
) -> OrderedSession:
    """Return sessions of rows that follow each other within a gap.

    Parameters
    ----------
    gap : str
        The maximum time between two consecutive rows: an integer and a unit, from ``us`` to weeks, such as ``30m``.
    max : str, optional
        The maximum length of a session. A row whose time is at least ``max`` after the first row of a session is not in
        the session.
    start : str, optional
        A condition in SQL. A session begins with a row that meets the condition. Rows before this row are not in a
        session.
    end : str, optional
        A condition in SQL. A session ends at the first row after its start that meets the condition.
    bounds : str
        Two brackets: ``[`` includes the row that meets ``start``, and ``(`` does not; ``]`` includes the row that meets
        ``end``, and ``)`` does not. A row that ends a session and is not included may begin the next session.

    Returns
    -------
    OrderedSession
        The sessions. A session is emitted with the row that ends it. A session without rows is not emitted.

    Raises
    ------
    ValueError
        If a length cannot be read or is 0, or ``bounds`` is not one of the four values.

    Examples
    --------
    >>> str(session("30m", max="8h"))
    "session('30m', max='8h')"
    """
    max_length = None if max is None else read_duration(max, "maximum length")
    return OrderedSession(
        read_duration(gap, "gap"), max_length=max_length, start_condition=start, end_condition=end, bounds=bounds
    )


def _ranges(row: Ints, first: Ints, last: Ints, rows: Rows) -> Ranges:
    """Return the ranges that are not empty, in the order of the rows that trigger them. The row ``row[i]`` triggers
    the range ``i``, which consists of the rows ``[first[i], last[i])`` of its key.
    """
    filled = np.flatnonzero(last > first)
    order = filled[np.lexsort((first[filled], row[filled]))]
    key = np.searchsorted(rows.heads + rows.lengths, row[order], side="right")
    return Ranges(key, first[order], last[order], row[order])
