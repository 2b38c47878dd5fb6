"""m4: the four points of a group that a line chart shows of it: the first, the last, the least and the greatest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.sort_keys import order_keys
from aggr.fields import EARLIEST, HIGHEST, LATEST, LOWEST, Field
from aggr.functions.first_last import First

EXTREME_POINTS: Mapping[str, Field] = {"earliest": EARLIEST, "lowest": LOWEST, "highest": HIGHEST, "latest": LATEST}


@dataclass(frozen=True)
class M4(First):
    """Keep the first, the least, the greatest and the last value of a column, each with its time.

    A line through these four points of each pixel column is the line through all points. The least and the greatest
    value have the earliest time at which they were. NaN is greater than all numbers, as in Spark.

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
    ordered_inputs = frozenset({"value", "time"})
    keeps = "the first, last, least and greatest value, each with its time"
    returns = "record of first, first_time, min, min_time, max, max_time, last, last_time; null if there are no values"
    guarantee = "exact, by event time, never by arrival"
    answers_for = frozenset({"first", "any_value", "last"})
    state_fields: ClassVar[Mapping[str, Field]] = EXTREME_POINTS

    def check_consistency(self, states: pa.StructArray) -> None:
        check_extreme_points(states)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        columns = point_columns(states, first="earliest", min="lowest", max="highest", last="latest")
        return pa.StructArray.from_arrays(
            list(columns.values()), names=list(columns), mask=states.field("earliest").is_null()
        )


def point_columns(states: pa.StructArray, **points: str) -> dict[str, pa.Array]:
    """Read points of `EXTREME_POINTS` as columns of their values, and of their times, under names."""
    return {
        f"{name}{suffix}": pc.struct_field(states.field(point), part)
        for name, point in points.items()
        for suffix, part in (("", "value"), ("_time", "time"))
    }


def check_extreme_points(states: pa.StructArray) -> None:
    """Refuse states whose four points cannot be those of the same rows."""
    points = {name: states.field(name) for name in EXTREME_POINTS}
    first = points["earliest"]
    if any(point.type != first.type or not point.is_valid().equals(first.is_valid()) for point in points.values()):
        raise DamagedState("its first, last, least and greatest point are not of the same rows")
    for part, low, high in (("time", "earliest", "latest"), ("value", "lowest", "highest")):
        keys = order_keys(pa.concat_arrays([point.drop_null().field(part) for point in points.values()]))
        rows = dict(zip(points, keys.reshape(len(points), -1), strict=True))
        if any((rows[low] > row).any() or (rows[high] < row).any() for row in rows.values()):
            raise DamagedState(f"the {part} of a point is not between those of its {low} and its {high}")
