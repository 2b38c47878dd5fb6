"""arg_min, arg_max: the value of the row in which another column is least, or greatest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import Field, ValueBy
from aggr.function import Function, unsupported_input
from aggr.kernels import compute as pc
from aggr.kernels.sort_keys import has_order
from aggr.kernels.values import Values


@dataclass(frozen=True)
class ArgMin(Function):
    """Keep the value of the row in which another column is least; of several, the least value.

    Rows in which either column is null are skipped. NaN is greater than all numbers, as in Spark.

    Examples
    --------
    >>> from aggr import arg_min
    >>> arg_min("host", by="latency_ms")
    arg_min('host', by='latency_ms')
    """

    name = "arg_min"
    takes: ClassVar[Mapping[str, str]] = {
        "value": "Of any type that has an order.",
        "by": "The column that decides, likewise.",
    }
    keeps = "the least of the other column, and the value beside it"
    returns = "the value's type; null where there is nothing"
    guarantee = "exact; ties broken by value, never by arrival"
    inputs = ("value", "by")

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """The least of the least."""
        return {"least": ValueBy("by", greatest=False)}

    def check_input(self, dtype: pa.DataType) -> None:
        """Take two columns that have an order."""
        for field in dtype:
            if not has_order(field.type):
                raise unsupported_input(self, field.type, "types that have an order")

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        names = [*self.inputs[1:], "value"]  # what orders comes first
        rows = pa.StructArray.from_arrays([values.array.field(name) for name in names], names=names)
        return {name: field.merge(rows, values.groups) for name, field in self.state_fields.items()}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return pc.struct_field(states.field(next(iter(self.state_fields))), "value")


@dataclass(frozen=True)
class ArgMax(ArgMin):
    """Keep the value of the row in which another column is greatest; of several, the greatest value.

    Rows in which either column is null are skipped. NaN is greater than all numbers, as in Spark.

    Examples
    --------
    >>> from aggr import arg_max
    >>> arg_max("host", by="latency_ms")
    arg_max('host', by='latency_ms')
    """

    name = "arg_max"
    keeps = "the greatest of the other column, and the value beside it"

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """The greatest of the greatest."""
        return {"greatest": ValueBy("by", greatest=True)}
