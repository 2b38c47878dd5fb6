"""value_counts, exact_quantiles: results that are computed from a count of each distinct value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_whole
from aggr.arrays import Flags, Ids, Whole
from aggr.arrow import compute as pc
from aggr.arrow.normalize import is_number
from aggr.exact.number_columns import as_floats
from aggr.fields import Field
from aggr.function import Function
from aggr.functions.count import Count
from aggr.functions.keyed_states import KeyedStates
from aggr.functions.limits import BEYOND_PARAMETER, ERROR, beyond_parameter, check_beyond, check_max
from aggr.functions.value_lists import DEFAULT_MAX, first_of_each, lists_of
from aggr.groups.groups import Groups
from aggr.groups.numbers import sum_by_group
from aggr.input_types import ORDERED
from aggr.quantile_methods import LOWER, check_method, interpolate, interpolates, ranks_of
from aggr.quantile_parameters import DEFAULT_QUANTILES, check_quantiles, quantile_struct
from aggr.state import State
from aggr.values import Values


@dataclass(frozen=True)
class CountsState(State):
    """The state of `ValueCounts`: a map from up to ``max`` distinct values to their counts.

    For a group with more values, ``beyond`` determines whether an error is raised or the map becomes null (see
    `aggr.functions.limits.Limit`).
    """

    max: int
    beyond: str = ERROR

    name = "value_counts"
    optional_parameters = BEYOND_PARAMETER

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        return {"max": pa.int32(), **beyond_parameter(self.beyond)}

    @property
    def map_field(self) -> KeyedStates:
        """The field that maps values to counts."""
        return KeyedStates((("count", Count()),), self.max, self.beyond, "count the most frequent values by frequent")

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"values": self.map_field}

    def beyond_limit(self, states: pa.StructArray) -> Flags | None:
        return self.map_field.beyond_limit(states.field("values"))

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        keyed = self.map_field.group(values.array, values.groups)
        rows = values if keyed.rows is None else values.filter(keyed.rows)
        counts = Count().reduce(Values(rows.array, keyed.groups, rows.weights))
        return {"values": self.map_field.pack(keyed, [counts])}


@dataclass(frozen=True)
class Counted(Function):
    """The base class of functions whose state maps each distinct value to its count.

    ``max`` is the maximum number of distinct values.
    """

    # ``max`` and ``beyond`` have no annotations here, so they are not fields of this dataclass. Each subclass declares
    # both as fields, in its own order.
    max = DEFAULT_MAX
    beyond = ERROR

    takes = ORDERED
    keeps = "each distinct value and its count"
    takes_weights = True

    def __post_init__(self) -> None:
        check_max(self.max)
        check_beyond(self.beyond)

    @property
    def own_state(self) -> CountsState:
        return CountsState(self.max, self.beyond)

    def counted_values(self, states: pa.StructArray) -> tuple[pa.Array, Whole, Groups]:
        """Return the distinct values of all states, their counts, and the state that each value belongs to.

        The values are ordered by state and then by value.
        """
        results, owners = self.own_state.map_field.finish(states.field("values"))
        return results.field("key"), results.field("count").to_numpy(), owners


@dataclass(frozen=True)
class ValueCounts(Counted):
    """Count each distinct value of a column. Values are listed by descending count, and equally frequent values in
    ascending order.

    Both zeros count as one value. All NaN count as one value, which is the greatest.

    Parameters
    ----------
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    top : int, optional
        The number of values to list; by default all. This parameter affects only results, not states.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` or ``top`` is not a whole number of at least 1, or ``beyond`` is not an allowed value.

    Examples
    --------
    >>> from aggr import value_counts
    >>> value_counts("status", top=3)
    value_counts('status', top=3)
    """

    max: int = DEFAULT_MAX
    top: int | None = None
    beyond: str = field(default=ERROR, kw_only=True)

    name = "value_counts"
    guarantee = "exact; the smallest of several equally frequent values is first"
    returns = "list of records of value and count, which is int64; empty if there are no values"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top is not None:
            checked_whole(self.top, "top, the number of values that are listed,", 1)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        values, counts, owners = self.counted_values(states)
        order = most_frequent_first(counts, owners)
        if self.top is not None:
            order = first_of_each(order, owners, self.top)
        columns = [values.take(pa.array(order)), pa.array(counts[order])]
        lengths = np.bincount(owners.ids[order], minlength=owners.n)
        return lists_of(pa.StructArray.from_arrays(columns, names=["value", "count"]), lengths)


@dataclass(frozen=True)
class ExactQuantiles(Counted):
    """Compute exact quantiles of a column that has few distinct values. NaN is greater than all numbers.

    The quantile q of n values is the value at rank ``floor(q·(n − 1))``, which numpy calls "lower". The parameter
    ``method`` can select another rule. A rule that interpolates returns float64, computed in double arithmetic.
    `value_counts` has the same state.

    Parameters
    ----------
    quantiles : sequence of float in [0, 1]
        The quantiles to compute. This parameter affects only results, not states.
    max : int
        The maximum number of distinct values per group, for windows of any length. The state depends on this parameter.
    method : str
        The rule that locates a quantile among n sorted values, by numpy's names: "lower", "higher", "nearest",
        "linear", "midpoint", "inverted_cdf" and numpy's others, or "hdrhistogram". This parameter affects only results,
        not states.
    beyond : "error" or "null"
        The action if a group has more than ``max`` values: raise an error, or return null. The result of such a group
        remains null in every merge, and its values are not stored. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``max`` is not a whole number of at least 1, a quantile lies outside [0, 1], or ``beyond`` or ``method`` is
        unknown.
    TypeError
        If ``method`` interpolates, and the column is not numeric.

    Examples
    --------
    >>> from aggr import exact_quantiles
    >>> exact_quantiles("rating", [0.5])
    exact_quantiles('rating', quantiles=[0.5])
    """

    quantiles: tuple[float, ...] = field(default=DEFAULT_QUANTILES, metadata={"accepts": "Sequence[float] | float"})
    max: int = DEFAULT_MAX
    method: str = field(default=LOWER, kw_only=True)
    beyond: str = field(default=ERROR, kw_only=True)

    name = "exact_quantiles"
    takes = ORDERED.compared()
    returns = (
        "record of quantiles, of the type of the input, or float64 if they lie between two values; null if there are "
        "no values"
    )
    guarantee = "exact; a quantile between two values is computed in double arithmetic"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        check_method(self.method)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        values, counts, owners = self.counted_values(states)
        totals = sum_by_group(counts, owners)
        starts = owners.offsets[:-1]
        # The sum of the counts of all states may exceed int64 and wrap around. The differences that are computed next
        # are correct nevertheless, because they are sums of the counts of one state, which fit into int64.
        count_ends = np.cumsum(counts)
        count_ends -= np.append(0, count_ends)[starts][owners.ids]
        if is_between := interpolates(self.method):
            if not is_number(values.type):
                raise TypeError(
                    f"exact_quantiles cannot interpolate between two values of type {values.type}; choose a method "
                    "that returns one of the values, such as method='lower' or method='inverted_cdf'"
                )
            values = pa.array(as_floats(values))

        def values_at(ranks: Whole) -> pa.Array:
            lower_counts = sum_by_group((count_ends <= ranks[owners.ids]).astype(np.int64), owners)
            return values.take(pa.array(starts + lower_counts, mask=totals == 0))

        results = []
        for q in self.quantiles:
            low, high, shares = ranks_of(q, totals, self.method)
            result = values_at(low)
            if is_between:
                below, above = (pc.fill_null(column, 0.0).to_numpy() for column in (result, values_at(high)))
                result = pa.array(interpolate(below, above, shares), mask=totals == 0)
            results.append(result)
        return quantile_struct(self.quantiles, results, values.type)


def most_frequent_first(counts: Whole, owners: Groups) -> Ids:
    """Return the indices of values, ordered by state and then by descending count.

    ``counts`` has the count of each value, and ``owners`` its state. Values with equal counts keep their order.
    """
    return np.lexsort((-counts, owners.ids))
