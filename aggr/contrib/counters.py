"""rate, increase, delta, resets: how a counter or a gauge changes between its points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.contrib.changes import count_falls, increases_of, steps_of
from aggr.extend import Neighbours
from aggr.extend.arguments import SECOND, read_length
from aggr.extend.columns import Floats, Whole, sum_by_group
from aggr.extend.lists import Series, SeriesFunction

# As in Prometheus, a series is extrapolated to an edge of the window if the time between the edge and the nearest point
# is below this multiple of the mean time between points. Otherwise the series is extrapolated by half the mean time.
_MAX_EDGE_DISTANCE = 1.1


@dataclass(frozen=True)
class Increase(SeriesFunction):
    """Compute how much a counter grows from its first point to its last. If its value falls, it was reset to 0.

    The increase of a window does not include the growth from its last point to the first point of the next window. The
    increases of the days of a month therefore do not add up to the increase of the month, unless the query has the
    parameter ``edges``, which divides this growth between the two windows.

    Parameters
    ----------
    extrapolate : str, optional
        The length of windows aligned to UTC, such as ``"1m"``. The increase is extrapolated to the edges of the window
        that contains the points, as in Prometheus 2. The result is null if the points lie in several windows. This
        parameter affects only results, not states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``extrapolate`` is not a length of time, and for the same reasons as `points`.

    Examples
    --------
    >>> from aggr import increase
    >>> increase("requests_total", extrapolate="1m")
    increase('requests_total', extrapolate='1m')
    """

    extrapolate: str | None = None

    name = "increase"
    is_amount = True
    reads_neighbours = True
    returns = "float64; null if there are fewer than two points, or all have the same time"
    guarantee = (
        "for whole numbers and decimals, the exact result, rounded once; for floats, double arithmetic in the "
        "order of event times, never of arrival; with extrapolate, the same bits as Prometheus"
    )
    is_counter: ClassVar[bool] = True
    is_per_second: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extrapolate is not None:
            read_length(self.extrapolate, "parameter extrapolate")

    def finish_with_neighbours(self, states: pa.StructArray, neighbours: Neighbours) -> pa.Array:
        # With `extrapolate`, the increase already extends to the edges of the window, so that points of other windows
        # are not needed.
        if self.extrapolate is not None:
            return self.finish_states(states)
        return super().finish_with_neighbours(states, neighbours)

    @np.errstate(over="ignore", invalid="ignore")  # the growth of large floats may be infinite, or NaN
    def read(self, series: Series) -> pa.Array:
        growth = increases_of(series, self.is_counter)
        if series.window is not None:
            increases = growth.rounded()
            for points in series.crossing_points:
                self._add_shares(increases, series, points)
            durations = sum_by_group(series.gaps, series.groups)
            seconds = np.maximum(durations, 1) / SECOND
            return pa.array(increases / seconds if self.is_per_second else increases, mask=durations == 0)
        first, last = series.first_and_last(series.times)
        has_result = last > first
        span = np.where(has_result, last - first, SECOND)
        if self.extrapolate is None:
            return pa.array(growth.per_second(span) if self.is_per_second else growth.rounded(), mask=~has_result)
        increases = growth.rounded()
        sampled_seconds = span / SECOND
        length = read_length(self.extrapolate, "parameter extrapolate")
        start = first // length * length
        has_result &= last < start + length
        edges = (first - start) / SECOND, (start + length - last) / SECOND
        factor = self._extrapolate_seconds(series, increases, sampled_seconds, *edges) / sampled_seconds
        return pa.array(increases * (factor / (length / SECOND) if self.is_per_second else factor), mask=~has_result)

    def _add_shares(self, increases: Floats, series: Series, points: Whole) -> None:
        """Add to ``increases`` the part of the growth between two points that belongs to the window of each group.

        ``points`` is one of the arrays of `Series.crossing_points`. For each group, the array has the index of the last
        point before an edge of the window, or -1. The next point lies on the other side of the edge. The growth between
        the two points is multiplied by the share of the time between them that lies in the window.
        """
        has_point = points >= 0
        first_points = points[has_point]
        growth = steps_of(series, first_points, self.is_counter)
        increases[has_point] += growth * (
            series.gaps[first_points] / (series.times[first_points + 1] - series.times[first_points])
        )

    def _extrapolate_seconds(
        self, series: Series, increases: Floats, sampled_seconds: Floats, to_start: Floats, to_end: Floats
    ) -> Floats:
        """Return the length of time to which the increase of each group is extrapolated, in seconds, shape (n,).

        ``sampled_seconds`` has the seconds from the first point of a group to its last. ``to_start`` has the seconds
        from the start of the window to the first point, and ``to_end`` the seconds from the last point to the end of
        the window. The operations and their order are those of Prometheus, so that results have the same bits.
        """
        values, _ = series.first_and_last(series.floats)
        # A counter is never below 0. The increase is therefore extrapolated backwards at most to the time at which the
        # line through the first and the last point is 0.
        if self.is_counter:
            reaches_zero = (increases > 0) & (values >= 0)
            to_zero = sampled_seconds * np.divide(
                values, increases, out=np.full(len(values), np.inf), where=reaches_zero
            )
            to_start = np.minimum(to_start, to_zero)
        mean_gap = sampled_seconds / np.maximum(series.lengths - 1, 1)
        for edge in (to_start, to_end):
            sampled_seconds = sampled_seconds + np.where(edge < mean_gap * _MAX_EDGE_DISTANCE, edge, mean_gap / 2)
        return sampled_seconds


@dataclass(frozen=True)
class Rate(Increase):
    """Compute how much a counter grows per second, from its first point to its last. If its value falls, it was reset
    to 0.

    Parameters
    ----------
    extrapolate : str, optional
        The length of windows aligned to UTC, such as ``"1m"``, for the rate over the whole window; see `increase`.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        For the same reasons as `increase`.

    Examples
    --------
    >>> from aggr import rate
    >>> rate("requests_total")
    rate('requests_total')
    """

    name = "rate"
    is_per_second = True


@dataclass(frozen=True)
class Delta(Increase):
    """Compute the last value of a column minus its first, by event time.

    Parameters
    ----------
    extrapolate : str, optional
        The length of windows aligned to UTC, such as ``"1m"``; see `increase`. The column of `delta` is not a counter:
        its values may be negative, and a fall is a change, not a reset.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        For the same reasons as `increase`.

    Examples
    --------
    >>> from aggr import delta
    >>> delta("temperature")
    delta('temperature')
    """

    name = "delta"
    is_counter = False


@dataclass(frozen=True)
class Resets(SeriesFunction):
    """Count how often the value of a column falls from one point to the next, which is how often a counter was reset.

    Parameters
    ----------
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``keep`` is not an allowed value.

    Examples
    --------
    >>> from aggr import resets
    >>> resets("requests_total")
    resets('requests_total')
    """

    name = "resets"
    is_amount = True
    reads_neighbours = True
    returns = "int64; null if there are no values"
    guarantee = "exact, ordered by event time, never by arrival"

    def read(self, series: Series) -> pa.Array:
        _, end = series.ranges_inside
        resets = count_falls(series, series.offsets[:-1], end)
        return pa.array(resets, mask=series.lengths == 0)
