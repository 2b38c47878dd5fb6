"""Levels of open windows: their states, the windows that they emit, and the cascade (merging closed windows into the
next level).

Levels cascade if the policy never emits an open window (`StreamRules.cascades`). A batch then changes only the finest
level, and a window is merged into the next level when it closes. Each level stores the time up to which its windows
have been merged into the next level. Later rows of such windows are added to the next level directly. If the policy
emits open windows, every batch changes all levels. All windows then count as merged into the next level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.groups.groups import group_by
from aggr.tables.keys import key_column
from aggr.tables.result_names import check_having, results_where
from tiltframe.level_chain import labelled
from tiltframe.names import PARTIAL, REASON, REVISION
from tiltframe.streaming.equal_rows import equal_rows
from tiltframe.streaming.session_lateness import touches_held
from tiltframe.streaming.stream_rules import CHANGE, Mask, StreamRules
from tiltframe.streaming.window_table import (
    HIGHEST,
    LOWEST,
    UNSTAMPED,
    WindowTable,
    as_parts_of,
    concat,
    merged,
    new_windows,
    ordered,
    places,
)
from windows import TimeWindow
from windows.timezone import Instants


@dataclass(frozen=True)
class OpenLevel:
    """The windows of one level in memory."""

    window: TimeWindow
    held: WindowTable
    emitted: WindowTable  # the last emission of each window, if the policy needs it; otherwise empty
    watermark: int = LOWEST  # the watermark so far, in microseconds UTC
    # the time up to which ended windows, and their later rows, are merged into the next level
    cascaded_until: int = HIGHEST
    forgotten: WindowTable | None = (
        None  # the bounds of sessions that are no longer kept, as long as rows may touch them
    )

    def with_held(self, windows: WindowTable, rules: StreamRules) -> OpenLevel:
        """Replace the windows in memory by others, without windows that are past their retention."""
        return replace(self, held=windows.filter(~rules.expired(windows.ends, self.watermark)))

    def with_parts(self, parts: WindowTable, rules: StreamRules) -> OpenLevel:
        """Merge partial windows into the windows of the level."""
        return self.with_held(merged(self.held, parts, self.window, rules.functions), rules) if len(parts) else self

    def cascading(self, until: int) -> tuple[OpenLevel, WindowTable]:
        """Mark all windows that end by a moment as merged into the next level. Return the marked level, and the windows
        that were not marked before.
        """
        end_times = self.held.ends
        closing = self.held.filter((end_times > self.cascaded_until) & (end_times <= until))
        return replace(self, cascaded_until=max(self.cascaded_until, until)), closing

    def lost(self, new: WindowTable, rules: StreamRules) -> Mask:
        """Return a mask of the new windows that are not kept after they are merged with the windows in memory."""
        if not self.window.is_merging:
            return rules.expired(new.ends, self.watermark)
        if not rules.expired(new.ends, self.watermark).any():
            return np.zeros(len(new), np.bool_)
        own_bounds, new_bounds = (table.without_states(rules.frame.keys) for table in (self.held, new))
        both = merged(own_bounds, new_bounds, self.window, {})
        return rules.expired(both.ends, self.watermark)[places(new, both, self.window, rules.frame.keys)]

    def touching_forgotten(self, new: WindowTable, rules: StreamRules) -> Mask:
        """Return a mask of the new complete sessions that touch a session that is no longer kept. Such sessions are
        also late.

        Sessions that the watermark has not closed are not late, because their rows arrived in time.
        """
        if not rules.remembers_sessions or self.watermark == LOWEST or not len(new):
            return np.zeros(len(new), np.bool_)
        keys = {name: key_column(new.index.column(name)) for name in rules.frame.keys}
        touching = self.joins_forgotten(keys, new.starts, rules)
        return touching & rules.closed(new.ends, self.watermark)

    def joins_forgotten(self, keys: Mapping[str, pa.Array], times: Instants, rules: StreamRules) -> Mask:
        """Return a mask of the late rows: rows that would join a session that is no longer kept, and rows so old that
        the sessions of their time are not remembered.

        All kept sessions of a key begin after the end of its last forgotten session. A row at or before that end
        therefore joins a forgotten session, unless it lies in a kept one.
        """
        count = len(times)
        old = times <= rules.remembered_since(self.watermark)
        if self.forgotten is None and not old.any():
            return np.zeros(count, np.bool_)
        tables = [self.held.index] if self.forgotten is None else [self.held.index, self.forgotten.index]
        columns = [
            key_column(pa.chunked_array([*(key_column(table.column(name)) for table in tables), keys[name]]))
            for name in rules.frame.keys
        ]
        own_count = len(self.held)
        groups, _ = group_by(columns, sum(table.num_rows for table in tables) + count)
        of_rows = groups.ids[len(groups.ids) - count :]
        last_end = np.full(groups.n, LOWEST)
        if self.forgotten is not None:
            np.maximum.at(last_end, groups.ids[own_count : len(groups.ids) - count], self.forgotten.ends)
        joins: Mask = times <= last_end[of_rows]
        within = touches_held((groups.ids[:own_count], self.held.starts, self.held.ends), of_rows, times, times)
        return joins | (old & ~within)

    def forgetting(self, expired: Mask, watermark: int, rules: StreamRules) -> WindowTable | None:
        """Return the bounds of sessions that are no longer kept: new ones are added, and the oldest
        ones are removed.
        """
        if not rules.remembers_sessions:
            return None
        tables = [] if self.forgotten is None else [self.forgotten]
        if expired.any():
            tables.append(new_windows(self.held.filter(expired).without_states(rules.frame.keys).index))
        if not tables:
            return None
        both = concat(tables)
        both = both.filter(both.ends > rules.remembered_since(watermark))
        return both if len(both) else None

    def advanced(
        self, watermark: int, now: int | None, due: bool, rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table, int, bool]:
        """Advance the watermark and the clock; see `tiltframe.streaming.OpenWindows.advance`.

        Return the new level, the emitted rows, the start of the newest closed window, and whether open windows were
        emitted.
        """
        watermark = max(watermark, self.watermark)
        windows = self.held
        if now is not None and (windows.marks["last_arrival"] == UNSTAMPED).any():
            arrived = windows.marks["last_arrival"]
            windows = windows.marked(last_arrival=np.where(arrived == UNSTAMPED, now, arrived))
        end_times, shown = windows.ends, rules.shown(windows)
        was = rules.closed(end_times, self.watermark) | (end_times <= windows.marks["closed_until"])
        over = rules.closed(end_times, watermark)
        timed = rules.emit.timed_out(shown, watermark if watermark > LOWEST else None, now) & ~was & ~over
        closed = was | over | timed
        early = ~closed & rules.emit.emit_open(shown) if due else np.zeros(len(windows), np.bool_)
        windows = windows.marked(closed_until=np.where(timed, end_times, windows.marks["closed_until"]))
        reasons = np.select([was, over, timed], ["late", "close", "timeout"], rules.emit.early_reason)
        level, chosen = replace(self, held=windows, watermark=watermark), early | (closed & (shown.new_rows > 0))
        if rules.emit.changed == "result" and len(level.emitted) and chosen.any():
            same = level._unchanged(chosen, rules)
            level = replace(level, held=windows.marked(new_rows=np.where(same, 0, windows.marks["new_rows"])))
            chosen, early = chosen & ~same, early & ~same
        level, emitted = level._emit(chosen, closed, reasons, rules)
        forgotten = rules.expired(end_times, watermark)
        level = replace(level, forgotten=self.forgetting(forgotten, watermark, rules))
        if rules.emit.forgets_timed_out:
            forgotten |= timed
        newest = int(windows.starts[closed].max(initial=LOWEST)) if closed.any() else LOWEST
        return level._without(forgotten, rules), emitted, newest, bool(early.any())

    def _emit(
        self, chosen: Mask, closed: Mask, reasons: NDArray[np.str_], rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table]:
        at = np.flatnonzero(chosen)
        out = self.held.take(at) if len(at) < len(self.held) else self.held
        order = ordered(out, rules.frame.keys) if len(at) else at
        at, out = at[order], out.take(order)
        table, meets = self._emission(out, rules, reasons[at], ~closed[at])
        if rules.emit.having is not None and len(at):
            meets &= results_where(rules.emit.having, rules.results(table), rules.frame.timezone)
        if rules.emit.latest and len(at):
            meets &= self._latest(at, meets, rules)
        level, retracted = self, table.slice(0, 0)
        if rules.emit.mode == "changelog":
            level, retracted = self._retract(out, meets, table, rules)
        elif rules.remembers_emissions:
            level = self._remembering(out.filter(meets), rules)
        emitted = at[meets]
        new_rows, revision = (self.held.marks[name].copy() for name in ("new_rows", "revision"))
        revision[emitted] += 1
        new_rows[emitted] = 0
        new_rows[at[closed[at]]] = 0
        windows = level.held.marked(new_rows=new_rows, revision=revision)
        if rules.emit.mode == "discarding" and len(emitted):
            emptied = np.zeros(len(windows), np.bool_)
            emptied[emitted] = True
            windows = windows.with_zeros(emptied, rules.functions)
            windows = windows.marked(unknown=np.where(emptied, 0, windows.marks["unknown"]))
        table = table.filter(pa.array(meets))
        if rules.emit.mode == "changelog":
            table = pa.concat_tables([_changed(retracted, -1), _changed(table, 1)])
        return replace(level, held=windows), table

    def _unchanged(self, chosen: Mask, rules: StreamRules) -> Mask:
        """Return a mask of the selected windows that have the same bounds and results as in their last emission."""
        at = np.flatnonzero(chosen)
        now = self.held.take(at)
        placed = places(self.emitted, now, self.window, rules.frame.keys)
        is_same = placed >= 0
        is_same &= (self.emitted.starts == now.starts[placed]) & (self.emitted.ends == now.ends[placed])
        rows = np.flatnonzero(is_same)
        before, after = (
            rules.results(labelled(table.known_states(rules.added), rules.frame, self.window))
            for table in (self.emitted.take(rows), now.take(placed[rows]))
        )
        equal = equal_rows(before, after, columns=list(rules.frame.measures))
        unchanged = np.zeros(len(chosen), np.bool_)
        unchanged[at[placed[rows[equal]]]] = True
        return unchanged

    def _remembering(self, out: WindowTable, rules: StreamRules) -> OpenLevel:
        """Return the level with these windows as last emissions. The new emissions replace earlier emissions within
        their bounds.
        """
        if not len(out):
            return self
        placed = places(self.emitted, out, self.window, rules.frame.keys)
        return replace(self, emitted=concat([self.emitted.filter(placed < 0), out]))

    def _latest(self, at: NDArray[np.intp], meets: Mask, rules: StreamRules) -> Mask:
        """Return a mask of the windows to emit for which no later window of the same key is, or was, emitted."""
        groups, _ = group_by([key_column(self.held.index.column(n)) for n in rules.frame.keys], len(self.held))
        starts, last = self.held.starts, np.full(groups.n, LOWEST)
        emitted = self.held.marks["revision"] > 0
        emitted[at[meets]] = True
        np.maximum.at(last, groups.ids[emitted], starts[emitted])
        return np.asarray(starts[at] == last[groups.ids[at]])

    def check_having(self, rules: StreamRules) -> None:
        """Raise ``ValueError`` if the condition cannot be evaluated on emitted rows, once their types are known."""
        if rules.emit.having is not None:
            none = np.zeros(0, np.bool_)
            table, _ = self._emission(self.held.none(), rules, none.astype(np.str_), none)
            check_having(rules.emit.having, rules.results(table).schema, rules.frame.timezone)

    def _retract(
        self, out: WindowTable, meets: Mask, table: pa.Table, rules: StreamRules
    ) -> tuple[OpenLevel, pa.Table]:
        """Retract the earlier emission of windows that are emitted again, or that no longer meet the condition."""
        placed = places(self.emitted, out, self.window, rules.frame.keys)
        if rules.emit.latest and meets.any():
            later = places(self.emitted, out.filter(meets), self.window, rules.frame.keys, among_all=True)
            placed = np.where(later >= 0, np.flatnonzero(meets)[later], placed)
        rows = np.flatnonzero(placed >= 0)
        rows = rows[ordered(self.emitted.take(rows), rules.frame.keys)]
        reasons, partial = (table.column(name).take(pa.array(placed[rows])) for name in (REASON, PARTIAL))
        retracted, _ = self._emission(self.emitted.take(rows), rules, reasons, partial)
        emitted = concat([self.emitted.filter(placed < 0), out.filter(meets)])
        return replace(self, emitted=emitted), retracted

    def _without(self, forgotten: Mask, rules: StreamRules) -> OpenLevel:
        if not forgotten.any():
            return self
        emitted = self.emitted
        if len(emitted) and not rules.emit.latest:
            placed = places(emitted, self.held.filter(forgotten), self.window, rules.frame.keys)
            emitted = emitted.filter(placed < 0)
        return replace(self, held=self.held.filter(~forgotten), emitted=emitted)

    def _emission(
        self, table: WindowTable, rules: StreamRules, reasons: NDArray[np.str_] | pa.ChunkedArray, partial: Any
    ) -> tuple[pa.Table, Mask]:
        """Return the emitted columns of windows except ``change``, and a mask of the windows that the policy accepts.

        A retraction passes the reasons of the earlier emission as an Arrow column.
        """
        shown = rules.shown(table)
        values = rules.emit.values(shown)
        if isinstance(reasons, np.ndarray):
            reasons = pa.array(rules.emit.reasons(shown, reasons), pa.string())
        values = {**values, REASON: reasons, REVISION: table.marks["revision"], PARTIAL: partial}
        states = labelled(table.known_states(rules.added), rules.frame, self.window)
        states = states.select([name for name in rules.frame.states_columns if name in states.column_names])
        for name, kind in rules.emitted.items():
            if name in values:
                column = values[name]
                column = pa.array(column, kind) if isinstance(column, np.ndarray) else column.cast(kind)
                states = states.append_column(pa.field(name, kind), column)
        return states, rules.emit.admits(shown)


def _changed(table: pa.Table, change: int) -> pa.Table:
    return table.append_column(CHANGE, pa.array(np.full(table.num_rows, change), pa.int8()))


def cascade(levels: Sequence[OpenLevel], rules: StreamRules, until: int) -> Iterator[OpenLevel]:
    """Merge the windows that end by a moment into the windows of the next level, unless they were merged before."""
    parts: WindowTable | None = None
    for level, coarser in _with_next(levels):
        updated = level
        for_coarser: list[WindowTable] = []
        if parts is not None:
            updated = level.with_parts(parts, rules)
            for_coarser.append(parts.filter(parts.ends <= level.cascaded_until))
        if coarser is not None and level.cascaded_until < until:
            updated, closing = updated.cascading(until)
            for_coarser.append(closing)
        yield updated
        parts = None if coarser is None or not any(map(len, for_coarser)) else as_parts_of(concat(for_coarser), coarser)


def parts_by_level(panes: WindowTable, levels: Sequence[OpenLevel]) -> list[WindowTable]:
    """Return the panes for each level, as partial windows. A pane is the short window that rows are first reduced to.

    A coarser level gets only the panes in windows of the next finer level that were already merged into it.
    """
    parts = [panes]
    for level, coarser in pairwise(levels):
        parts.append(as_parts_of(parts[-1].filter(parts[-1].ends <= level.cascaded_until), coarser.window))
    return parts


def adopt(levels: Sequence[OpenLevel], rules: StreamRules) -> tuple[OpenLevel, ...]:
    """Prepare restored levels for a policy, which may differ from the policy under which they were saved.

    If the policy does not cascade, merge all windows into the next level now. If it cascades, the windows in memory
    count as merged into the next level, and so do their later rows. Windows that are opened later are merged when they
    close.
    """
    if not rules.remembers_emissions:  # The emissions of an earlier policy would soon no longer be the last ones.
        levels = [replace(level, emitted=level.emitted.none()) for level in levels]
    if not rules.cascades:
        return tuple(replace(level, cascaded_until=HIGHEST) for level in cascade(levels, rules, HIGHEST))
    return tuple(
        replace(level, cascaded_until=int(level.held.ends.max(initial=rules.closed_by(level.watermark))))
        if level.cascaded_until == HIGHEST
        else level
        for level in levels
    )


def pending_counts(levels: Sequence[OpenLevel], keys: Sequence[NDArray[np.intp]]) -> list[int]:
    """For each level, return the number of open windows whose rows are so far only on finer levels.

    ``keys`` has the key numbers of each level's windows; equal keys have the same number on all levels.
    """
    counts: list[int] = []
    parts: tuple[Instants, NDArray[np.intp]] | None = None
    for (level, coarser), numbers in zip(_with_next(levels), keys, strict=True):
        starts = level.held.starts
        if parts is not None:
            starts, numbers = np.append(starts, parts[0]), np.append(numbers, parts[1])
            _, first_rows = group_by([pa.array(starts), pa.array(numbers)], len(starts))
            starts, numbers = starts[first_rows], numbers[first_rows]
        counts.append(len(starts) - len(level.held))
        parts = None
        if coarser is not None and level.cascaded_until < HIGHEST:
            here = level.window.ends(starts) > level.cascaded_until
            parts = coarser.starts(starts[here]), numbers[here]
    return counts


def _with_next(levels: Sequence[OpenLevel]) -> Iterator[tuple[OpenLevel, TimeWindow | None]]:
    """Yield each level with the window of the next level, and the last level with None."""
    return zip(levels, [*(level.window for level in levels[1:]), None], strict=False)
