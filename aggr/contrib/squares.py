"""sum_of_squares, rms: exact sums of squares, rounded once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.extend import Sums
from aggr.extend.columns import Floats
from aggr.extend.columns import compute as pc
from aggr.extend.exact import NAN
from aggr.extend.states import Squared


@dataclass(frozen=True)
class SumOfSquares(Squared):
    """Sum the squares of a column without error. The result is rounded once.

    Examples
    --------
    >>> from aggr import sum_of_squares
    >>> sum_of_squares("error")
    sum_of_squares('error')
    """

    name = "sum_of_squares"
    is_amount = True
    returns = "float64; null if there are no values"

    def result(self, sums: Sums) -> Floats:
        return sums["squares"].over_integers(np.ones_like(sums.counts))

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        special = states.field("special").to_numpy()
        is_infinite = pa.array((special != 0) & (special & NAN == 0))
        return pc.if_else(is_infinite, np.inf, super().finish_states(states))

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


@dataclass(frozen=True)
class Rms(SumOfSquares):
    """Compute the root of the mean of the squares of a column, rounded once.

    Examples
    --------
    >>> from aggr import rms
    >>> rms("current")
    rms('current')
    """

    name = "rms"
    is_amount = False

    def result(self, sums: Sums) -> Floats:
        return sums["squares"].over_integers(sums.counts, root=True)

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True
