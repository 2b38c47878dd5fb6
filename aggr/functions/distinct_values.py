"""sum_distinct, avg_distinct: what `sum` and `avg` say of the distinct values of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from aggr.function import Function
from aggr.functions.collect_set import CollectSet
from aggr.functions.moments import Avg, Sum
from aggr.functions.value_lists import entries_of
from aggr.groups.groups import Groups
from aggr.input_types import SUMMABLE
from aggr.state_checks import made_here


@dataclass(frozen=True)
class SumDistinct(CollectSet):
    """Sum the distinct values of a column, as ``sum(x, distinct=True)``; both zeros are one value, and all NaN are one.

    The state is that of `collect_set`.

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
    >>> from aggr import sum
    >>> sum("price", distinct=True)
    sum_distinct('price')
    """

    name, state_name = "sum_distinct", "collect_set"
    takes = SUMMABLE
    returns = "int64, float64 or decimal by input; null where there is nothing"
    guarantee = "correctly rounded"
    of_values: ClassVar[type[Function]] = Sum

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        values, groups = entries_of(states.field("values"), Groups.each(len(states)))
        function = self.of_values()
        return function.finish(made_here(function.reduce(values, groups)))


@dataclass(frozen=True)
class AvgDistinct(SumDistinct):
    """Take the mean of the distinct values of a column, as ``avg(x, distinct=True)``; see `sum_distinct`.

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
    >>> from aggr import avg
    >>> avg("price", distinct=True)
    avg_distinct('price')
    """

    name, state_name = "avg_distinct", "collect_set"
    returns = "float64; null where there is nothing"
    of_values = Avg
