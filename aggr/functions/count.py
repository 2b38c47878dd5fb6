"""count: the number of rows, or of the values of a column that are not null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import COUNT
from aggr.function import Function
from aggr.functions.moments import MOMENTS, SQUARES, SUM
from aggr.input_types import ANY
from aggr.plain_state import PlainState
from aggr.state import State


@dataclass(frozen=True)
class Count(Function):
    """Count rows, or the values of a column that are not null.

    Examples
    --------
    >>> from aggr import count
    >>> count(where="status >= 500")
    count(where='status >= 500')
    """

    name = "count"
    is_amount = True
    takes = ANY.described("A column of any type. Without a column, rows are counted.")
    keeps = "the count"
    returns = "int64; 0 if there are no values"
    guarantee = "exact"
    takes_weights = True
    own_state: ClassVar[State] = PlainState("count", {"count": COUNT}, counted_by=("count",))
    reads = (SUM, SQUARES, MOMENTS)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("count")

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True
