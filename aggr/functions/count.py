"""count: rows, or the values of a column that are not null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import COUNT, Field
from aggr.function import Function
from aggr.values import Values


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
    about: ClassVar[Mapping[str, str]] = {"value": "Of any type. Without one, rows are counted."}
    keeps = "the count"
    returns = "int64; 0 if there are no values"
    guarantee = "exact"
    takes_weights = True
    of_distinct = "count_distinct"
    counted_by = ("count",)
    state_fields: ClassVar[Mapping[str, Field]] = {"count": COUNT}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        return {"count": pa.array(values.counts)}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("count")
