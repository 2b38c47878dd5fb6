"""Query plans: what a query reads of a store, checked against its frame before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from aggr import Measure, sql
from aggr.arguments import checked_names, is_name, nearest, shown
from aggr.state_plan import holder
from tiltframe.frame import TiltFrame, window_in
from tiltframe.names import check_names
from tiltframe.store.query.other_zone import is_made_of
from tiltframe.store.query.time_range import read_time_range
from tiltframe.store.ranges import Range
from windows import AllTime, TimeWindow, as_window

ALL = AllTime().name


@dataclass(frozen=True)
class QueryPlan:
    """What a query reads of a store.

    Parameters
    ----------
    frame : TiltFrame
        The store's.
    target : TimeWindow
        What results are per; `windows.AllTime` for one over the whole range.
    within : range, optional
        Windows that start in it.
    keys : names
        What results are kept apart by.
    measures : name -> (column of states, measure)
    where : str, optional
        A condition on the frame's keys.
    timezone : str
        Of the clock that conditions and orders read times on.
    """

    frame: TiltFrame
    target: TimeWindow
    within: Range | None
    keys: tuple[str, ...]
    measures: Mapping[str, tuple[str, Measure]]
    where: str | None
    timezone: str = "UTC"

    @property
    def per(self) -> str:
        """What results are per, as text."""
        return self.target.name

    @property
    def whole(self) -> bool:
        """Whether there is one result over the whole range."""
        return self.target == AllTime()

    @property
    def states(self) -> tuple[str, ...]:
        """The columns of states that are read."""
        return tuple(dict.fromkeys(column for column, _ in self.measures.values()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: keys, those that the condition names, and states."""
        read = () if self.where is None else sql.columns_of(self.where)
        return tuple(dict.fromkeys([*self.keys, *read, *self.states]))

    def narrowing(self, schema: pa.Schema) -> str | None:
        """Return the condition, if backends may leave out rows by it: they read times in UTC."""
        read = () if self.where is None else sql.columns_of(self.where)
        timed = self.timezone != "UTC" and any(pa.types.is_temporal(schema.field(name).type) for name in read)
        return None if timed else self.where

    def span(self) -> Range | None:
        """Return the range of the windows, from the start of the first to the end of the last."""
        if self.within is None:
            return None
        finest = self.frame.levels[0] if self.whole else self.target
        low, high = (finest.first_start_from(at) for at in self.within)
        if self.whole or low >= high:
            return low, high
        last = self.target.starts(np.array([high - 1]))
        return low, int(self.target.ends(last)[0])

    def source(self) -> int:
        """Choose the coarsest level that the windows are whole multiples of, counted from the finest.

        The whole range is read from the coarsest level whose windows make it up.
        """
        levels = self.frame.levels
        span = self.span() if self.whole else None
        able = [i for i, level in enumerate(levels) if is_made_of(self.target, level, self.within)]
        return [i for i in able if span is None or _tiles(levels[i], span)][-1]


def plan_query(
    frame: TiltFrame,
    per: str | TimeWindow | None,
    within: Any = None,
    where: str | None = None,
    measures: Sequence[str] | Mapping[str, Measure] | None = None,
    keys: Sequence[str] | None = None,
    now: int | None = None,
    timezone: str | None = None,
) -> QueryPlan:
    """Check a query and plan it; parameters as for `tiltframe.FrameStore.query`, ``now`` in microseconds UTC.

    Raises ``ValueError`` for windows that the levels cannot make, measures and keys that are not there, and ranges
    and conditions that cannot be read.
    """
    if where is not None and not is_name(where):
        raise ValueError(f'a condition must be text, say "{_an_example(frame)}"; got {shown(where)}')
    for name in sql.columns_of(where) if where is not None else ():
        if name not in frame.keys:
            there = _list(frame.keys)
            raise ValueError(f"a condition can name the keys of the frame ({there}); got {shown(name)}")
    zone = timezone or frame.timezone
    span = None if within is None else read_time_range(within, zone, now)
    target = _target(frame, per, zone, span)
    return QueryPlan(frame, target, span, _keys(frame, keys), _measures(frame, measures), where, zone)


def _target(frame: TiltFrame, per: str | TimeWindow | None, zone: str, within: Range | None) -> TimeWindow:
    """Read what results are per: text in the zone that is asked for, a window in that zone or the frame's."""
    target = AllTime() if per is None else as_window(per, zone)
    if target.timezone not in (None, frame.timezone):
        target = window_in(target, zone)  # refuses those of a third zone
    if any(is_made_of(target, level, within) for level in frame.levels):
        return target
    levels = _list(level.name for level in frame.levels)
    if target.timezone != frame.timezone:
        raise ValueError(
            f"{target.name} in {target.timezone} is not made of whole windows of a level of the store, which are of "
            f"{frame.timezone}: {levels}; ask in {frame.timezone}, or keep a level such as 15m"
        )
    raise ValueError(
        f"{target.name} is not made of whole windows of a level; ask per {levels}, a whole multiple of "
        f"{frame.levels[0].name}, hopping windows of these, or '{ALL}'"
    )


def _tiles(level: TimeWindow, span: Range) -> bool:
    ends = np.array(span)
    return bool((level.starts(ends) == ends).all())


def _keys(frame: TiltFrame, keys: Sequence[str] | None) -> tuple[str, ...]:
    if keys is None:
        return frame.keys
    chosen = checked_names(keys, "keys")
    for key in chosen:
        if key not in frame.keys:
            raise ValueError(f"the frame has no key {shown(key)}; {nearest(key, frame.keys, _there(frame.keys))}")
    return chosen


def _measures(
    frame: TiltFrame, measures: Sequence[str] | Mapping[str, Measure] | None
) -> dict[str, tuple[str, Measure]]:
    if measures is None:
        measures = frame.measures
    elif not isinstance(measures, Mapping):
        names = checked_names(measures, "measures", "names, or a dict of new ones by name")
        for name in names:
            if name not in frame.measures:
                raise ValueError(
                    f"the frame has no measure {shown(name)}; {nearest(name, frame.measures, _there(frame.measures))}"
                )
        measures = {name: frame.measures[name] for name in names}
    if not measures:
        raise ValueError(f"no measure is asked for; the frame has {_list(frame.measures)}")
    check_names(frame.keys, measures)
    found = {}
    for name, measure in measures.items():
        if not isinstance(measure, Measure):
            raise ValueError(
                f"cannot ask for {shown(measure)} as {shown(name)}; measures are made by aggr, say aggr.sum('x')"
            )
        column = holder(frame.states, measure)
        if column is None:
            kept = _list(repr(c.measure) for c in frame.states)
            raise ValueError(f"{name}: the store keeps no states for {measure!r}; it keeps those of {kept}")
        found[name] = (column.name, measure)
    return found


def _an_example(frame: TiltFrame) -> str:
    return f"{frame.keys[0]} = 'a'" if frame.keys else "host = 'a'"


def _there(names: Iterable[str]) -> str:
    return f"it has {_list(names)}"


def _list(names: Any) -> str:
    return ", ".join(names) or "none"
