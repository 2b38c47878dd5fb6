"""m4: the four points of a group that determine its line chart: the first, the last, the smallest and the greatest."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from aggr.extend import ORDERED
from aggr.extend.columns import compute as pc
from aggr.extend.states import FOUR_POINTS, First


@dataclass(frozen=True)
class M4(First):
    """Return the first, the smallest, the greatest and the last value of a column, each with its time.

    If each column of pixels is a group, a line through these points looks the same as a line through all points. The
    smallest and the greatest value have the earliest time at which they occur. NaN is greater than all numbers, as in
    Spark.

    References
    ----------
    Jugel, Jerzak, Hackenbroich, Markl, "M4: A visualization-oriented time series data aggregation" (2014).

    Examples
    --------
    >>> from aggr import m4
    >>> m4("temperature")
    m4('temperature')
    """

    name = "m4"
    time_is_order = False
    takes = ORDERED.compared()
    keeps = "the first, last, lowest and highest value, each with its time"
    returns = "record of first, first_time, min, min_time, max, max_time, last, last_time; null if there are no values"
    guarantee = "exact, ordered by event time, never by arrival"
    own_state = FOUR_POINTS
    reads = ()

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        columns = point_columns(states, first="earliest", min="lowest", max="highest", last="latest")
        return pa.StructArray.from_arrays(
            list(columns.values()), names=list(columns), mask=states.field("earliest").is_null()
        )


def point_columns(states: pa.StructArray, **points: str) -> dict[str, pa.Array]:
    """Return the values and the times of points of states as columns.

    ``points`` maps a name such as ``open`` to a field of the states such as ``earliest``, which contains one point per
    state. The columns of this point are called ``open`` and ``open_time``.
    """
    return {
        f"{name}{suffix}": pc.struct_field(states.field(point), part)
        for name, point in points.items()
        for suffix, part in (("", "value"), ("_time", "time"))
    }
