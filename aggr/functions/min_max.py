"""min, max: the smallest and the greatest value of any ordered type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.sort_keys import order_keys
from aggr.fields import GREATEST, LEAST, Field
from aggr.function import Function
from aggr.input_types import ORDERED
from aggr.plain_state import PlainState
from aggr.state import State

MIN = PlainState("min", {"least": LEAST})
MAX = PlainState("max", {"greatest": GREATEST})


@dataclass(frozen=True)
class LeastAndGreatest(State):
    """A state with the smallest and the greatest value of a group."""

    name = "range"
    rank = 1

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"least": LEAST, "greatest": GREATEST}

    def check_consistency(self, states: pa.StructArray) -> None:
        minima, maxima = (states.field(name) for name in self.fields)
        if minima.type != maxima.type or not minima.is_valid().equals(maxima.is_valid()):
            raise DamagedState("its minimum and its maximum cannot come from the same rows")
        keys = order_keys(pa.concat_arrays([minima.drop_null(), maxima.drop_null()]))
        if (keys[: len(keys) // 2] > keys[len(keys) // 2 :]).any():
            raise DamagedState("its minimum is above its maximum")


LEAST_AND_GREATEST = LeastAndGreatest()


@dataclass(frozen=True)
class Min(Function):
    """Return the smallest value of a column. NaN is greater than all numbers, as in Spark, and -0.0 is less than 0.0.

    Examples
    --------
    >>> from aggr import min
    >>> min("latency_ms")
    min('latency_ms')
    """

    name = "min"
    takes = ORDERED.compared()
    keeps = "the least value"
    returns = "the type of the input; null if there are no values"
    guarantee = "exact"
    own_state: ClassVar[State] = MIN
    reads: ClassVar[tuple[State, ...]] = (LEAST_AND_GREATEST,)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field(next(iter(self.own_state.fields)))

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


@dataclass(frozen=True)
class Max(Min):
    """Return the greatest value of a column. NaN is greater than all numbers, as in Spark, and 0.0 is greater than
    -0.0.

    Examples
    --------
    >>> from aggr import max
    >>> max("latency_ms")
    max('latency_ms')
    """

    name = "max"
    keeps = "the greatest value"
    own_state = MAX
