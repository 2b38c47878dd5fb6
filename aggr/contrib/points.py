"""points and lttb: all points of a column, or n points that preserve the shape of its line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.extend import compiled
from aggr.extend.arguments import checked_whole
from aggr.extend.columns import Floats, Whole
from aggr.extend.lists import ORDERED_AT_TIMES, Series, SeriesFunction, lists_of


@dataclass(frozen=True)
class Points(SeriesFunction):
    """List the values of a column with their event times, ordered by time and then by value.

    `collect` has the same state. Rates, averages over time and other functions can be computed from this state.

    Parameters
    ----------
    max : int
        The maximum number of points per group, for windows of any length. The state depends on this parameter and on
        ``keep``.
    keep : "all", "earliest" or "latest"
        The values to keep if a group has more than ``max``: "earliest" keeps the ``max`` earliest values, and "latest"
        the ``max`` latest. With "all", ``beyond`` determines the action.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``keep`` or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import points
    >>> points("temperature", max=500)
    points('temperature', max=500)
    """

    name = "points"
    takes = ORDERED_AT_TIMES
    returns = "list of records of time and value; empty if there are no values"
    guarantee = "exact, ordered by event time and value, never by arrival"

    def read(self, series: Series) -> pa.Array:
        return lists_of(series.points, series.lengths)


@dataclass(frozen=True)
class Lttb(SeriesFunction):
    """Select n points of a column by largest-triangle-three-buckets, so that a line through them looks similar.

    The first and the last point are kept. The points between them are divided into buckets. From each bucket, the point
    is selected that forms the largest triangle with the previously selected point and the mean of the next bucket. If
    there are at most n points, all are returned.

    Parameters
    ----------
    n : int
        The number of points, at least 3. This parameter affects only results, not states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If ``n`` is not a whole number of at least 3, and for the same reasons as `points`.

    References
    ----------
    Steinarsson, "Downsampling time series for visual representation" (2013).

    Examples
    --------
    >>> from aggr import lttb
    >>> lttb("temperature", 200)
    lttb('temperature', n=200)
    """

    n: int = 100

    name = "lttb"
    returns = "list of records of time and value; empty if there are no values"
    guarantee = "every result is a point of the column; the choice uses double arithmetic in the order of time"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_whole(self.n, "n, the number of points that are chosen,", 3, 2**31 - 1)

    def read(self, series: Series) -> pa.Array:
        rows = _largest_triangles(series.times, series.floats, series.offsets, self.n)
        return lists_of(series.points.take(pa.array(rows)), np.minimum(series.lengths, self.n))


@compiled
def _largest_triangles(times: Whole, values: Floats, offsets: Whole, n: int) -> Whole:
    """Return the indices of the selected points of all groups in one array: at most ``n`` per group.

    ``times`` and ``values`` have the points of all groups. The points of a group have the indices ``offsets[group]`` to
    ``offsets[group + 1] - 1``.
    """
    rows = np.empty(len(times), np.int64)
    row_count = 0
    for group in range(len(offsets) - 1):
        begin = offsets[group]
        size = offsets[group + 1] - offsets[group]
        if size <= n:
            for i in range(size):
                rows[row_count + i] = begin + i
            row_count += size
            continue
        bucket_size = (size - 2) / (n - 2)
        selected = begin
        rows[row_count] = begin
        for bucket in range(n - 2):
            low = begin + int(bucket * bucket_size) + 1
            middle = begin + int((bucket + 1) * bucket_size) + 1
            high = begin + min(int((bucket + 2) * bucket_size) + 1, size)
            time = 0.0
            value = 0.0
            for i in range(middle, high):
                time += times[i] - times[begin]
                value += values[i]
            time = time / (high - middle)
            value = value / (high - middle)
            x = float(times[selected] - times[begin])
            y = values[selected]
            largest = -1.0
            largest_point = low
            for i in range(low, middle):
                area = abs((x - time) * (values[i] - y) - (x - (times[i] - times[begin])) * (value - y))
                if area > largest:
                    largest = area
                    largest_point = i
            selected = largest_point
            rows[row_count + bucket + 1] = selected
        rows[row_count + n - 1] = begin + size - 1
        row_count += n
    return rows[:row_count].copy()
