"""Query plans: check a query against the frame of a store, and determine the level and the columns to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from aggr import Measure, sql
from aggr.arguments import listed, nearest, shown
from aggr.duration import read_length
from aggr.tables.result_expressions import results_read
from aggr.tables.state_plan import find_state_column
from tiltframe.frame import TiltFrame
from tiltframe.frame_levels import window_in
from tiltframe.names import END, FILLED, LEVEL, START, check_names
from tiltframe.parameter_names import argument_text, parameter_text
from tiltframe.ranges import EVER, Range
from tiltframe.store.query.derived_keys import DerivedKey
from tiltframe.store.query.other_zone import is_made_of
from tiltframe.store.query.query import Query
from windows import AllTime, TimeWindow, as_window

ALL = AllTime().name


@dataclass(frozen=True)
class QueryPlan:
    """The data that a query reads from a store, for one kind of window.

    Parameters
    ----------
    frame : TiltFrame
        The frame of the store.
    window : TimeWindow
        The windows of the results; `windows.AllTime` for one result over the whole range.
    within : (int, int)
        The range of window starts, in microseconds UTC. Open ends have the values of `EVER`.
    keys : tuple of str
        The keys of the results.
    keys_to_read : tuple of str
        The keys of the frame from which the keys of the results and the condition are computed.
    key_fields : tuple of str
        The fields of structs, such as ``tags.host``, that are keys of the results or sources of derived keys.
    measures : name -> (str, Measure)
        The measures that are requested or that expressions read, each with its column of states.
    where : str or None
        The condition on keys.
    timezone : str
        The zone of times in conditions, orders and expressions.
    results : name -> str or None
        The requested results, in order: the text of an expression, or None for a measure.
    derived_keys : name -> DerivedKey
        The derived keys, by their names in the results.
    now : int
        The time for which derived keys are computed, in microseconds UTC.
    edges : int or None
        The argument ``edges`` of the query, in microseconds.
    has_only_closed_windows : bool
        Whether windows that streams may still change are left out.
    stored_expressions : name -> str
        The expressions of the frame that the results need. Each expression comes after the expressions that it reads.
    """

    frame: TiltFrame
    window: TimeWindow
    within: Range
    keys: tuple[str, ...]
    keys_to_read: tuple[str, ...]
    key_fields: tuple[str, ...]
    measures: Mapping[str, tuple[str, Measure]]
    where: str | None
    timezone: str
    results: Mapping[str, str | None]
    derived_keys: Mapping[str, DerivedKey] = field(default_factory=dict)
    now: int = 0
    edges: int | None = None
    has_only_closed_windows: bool = False
    stored_expressions: Mapping[str, str] = field(default_factory=dict)

    @property
    def per(self) -> str:
        """The name of the windows of the results, such as ``1h``."""
        return self.window.name

    @property
    def has_single_window(self) -> bool:
        """Whether the query has one result for the whole range."""
        return self.window == AllTime()

    @property
    def states(self) -> tuple[str, ...]:
        """The columns of states that are read."""
        return tuple(dict.fromkeys(column for column, _ in self.measures.values()))

    @property
    def read_to_edges(self) -> tuple[str, ...]:
        """The names of the measures to which ``edges`` applies. These measures are computed from points whose times are
        the event times of the frame, like a time-weighted average.
        """
        time_columns = {name: m.others[-1] for name, (_, m) in self.measures.items() if m.function.reads_neighbours}
        return tuple(name for name, by in time_columns.items() if by in (None, self.frame.time))

    def with_edges(self) -> QueryPlan:
        """Return the plan with the range of all windows to read. With ``edges``, the range is extended to windows whose
        points may count in windows of the original range.
        """
        if self.edges is None:
            return self
        low, high = self.within
        first = np.array([low - self.edges])
        last = np.array([high + self.edges - 1])
        low = low if low == EVER[0] else int(self.window.starts(first)[0])
        return replace(self, within=(low, high if high == EVER[1] else int(self.window.ends(last)[0])))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read: keys, columns of the condition, and states."""
        return tuple(dict.fromkeys([*self.keys_to_read, *self.states]))

    def narrowing(self, schema: pa.Schema) -> str | None:
        """Return the condition on keys that backends may use to skip rows, or None. Backends read the times in a
        condition in UTC, so None is returned if the condition compares times in another zone.
        """
        if self.where is None:
            return None
        read = sql.columns_of(self.where)
        # Only complete keys are checked for a type of times. Fields of structs are not checked, because backends do not
        # skip rows by fields.
        types = [schema.field(name).type for name in read if name in schema.names]
        compares_local_times = self.timezone != "UTC" and any(pa.types.is_temporal(dtype) for dtype in types)
        return None if compares_local_times else self.where

    def span(self) -> Range:
        """Return the range from the start of the first window to the end of the last window, in microseconds UTC. Open
        ends have the values of `EVER`.
        """
        window = self.frame.levels[0] if self.has_single_window else self.window
        if window.contiguous:
            # The last window ends where the next one starts, so one call computes both ends of the range.
            before = np.array([at - 1 for at in self.within if at not in EVER], np.int64)
            next_starts = iter(window.ends(window.starts(before)).tolist())
            low, high = (at if at in EVER else next(next_starts) for at in self.within)
            return low, high
        low, high = (at if at in EVER else window.first_start_from(at) for at in self.within)
        if not self.has_single_window and low < high and high != EVER[1]:
            high = int(window.ends(window.starts(np.array([high - 1])))[0])
        return low, high

    @cached_property
    def stored_level(self) -> TimeWindow:
        """The level to read: the coarsest level of the frame such that the windows, or the whole range, consist
        of complete windows of the level.
        """
        candidates = [level for level in self.frame.levels if is_made_of(self.window, level, self.within)]
        if self.has_single_window:
            bounds = np.array([at for at in self.span() if at not in EVER], np.int64)
            candidates = [level for level in candidates if bool((level.starts(bounds) == bounds).all())]
        return candidates[-1]


def plan_queries(
    frame: TiltFrame, query: Query, *, within: Range, requested_windows: Sequence[str | TimeWindow | None], now: int
) -> list[QueryPlan]:
    """Check a query against a frame, and return a plan for each kind of window.

    ``within`` is the range of the query. ``requested_windows`` are the windows that the query selects by ``per`` or
    ``points``; None stands for one result over the whole range. ``now`` is in microseconds UTC. Raise ``ValueError`` if
    the query does not fit the frame, or names the same windows twice.
    """
    keys_of_condition = []
    columns_of_condition = () if query.where is None else sql.columns_of(query.where)
    for name in columns_of_condition:
        key = _frame_key(name, frame)
        if key is None:
            hint = f"compare results with {parameter_text('having')}"
            if name not in frame.measures:
                hint = f"a text is written in single quotes, {shown(name)}"
            raise ValueError(
                f"a condition can use only the keys of the frame ({_list(frame.keys)}); got {shown(name)}; {hint}"
            )
        keys_of_condition.append(key)
    zone = query.timezone or frame.timezone
    windows = [_window(frame, requested, zone, within) for requested in requested_windows]
    for i, window in enumerate(windows):
        equal_window = next((other for other in windows[:i] if _are_same_windows(window, other)), None)
        if equal_window is not None:
            names = listed([window.name for window in windows])
            raise ValueError(
                f"{parameter_text('per')} contains a level twice: in {names}, {equal_window.name} and {window.name} "
                "are the same; name each level once"
            )
    derived_keys = query.derived_keys
    keys = frame.keys if query.keys is None else tuple(query.keys)
    sources = dict(zip(keys, keys, strict=True)) if query.keys is None else _key_sources(keys, derived_keys, frame)
    keys_to_read = tuple(dict.fromkeys([*sources.values(), *keys_of_condition]))
    key_fields = tuple(source for source, key in sources.items() if source != key)
    default_results = list(frame.results)
    if query.keys is not None:  # Expressions that read a key which the query leaves out are left out, too.
        default_results = [name for name in default_results if not _keys_read(name, frame).difference(keys)]
    requested: Mapping[str, Any] = dict(zip(default_results, default_results, strict=True))
    if query.measures is not None:
        requested = query.measures  # type: ignore[assignment]
    for key_names in (frame.keys, tuple(derived_keys)):
        check_names(key_names, [*requested, FILLED] if query.fill else requested)
    measures, expressions = _measures(frame, requested)
    results = {
        name: str(definition) if _is_expression(definition, frame) else None for name, definition in requested.items()
    }
    edges = None if query.edges is None else read_length(query.edges, "length of edges")
    plans = [
        QueryPlan(
            frame,
            window,
            within,
            keys=keys,
            keys_to_read=keys_to_read,
            key_fields=key_fields,
            measures=measures,
            where=query.where,
            timezone=zone,
            results=results,
            derived_keys=derived_keys,
            now=now,
            edges=edges,
            has_only_closed_windows=query.closed,
            stored_expressions=expressions,
        )
        for window in windows
    ]
    for plan in plans:
        if edges is not None:
            _check_edges(plan)
        if query.running and (plan.has_single_window or plan.window.max_overlap > 1):
            raise ValueError(
                f"{parameter_text('running')} needs windows that follow each other, such as "
                f"{argument_text('per', '1h')}; got {shown(plan.per)}"
            )
    return plans


def _check_edges(plan: QueryPlan) -> None:
    """Raise ``ValueError`` if ``edges`` cannot be applied: if windows overlap, if there is one result over the whole
    range, or if no measure uses points of neighbouring windows.
    """
    if plan.has_single_window or plan.window.max_overlap > 1:
        raise ValueError(
            f"{parameter_text('edges')} needs windows that follow each other, such as {argument_text('per', '1h')}; "
            f"got {shown(plan.per)}"
        )
    if not plan.read_to_edges:
        raise ValueError(
            f"{parameter_text('edges')} needs a measure that also reads rows of neighbouring windows and orders them "
            f"by the frame's event time, such as time_weighted_avg or increase; got {_list(plan.measures)}; leave out "
            f"{parameter_text('edges')}"
        )
    # With ``edges``, windows outside the range are read too. `_window` raises an error if the windows in this longer
    # range do not consist of complete windows of a level.
    _window(plan.frame, plan.window, plan.timezone, plan.with_edges().within)


def _are_same_windows(window: TimeWindow, other: TimeWindow) -> bool:
    """Return whether two windows are equal although their text may differ, such as ``60s`` and ``1m``."""
    has_same_length = window.sort_key == other.sort_key and window.timezone == other.timezone
    return window == other or (has_same_length and window.is_made_of(other) and other.is_made_of(window))


def _window(frame: TiltFrame, per: str | TimeWindow | None, zone: str, within: Range) -> TimeWindow:
    """Return the windows of results. A text is read in ``zone``, the zone of the query. A window object must be in this
    zone or in that of the frame. Raise ``ValueError`` for another zone, or if the windows do not consist of complete
    windows of a level.
    """
    window = AllTime() if per is None else as_window(per, zone)
    if window.timezone not in (None, frame.timezone):
        window = window_in(window, zone)  # `window_in` raises an error unless the window is in the zone of the query.
    if any(is_made_of(window, level, within) for level in frame.levels):
        return window
    levels = _list(level.name for level in frame.levels)
    if window.timezone not in (None, frame.timezone):
        raise ValueError(
            f"{window.name} in {window.timezone} does not consist of whole windows of a level of the store, whose "
            f"levels in {frame.timezone} are {levels}; use the time zone {frame.timezone}, or store a level such as 15m"
        )
    raise ValueError(
        f"{window.name} does not consist of whole windows of a level; use a level ({levels}), a whole multiple of "
        f"{frame.levels[0].name}, hopping windows made of levels, or '{ALL}'"
    )


def _frame_key(name: str, frame: TiltFrame) -> str | None:
    """Return the key of a frame that a name refers to: the key of this name, or the key that has the named field, such
    as ``tags`` for ``tags.host``. Return None if there is no such key.
    """
    key = sql.column_in(name, frame.keys)
    if key is None:
        with suppress(ValueError):  # a text that cannot be parsed is not the name of a key
            path = sql.column_of(name)
            key = None if path is None else sql.column_in(path, frame.keys)
    return key


def _key_sources(keys: Iterable[str], derived_keys: Mapping[str, DerivedKey], frame: TiltFrame) -> dict[str, str]:
    """Return the sources of the keys of a query, as source → key of the frame. A source is a key of the frame, or a
    field of such a key, from which a key of the query is computed. Raise ``ValueError`` if a source does not exist.
    """
    sources = {}
    for name in keys:
        source = derived_keys[name].key if name in derived_keys else name
        key = _frame_key(source, frame)
        if key is None:
            raise ValueError(
                f"the frame has no key {shown(source)}; {nearest(source, frame.keys, _existing_names(frame.keys))}"
            )
        sources[source] = key
    return sources


def _measures(
    frame: TiltFrame, requested: Mapping[str, Measure | str]
) -> tuple[dict[str, tuple[str, Measure]], dict[str, str]]:
    """Return two dicts. The first contains all measures that are requested or that an expression reads, as name →
    (column of states, measure). The second contains all expressions of the frame that are requested or that another
    expression reads, as name → text.
    """
    measures = {
        **frame.measures,
        **{name: definition for name, definition in requested.items() if isinstance(definition, Measure)},
    }
    texts = {name: definition for name, definition in requested.items() if isinstance(definition, str)}
    measures |= {name: frame.measures[text] for name, text in texts.items() if text in frame.measures}
    stored = {name: text for name, text in frame.expressions.items() if name not in measures}
    readable = [*measures, *stored]
    needed = dict[str, Measure]()
    to_read = list[str]()
    stored_read = set[str]()
    for name, definition in requested.items():
        if not _is_expression(definition, frame):
            needed[name] = measures[name]
            continue
        if name == definition and definition not in stored:
            raise ValueError(
                f"the frame has no measure {shown(name)}; {nearest(name, readable, _existing_names(frame.results))}"
            )
        for read, bases in results_read(str(definition), readable).items():
            if not bases and sql.column_in(read, (LEVEL, START, END, *frame.keys)) is None:
                raise ValueError(f"{name} reads {shown(read)}, which is not a result; {nearest(read, readable)}")
            to_read += bases
    while to_read:
        base = to_read.pop()
        if base in measures:
            needed[base] = measures[base]
        elif base not in stored_read:
            stored_read.add(base)
            to_read += _read_by_stored(base, measures, frame)
    columns = {}
    for name, measure in needed.items():
        column = find_state_column(frame.states, measure)
        if column is None:
            stored_measures = _list(repr(c.measure) for c in frame.states)
            raise ValueError(
                f"cannot compute {name}: the store has no states of {measure!r}; it has states of {stored_measures}"
            )
        columns[name] = (column.name, measure)
    return columns, {name: text for name, text in stored.items() if name in stored_read}


def _keys_read(name: str, frame: TiltFrame) -> set[str]:
    """Return the keys that an expression of the frame reads, directly or through other expressions. A measure does not
    read keys.
    """
    if name not in frame.expressions:
        return set()
    read = results_read(frame.expressions[name], frame.results)
    inner = (_keys_read(base, frame) for bases in read.values() for base in bases)
    columns = (sql.column_in(column, frame.keys) for column, bases in read.items() if not bases)
    return {column for column in columns if column is not None}.union(*inner)


def _read_by_stored(name: str, measures: Mapping[str, Measure], frame: TiltFrame) -> list[str]:
    """Return the names of the results that ``name``, an expression of the frame, reads. Raise ``ValueError`` if the
    query redefines one of them.
    """
    read = [base for bases in results_read(frame.expressions[name], frame.results).values() for base in bases]
    for base in read:
        if base in measures and measures[base] != frame.measures.get(base):
            raise ValueError(
                f"{name} is the expression {shown(frame.expressions[name])} of stored results, but {base!r} is another "
                "measure in this query; choose another name for the new measure"
            )
    return read


def _is_expression(requested: Measure | str, frame: TiltFrame) -> bool:
    return isinstance(requested, str) and requested not in frame.measures


def _existing_names(names: Iterable[str]) -> str:
    return f"it has {_list(names)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
