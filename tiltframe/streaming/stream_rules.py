"""Stream rules: what all levels of a stream follow, its frame and its policies, and what follows from these alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import aggr
from aggr import Function, Measure
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array
from aggr.tables.by_key import finish_by
from aggr.tables.result_names import check_having_names
from aggr.tables.state_plan import holder, plan
from tiltframe.frame import END, LEVEL, START, TiltFrame
from tiltframe.names import PARTIAL, REASON, REVISION
from tiltframe.streaming.policies import EmitPolicy, HeldWindows, LatePolicy
from tiltframe.streaming.window_table import LOWEST, WindowTable
from windows.timezone import Instants

CHANGE = "change"
DROPPED = "dropped"  # the reason of what is in no window
ROWS = "__rows"  # how many rows a state was made of
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StreamRules:
    """What all levels follow: the frame and its policies, and which columns of states were added to saved windows."""

    frame: TiltFrame
    emit: EmitPolicy
    late: LatePolicy
    added: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``ValueError`` unless the policies can be followed on the frame's levels."""
        self.late.check(self.frame)
        self.emit.check(self.frame)
        more = {name.lower() for name in self.emitted.keys() - {REASON, REVISION, PARTIAL}}
        taken = [name for name in (*self.frame.keys, *self.frame.measures) if name.lower() in more]
        if taken:
            raise ValueError(f"the name {taken[0]!r} is a column of what is emitted; give the key or measure another")
        columns = [LEVEL, START, END, *self.frame.keys, *(name for name in self.emitted if name != CHANGE)]
        check_having_names(self.emit.having, columns, dict(self.frame.measures))

    @cached_property
    def emitted(self) -> Mapping[str, pa.DataType]:
        """The columns of what is emitted, beside those of states."""
        same = {REASON: pa.string(), REVISION: pa.int64(), PARTIAL: pa.bool_()}
        return {**self.emit.columns, **same, **({CHANGE: pa.int8()} if self.emit.mode == "changelog" else {})}

    @cached_property
    def held_frame(self) -> TiltFrame:
        """The frame of the states that are held: what the policy needs is beside what the frame has.

        Its columns are named by what they measure: a saved state of another policy has others.
        """
        return _with_more(self.frame, {self._name_of(each): each for each in self.emit.measures(self.frame).values()})

    @cached_property
    def partial_frame(self) -> TiltFrame:
        """The frame that rows are reduced by: what is held, and how many rows there were."""
        return _with_more(self.held_frame, {ROWS: aggr.count()})

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """What merges each column of states that is held."""
        return {column.name: column.measure.function for column in self.held_frame.states}

    def _name_of(self, measure: Measure) -> str:
        return f"{measure!r} of {self.emit.name}"

    @property
    def columns(self) -> list[str]:
        """The columns of keys and of states that are held."""
        return [*self.frame.keys, *self.functions]

    @cached_property
    def cascades(self) -> bool:
        """Whether windows are merged into those of the next level when they close, and not as rows come.

        This is so if nothing is asked of an open window: a batch is then merged into the finest level alone.
        """
        closing = not self.emit.emits_open and self.emit.timeout is None
        return closing and not self.late.closes_by_events and all(level.contiguous for level in self.frame.levels)

    def closed_by(self, watermark: int) -> int:
        """Return the moment by which windows must have ended for the watermark to close them."""
        return watermark - self.emit.delay_micros if watermark > LOWEST else LOWEST

    def closed(self, ends: Instants, watermark: int) -> Mask:
        """Say which windows the watermark closes."""
        return ends <= self.closed_by(watermark)

    def gone(self, ends: Instants, watermark: int) -> Mask:
        """Say which windows are no longer kept."""
        lateness = self.late.lateness_micros
        if lateness is None or watermark == LOWEST:
            return np.zeros(len(ends), np.bool_)
        return ends <= watermark - self.emit.delay_micros - lateness

    def shown(self, table: WindowTable) -> HeldWindows:
        """Show windows to the policy."""
        needed = self.emit.measures(self.frame)

        def result(name: str) -> pa.Array:
            measure = needed[name]
            column = self.held_frame.state_of(self._name_of(measure))
            if column not in table.schema.names:  # no row has come since the policy needs it
                return pa.nulls(len(table))
            states = one_array(table.known(self.added).column(column))
            results = measure.function.finish(states)
            return pc.if_else(states.is_null(), pa.scalar(None, results.type), results)

        return HeldWindows(table.starts, table.ends, table.marks["new_rows"], table.marks["last_arrival"], result)

    def results(self, states: pa.Table) -> pa.Table:
        """Read the results of states that have a level, and keep the columns that are neither."""
        keys = [LEVEL, START, END, *self.frame.keys]
        measures = {name: (self.frame.state_of(name), measure) for name, measure in self.frame.measures.items()}
        results = finish_by(states, keys, measures)
        for name in self.emitted:
            if name in states.column_names:
                results = results.append_column(states.schema.field(name), states.column(name))
        return results


def _with_more(frame: TiltFrame, more: Mapping[str, Measure]) -> TiltFrame:
    """Add measures to a frame whose columns of states stay; what these can serve needs no column of its own."""
    if not more:
        return frame
    serving = {name: holder(frame.states, measure) for name, measure in more.items()}
    columns = [
        replace(column, serves=(*column.serves, *(name for name, by in serving.items() if by is column)))
        for column in frame.states
    ]
    own = plan({name: measure for name, measure in more.items() if serving[name] is None})
    whole = TiltFrame(frame.levels, frame.time, {**frame.measures, **more}, frame.keyed_by, frame.timezone)
    return whole.keeping((*columns, *own))
