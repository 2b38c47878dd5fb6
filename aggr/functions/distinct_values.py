"""collect_set, count_distinct, sum_distinct, avg_distinct: the set of distinct values of a column, and results that are
computed from this set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from aggr.arrays import Flags
from aggr.arrow import compute as pc
from aggr.fields import Field
from aggr.function import Function
from aggr.functions.limits import BEYOND_PARAMETER, ERROR, beyond_parameter, check_beyond, check_max, null_lists
from aggr.functions.moments import Avg, Sum
from aggr.functions.value_lists import DEFAULT_MAX, ValueSet, entries_of
from aggr.groups.groups import Groups
from aggr.input_types import ORDERED, SUMMABLE
from aggr.state import State
from aggr.state_checks import mark_as_checked


@dataclass(frozen=True)
class SetState(State):
    """The state of `CollectSet`: up to ``max`` distinct values.

    For a group with more values, ``beyond`` determines whether an error is raised or the set becomes null (see
    `aggr.functions.limits.Limit`).
    """

    max: int
    beyond: str = ERROR

    name = "collect_set"
    optional_parameters = BEYOND_PARAMETER

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        return {"max": pa.int32(), **beyond_parameter(self.beyond)}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"values": ValueSet(self.max, self.beyond)}

    def beyond_limit(self, states: pa.StructArray) -> Flags | None:
        return null_lists(states.field("values"))


@dataclass(frozen=True)
class CollectSet(Function):
    """List the distinct values of a column in ascending order. Both zeros count as one value. All NaN count as one
    value, which is the greatest.

    Parameters
    ----------
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import collect_set
    >>> collect_set("host")
    collect_set('host')
    """

    max: int = DEFAULT_MAX
    beyond: str = field(default=ERROR, kw_only=True)

    name = "collect_set"
    takes = ORDERED
    keeps = "the distinct values"
    returns = "list of the type of the input; empty if there are no values"
    guarantee = "exact, in the order of values"

    def __post_init__(self) -> None:
        check_max(self.max)
        check_beyond(self.beyond)

    @property
    def own_state(self) -> SetState:
        return SetState(self.max, self.beyond)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("values")


@dataclass(frozen=True)
class CountDistinct(CollectSet):
    """Count the distinct values of a column. Both zeros count as one value, and all NaN count as one.

    The state is that of `collect_set`.

    Parameters
    ----------
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    beyond : "error", "null" or "estimate"
        The action if a group has more than ``max`` values. "error" raises an error. With "null", the result of such a
        group is null, also after every merge, and its values are not stored. "estimate" is allowed only in calls such
        as ``count_distinct("x", beyond="estimate")``. Such a call returns `approx_count_distinct` with ``k=max``, or
        ``k=4096`` without ``max``: counts up to ``k`` are exact, and larger counts are estimates. The state depends on
        this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import count_distinct
    >>> count_distinct("host", max=100_000)
    count_distinct('host', max=100000)
    >>> count_distinct("host", max=4000, beyond="estimate")
    approx_count_distinct('host', k=4000)
    """

    name = "count_distinct"
    is_amount = True
    returns = "int64; 0 if there are no values"
    guarantee = "exact"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return pc.list_value_length(states.field("values")).cast(pa.int64())


@dataclass(frozen=True)
class SumDistinct(CollectSet):
    """Sum the distinct values of a column, like ``sum(x, distinct=True)``. Both zeros count as one value, and all NaN
    count as one.

    The state is that of `collect_set`.

    Parameters
    ----------
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import sum
    >>> sum("price", distinct=True)
    sum_distinct('price')
    """

    name = "sum_distinct"
    is_amount = True
    takes = SUMMABLE
    returns = "int64, float64 or decimal, as determined by the type of the input; null if there are no values"
    guarantee = "correctly rounded"
    function_of_values: ClassVar[type[Function]] = Sum

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        values, groups = entries_of(states.field("values"), Groups.each(len(states)))
        function = self.function_of_values()
        return function.finish(mark_as_checked(function.reduce(values, groups)))


@dataclass(frozen=True)
class AvgDistinct(SumDistinct):
    """Compute the mean of the distinct values of a column, like ``avg(x, distinct=True)``; see `sum_distinct`.

    Parameters
    ----------
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import avg
    >>> avg("price", distinct=True)
    avg_distinct('price')
    """

    name = "avg_distinct"
    is_amount = False
    returns = "float64; null if there are no values"
    function_of_values = Avg
