"""approx_count_distinct: the estimated number of distinct values, from the k smallest hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.distinct.item_hashes import HASHABLE
from aggr.distinct.least_hashes import LeastHashes, Sketches
from aggr.fields import Field
from aggr.function import Function
from aggr.state import State

MIN_K = 16
MAX_K = 1 << 26


@dataclass(frozen=True)
class HashesState(State):
    """The state of `ApproxCountDistinct`: the ``k`` smallest hashes of the values, and the next larger hash."""

    k: int

    name = "approx_count_distinct"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"k": pa.int32()}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"sketch": LeastHashes(self.k)}


@dataclass(frozen=True)
class ApproxCountDistinct(Function):
    """Estimate how many distinct values a column has. Up to k distinct values are counted exactly.

    The state is a Theta sketch of Apache DataSketches that is always trimmed to the k smallest 63-bit hashes. Both
    zeros count as one value, and all NaN count as one. `aggr.tables.set_operations` computes intersections of states.

    Parameters
    ----------
    k : int, 16 to 2^26
        The number of hashes in a state, with 8 bytes each. The standard error is ``1 / sqrt(k)``, 1.6 % at 4096. The
        state depends on this parameter.

    Raises
    ------
    ValueError
        If k is outside its range.

    References
    ----------
    Dasgupta, Lang, Rhodes, Thaler, "A framework for estimating stream expression cardinalities", ICDT 2016; the Theta
    sketch of Apache DataSketches.

    Examples
    --------
    >>> from aggr import approx_count_distinct
    >>> approx_count_distinct("visitor", k=1024)
    approx_count_distinct('visitor', k=1024)
    """

    k: int = 4096

    name = "approx_count_distinct"
    is_amount = True
    takes = HASHABLE
    keeps = "the k + 1 smallest hashes"
    returns = "int64; 0 if there are no values"
    guarantee = "exact up to k distinct values; above, a standard error of 1/sqrt(k)"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not MIN_K <= self.k <= MAX_K:
            raise ValueError(
                "k, the number of hashes that a state keeps, must be a whole number from 16 to 2^26; got "
                f"{shown(self.k)}"
            )

    @property
    def own_state(self) -> HashesState:
        return HashesState(self.k)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        sketches = Sketches.from_arrow(states.field("sketch"))
        return pa.array(np.rint(sketches.retained / sketches.shares).astype(np.int64))
