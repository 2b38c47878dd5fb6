"""rate, increase, delta, resets: the changes of a counter, or a gauge, between its points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.arrays import Floats, Whole
from aggr.duration import SECOND, read_length
from aggr.functions.changes import count_falls, increases_of, steps_of
from aggr.functions.event_lists import Series, SeriesFunction
from aggr.groups.numbers import sum_by_group
from aggr.neighbours import Neighbours

_NEAR = 1.1  # times the mean time between points: a series closer to the window's edge is extrapolated to it


@dataclass(frozen=True)
class Increase(SeriesFunction):
    """Take how much a counter grows from its first point to its last; where it falls, it was reset to 0.

    Parameters
    ----------
    extrapolate : str, optional
        Length of windows, such as ``"1m"``, aligned to UTC: the increase is extrapolated to the edges of the window in
        which the points lie, as Prometheus 2 does; null if they lie in several. It affects results only.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``extrapolate`` is not a length of time, and as `points` does.

    Examples
    --------
    >>> from aggr import increase
    >>> increase("requests_total", extrapolate="1m")
    increase('requests_total', extrapolate='1m')
    """

    extrapolate: str | None = None

    name = "increase"
    reads_neighbours = True
    returns = "float64; null if there are fewer than two points, or all at one time"
    guarantee = (
        "of whole numbers and decimals the exact result, rounded once; of floats double arithmetic in the order of "
        "event times, never of arrival; with extrapolate, Prometheus' bits"
    )
    counter: ClassVar[bool] = True
    per_second: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extrapolate is not None:
            read_length(self.extrapolate, "length to extrapolate to")

    def finish_with_neighbours(self, states: pa.StructArray, neighbours: Neighbours) -> pa.Array:
        if self.extrapolate is not None:  # `extrapolate` already extends the result to the edges
            return self.finish_states(states)
        return super().finish_with_neighbours(states, neighbours)

    def read(self, series: Series) -> pa.Array:
        grown = increases_of(series, self.counter)
        if series.window is not None:
            increases = grown.rounded()
            for points in series.crossing:
                self._add_shares(increases, series, points)
            lasted = sum_by_group(series.gaps, series.groups)
            seconds = np.maximum(lasted, 1) / SECOND
            return pa.array(increases / seconds if self.per_second else increases, mask=lasted == 0)
        first, last = series.at_ends(series.times)
        has_result = last > first
        span = np.where(has_result, last - first, SECOND)
        if self.extrapolate is None:
            return pa.array(grown.per_second(span) if self.per_second else grown.rounded(), mask=~has_result)
        increases, sampled = grown.rounded(), span / SECOND
        length = read_length(self.extrapolate, "length to extrapolate to")
        start = first // length * length
        has_result &= last < start + length
        edges = (first - start) / SECOND, (start + length - last) / SECOND
        factor = self._extrapolate_seconds(series, increases, sampled, *edges) / sampled
        return pa.array(increases * (factor / (length / SECOND) if self.per_second else factor), mask=~has_result)

    def _add_shares(self, increases: Floats, series: Series, points: Whole) -> None:
        """Add the growth from one point of each group to the next, times the share of that time inside the window."""
        has_point = points >= 0
        at = points[has_point]
        growth = steps_of(series, at, self.counter)
        increases[has_point] += growth * (series.gaps[at] / (series.times[at + 1] - series.times[at]))

    def _extrapolate_seconds(
        self, series: Series, increases: Floats, sampled: Floats, to_start: Floats, to_end: Floats
    ) -> Floats:
        """Extrapolate the seconds between the first and the last point, in Prometheus' order of operations."""
        values, _ = series.at_ends(series.floats)
        if self.counter:  # a counter is never below 0
            falling = (increases > 0) & (values >= 0)
            to_zero = sampled * np.divide(values, increases, out=np.full(len(values), np.inf), where=falling)
            to_start = np.minimum(to_start, to_zero)
        mean = sampled / np.maximum(series.lengths - 1, 1)
        for edge in (to_start, to_end):
            sampled = sampled + np.where(edge < mean * _NEAR, edge, mean / 2)
        return sampled


@dataclass(frozen=True)
class Rate(Increase):
    """Take how much a counter grows a second, from its first point to its last; where it falls, it was reset to 0.

    Parameters
    ----------
    extrapolate : str, optional
        Length of windows, such as ``"1m"``, aligned to UTC: as for `increase`, over the whole window.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        As `increase` does.

    Examples
    --------
    >>> from aggr import rate
    >>> rate("requests_total")
    rate('requests_total')
    """

    name = "rate"
    per_second = True


@dataclass(frozen=True)
class Delta(Increase):
    """Take the last value of a column less its first, by event time.

    Parameters
    ----------
    extrapolate : str, optional
        Length of windows, such as ``"1m"``, aligned to UTC: as for `increase`, but without the rules for
        counters.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        As `increase` does.

    Examples
    --------
    >>> from aggr import delta
    >>> delta("temperature")
    delta('temperature')
    """

    name = "delta"
    counter = False


@dataclass(frozen=True)
class Resets(SeriesFunction):
    """Count how often a column falls from one point to the next: how often a counter was reset.

    Parameters
    ----------
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``keep`` is not one of the words above.

    Examples
    --------
    >>> from aggr import resets
    >>> resets("requests_total")
    resets('requests_total')
    """

    name = "resets"
    reads_neighbours = True
    returns = "int64; null if there are no values"
    guarantee = "exact, by event time, never by arrival"

    def read(self, series: Series) -> pa.Array:
        _, until = series.own
        resets = count_falls(series, series.offsets[:-1], until)
        return pa.array(resets, mask=series.lengths == 0)
