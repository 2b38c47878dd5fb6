"""prefix: the longest text that all texts begin with."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from aggr import PerGroup
from aggr.extend import accessor


@dataclass(frozen=True)
class Prefix(PerGroup):
    """The longest common prefix of the texts in a group, such as ``/var/log/`` for paths of log files."""

    name = "prefix"
    keeps = "the common prefix"
    returns = "string; null if there are no values"
    guarantee = "exact"
    state_kind = pa.string()
    result_kind = pa.string()

    def check_input(self, dtype: pa.DataType) -> None:
        """Raise ``TypeError`` unless the column contains strings."""
        if not pa.types.is_string(dtype):
            raise TypeError(f"prefix cannot take a column of type {dtype}; it takes strings")

    def start(self) -> str | None:
        """Return the state of a group without values, None."""
        return None

    def add(self, state: str | None, value: str) -> str:
        """Return the longest common prefix of a state and a value."""
        if state is None:
            return value
        differences = (i for i, (a, b) in enumerate(zip(state, value, strict=False)) if a != b)
        return state[: next(differences, min(len(state), len(value)))]

    def combine(self, a: str | None, b: str | None) -> str | None:
        """Return the longest common prefix of two states."""
        return a if b is None else self.add(a, b)

    def result(self, state: str | None) -> str | None:
        """Return the state itself, which is the prefix."""
        return state

    @accessor(pa.bool_())
    def starts_with(self, states: pa.StructArray, text: str) -> pa.Array:
        """Return whether all values start with a text; null if there are no values."""
        return pc.starts_with(states.field("state"), text)
