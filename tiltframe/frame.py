"""The tilt frame: several levels of windows, from fine to coarse, with the same keys and measures."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from aggr import Function, Measure
from aggr.arguments import checked_mapping, checked_name, checked_type, nearest, shown
from aggr.remembered import remembered
from aggr.state_checks import checked
from aggr.tables.by_key import check_rows, columns_of_keys_and_measures, columns_of_measures, states_fields
from aggr.tables.column_uses import ColumnUses
from aggr.tables.keys import checked_keys, columns_keys_may_read, keys_as_text, keys_from_json
from aggr.tables.result_expressions import order_expressions, split_results, with_expressions
from aggr.tables.state_plan import StateColumn, plan_state_columns
from tiltframe import provenance
from tiltframe.event_time import INSTANT, check_clock
from tiltframe.frame_description import (
    check_members,
    check_versions,
    describe_frame,
    first_difference,
    results_in,
    states_in,
)
from tiltframe.frame_levels import check_nesting, find_level, read_levels
from tiltframe.names import END, LEVEL, START, check_names
from tiltframe.parameter_names import by_caller
from tiltframe.text.html_table import html_table
from windows import TimeWindow, check_timezone, text_of


@dataclass(frozen=True, init=False, eq=False)
class TiltFrame:
    """Levels of windows, from fine to coarse, and the measures that are computed per window and key.

    Parameters
    ----------
    levels : windows, from the finest to the coarsest
        Windows as text, as `windows.read_window` reads it, or as objects. Each window must consist of whole windows of
        the level before: ``["10s", "1m", "10m", "1h"]``. A hopping window is merged from shorter windows, its panes. A
        window after a level of hopping windows must consist of whole panes, not of whole hopping windows:
        ``["hopping(1h, 10m)", "1d"]`` is allowed, because a day consists of whole panes of ten minutes. A session,
        ``["session(30m)"]``, must be the only level. The text ``sec ... year`` means the levels of seconds, minutes,
        hours, days, months and years.
    time : str
        The column of event times: timestamps, dates, ISO 8601 strings, or whole numbers, which are Unix milliseconds.
        Times without a zone are UTC. In a frame with another zone they raise an error unless ``ReadOptions(clock=…)``
        names their zone. A date is the first instant of the day in ``timezone``.
    measures : name -> measure, or expression of other measures
        `aggr.count`, `aggr.dds` and the other functions of `aggr` create measures. A text is an SQL expression over the
        results of other measures, the keys, ``window_start`` and ``window_end``: ``{"rate": "errors / requests"}``. An
        expression has no states, and is computed when results are read.
    keys : column names, or name -> column or expression
        Results are computed per combination of key values. Null is a valid key. ``{"route": "lower(route)"}`` groups by
        the value of an SQL expression. ``{"tag": each("tags")}`` groups by the elements of a list, as
        `aggr.tables.keys` describes. A struct is a key with all its fields, and a null struct is a value of its own.
    timezone : str
        The zone in which windows are aligned: an IANA name, or an offset such as ``+05:30``.
    results : name -> measure or expression
        An attribute: the argument ``measures``, with all measures and expressions in the order of their columns.
    expressions : name -> text
        An attribute: the entries of ``results`` that are expressions. Each comes after the expressions that it reads.
        The attribute ``measures`` has the entries that are not expressions.
    keyed_by : name -> column or expression
        An attribute: the keys, with the column or expression that computes each.
    kept : tuple of StateColumn, or None
        An attribute: the columns of states that `keeping` has set, or None if they follow from ``measures``.

    Raises
    ------
    ValueError
        If the levels do not nest or are in different zones, a name is used twice or is reserved, the zone is unknown,
        or an expression reads a name that is not a result.

    Examples
    --------
    >>> import aggr
    >>> TiltFrame(["10s", "1m"], time="ts", keys=["host"], measures={"requests": aggr.count()})
    TiltFrame(10s → 1m by host; requests=count())
    >>> span = {"first": aggr.min("ts"), "last": aggr.max("ts"), "ms": "date_diff('ms', first, last)"}
    >>> TiltFrame(["all"], time="ts", keys=["trace_id"], measures=span).expressions["ms"]
    "date_diff('ms', first, last)"
    """

    levels: tuple[TimeWindow, ...]
    time: str
    results: Mapping[str, Measure | str]  # all measures and expressions, in the order of their columns
    measures: Mapping[str, Measure]
    # The expressions are sorted, so that each reads only measures and earlier expressions.
    expressions: Mapping[str, str]
    keyed_by: Mapping[str, str]
    timezone: str
    kept: tuple[StateColumn, ...] | None

    def __init__(
        self,
        levels: Sequence[str | TimeWindow],
        time: str,
        measures: Mapping[str, Measure | str],
        keys: Sequence[str] | Mapping[str, str] = (),
        timezone: str = "UTC",
    ) -> None:
        """Check the arguments. Columns and their types are checked later, by `check`."""
        timezone = check_timezone(timezone)
        windows = read_levels(levels, timezone)
        set_field = object.__setattr__
        set_field(self, "levels", windows)
        set_field(self, "time", checked_name(time, "time, the column of event times,"))
        results = dict(checked_mapping(measures, "measures", _MEASURES))
        stateful, expressions = split_results(results)
        set_field(self, "results", MappingProxyType(results))
        set_field(self, "measures", MappingProxyType(stateful))
        set_field(self, "keyed_by", MappingProxyType(checked_keys(keys)))
        set_field(self, "timezone", timezone)
        set_field(self, "kept", None)
        check_nesting(windows)
        self._check_names()
        order = order_expressions(expressions, results, (LEVEL, START, END, *self.keyed_by))
        set_field(self, "expressions", MappingProxyType({name: expressions[name] for name in order}))

    @cached_property
    def states(self) -> tuple[StateColumn, ...]:
        """The columns of states from which the measures are computed. Several measures may share one column."""
        return self.kept or plan_state_columns(self.measures)

    def keeping(self, states: Sequence[StateColumn]) -> TiltFrame:
        """Return a copy of the frame with other columns of states, such as the columns of a store. The results stay the
        same. Without this method, the columns of states of a frame follow from its measures.

        Parameters
        ----------
        states : sequence of StateColumn
            The columns of states. Together they must contain the states of all measures.

        Returns
        -------
        TiltFrame
        """
        frame = self.with_results(self.results)
        if tuple(states) != plan_state_columns(self.measures):
            object.__setattr__(frame, "kept", tuple(states))
        return frame

    def with_results(self, results: Mapping[str, Measure | str]) -> TiltFrame:
        """Return the frame with other measures and expressions.

        Parameters
        ----------
        results : name -> measure or expression
            All measures and expressions of the new frame, in the order of their columns.

        Returns
        -------
        TiltFrame
            Columns of states that were set by `keeping` are not preserved.

        Raises
        ------
        ValueError
            For the same reasons as `TiltFrame`.
        """
        return TiltFrame(self.levels, self.time, results, keys=self.keyed_by, timezone=self.timezone)

    def with_measures(self, more: Mapping[str, Measure | str]) -> TiltFrame:
        """Return the frame with additional measures. Columns of states that were set by `keeping` are preserved.

        Parameters
        ----------
        more : name -> measure or expression
            The measures and expressions to add.

        Returns
        -------
        TiltFrame

        Raises
        ------
        ValueError
            For the same reasons as `TiltFrame`.
        """
        frame = self.with_results({**self.results, **more})
        return frame if self.kept is None else frame.keeping((*self.kept, *plan_state_columns(split_results(more)[0])))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys; ``keyed_by`` maps each name to its column or expression."""
        return tuple(self.keyed_by)

    def columns_in(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of the input columns that the frame reads. The first is the time column.

        Parameters
        ----------
        names : collection of str
            The columns of the data. They decide whether a text such as ``"a-b"`` is the name of a column or an
            expression.

        Returns
        -------
        tuple of str

        Raises
        ------
        ValueError
            If a column is missing, or if a text names a column and is also an expression of other columns.
        """
        return self._columns_read(tuple(names))

    @remembered
    def _columns_read(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self.time not in names:
            raise ValueError(f"the data has no column {shown(self.time)}; {nearest(self.time, names)}")
        return tuple(dict.fromkeys([self.time, *columns_of_keys_and_measures(self.keyed_by, self.states, names)]))

    @remembered
    def columns_to_reduce(self, names: tuple[str, ...]) -> frozenset[str]:
        """Return the names of the columns that are read while rows are reduced. Columns that only keys read are left
        out, because keys are computed before the rows are reduced.

        Parameters
        ----------
        names : tuple of str
            The columns of the rows.

        Returns
        -------
        frozenset of str
        """
        return frozenset([self.time, *columns_of_measures(self.keyed_by, self.states, names)])

    def may_read(self) -> tuple[str, ...]:
        """Return the names of all columns that the frame might read, for data whose columns are not known yet.

        Returns
        -------
        tuple of str
            The time column comes first. Each key and each input of a measure is a text, which may be the name of a
            column or an expression. Therefore the tuple has the text itself, and also the columns that the text reads
            if it is an expression.
        """
        read = [name for column in self.states for name in column.measure.columns()]
        return tuple(dict.fromkeys([self.time, *columns_keys_may_read(self.keyed_by), *read]))

    @remembered
    def column_uses(self, where: str | None = None) -> ColumnUses:
        """Return how the keys, the measures and a condition on rows use the input columns.

        Parameters
        ----------
        where : str, optional
            An SQL condition that selects rows.

        Returns
        -------
        ColumnUses
        """
        groups = tuple(tuple(self.measures[name] for name in column.serves) for column in self.states)
        return ColumnUses(self.keyed_by, groups, where)

    @cached_property
    def level_field(self) -> pa.Field:
        """The Arrow field of the column ``level`` in tables of states. Its metadata contains a description of the
        frame.
        """
        described = self._parts()
        parts: dict[str, Any] = {
            part: described[part] for part in ("levels", "timezone", "time", "keys", "versions") if part in described
        }
        parts["states"] = {column.name: provenance.describe_states(column) for column in self.states}
        return pa.field(LEVEL, pa.string(), metadata=provenance.with_provenance(parts))

    @cached_property
    def states_columns(self) -> tuple[str, ...]:
        """The names of all columns of a table of states: level, window_start, window_end, the keys, the columns of
        states.
        """
        return (LEVEL, START, END, *self.keys, *(column.name for column in self.states))

    @property
    def never_closes(self) -> bool:
        """Whether all levels are windows over all time, which have no end."""
        return all(math.isinf(level.length) for level in self.levels)

    @cached_property
    def panes(self) -> TimeWindow:
        """The windows to which rows are reduced first. If the windows of the finest level overlap, their states are
        merged from panes: the longest windows whose length divides both the size and the hop. If they do not overlap,
        the panes are the windows of the finest level.
        """
        return self.levels[0].pane

    @property
    def disjoint(self) -> bool:
        """Whether the windows of every level are disjoint, so that each window lies in one window of the coarsest
        level.
        """
        return all(level.disjoint for level in self.levels)

    def level(self, name: str | TimeWindow) -> TimeWindow:
        """Return the window of a level.

        Parameters
        ----------
        name : str or TimeWindow
            The level, as text that `windows.read_window` reads or as an object. ``60s`` also selects the level ``1m``.

        Returns
        -------
        TimeWindow

        Raises
        ------
        ValueError
            If the frame does not have this level; the message lists the levels.
        """
        return find_level(self.levels, name)

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if rows with this schema cannot be rolled up.

        Parameters
        ----------
        schema : pa.Schema
            The schema of the rows; additional columns are ignored.

        Raises
        ------
        TypeError
            If a key, or the function of a measure, does not accept the type of a column.
        ValueError
            If a column is missing, or a condition or expression cannot be evaluated for the types of its columns.
        """
        checked_type(schema, pa.Schema, "the schema of data")
        self._check(schema.remove_metadata())  # pandas adds metadata, which older versions of pyarrow cannot hash

    @remembered
    def _check(self, schema: pa.Schema) -> None:
        check_rows(schema, self.keyed_by, self.states, time=INSTANT, more=[self.time])
        kind = schema.field(self.time).type
        if pa.types.is_timestamp(kind) and kind.tz is None:
            check_clock(self.time, self.timezone, clock=None)
        if self.expressions:
            self._results_schema(pa.schema(states_fields(schema, self.keyed_by, self.states, INSTANT)))

    def states_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the states that are computed from rows with this schema.

        Parameters
        ----------
        schema : pa.Schema
            The schema of the rows.

        Returns
        -------
        pa.Schema
            The columns level, window_start and window_end, the keys, and a struct for each column of states.

        Raises
        ------
        TypeError, ValueError
            For the same reasons as `check`.
        """
        self.check(schema)
        fields = states_fields(schema, self.keyed_by, self.states, INSTANT)
        return pa.schema([self.level_field, *_INTERVAL, *fields])

    def results_schema(self, states: pa.Schema) -> pa.Schema:
        """Return the schema of the results that are computed from states with this schema.

        Parameters
        ----------
        states : pa.Schema
            A schema from `states_schema`.

        Returns
        -------
        pa.Schema
            The columns level, window_start, window_end, keys, and one column for each measure and expression.

        Raises
        ------
        ValueError
            For the same reasons as `check_states`.
        """
        self.check_states(states)
        return self._results_schema(states)

    def _results_schema(self, states: pa.Schema) -> pa.Schema:
        """Return the schema of results. ``states`` is a schema of states that was already checked. Only its fields of
        keys and of columns of states are used.
        """
        own_fields = [pa.field(LEVEL, pa.string()), *_INTERVAL, *(states.field(k) for k in self.keys)]
        measures = [
            pa.field(name, measure.function.result_type(states.field(self.state_of(name)).type))
            for name, measure in self.measures.items()
        ]
        computed = self.with_expressions(pa.schema([*own_fields, *measures]).empty_table())
        return pa.schema([*own_fields, *(computed.schema.field(name) for name in self.results)])

    def with_expressions(self, results: pa.Table) -> pa.Table:
        """Add the columns of the frame's expressions to a table of results, and return the new table.

        Parameters
        ----------
        results : table
            The columns level, window_start, window_end, keys, and one column for each of ``measures``.

        Returns
        -------
        table
            The same rows: first the columns that are not measures, and then measures and expressions in the order of
            the attribute ``results``.

        Raises
        ------
        ValueError
            If an expression cannot be computed.
        """
        # Most frames have no expressions. Their results are returned unchanged, which takes no time.
        if not self.expressions:
            return results
        return with_expressions(results, self.expressions, self.timezone, tuple(self.results))

    def result_type(self, name: str, states: pa.Schema) -> pa.DataType:
        """Return the type of a measure's or an expression's results.

        Parameters
        ----------
        name : str
            One of ``results``.
        states : pa.Schema
            A schema with the keys and the columns of states, such as that of a store.

        Returns
        -------
        pa.DataType

        Raises
        ------
        ValueError
            If the frame does not have this result, or if it cannot be computed.
        """
        if name in self.expressions:
            return self._results_schema(states).field(name).type
        state = self.state_of(name)
        return self.measures[name].function.result_type(states.field(state).type)

    def state_of(self, measure: str) -> str:
        """Return the name of the column of states from which a measure is computed.

        Parameters
        ----------
        measure : str
            The name of the measure in the frame.

        Returns
        -------
        str
            The name of the column, one of `states_columns`.

        Raises
        ------
        ValueError
            If the frame does not have this measure; the message suggests the nearest name.
        """
        if checked_name(measure, "a measure") not in self.measures:
            raise ValueError(f"the frame has no measure {shown(measure)}; {nearest(measure, self.measures)}")
        return self.column_of_measure[measure]

    @cached_property
    def state_functions(self) -> Mapping[str, Function]:
        """A dict from the name of each column of states to the function that merges these states."""
        return {column.name: column.measure.function for column in self.states}

    @cached_property
    def column_of_measure(self) -> Mapping[str, str]:
        """A dict from the name of each measure to the name of the column of states from which it is computed."""
        return {measure: column.name for column in self.states for measure in column.serves}

    def check_states(self, schema: pa.Schema, exactly: bool = False) -> None:
        """Raise an error if a schema is not the schema of states of this frame.

        A table of states has a column ``level``, whose metadata describes the frame. If the metadata was lost, only the
        names and types of the columns are compared.

        Parameters
        ----------
        schema : pa.Schema
            The schema of the states; additional columns are ignored.
        exactly : bool
            Whether the states must be exactly those of the frame. If false, it suffices that the frame's measures can
            be computed from them.

        Raises
        ------
        ValueError
            If a column or a part of the description differs; the message names it.
        """
        checked_type(schema, pa.Schema, "the schema of states")
        provenance.check_states(schema, self.level_field, self.states_columns, exactly)
        self._check_state_types(tuple(schema.field(column.name).type for column in self.states))

    @remembered
    def _check_state_types(self, types: tuple[pa.DataType, ...]) -> None:
        """Check ``types``, the types of the columns of states in a table. Raise ``ValueError`` if the function of a
        column has no states of this type.
        """
        for column, dtype in zip(self.states, types, strict=True):
            checked(column.measure.function, pa.array([], dtype))

    def describe(self) -> dict[str, Any]:
        """Return a description of the frame as plain data that JSON can represent; `from_dict` reads it.

        Returns
        -------
        dict

        Raises
        ------
        ValueError
            If the kind of window of a level is not registered, so that its name could not be read back.
        """
        for level in self.levels:
            text_of(level)
        return self._parts()

    def _parts(self) -> dict[str, Any]:
        return describe_frame(
            levels=self.levels,
            time=self.time,
            keyed_by=self.keyed_by,
            timezone=self.timezone,
            results=self.results,
            states=self.kept,
        )

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> TiltFrame:
        """Return the frame that a description defines.

        Parameters
        ----------
        described : mapping
            A description from `describe`.

        Returns
        -------
        TiltFrame

        Raises
        ------
        ValueError
            If a part is missing or cannot be read, if the installed definition of a window has another version than the
            description, or for the same reasons as `TiltFrame`.

        Examples
        --------
        >>> import aggr
        >>> frame = TiltFrame(["10s", "1m"], time="ts", measures={"requests": aggr.count()})
        >>> TiltFrame.from_dict(frame.describe()) == frame
        True
        """
        check_members(described)
        results = results_in(described)
        keys = keys_from_json(described["keys"])
        frame = cls(described["levels"], described["time"], results, keys=keys, timezone=described["timezone"])
        check_versions(frame.levels, described)
        states = states_in(described)
        return frame if states is None else frame.keeping(states)

    def difference(self, other: TiltFrame, own: str = "here", others: str = "there") -> str | None:
        """Return the first difference to another frame, as a clause for an error message.

        Parameters
        ----------
        other : TiltFrame
        own, others : str
            The words for this frame and for ``other`` in the clause, such as "in the store" and "in the job".

        Returns
        -------
        str or None
            A clause such as "timezone is UTC here and Asia/Tokyo there", or None if the frames do not differ.

        Raises
        ------
        ValueError
            If ``other`` is not a frame.
        """
        checked_type(other, TiltFrame, "a frame")
        return first_difference((self._parts(), other._parts()), (self.results, other.results), (own, others))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TiltFrame) and self.levels == other.levels and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(repr(self._parts()))

    def __repr__(self) -> str:
        chain = " → ".join(level.name for level in self.levels)
        by = f" by {keys_as_text(self.keyed_by)}" if self.keys else ""
        zone = "" if self.timezone == "UTC" else f" in {self.timezone}"
        measures = ", ".join(f"{name}={result!r}" for name, result in self.results.items())
        return f"TiltFrame({chain}{zone}{by}; {measures})"

    def _repr_html_(self) -> str:
        chain = " → ".join(level.name for level in self.levels)
        caption = f"{chain} in {self.timezone}, of {self.time}" + (f", by {', '.join(self.keys)}" if self.keys else "")
        return html_table(["measure", "call"], self.results.items(), caption)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of the constructor. Windows and functions are pickled as objects and not by name, so
        that objects of unregistered kinds can be pickled too.
        """
        arguments = self.levels, self.time, dict(self.results), dict(self.keyed_by), self.timezone
        return (TiltFrame, arguments) if self.kept is None else (TiltFrame.keeping, (TiltFrame(*arguments), self.kept))

    def _check_names(self) -> None:
        if not self.measures:
            raise ValueError(
                "a frame needs at least one measure, such as "
                + by_caller("requests=count()", "measures={'requests': aggr.count()}")
            )
        check_names(self.keys, self.results)


_MEASURES = "name -> measure, such as {'requests': aggr.count()}"
_INTERVAL = (pa.field(START, INSTANT), pa.field(END, INSTANT))


def finest_frame(frame: TiltFrame) -> TiltFrame:
    """Return the frame with only the finest level and the same columns of states."""
    finest = TiltFrame(frame.levels[:1], frame.time, frame.results, keys=frame.keyed_by, timezone=frame.timezone)
    return finest.keeping(frame.states)
