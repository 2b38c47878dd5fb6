"""range: the difference between the greatest and the smallest value of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.extend import InputTypes
from aggr.extend.columns import canonical, is_number
from aggr.extend.columns import compute as pc
from aggr.extend.states import LEAST_AND_GREATEST, Min

_SUBTRACTABLE = InputTypes(
    "integers, floats and decimals of up to 37 digits",
    "A column of integers, floats or decimals of up to 37 digits.",
    lambda dtype: is_number(dtype) and not (pa.types.is_decimal(dtype) and dtype.precision > 37),
)


@dataclass(frozen=True)
class Range(Min):
    """Compute the greatest value minus the smallest. The result is NaN if there is a NaN, or if all values are the same
    infinity.

    Raises
    ------
    OverflowError
        When the result is read: if a range of integers exceeds int64.

    Examples
    --------
    >>> from aggr import range
    >>> range("price")
    range('price')
    """

    name = "range"
    takes = _SUBTRACTABLE
    keeps = "the minimum and the maximum"
    returns = (
        "int64 for integers; else the type of the input, with one more digit for decimals; null if there are no values"
    )
    guarantee = "correctly rounded"
    own_state = LEAST_AND_GREATEST
    reads = ()

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        minima, maxima = (states.field(name) for name in self.own_state.fields)
        if not pa.types.is_integer(minima.type):
            return canonical(pc.subtract(maxima, minima))
        is_valid = minima.is_valid().to_numpy(zero_copy_only=False)
        extremes = [pc.fill_null(column, 0).to_numpy().astype(np.uint64) for column in (maxima, minima)]
        # uint64 computes the difference modulo 2^64, which is exact, because a true difference is below 2^64
        differences = extremes[0] - extremes[1]
        if (differences > np.iinfo(np.int64).max).any():
            raise OverflowError(
                f"the range of a group is {differences.max()}, which does not fit into int64; cast the column to a "
                "decimal"
            )
        return pa.array(differences.astype(np.int64), mask=~is_valid)
