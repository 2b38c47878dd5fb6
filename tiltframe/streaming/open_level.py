"""One level of open windows: what is held of it, and what it emits as time goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Function
from aggr.kernels.groups import group_by
from aggr.states.grouped_tables import finish_by
from aggr.states.keys import key_column
from aggr.states.result_names import check_having, results_where
from tiltframe.frame import END, LEVEL, START, TiltFrame
from tiltframe.level_chain import labelled
from tiltframe.names import PARTIAL, REASON, REVISION
from tiltframe.streaming.emit import AfterClose, AfterKeyExpire, EmitPolicy
from tiltframe.streaming.late import Buffer, LatePolicy
from tiltframe.streaming.window_table import HIGHEST, LOWEST, UNSTAMPED, WindowTable, merged, ordered, places, stacked
from windows import TimeWindow
from windows.timezone import Instants

CHANGE, SPAN = "change", "span"
DROPPED = "dropped"  # the reason of what is in no window
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    """What all levels follow: the frame and its policies, and which columns of states were added to saved windows."""

    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    added: tuple[str, ...] = ()

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """What merges each column of states."""
        return {column.name: column.measure.function for column in self.frame.states}

    @cached_property
    def handing_on(self) -> bool:
        """Whether windows are merged into those of the next level when they close, and not as rows come.

        So it is where nothing is asked of an open window: a batch is then merged into the finest level alone.
        """
        closing = isinstance(self.emit, AfterClose) and self.emit.timeout is None
        return closing and not isinstance(self.late, Buffer) and all(level.contiguous for level in self.frame.levels)

    @property
    def columns(self) -> list[str]:
        """The columns of keys and of states."""
        return [*self.frame.keys, *self.functions]

    def closed_by(self, watermark: int) -> int:
        """Return the moment by which windows must have ended for the watermark to close them."""
        return watermark - self.emit.delay_us if watermark > LOWEST else LOWEST

    def closed(self, ends: Instants, watermark: int) -> Mask:
        """Say which windows the watermark closes."""
        return ends <= self.closed_by(watermark)

    def gone(self, ends: Instants, watermark: int) -> Mask:
        """Say which windows are no longer kept."""
        if self.late.kept_us is None or watermark == LOWEST:
            return np.zeros(len(ends), np.bool_)
        return ends <= watermark - self.emit.delay_us - self.late.kept_us

    def results(self, states: pa.Table) -> pa.Table:
        """Read the results of states that have a level, and keep the columns that are neither."""
        keys = [LEVEL, START, END, *self.frame.keys]
        measures = {name: (self.frame.state_of(name), measure) for name, measure in self.frame.measures.items()}
        read = finish_by(states, keys, measures)
        for name in states.column_names:
            if name not in keys and name not in self.functions:
                read = read.append_column(states.schema.field(name), states.column(name))
        return read


@dataclass(frozen=True)
class OpenLevel:
    """The windows of a level that are held.

    Parameters
    ----------
    window : TimeWindow
    held : WindowTable
    emitted : WindowTable
        In a changelog, the windows as they were last emitted; otherwise none.
    watermark : int
        By which windows were closed so far, microseconds UTC.
    handed : int
        Windows that end at or before it are in those of the next level, and so is what comes for them from now on. The
        others are handed on when they close.
    """

    window: TimeWindow
    held: WindowTable
    emitted: WindowTable
    watermark: int = LOWEST
    handed: int = HIGHEST

    def with_held(self, held: WindowTable, rules: Rules) -> OpenLevel:
        """Hold other windows, but for those that are no longer kept."""
        return replace(self, held=held.chosen(~rules.gone(held.ends, self.watermark)))

    def with_parts(self, parts: WindowTable, rules: Rules) -> OpenLevel:
        """Merge parts of windows into those that are held."""
        return self.with_held(merged(self.held, parts, self.window, rules.functions), rules) if len(parts) else self

    def handing(self, until: int) -> tuple[OpenLevel, WindowTable]:
        """Choose the windows that end by a moment, and that the next level does not have; it has them from now on."""
        ends = self.held.ends
        chosen = self.held.chosen((ends > self.handed) & (ends <= until))
        return replace(self, handed=max(self.handed, until)), chosen

    def lost(self, new: WindowTable, rules: Rules) -> Mask:
        """Say which of the windows that have come are no longer kept, once they are merged with those that are held."""
        if not self.window.is_merging:
            return rules.gone(new.ends, self.watermark)
        if not rules.gone(new.ends, self.watermark).any():
            return np.zeros(len(new), np.bool_)
        held, come = (table.without_states(rules.frame.keys) for table in (self.held, new))
        both = merged(held, come, self.window, {})
        return rules.gone(both.ends, self.watermark)[places(new, both, self.window, rules.frame.keys)]

    def advanced(
        self, watermark: int, now: int | None, due: bool, rules: Rules
    ) -> tuple[OpenLevel, pa.Table, int, bool]:
        """Tell the time; see `tiltframe.streaming.OpenWindows.advance`.

        Returns
        -------
        the level as it is now, what it emits, the start of the newest window that is closed, and whether open windows
        were emitted
        """
        watermark = max(watermark, self.watermark)
        held = self.held
        if now is not None and (held.marks["touched"] == UNSTAMPED).any():
            touched = held.marks["touched"]
            held = held.marked(touched=np.where(touched == UNSTAMPED, now, touched))
        ends, pending = held.ends, held.marks["pending"]
        was = rules.closed(ends, self.watermark) | (ends <= held.marks["closed_to"])
        over = rules.closed(ends, watermark)
        timed = rules.emit.timed_out(held.marks, watermark if watermark > LOWEST else None, now) & ~was & ~over
        closed = was | over | timed
        early = ~closed & rules.emit.early(pending) if due else np.zeros(len(held), np.bool_)
        held = held.marked(closed_to=np.where(timed, ends, held.marks["closed_to"]))
        reasons = np.select([was, over, timed], ["late", "close", "timeout"], rules.emit.early_reason)
        level, emitted = replace(self, held=held, watermark=watermark)._emit(
            early | (closed & (pending > 0)), closed, reasons, rules
        )
        forgotten = rules.gone(ends, watermark)
        if isinstance(rules.emit, AfterKeyExpire):
            forgotten |= timed
        newest = int(held.starts[closed].max(initial=LOWEST)) if closed.any() else LOWEST
        return level._without(forgotten, rules), emitted, newest, bool(early.any())

    def _emit(self, chosen: Mask, closed: Mask, reasons: NDArray[np.str_], rules: Rules) -> tuple[OpenLevel, pa.Table]:
        """Emit the chosen windows that meet the condition, and note what was emitted."""
        at = np.flatnonzero(chosen)
        out = self.held.taken(at) if len(at) < len(self.held) else self.held
        order = ordered(out, rules.frame.keys) if len(at) else at
        at, out = at[order], out.taken(order)
        table = _told(out, rules, self.window, reasons[at], ~closed[at])
        if isinstance(rules.emit, AfterKeyExpire):
            table, meets = _with_spans(table, out, rules.emit)
        else:
            meets = np.ones(len(at), np.bool_)
        if rules.emit.having is not None and len(at):
            meets &= results_where(rules.emit.having, rules.results(table), rules.frame.timezone)
        if rules.emit.latest and len(at):
            meets &= self._latest(at, meets, rules)
        level, retracted = self, table.slice(0, 0)
        if rules.emit.mode == "changelog":
            level, retracted = self._retract(out, meets, table, rules)
        said = at[meets]
        pending, revision = (self.held.marks[name].copy() for name in ("pending", "revision"))
        revision[said] += 1
        pending[said] = 0
        pending[at[closed[at]]] = 0
        held = level.held.marked(pending=pending, revision=revision)
        if rules.emit.mode == "discarding" and len(said):
            emptied = np.zeros(len(held), np.bool_)
            emptied[said] = True
            held = held.emptied(emptied, rules.functions)
            held = held.marked(unknown=np.where(emptied, 0, held.marks["unknown"]))
        table = table.filter(pa.array(meets))
        if rules.emit.mode == "changelog":
            table = pa.concat_tables([_changed(retracted, -1), _changed(table, 1)])
        return replace(level, held=held), table

    def _latest(self, at: NDArray[np.intp], meets: Mask, rules: Rules) -> Mask:
        """Say behind which of the windows that are to be emitted no later one of its key is, or was, emitted."""
        groups, _ = group_by([key_column(self.held.index.column(n)) for n in rules.frame.keys], len(self.held))
        starts, last = self.held.starts, np.full(groups.n, LOWEST)
        emitted = self.held.marks["revision"] > 0
        emitted[at[meets]] = True
        np.maximum.at(last, groups.ids[emitted], starts[emitted])
        return np.asarray(starts[at] == last[groups.ids[at]])

    def check_having(self, rules: Rules) -> None:
        """Raise ``ValueError`` unless the condition can be evaluated on what is emitted, whose types are known now."""
        if rules.emit.having is not None:
            none = np.zeros(0, np.bool_)
            table = _told(self.held.none(), rules, self.window, none.astype(np.str_), none)
            if isinstance(rules.emit, AfterKeyExpire):
                table, _ = _with_spans(table, self.held.none(), rules.emit)
            check_having(rules.emit.having, rules.results(table).schema, rules.frame.timezone)

    def _retract(self, out: WindowTable, meets: Mask, table: pa.Table, rules: Rules) -> tuple[OpenLevel, pa.Table]:
        """Take back what was emitted before of windows that are emitted now, or meet the condition no longer."""
        placed = places(self.emitted, out, self.window, rules.frame.keys)
        if rules.emit.latest and meets.any():
            later = places(self.emitted, out.chosen(meets), self.window, rules.frame.keys, among_all=True)
            placed = np.where(later >= 0, np.flatnonzero(meets)[later], placed)
        there = np.flatnonzero(placed >= 0)
        there = there[ordered(self.emitted.taken(there), rules.frame.keys)]
        back, by = self.emitted.taken(there), placed[there]
        reasons, partial = (table.column(name).take(pa.array(by)) for name in (REASON, PARTIAL))
        retracted = _told(back, rules, self.window, reasons, partial)
        emitted = stacked([self.emitted.chosen(placed < 0), out.chosen(meets)])
        return replace(self, emitted=emitted), retracted

    def _without(self, forgotten: Mask, rules: Rules) -> OpenLevel:
        """Forget windows, and what was emitted of them."""
        if not forgotten.any():
            return self
        emitted = self.emitted
        if len(emitted) and not rules.emit.latest:
            placed = places(emitted, self.held.chosen(forgotten), self.window, rules.frame.keys)
            emitted = emitted.chosen(placed < 0)
        return replace(self, held=self.held.chosen(~forgotten), emitted=emitted)


def _told(
    table: WindowTable, rules: Rules, window: TimeWindow, reasons: NDArray[np.str_] | pa.Array, partial: Mask | pa.Array
) -> pa.Table:
    """Write windows as they are emitted."""
    states = labelled(table.known(rules.added), rules.frame, window)
    states = states.append_column(pa.field(REASON, pa.string()), _column(reasons, pa.string()))
    states = states.append_column(pa.field(REVISION, pa.int64()), _column(table.marks["revision"], pa.int64()))
    return states.append_column(pa.field(PARTIAL, pa.bool_()), _column(partial, pa.bool_()))


def _column(values: NDArray[np.generic] | pa.Array, dtype: pa.DataType) -> pa.Array:
    return pa.array(values, dtype) if isinstance(values, np.ndarray) else values


def _with_spans(table: pa.Table, out: WindowTable, emit: AfterKeyExpire) -> tuple[pa.Table, Mask]:
    """Add the spans of keys that have expired; say which of them are emitted."""
    spans = np.maximum(out.marks["latest"], out.marks["earliest"]) - out.marks["earliest"]
    over = emit.over(spans)
    reasons = pa.array(np.where(over, "over_span", "expired"), pa.string())
    place = table.column_names.index(REASON)
    table = table.set_column(place, REASON, reasons).add_column(place, SPAN, pa.array(spans, pa.duration("us")))
    return table, over if emit.only else np.ones(len(over), np.bool_)


def _changed(table: pa.Table, change: int) -> pa.Table:
    return table.append_column(CHANGE, pa.array(np.full(table.num_rows, change), pa.int8()))
