"""arg_min, arg_max: the value of the row in which another column has the smallest or the greatest value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.fields import ValueBy
from aggr.function import Function
from aggr.input_types import ORDERED, InputTypes
from aggr.plain_state import PlainState
from aggr.state import State


@dataclass(frozen=True)
class ArgMin(Function):
    """Return the value of the row in which another column is smallest. If there are several such rows, the smallest of
    their values is returned.

    Rows in which either column is null are skipped. NaN is greater than all numbers, as in Spark.

    Examples
    --------
    >>> from aggr import arg_min
    >>> arg_min("host", by="latency_ms")
    arg_min('host', by='latency_ms')
    """

    name = "arg_min"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {
        "value": ORDERED,
        "by": ORDERED.described(
            "The column whose minimum or maximum selects the row. It accepts the same types as the value column, and "
            "may have a different type."
        ),
    }
    keeps = "the minimum of the other column, and the value in the same row"
    returns = "the value's type; null if there are no values"
    guarantee = "exact; ties are broken by value, never by arrival"
    inputs = ("value", "by")
    own_state: ClassVar[State] = PlainState("arg_min", {"least": ValueBy("by", greatest=False)})

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return pc.struct_field(states.field(next(iter(self.own_state.fields))), "value")

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


@dataclass(frozen=True)
class ArgMax(ArgMin):
    """Return the value of the row in which another column is greatest. If there are several such rows, the greatest of
    their values is returned.

    Rows in which either column is null are skipped. NaN is greater than all numbers, as in Spark.

    Examples
    --------
    >>> from aggr import arg_max
    >>> arg_max("host", by="latency_ms")
    arg_max('host', by='latency_ms')
    """

    name = "arg_max"
    keeps = "the maximum of the other column, and the value in the same row"
    own_state = PlainState("arg_max", {"greatest": ValueBy("by", greatest=True)})
