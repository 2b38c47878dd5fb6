"""mode, entropy: results that are computed from the distinct values of a group and the row count of each value."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from aggr.extend.columns import sum_by_group
from aggr.extend.lists import DEFAULT_MAX, ERROR, Counted, most_frequent_first


@dataclass(frozen=True)
class Mode(Counted):
    """Return the most frequent value of a column. Among equally frequent values, the smallest is returned.

    Both zeros count as one value. All NaN count as one value, which is the greatest. `value_counts` has the same state.

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
    >>> from aggr import mode
    >>> mode("status")
    mode('status')
    """

    max: int = DEFAULT_MAX
    beyond: str = field(default=ERROR, kw_only=True)

    name = "mode"
    returns = "the type of the input; null if there are no values"
    guarantee = "exact; the smallest of several equally frequent values is returned"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        values, counts, owners = self.counted_values(states)
        order = most_frequent_first(counts, owners)
        firsts = np.append(order, 0)[owners.offsets[:-1]]
        return values.take(pa.array(firsts, mask=owners.counts() == 0))


@dataclass(frozen=True)
class Entropy(Counted):
    """Compute the entropy of a column in bits. The entropy measures how evenly the rows are distributed over the
    distinct values of the column.

    The entropy is 0 for one value, and ``log2(n)`` for n equally frequent values. `value_counts` has the same state.

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
    >>> from aggr import entropy
    >>> entropy("route")
    entropy('route')
    """

    max: int = DEFAULT_MAX
    beyond: str = field(default=ERROR, kw_only=True)

    name = "entropy"
    returns = "float64; null if there are no values"
    guarantee = "exact counts; their logarithms are added as doubles, in the order of the values"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        _, counts, owners = self.counted_values(states)
        totals = sum_by_group(counts, owners)
        shares = counts / totals[owners.ids]
        bits = np.bincount(owners.ids, -shares * np.log2(shares), minlength=owners.n)
        return pa.array(bits + 0.0, mask=totals == 0)
