"""count_distinct: how many distinct values there are, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.functions.collect_set import CollectSet


@dataclass(frozen=True)
class CountDistinct(CollectSet):
    """Count the distinct values of a column; both zeros are one value, and all NaN are one.

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
    >>> from aggr import count_distinct
    >>> count_distinct("host", max=100_000)
    count_distinct('host', max=100000)
    >>> count_distinct("host", max=4000, beyond="estimate")
    approx_count_distinct('host', k=4000)
    """

    name, estimated_by = "count_distinct", "approx_count_distinct"
    state_name = "collect_set"
    returns = "int64; 0 where there is nothing"
    guarantee = "exact"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return pc.list_value_length(states.field("values")).cast(pa.int64())
