"""hll: an estimate of the number of distinct values, by HyperLogLog, in few bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import Field, Function, State
from aggr.extend.arguments import shown
from aggr.extend.lists import HASHABLE, Registers


@dataclass(frozen=True)
class RegistersState(State):
    """The state of `Hll`: the ``2^lg_k`` registers of HyperLogLog, or the 32-bit hashes of the values if there are few
    values.
    """

    lg_k: int

    name = "hll"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"lg_k": pa.int8()}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"registers": Registers(self.lg_k)}


@dataclass(frozen=True)
class Hll(Function):
    """Estimate how many distinct values a column has, with an eighth of the bytes of `approx_count_distinct`.

    States can be merged, but intersections cannot be computed from them. Values are hashed in the same way as by
    `approx_count_distinct`.

    Parameters
    ----------
    lg_k : int, 8 to 21
        The base-2 logarithm of the number of registers. A state has at most 2^lg_k bytes. The standard error is ``1.04
        / 2^(lg_k / 2)``, 1.6 % at 12. The state depends on this parameter.

    Raises
    ------
    ValueError
        If lg_k is outside its range.

    References
    ----------
    Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog", 2007; Ertl, "New cardinality estimation algorithms for
    HyperLogLog sketches", 2017; the HLL sketch of Apache DataSketches.

    Examples
    --------
    >>> from aggr import hll
    >>> hll("visitor", lg_k=14)
    hll('visitor', lg_k=14)
    """

    lg_k: int = 12

    name = "hll"
    is_amount = True
    takes = HASHABLE
    keeps = "HyperLogLog registers, or 32-bit hashes of single values if there are few values"
    returns = "int64; 0 if there are no values"
    guarantee = "a standard error of 1.04/2^(lg_k/2); nearly exact for few values"

    def __post_init__(self) -> None:
        if isinstance(self.lg_k, bool) or not isinstance(self.lg_k, int) or not 8 <= self.lg_k <= 21:
            raise ValueError(
                "lg_k, the logarithm of the number of registers, must be a whole number from 8 to 21; got "
                f"{shown(self.lg_k)}"
            )

    @property
    def own_state(self) -> RegistersState:
        return RegistersState(self.lg_k)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        estimates = Registers(self.lg_k).estimates(states.field("registers"))
        return pa.array(np.rint(estimates).astype(np.int64))

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True
