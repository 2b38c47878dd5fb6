"""Questions: what is asked of a store, checked against its frame before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggr import Measure
from aggr.plan import holder
from aggr.where import columns_of
from tiltframe.frame import START, TiltFrame
from tiltframe.store.tables import Range
from tiltframe.store.within import read_within
from windows import Hopping, Window, read_hopping, window

ALL = "all"
Target = Window | Hopping | None  # None is the whole range


@dataclass(frozen=True)
class Question:
    """What is asked of a store.

    Parameters
    ----------
    frame : TiltFrame
        The store's.
    target : Window, Hopping or None
        What results are per; None for the whole range.
    within : range, optional
        Windows that start in it.
    keys : names
        What results are kept apart by.
    measures : name -> (column of states, measure)
    where : str, optional
        A condition on the frame's keys.
    """

    frame: TiltFrame
    target: Target
    within: Range | None
    keys: tuple[str, ...]
    measures: Mapping[str, tuple[str, Measure]]
    where: str | None

    @property
    def per(self) -> str:
        """What results are per, as text."""
        return ALL if self.target is None else self.target.name

    @property
    def states(self) -> tuple[str, ...]:
        """The columns of states that are read."""
        return tuple(dict.fromkeys(column for column, _ in self.measures.values()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: keys that are asked or named by the condition, and states."""
        return tuple(dict.fromkeys([*self.keys, *columns_of(self.where), *self.states]))

    def span(self) -> Range | None:
        """Return the range of the windows asked for, from the start of the first to the end of the last."""
        if self.within is None:
            return None
        finest = self.frame.levels[0] if self.target is None else self.target
        low, high = (first_from(finest, at) for at in self.within)
        if self.target is None or low >= high:
            return low, high
        if isinstance(self.target, Window):
            return low, high
        last = self.target.between(low, self.within[1])[-1:]
        return low, int(self.target.ends(last)[0])

    def source(self) -> int:
        """Choose the coarsest level that the windows are whole multiples of, counted from the finest.

        The whole range is read from the coarsest level whose windows make it up.
        """
        levels = self.frame.levels
        if self.target is None:
            span = self.span()
            able = [i for i, level in enumerate(levels) if span is None or _tiles(level, span)]
        else:
            able = [i for i, level in enumerate(levels) if made_of(self.target, level)]
        return able[-1]


def question(
    frame: TiltFrame,
    per: str | Window | Hopping | None,
    within: Any = None,
    where: str | None = None,
    measures: Sequence[str] | Mapping[str, Measure] | None = None,
    keys: Sequence[str] | None = None,
) -> Question:
    """Check what is asked; parameters as for `tiltframe.FrameStore.query`.

    Raises ``ValueError`` for windows that the levels cannot make, measures and keys that are not there, and ranges
    and conditions that cannot be read.
    """
    for name in columns_of(where):
        if name not in frame.keys:
            raise ValueError(f"a condition can name the keys of the frame ({_list(frame.keys)}); got {name!r}")
    target = _target(frame, per)
    span = None if within is None else read_within(within, frame.timezone)
    return Question(frame, target, span, _keys(frame, keys), _measures(frame, measures), where)


def _target(frame: TiltFrame, per: str | Window | Hopping | None) -> Target:
    if per is None or per == ALL:
        return None
    if isinstance(per, Hopping):
        target: Window | Hopping = per
    elif isinstance(per, str) and per.strip().startswith("hopping"):
        target = read_hopping(per, frame.timezone)
    else:
        target = window(per, frame.timezone)
    if any(made_of(target, level) for level in frame.levels):
        return target
    levels = _list(level.name for level in frame.levels)
    raise ValueError(
        f"{target.name} is not made of whole windows of a level; ask per {levels}, a whole multiple of "
        f"{frame.levels[0].name}, hopping windows of these, or '{ALL}'"
    )


def made_of(target: Window | Hopping, level: Window) -> bool:
    """Say whether every window asked for is made of whole windows of a level."""
    whole = target if isinstance(target, Window) else target.pane
    return level.nests_in(whole)


def first_from(target: Window | Hopping, at: int) -> int:
    """Find the first window that starts at a moment or after it."""
    if not isinstance(target, Window):
        return target.first_from(at)
    start = target.starts(np.array([at]))
    return at if start[0] == at else int(target.ends(start)[0])


def _tiles(level: Window, span: Range) -> bool:
    ends = np.array(span)
    return bool((level.starts(ends) == ends).all())


def _keys(frame: TiltFrame, keys: Sequence[str] | None) -> tuple[str, ...]:
    if keys is None:
        return frame.keys
    if isinstance(keys, str):
        raise ValueError(f"keys must be a list of names; got {keys!r}: write [{keys!r}]")
    unknown = [key for key in keys if key not in frame.keys]
    if unknown:
        raise ValueError(f"the frame has no key {unknown[0]!r}; it has {_list(frame.keys)}")
    return tuple(dict.fromkeys(keys))


def _measures(
    frame: TiltFrame, measures: Sequence[str] | Mapping[str, Measure] | None
) -> dict[str, tuple[str, Measure]]:
    if isinstance(measures, str):
        raise ValueError(f"measures must be a list of names, or new ones by name; got {measures!r}")
    if not isinstance(measures, Mapping):
        names = frame.measures if measures is None else measures
        unknown = [name for name in names if name not in frame.measures]
        if unknown:
            raise ValueError(f"the frame has no measure {unknown[0]!r}; it has {_list(frame.measures)}")
        measures = {name: frame.measures[name] for name in names}
    if not measures:
        raise ValueError(f"no measure is asked for; the frame has {_list(frame.measures)}")
    found = {}
    for name, measure in measures.items():
        if name in (START, *frame.keys) or not isinstance(measure, Measure):
            raise ValueError(
                f"cannot ask for {measure!r} as {name!r}; a measure has a name of its own, and is made by aggr"
            )
        column = holder(frame.states, measure)
        if column is None:
            kept = _list(repr(c.measure) for c in frame.states)
            raise ValueError(f"{name}: the store keeps no states for {measure!r}; it keeps those of {kept}")
        found[name] = (column.name, measure)
    return found


def _list(names: Any) -> str:
    return ", ".join(names) or "none"
