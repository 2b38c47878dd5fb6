"""first, last: the value of the earliest and of the latest event, by event time, never by arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from aggr.fields import EARLIEST, LATEST, Field
from aggr.function import Function, refuse
from aggr.groups import Groups
from aggr.order import has_order
from aggr.plain import plain, plain_type


@dataclass(frozen=True)
class First(Function):
    """The value with the earliest event time; of several, the least value."""

    name = "first"
    keeps = "value and event time of the earliest event"
    returns = "the input's type; null where there is nothing"
    guarantee = "exact; ties in time broken by value, never by arrival"
    timed = True

    @property
    def merges(self) -> Mapping[str, Field]:
        """The earliest of the earliest."""
        return {"earliest": EARLIEST}

    def check_input(self, kind: pa.DataType) -> None:
        """Take a struct of ``value`` and ``time``, both of ordered types."""
        if not pa.types.is_struct(kind) or {kind.field(i).name for i in range(kind.num_fields)} != {
            "value",
            "time",
        }:
            raise refuse(self, kind, "a struct of value and time")
        for name in ("value", "time"):
            if not has_order(plain_type(kind.field(name).type)):
                raise refuse(self, kind.field(name).type, "types that have an order")

    def drop_null(self, values: pa.Array, groups: Groups) -> tuple[pa.Array, Groups]:
        """Leave out events without a value or without a time."""
        parts = [plain(pc.struct_field(values, name)) for name in ("time", "value")]
        events = pa.StructArray.from_arrays(parts, names=["time", "value"])
        valid = pc.and_(parts[0].is_valid(), parts[1].is_valid())
        return events.filter(valid), groups.where(valid.to_numpy(zero_copy_only=False))

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        return {name: field.merge(values, groups) for name, field in self.merges.items()}

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return pc.struct_field(states.field(next(iter(self.merges))), "value")


@dataclass(frozen=True)
class Last(First):
    """The value with the latest event time; of several, the greatest value."""

    name = "last"
    keeps = "value and event time of the latest event"

    @property
    def merges(self) -> Mapping[str, Field]:
        """The latest of the latest."""
        return {"latest": LATEST}
