"""collect: the values themselves, in the order of their event times, never of arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import Field
from aggr.function import EVENT_TIME, Function, refuse
from aggr.functions.value_lists import ALL, DEFAULT_MAX, KEEPS, EventList, check_max, values_of
from aggr.kernels.groups import Groups
from aggr.kernels.sort_keys import has_order


@dataclass(frozen=True)
class Collect(Function):
    """All values, ordered by event time; of several at that time, by value.

    Parameters
    ----------
    max : int
        How many values a group may have, at every level.
    keep : "all", "earliest" or "latest"
        With "all", more than ``max`` are an error; otherwise the earliest or the latest ``max`` are kept.
    """

    max: int = DEFAULT_MAX
    keep: str = ALL

    name = "collect"
    keeps = "the values and their event times"
    returns = "list of the input's type; empty where there is nothing"
    guarantee = "exact, ordered by event time and value, never by arrival"
    inputs = ("value", EVENT_TIME)
    state_parameters: ClassVar[Mapping[str, pa.DataType]] = {"max": pa.int32(), "keep": pa.string()}

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_max(self.max)
        if self.keep not in KEEPS:
            raise ValueError(f"keep must be one of {', '.join(map(repr, KEEPS))}; got {self.keep!r}")

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """Lists are joined."""
        return {"events": EventList(self.max, self.keep)}

    def check_input(self, dtype: pa.DataType) -> None:
        """Take two columns that have an order."""
        for field in dtype:
            if not has_order(field.type):
                raise refuse(self, field.type, "types that have an order")

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        events = pa.StructArray.from_arrays(
            [values.field(name) for name in (EVENT_TIME, "value")], names=["time", "value"]
        )
        return {"events": EventList(self.max, self.keep).of(events, groups)}

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return values_of(states.field("events"), "value")
