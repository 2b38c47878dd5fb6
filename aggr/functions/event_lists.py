"""EventLists: functions whose results are computed from a list of the group's events, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrays import Flags, Floats, Whole
from aggr.arrow import compute as pc
from aggr.arrow.normalize import microseconds
from aggr.exact.number_columns import as_floats
from aggr.fields import Field
from aggr.function import Function
from aggr.function_inputs import EVENT_TIME
from aggr.functions.limits import BEYOND_PARAMETER, ERROR, beyond_parameter, check_beyond, check_max, null_lists
from aggr.functions.value_lists import ALL, DEFAULT_MAX, KEEP_OPTIONS, OrderedRows
from aggr.groups.groups import Groups
from aggr.input_types import ORDERED, SUMMABLE, TIMES, InputTypes
from aggr.neighbours import Neighbours
from aggr.state import State

ORDERED_AT_TIMES: Mapping[str, InputTypes] = {"value": ORDERED, EVENT_TIME: TIMES}


@dataclass(frozen=True)
class EventsState(State):
    """The state of `EventLists`: lists of up to ``max`` values with their event times, ordered by time and then by
    value.

    For a group with more values, ``keep`` selects the earliest or the latest. With ``keep="all"``, ``beyond``
    determines whether an error is raised or the list becomes null (see `aggr.functions.limits.Limit`).
    """

    max: int
    keep: str
    beyond: str = ERROR

    name = "collect"
    optional_parameters = BEYOND_PARAMETER

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        return {"max": pa.int32(), "keep": pa.string(), **beyond_parameter(self.beyond)}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"events": OrderedRows(self.max, self.keep, beyond=self.beyond)}

    def beyond_limit(self, states: pa.StructArray) -> Flags | None:
        return null_lists(states.field("events"))


@dataclass(frozen=True)
class EventLists(Function):
    """A function, such as `points`, whose state lists the values of a column with their event times.

    The lists are ordered by time and then by value.
    """

    max: int = field(default=DEFAULT_MAX, kw_only=True)
    keep: str = field(default=ALL, kw_only=True)
    beyond: str = field(default=ERROR, kw_only=True)

    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = ORDERED
    keeps = "the values and their event times"
    inputs = ("value", EVENT_TIME)

    def __post_init__(self) -> None:
        check_max(self.max)
        if not isinstance(self.keep, str) or self.keep not in KEEP_OPTIONS:
            raise ValueError(f"keep must be one of {', '.join(map(repr, KEEP_OPTIONS))}; got {shown(self.keep)}")
        check_beyond(self.beyond)
        if self.beyond != ERROR and self.keep != ALL:
            raise ValueError(
                f"beyond={self.beyond!r} is for keep='all'; with keep={self.keep!r} a state never has too many "
                "values; leave out beyond="
            )

    @property
    def own_state(self) -> EventsState:
        return EventsState(self.max, self.keep, self.beyond)


@dataclass(frozen=True, eq=False)
class Series:
    """The points of n groups in one array: group by group, and in the order of time within a group.

    ``points`` are structs of time and value. ``lengths`` contains the number of points of each group, shape (n,).
    ``window`` contains the starts and the ends of the groups' windows, in microseconds, or is None. With ``window``,
    the first and the last point of a group may come from the windows before and after, and results cover only the time
    inside the window.
    """

    points: pa.StructArray
    lengths: Whole
    window: tuple[Whole, Whole] | None = None

    @property
    def values(self) -> pa.Array:
        """The values of the points, shape (points,)."""
        return self.points.field("value")

    @cached_property
    def floats(self) -> Floats:
        """The values of the points as the nearest doubles, shape (points,). The values must be numbers."""
        return as_floats(self.values)

    @cached_property
    def times(self) -> Whole:
        """The times of the points in microseconds, shape (points,). Raise ``OverflowError`` if the times of a group are
        so far apart that int64 does not represent their distance.
        """
        times = microseconds(self.points.field("time"))
        if len(times) and int(times.max()) - int(times.min()) >= 2**63:
            first, last = self.first_and_last(times)
            if (last - first < 0).any():
                raise OverflowError(
                    "the event times of a group are more than 292,000 years apart; correct the times, or leave out "
                    "rows with times that stand for a missing time"
                )
        return times

    @cached_property
    def offsets(self) -> Whole:
        """The index of each group's first point, followed by the total number of points, shape (n + 1,)."""
        return np.append(0, np.cumsum(self.lengths))

    @cached_property
    def groups(self) -> Groups:
        """The group of each point."""
        return Groups(np.repeat(np.arange(len(self.lengths)), self.lengths), len(self.lengths))

    @cached_property
    def gaps(self) -> Whole:
        """The time in microseconds from each point to the next point of its group, shape (points,).

        Only the time inside the window counts. The entry of the last point of a group is 0.
        """
        gaps = np.diff(self.clipped_times, append=0)
        gaps[self.offsets[1:][self.lengths > 0] - 1] = 0
        return gaps

    @cached_property
    def clipped_times(self) -> Whole:
        """The times of the points in microseconds, shape (points,).

        A time before the window is replaced by the start of the window, and a time after the window by its end.
        """
        if self.window is None:
            return self.times
        return np.clip(self.times, *(edges[self.groups.ids] for edges in self.window))

    @cached_property
    def has_points_outside(self) -> tuple[Flags, Flags]:
        """Two masks of groups, each of shape (n,).

        The first mask selects the groups whose first point lies before the start of their window. The second mask
        selects the groups whose last point lies at or after the end of their window.
        """
        if self.window is None:
            all_false = np.zeros(len(self.lengths), np.bool_)
            return all_false, all_false
        first, last = self.first_and_last(self.times)
        has_points = self.lengths > 0
        return has_points & (first < self.window[0]), has_points & (last >= self.window[1])

    @property
    def ranges_inside(self) -> tuple[Whole, Whole]:
        """The points of each group inside its window: the index of the first such point, and the index after the last.

        The result is two arrays of shape (n,).
        """
        before, after = self.has_points_outside
        return self.offsets[:-1] + before, self.offsets[1:] - after

    @property
    def crossing_points(self) -> tuple[Whole, Whole]:
        """The index of the last point before the start of each group's window, and of the last point before its end.

        The result is two arrays of indices, each of shape (n,). The line from a point of the first array to the next
        point of its group crosses the start of the window. The line from a point of the second array to the next point
        crosses the end of the window.

        The first array has -1 for a group without a point before the start, and the second array has -1 for a group
        without a point at or after the end. If a group consists of one point before the start and one point at or after
        the end, a single line crosses both the start and the end. The first array then has the index of the point
        before the start, and the second array has -1.
        """
        before, after = self.has_points_outside
        after = after & ~(before & (self.lengths == 2))
        return np.where(before, self.offsets[:-1], -1), np.where(after, self.offsets[1:] - 2, -1)

    def first_and_last(self, point_values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the entries of ``point_values`` for each group's first point and for its last point.

        ``point_values`` has the shape (points,), and each result the shape (n,). Groups without points have 0.
        """
        has_points = self.lengths > 0
        first, last = np.zeros((2, len(has_points)), point_values.dtype)
        first[has_points] = point_values[self.offsets[:-1][has_points]]
        last[has_points] = point_values[self.offsets[1:][has_points] - 1]
        return first, last


@dataclass(frozen=True)
class SeriesFunction(EventLists):
    """The base class of functions that compute results from points, which are values with timestamps as event times."""

    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {"value": SUMMABLE, EVENT_TIME: TIMES}

    def read(self, series: Series) -> pa.Array:
        """Return one result for each group of ``series``."""
        raise NotImplementedError(f"{type(self).__name__} must implement read")

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return self.read(self._series(states))

    def finish_with_neighbours(self, states: pa.StructArray, neighbours: Neighbours) -> pa.Array:
        series = self._series(states)
        order, first, until = neighbours.spans(series.times, series.lengths)
        lengths = until - first
        positions = np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        points = series.points.take(pa.array(order[positions]))
        return self.read(Series(points, lengths, (neighbours.starts, neighbours.ends)))

    def _series(self, states: pa.StructArray) -> Series:
        events = states.field("events")
        points = events.flatten()
        self.check_input(pa.struct([("value", points.field("value").type), (EVENT_TIME, points.field("time").type)]))
        return Series(points, pc.list_value_length(events).to_numpy().astype(np.int64))
