"""top_k, bottom_k: the values of the k rows in which another column is greatest or smallest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import ORDERED, Field, Function, InputTypes, State
from aggr.extend.arguments import checked_whole
from aggr.extend.columns import compute as pc
from aggr.extend.lists import OrderedRows, values_of


@dataclass(frozen=True)
class SmallestRows(State):
    """The state of `BottomK`: the ``k`` rows in which the column ``by`` is smallest."""

    k: int

    name = "bottom_k"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"k": pa.int32()}
    keep: ClassVar[str] = "earliest"

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"rows": OrderedRows(self.k, self.keep, "by")}


@dataclass(frozen=True)
class GreatestRows(SmallestRows):
    """The state of `TopK`: the ``k`` rows in which the column ``by`` is greatest."""

    name = "top_k"
    keep = "latest"


@dataclass(frozen=True)
class BottomK(Function):
    """List the values of the k rows in which another column is smallest, in ascending order of that column.

    Rows with equal values in that column are ordered by the listed value, the smallest first. Rows in which either
    column is null are skipped. NaN is greater than all numbers, as in Spark.

    Parameters
    ----------
    k : int
        The number of rows. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``k`` is not a whole number of at least 1.

    Examples
    --------
    >>> from aggr import bottom_k
    >>> bottom_k("host", by="latency_ms", k=3)
    bottom_k('host', k=3, by='latency_ms')
    """

    k: int = 10

    name = "bottom_k"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {
        "value": ORDERED,
        "by": ORDERED.described(
            "The column by which rows are ranked. It accepts the same types as the value column, and may have "
            "a different type."
        ),
    }
    keeps = "k values, each with the value of the other column in the same row"
    returns = "list of the type of the input; empty if there are no values"
    guarantee = "exact; ties are broken by value, never by arrival"
    inputs = ("value", "by")

    def __post_init__(self) -> None:
        checked_whole(self.k, "k, the number of rows whose values are listed,", 1, 2**31 - 1)

    @property
    def own_state(self) -> SmallestRows:
        return SmallestRows(self.k)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return values_of(states.field("rows"), "value")


@dataclass(frozen=True)
class TopK(BottomK):
    """List the values of the k rows in which another column is greatest, in descending order of that column.

    Rows with equal values in that column are ordered by the listed value, the greatest first. Rows in which either
    column is null are skipped. NaN is greater than all numbers, as in Spark.

    Parameters
    ----------
    k : int
        The number of rows. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``k`` is not a whole number of at least 1.

    Examples
    --------
    >>> from aggr import top_k
    >>> top_k("host", by="latency_ms", k=3)
    top_k('host', k=3, by='latency_ms')
    """

    name = "top_k"

    @property
    def own_state(self) -> SmallestRows:
        return GreatestRows(self.k)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        ascending = super().finish_states(states)
        lengths = pc.list_value_length(ascending).to_numpy().astype(np.int64)
        list_ends = np.cumsum(lengths)
        reversed_positions = np.repeat(2 * list_ends - lengths - 1, lengths) - np.arange(len(ascending.values))
        return pa.ListArray.from_arrays(ascending.offsets, ascending.values.take(pa.array(reversed_positions)))
