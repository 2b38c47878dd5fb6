"""The windows of each level of a stream, with the functions that emit windows and that merge closed windows into the
next level.

If the policies of the stream need only closed windows, and the windows of each level follow each other without gaps
(`StreamRules.cascades`), a batch is merged only into the finest level. A window is merged into the window of the next
coarser level when it closes. ``cascaded_until`` of each level is the latest end of the windows that were merged in this
way. If rows arrive later for such a window, they are merged into it and immediately into the next level.

Otherwise every batch is merged into all levels, and ``cascaded_until`` is the largest int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column
from aggr.tables.result_names import check_having, results_where
from tiltframe.level_chain import with_level_column
from tiltframe.names import PARTIAL, REASON, REVISION
from tiltframe.streaming.equal_rows import equal_rows
from tiltframe.streaming.session_lateness import mask_touching_sessions
from tiltframe.streaming.stream_rules import CHANGE, StreamRules
from tiltframe.streaming.window_table import (
    HIGHEST,
    LOWEST,
    UNSTAMPED,
    WindowTable,
    concat,
    find_windows,
    merge_windows,
    new_windows,
    sorted_indices,
    to_partial_windows,
)
from windows import TimeWindow
from windows.timezone import Instants


@dataclass(frozen=True)
class OpenLevel:
    """The windows of one level that a stream has in memory. Times are in microseconds UTC."""

    window: TimeWindow
    windows: WindowTable
    # the windows as they were last emitted; empty if the policy does not need them
    last_emissions: WindowTable
    # the latest watermark that `advance` received
    watermark: int = LOWEST
    # windows that end at or before this time have been merged into the next coarser level
    cascaded_until: int = HIGHEST
    # keys and bounds of sessions that were removed from memory, so that late rows which touch them can be recognized
    removed_sessions: WindowTable | None = None
    # windows that begin before this time may lack rows, because the level was added to a saved stream
    known_from: int = LOWEST

    def with_windows(self, windows: WindowTable, rules: StreamRules) -> OpenLevel:
        """Return the level with other windows in memory. Windows whose retention is over (`StreamRules.are_expired`)
        are left out. Windows that begin before ``known_from`` may lack rows. All states of such windows are marked as
        unknown, so that their results are null.
        """
        if self.known_from > LOWEST:
            all_columns = (1 << len(rules.added)) - 1
            is_known = windows.starts >= self.known_from
            windows = windows.with_marks(unknown=np.where(is_known, windows.marks["unknown"], all_columns))
        return replace(self, windows=windows.filter(~rules.are_expired(windows.ends, self.watermark)))

    def with_parts(self, parts: WindowTable, rules: StreamRules) -> OpenLevel:
        """Return the level after partial windows are merged into its windows. A partial window has the bounds and the
        key of a window of this level, but only some of its rows.
        """
        if not len(parts):
            return self
        merged = merge_windows(self.windows, parts, self.window, rules.memory_frame.state_functions)
        return self.with_windows(merged, rules)

    def with_cascaded_until(self, until: int) -> tuple[OpenLevel, WindowTable]:
        """Return the level with the new ``cascaded_until``, and the windows to merge into the next coarser level: those
        that end at or before ``until``, in microseconds UTC, and were not merged before.
        """
        end_times = self.windows.ends
        closing = self.windows.filter((end_times > self.cascaded_until) & (end_times <= until))
        return replace(self, cascaded_until=max(self.cascaded_until, until)), closing

    def late_windows(self, new: WindowTable, rules: StreamRules) -> Flags:
        """Return a mask of the new windows whose retention is over, so that their rows are late. The retention
        of a session is measured from the end that it has after it is merged with the sessions in memory.
        """
        if not self.window.is_merging:
            return rules.are_expired(new.ends, self.watermark)
        if not rules.are_expired(new.ends, self.watermark).any():
            return np.zeros(len(new), np.bool_)
        own_bounds, new_bounds = (table.without_states(rules.frame.keys) for table in (self.windows, new))
        merged = merge_windows(own_bounds, new_bounds, self.window, {})
        return rules.are_expired(merged.ends, self.watermark)[find_windows(new, merged, self.window, rules.frame.keys)]

    def late_sessions(self, new: WindowTable, rules: StreamRules) -> Flags:
        """Return a mask of the new sessions that are late because they touch a session that was removed from memory.

        A session whose end the watermark has not reached is never late, because its rows arrived in time. The mask is
        false everywhere if the bounds of removed sessions are not kept (`StreamRules.remembers_sessions`).
        """
        if not rules.remembers_sessions or self.watermark == LOWEST or not len(new):
            return np.zeros(len(new), np.bool_)
        keys = {name: key_column(new.index.column(name)) for name in rules.frame.keys}
        touching = self.late_session_rows(keys, new.starts, rules)
        return touching & rules.are_closed(new.ends, self.watermark)

    def late_session_rows(self, keys: Mapping[str, pa.Array], times: Instants, rules: StreamRules) -> Flags:
        """Return a mask of the rows that are late because they belong to a session which was removed from memory, or
        may belong to such a session.

        A row belongs to a removed session if its time is not after the end of the last removed session of its key,
        because all sessions of this key in memory begin later. The bounds of removed sessions are deleted after some
        time (`StreamRules.last_deleted_session_end`). An older row may belong to a session whose bounds were deleted.
        Such a row is late unless it lies in a session in memory.

        Parameters
        ----------
        keys : name -> array, shape (rows,)
            The columns of keys.
        times : array of int64, shape (rows,)
            Microseconds UTC.
        rules : StreamRules
        """
        count = len(times)
        is_too_old = times <= rules.last_deleted_session_end(self.watermark)
        if self.removed_sessions is None and not is_too_old.any():
            return np.zeros(count, np.bool_)
        tables = (
            [self.windows.index] if self.removed_sessions is None else [self.windows.index, self.removed_sessions.index]
        )
        columns = [
            key_column(pa.chunked_array([*(key_column(table.column(name)) for table in tables), keys[name]]))
            for name in rules.frame.keys
        ]
        own_count = len(self.windows)
        groups, _ = group_by(columns, sum(table.num_rows for table in tables) + count)
        row_keys = groups.ids[len(groups.ids) - count :]
        last_end = np.full(groups.n, LOWEST)
        if self.removed_sessions is not None:
            np.maximum.at(last_end, groups.ids[own_count : len(groups.ids) - count], self.removed_sessions.ends)
        joins_removed: Flags = times <= last_end[row_keys]
        touches_kept = mask_touching_sessions(
            (groups.ids[:own_count], self.windows.starts, self.windows.ends), row_keys, times, times
        )
        return joins_removed | (is_too_old & ~touches_kept)

    def removed_sessions_after(self, expired: Flags, watermark: int, rules: StreamRules) -> WindowTable | None:
        """Return the table of removed sessions after further sessions are removed from memory. Return None if the table
        is empty, or if the bounds of removed sessions are not kept (`StreamRules.remembers_sessions`).

        ``expired`` is a mask of the sessions that are removed. Removed sessions that are too old to be touched by rows
        are deleted from the table.
        """
        if not rules.remembers_sessions:
            return None
        tables = [] if self.removed_sessions is None else [self.removed_sessions]
        if expired.any():
            tables.append(new_windows(self.windows.filter(expired).without_states(rules.frame.keys).index))
        if not tables:
            return None
        removed_sessions = concat(tables)
        removed_sessions = removed_sessions.filter(removed_sessions.ends > rules.last_deleted_session_end(watermark))
        return removed_sessions if len(removed_sessions) else None

    def advance(
        self, watermark: int, now: int | None, due: bool, rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table, int, bool]:
        """Return the level after a call of `tiltframe.streaming.OpenWindows.advance`, and the rows that this level
        emits.

        Parameters
        ----------
        watermark : int
            Microseconds UTC.
        now : int, optional
            The arrival time in microseconds.
        due : bool
            Whether the policy may emit open windows now.
        rules : StreamRules

        Returns
        -------
        OpenLevel
            The level after the call.
        table
            The emitted rows, with the columns that `OpenWindows.advance` describes.
        int
            The start of the newest closed window in memory, in microseconds UTC, or the lowest int64 if there is none.
        bool
            Whether a window was emitted while it was open.
        """
        watermark = max(watermark, self.watermark)
        windows = self.windows
        if now is not None and (windows.marks["last_arrival"] == UNSTAMPED).any():
            arrived = windows.marks["last_arrival"]
            windows = windows.with_marks(last_arrival=np.where(arrived == UNSTAMPED, now, arrived))
        end_times = windows.ends
        policy_windows = rules.held_windows(windows)
        were_closed = rules.are_closed(end_times, self.watermark) | (end_times <= windows.marks["closed_until"])
        by_watermark = rules.are_closed(end_times, watermark)
        timed_out = rules.emit.timed_out(policy_windows, watermark if watermark > LOWEST else None, now)
        by_timeout = timed_out & ~were_closed & ~by_watermark
        closed = were_closed | by_watermark | by_timeout
        early = ~closed & rules.emit.emit_open(policy_windows) if due else np.zeros(len(windows), np.bool_)
        windows = windows.with_marks(closed_until=np.where(by_timeout, end_times, windows.marks["closed_until"]))
        reasons = np.select(
            [were_closed, by_watermark, by_timeout], ["late", "close", "timeout"], rules.emit.early_reason
        )
        level = replace(self, windows=windows, watermark=watermark)
        chosen = early | (closed & (policy_windows.new_rows > 0))
        if rules.emit.changed == "result" and len(level.last_emissions) and chosen.any():
            same = level._has_same_results(chosen, rules)
            level = replace(level, windows=windows.with_marks(new_rows=np.where(same, 0, windows.marks["new_rows"])))
            chosen = chosen & ~same
            early = early & ~same
        level, emitted = level._emit(chosen, closed, reasons, rules)
        expired = rules.are_expired(end_times, watermark)
        level = replace(level, removed_sessions=self.removed_sessions_after(expired, watermark, rules))
        if rules.emit.forgets_timed_out:
            expired |= by_timeout
        newest = int(windows.starts[closed].max(initial=LOWEST)) if closed.any() else LOWEST
        return level._without_windows(expired, rules), emitted, newest, bool(early.any())

    def _emit(
        self, chosen: Flags, closed: Flags, reasons: NDArray[np.str_], rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table]:
        """Emit windows, and return the level afterwards and the table of emitted rows.

        ``chosen`` is a mask of the windows to emit. A window in this mask is emitted only if it meets the conditions of
        the policy. ``closed`` is a mask of the closed windows. ``reasons`` has the reason of each window's emission.
        """
        at = np.flatnonzero(chosen)
        candidates = self.windows.take(at) if len(at) < len(self.windows) else self.windows
        order = sorted_indices(candidates, rules.frame.keys) if len(at) else at
        at = at[order]
        candidates = candidates.take(order)
        table, meets = self._emitted_rows(candidates, rules, reasons[at], ~closed[at])
        if rules.emit.having is not None and len(at):
            meets &= results_where(rules.emit.having, rules.results(table), rules.frame.timezone)
        if rules.emit.latest and len(at):
            meets &= self._is_latest(at, meets, rules)
        level = self
        retracted = table.slice(0, 0)
        if rules.emit.mode == "changelog":
            level, retracted = self._retract(candidates, meets, table, rules)
        elif rules.remembers_emissions:
            level = self._with_last_emissions(candidates.filter(meets), rules)
        emitted_at = at[meets]
        new_rows, revision = (self.windows.marks[name].copy() for name in ("new_rows", "revision"))
        revision[emitted_at] += 1
        new_rows[emitted_at] = 0
        new_rows[at[closed[at]]] = 0
        windows = level.windows.with_marks(new_rows=new_rows, revision=revision)
        if rules.emit.mode == "discarding" and len(emitted_at):
            emptied = np.zeros(len(windows), np.bool_)
            emptied[emitted_at] = True
            windows = windows.with_empty_states(emptied, rules.memory_frame.state_functions)
            windows = windows.with_marks(unknown=np.where(emptied, 0, windows.marks["unknown"]))
        table = table.filter(pa.array(meets))
        if rules.emit.mode == "changelog":
            table = pa.concat_tables([_with_change(retracted, -1), _with_change(table, 1)])
        return replace(level, windows=windows), table

    def _has_same_results(self, chosen: Flags, rules: StreamRules) -> Flags:
        """Return a mask of the windows whose bounds and results are the same as in their last emission. Only the
        windows in the mask ``chosen`` are compared. For all other windows, the returned mask is false.
        """
        at = np.flatnonzero(chosen)
        chosen_windows = self.windows.take(at)
        matches = find_windows(self.last_emissions, chosen_windows, self.window, rules.frame.keys)
        is_same = matches >= 0
        is_same &= (self.last_emissions.starts == chosen_windows.starts[matches]) & (
            self.last_emissions.ends == chosen_windows.ends[matches]
        )
        rows = np.flatnonzero(is_same)
        before, after = (
            rules.results(with_level_column(table.states_with_unknown(rules.added), rules.frame, self.window))
            for table in (self.last_emissions.take(rows), chosen_windows.take(matches[rows]))
        )
        equal = equal_rows(before, after, columns=list(rules.frame.measures))
        unchanged = np.zeros(len(chosen), np.bool_)
        unchanged[at[matches[rows[equal]]]] = True
        return unchanged

    def _with_last_emissions(self, newly_emitted: WindowTable, rules: StreamRules) -> OpenLevel:
        """Return the level after the emitted windows ``newly_emitted`` are stored as last emissions. The emitted
        windows replace the last emissions of the same windows. A session also replaces the last emissions of sessions
        that lie in it.
        """
        if not len(newly_emitted):
            return self
        matches = find_windows(self.last_emissions, newly_emitted, self.window, rules.frame.keys)
        return replace(self, last_emissions=concat([self.last_emissions.filter(matches < 0), newly_emitted]))

    def _is_latest(self, at: NDArray[np.intp], meets: Flags, rules: StreamRules) -> Flags:
        """Return a mask of the windows to emit. The mask is true for a window if no window of the same key that begins
        later is emitted now or was emitted before.

        ``at`` has the indices of the windows to emit among all windows of this level. ``meets`` is a mask of the
        windows to emit: it is true for a window that meets all other conditions of the policy.
        """
        groups, _ = group_by([key_column(self.windows.index.column(n)) for n in rules.frame.keys], len(self.windows))
        starts = self.windows.starts
        last = np.full(groups.n, LOWEST)
        was_emitted = self.windows.marks["revision"] > 0
        was_emitted[at[meets]] = True
        np.maximum.at(last, groups.ids[was_emitted], starts[was_emitted])
        return np.asarray(starts[at] == last[groups.ids[at]])

    def check_having(self, rules: StreamRules) -> None:
        """Raise ``ValueError`` if the condition ``having`` cannot be evaluated on emitted rows. The method is called
        with the first batch, because the types of the results are not known before.
        """
        if rules.emit.having is not None:
            none = np.zeros(0, np.bool_)
            table, _ = self._emitted_rows(self.windows.without_rows(), rules, none.astype(np.str_), none)
            check_having(rules.emit.having, rules.results(table).schema, rules.frame.timezone)

    def _retract(
        self, candidates: WindowTable, meets: Flags, table: pa.Table, rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table]:
        """Retract the last emissions of windows that are emitted again or no longer meet the condition ``having``.

        ``candidates`` has the windows to emit. ``meets`` is a mask of the windows in ``candidates`` that meet all
        conditions of the policy; the other windows are only retracted. ``table`` has the emitted rows of
        ``candidates``. If the policy emits only the latest window of each key (``latest``), the last emission of an
        earlier window of the key is retracted too. Return the level with the new last emissions, and the rows to
        retract.
        """
        matches = find_windows(self.last_emissions, candidates, self.window, rules.frame.keys)
        if rules.emit.latest and meets.any():
            later = find_windows(
                self.last_emissions, candidates.filter(meets), self.window, rules.frame.keys, among_all=True
            )
            matches = np.where(later >= 0, np.flatnonzero(meets)[later], matches)
        rows = np.flatnonzero(matches >= 0)
        rows = rows[sorted_indices(self.last_emissions.take(rows), rules.frame.keys)]
        reasons, partial = (table.column(name).take(pa.array(matches[rows])) for name in (REASON, PARTIAL))
        retracted, _ = self._emitted_rows(self.last_emissions.take(rows), rules, reasons, partial)
        last_emissions = concat([self.last_emissions.filter(matches < 0), candidates.filter(meets)])
        return replace(self, last_emissions=last_emissions), retracted

    def _without_windows(self, expired: Flags, rules: StreamRules) -> OpenLevel:
        """Return the level without some of its windows. ``expired`` is a mask of the windows to remove; their last
        emissions are removed too.
        """
        if not expired.any():
            return self
        last_emissions = self.last_emissions
        if len(last_emissions) and not rules.emit.latest:
            matches = find_windows(last_emissions, self.windows.filter(expired), self.window, rules.frame.keys)
            last_emissions = last_emissions.filter(matches < 0)
        return replace(self, windows=self.windows.filter(~expired), last_emissions=last_emissions)

    def _emitted_rows(
        self, table: WindowTable, rules: StreamRules, reasons: NDArray[np.str_] | pa.ChunkedArray, partial: Any
    ) -> tuple[pa.Table, Flags]:
        """Convert windows to emitted rows.

        Return a table with level, window, keys, states and the columns of the policy, but without ``change``; and a
        mask of the windows that `EmitPolicy.admits` accepts. ``partial`` has one bool per window. For an emission,
        ``reasons`` is a NumPy array, and the policy may replace the reasons. For a retraction, ``reasons`` is an Arrow
        column with the reasons of the new emissions, which are not replaced again.
        """
        policy_windows = rules.held_windows(table)
        values = rules.emit.values(policy_windows)
        if isinstance(reasons, np.ndarray):
            reasons = pa.array(rules.emit.reasons(policy_windows, reasons), pa.string())
        values = {**values, REASON: reasons, REVISION: table.marks["revision"], PARTIAL: partial}
        states = with_level_column(table.states_with_unknown(rules.added), rules.frame, self.window)
        states = states.select([name for name in rules.frame.states_columns if name in states.column_names])
        for name, kind in rules.emitted_columns.items():
            if name in values:
                column = values[name]
                column = pa.array(column, kind) if isinstance(column, np.ndarray) else column.cast(kind)
                states = states.append_column(pa.field(name, kind), column)
        return states, rules.emit.admits(policy_windows)


def _with_change(table: pa.Table, change: int) -> pa.Table:
    """Append the column ``change``, with the same value in every row: -1 for retractions, 1 for emissions."""
    return table.append_column(CHANGE, pa.array(np.full(table.num_rows, change), pa.int8()))


def cascade(levels: Sequence[OpenLevel], rules: StreamRules, until: int) -> Iterator[OpenLevel]:
    """Yield the levels after all windows that end at or before ``until`` are merged into the next coarser level.
    Windows that were merged before are not merged again.

    Levels are passed and yielded from the finest to the coarsest. ``until`` is in microseconds UTC.
    """
    parts: WindowTable | None = None
    for level, coarser in _with_next(levels):
        updated = level
        for_coarser: list[WindowTable] = []
        if parts is not None:
            updated = level.with_parts(parts, rules)
            for_coarser.append(parts.filter(parts.ends <= level.cascaded_until))
        if coarser is not None and level.cascaded_until < until:
            updated, closing = updated.with_cascaded_until(until)
            for_coarser.append(closing)
        yield updated
        parts = (
            None
            if coarser is None or not any(map(len, for_coarser))
            else to_partial_windows(concat(for_coarser), coarser)
        )


def parts_by_level(panes: WindowTable, levels: Sequence[OpenLevel]) -> list[WindowTable]:
    """For each level, return the new panes to merge into the level, as partial windows of the level. A partial window
    has the bounds of a window of the level, but only some of the rows of this window.

    Panes are the shortest windows to which rows are reduced when they arrive. All panes are merged into the finest
    level. Whether a pane is merged into a coarser level now depends on the window of the next finer level that contains
    the pane. If this finer window has already been merged into the coarser level, the pane is merged into the coarser
    level now. Otherwise the pane is merged into the coarser level together with the finer window, when the finer window
    closes.
    """
    parts = [panes]
    for level, coarser in pairwise(levels):
        parts.append(to_partial_windows(parts[-1].filter(parts[-1].ends <= level.cascaded_until), coarser.window))
    return parts


def prepare_restored(levels: Sequence[OpenLevel], rules: StreamRules) -> tuple[OpenLevel, ...]:
    """Return restored levels for the policies in ``rules``, which may differ from the policies under which the levels
    were saved.

    If `StreamRules.cascades` is false for the new policies, all windows are merged into the coarser levels. If
    `StreamRules.cascades` is true for the new policies, but was false for the saved policies, all windows in memory
    have already been merged into the coarser levels. ``cascaded_until`` is then set to the latest end of the windows in
    memory, so that only windows that end later are merged when they close.
    """
    if not rules.remembers_emissions:
        # The new policies do not update last emissions, so the saved last emissions are removed.
        levels = [replace(level, last_emissions=level.last_emissions.without_rows()) for level in levels]
    if not rules.cascades:
        return tuple(replace(level, cascaded_until=HIGHEST) for level in cascade(levels, rules, HIGHEST))
    return tuple(
        replace(level, cascaded_until=int(level.windows.ends.max(initial=rules.last_closed_end(level.watermark))))
        if level.cascaded_until == HIGHEST
        else level
        for level in levels
    )


def pending_counts(levels: Sequence[OpenLevel], keys: Sequence[NDArray[np.intp]]) -> list[int]:
    """For each level, return the number of windows that have rows, but are not in memory yet. The rows of such a window
    are in windows of finer levels. The window is created in memory when a finer window closes and is merged into it.

    ``keys`` has, for each level, the integer id of each window's key. Equal keys have the same id on all levels.
    """
    counts: list[int] = []
    parts: tuple[Instants, NDArray[np.intp]] | None = None
    for (level, coarser), numbers in zip(_with_next(levels), keys, strict=True):
        starts = level.windows.starts
        if parts is not None:
            starts = np.append(starts, parts[0])
            numbers = np.append(numbers, parts[1])
            _, first_rows = group_by([pa.array(starts), pa.array(numbers)], len(starts))
            starts = starts[first_rows]
            numbers = numbers[first_rows]
        counts.append(len(starts) - len(level.windows))
        parts = None
        if coarser is not None and level.cascaded_until < HIGHEST:
            is_pending = level.window.ends(starts) > level.cascaded_until
            parts = coarser.starts(starts[is_pending]), numbers[is_pending]
    return counts


def _with_next(levels: Sequence[OpenLevel]) -> Iterator[tuple[OpenLevel, TimeWindow | None]]:
    """Yield each level together with the window of the next coarser level, or with None for the coarsest level."""
    return zip(levels, [*(level.window for level in levels[1:]), None], strict=False)
