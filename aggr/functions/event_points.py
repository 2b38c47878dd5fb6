"""States of single events: the first event, the last event, and the four events that determine a group's line chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.sort_keys import order_keys
from aggr.fields import EARLIEST, HIGHEST, LATEST, LOWEST, Field
from aggr.plain_state import PlainState
from aggr.state import State

EXTREME_POINTS: Mapping[str, Field] = {"earliest": EARLIEST, "lowest": LOWEST, "highest": HIGHEST, "latest": LATEST}

FIRST = PlainState("first", {"earliest": EARLIEST})
# Existing stores have separate columns for the states of first, any_value and last. Therefore the state of any_value
# must differ from the state of first, although both states have the same layout. The parameter ``variant``
# distinguishes the two states.
ANY_VALUE = PlainState("first", FIRST.layout, variant="any_value")
LAST = PlainState("last", {"latest": LATEST})


@dataclass(frozen=True)
class FourPoints(State):
    """The state of `m4`: the first, the smallest, the greatest and the last value of a group, each with its time."""

    name = "m4"
    rank = 1

    @property
    def fields(self) -> Mapping[str, Field]:
        return EXTREME_POINTS

    def check_consistency(self, states: pa.StructArray) -> None:
        check_extreme_points(states)


FOUR_POINTS = FourPoints()


def check_extreme_points(states: pa.StructArray) -> None:
    """Raise `DamagedState` if the four points of a state cannot come from the same rows."""
    points = {name: states.field(name) for name in EXTREME_POINTS}
    first = points["earliest"]
    if any(point.type != first.type or not point.is_valid().equals(first.is_valid()) for point in points.values()):
        raise DamagedState("its first, last, lowest and highest points cannot come from the same rows")
    for part, low, high in (("time", "earliest", "latest"), ("value", "lowest", "highest")):
        keys = order_keys(pa.concat_arrays([point.drop_null().field(part) for point in points.values()]))
        rows = dict(zip(points, keys.reshape(len(points), -1), strict=True))
        if any((rows[low] > row).any() or (rows[high] < row).any() for row in rows.values()):
            raise DamagedState(
                f"the {part} of one of its points is outside the range from its {low} to its {high} point"
            )
