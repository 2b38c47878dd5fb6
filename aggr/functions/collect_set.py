"""collect_set: every distinct value once, in the order of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.fields import Field
from aggr.function import Function
from aggr.functions.value_lists import DEFAULT_MAX, ValueSet, check_max
from aggr.input_types import ORDERED
from aggr.values import Values


@dataclass(frozen=True)
class CollectSet(Function):
    """List the distinct values of a column in their order; both zeros are one value, and all NaN are one, the greatest.

    Parameters
    ----------
    max : int
        How many distinct values a group may have, at every level; more are an error. It shapes the state.

    Raises
    ------
    ValueError
        If ``max`` is no whole number from 1.

    Examples
    --------
    >>> from aggr import collect_set
    >>> collect_set("host")
    collect_set('host')
    """

    max: int = DEFAULT_MAX

    name = "collect_set"
    takes = ORDERED
    keeps = "the distinct values"
    returns = "list of the input's type; empty where there is nothing"
    guarantee = "exact, in the order of values"
    answers_for = frozenset({"collect_set", "count_distinct", "sum_distinct", "avg_distinct"})
    state_parameters: ClassVar[Mapping[str, pa.DataType]] = {"max": pa.int32()}

    def __post_init__(self) -> None:
        check_max(self.max)

    @property
    def state_fields(self) -> Mapping[str, Field]:
        return {"values": ValueSet(self.max)}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        return {"values": ValueSet(self.max).of(values.array, values.groups)}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("values")
