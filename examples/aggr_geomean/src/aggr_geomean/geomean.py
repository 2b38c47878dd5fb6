"""geomean: the geometric mean, the n-th root of the product of n numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import COUNT, EXACT, NUMBERS, Field, Function, Limbs, Numbers, State, Values, quotient, sum_exactly


class LogarithmsState(State):
    """The exact sum of the rounded logarithms of positive numbers, and their count."""

    name = "geomean"
    fields: ClassVar[Mapping[str, Field]] = {"count": COUNT, "logs": EXACT}
    counted_by = ("count",)

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        x = values.floats.array
        if len(x) and not (x.min() > 0 and x.max() < np.inf):
            invalid = x[~((x > 0) & (x < np.inf))][0]
            raise ValueError(f"geomean takes positive finite numbers; got {invalid}")
        return {"count": pa.array(values.counts), "logs": sum_exactly([Numbers(np.log(x), values.groups)])}


@dataclass(frozen=True)
class Geomean(Function):
    """The geometric mean of positive numbers.

    The state is the count of the numbers, and the exact sum of their rounded logarithms. Exact sums are added without
    error, so merging states does not increase the error.
    """

    name = "geomean"
    takes = NUMBERS
    keeps = "exact Σ log x, count"
    returns = "float64; null if there are no values"
    guarantee = "the same bits in any order; a relative error below 1e-13 for numbers from 1e-100 to 1e100"

    own_state = LogarithmsState()

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        counts = states.field("count").to_numpy()
        mean = quotient(Limbs.of_arrow(states.field("logs")), np.maximum(counts, 1))
        return pa.array(np.exp(mean), mask=counts == 0)
