"""min, max: the least and the greatest value of any ordered type; of booleans, bool_and and bool_or."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import GREATEST, LEAST, Field
from aggr.function import Function
from aggr.input_types import BOOLEANS, ORDERED
from aggr.values import Values


@dataclass(frozen=True)
class Min(Function):
    """Keep the least value of a column; NaN is greater than all numbers, as in Spark, and -0.0 is less than 0.0.

    Examples
    --------
    >>> from aggr import min
    >>> min("latency_ms")
    min('latency_ms')
    """

    name = "min"
    takes = ORDERED
    keeps = "the least value"
    returns = "the input's type; null if there are no values"
    guarantee = "exact"
    ordered_inputs = frozenset({"value"})
    state_fields: ClassVar[Mapping[str, Field]] = {"least": LEAST}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        return {name: field.reduce(values) for name, field in self.state_fields.items()}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field(next(iter(self.state_fields)))


@dataclass(frozen=True)
class Max(Min):
    """Keep the greatest value of a column; NaN is greater than all numbers, as in Spark, and 0.0 is greater than -0.0.

    Examples
    --------
    >>> from aggr import max
    >>> max("latency_ms")
    max('latency_ms')
    """

    name = "max"
    keeps = "the greatest value"
    state_fields: ClassVar[Mapping[str, Field]] = {"greatest": GREATEST}


@dataclass(frozen=True)
class BoolAnd(Min):
    """Say whether all values are true.

    Examples
    --------
    >>> from aggr import bool_and
    >>> bool_and("ok")
    bool_and('ok')
    """

    name = "bool_and"
    takes = BOOLEANS
    state_name = "min"
    returns = "boolean; null if there are no values"


@dataclass(frozen=True)
class BoolOr(Max):
    """Say whether any value is true.

    Examples
    --------
    >>> from aggr import bool_or
    >>> bool_or("failed")
    bool_or('failed')
    """

    name = "bool_or"
    takes = BOOLEANS
    state_name = "max"
    returns = BoolAnd.returns
