"""Plain states: states without parameters, each of whose fields reduces the values separately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aggr.fields import Field
from aggr.state import State


@dataclass(frozen=True, eq=False)
class PlainState(State):
    """A state without parameters, each of whose fields reduces the values separately.

    Parameters
    ----------
    name : str
        See `State`.
    layout : name -> Field
        The fields of `State`.
    counted_by : tuple of str
        See `State`.
    rank : int
        See `State`.
    variant : str
        A text that distinguishes states that have the same name but do not share a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from aggr.extend import GREATEST, LEAST, Groups, PlainState, Values
    >>> spread = PlainState("spread", {"low": LEAST, "high": GREATEST})
    >>> spread.reduce(Values(pa.array([3, 9, 4]), Groups.single(3))).to_pylist()
    [{'function': 'spread', 'version': 1, 'low': 3, 'high': 9}]
    """

    name: str
    layout: Mapping[str, Field]
    counted_by: tuple[str, ...] = ()
    rank: int = 0
    variant: str = ""

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.layout

    @property
    def _identity(self) -> tuple[Any, ...]:
        return *super()._identity, self.variant
