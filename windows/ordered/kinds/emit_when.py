"""emit_when: windows that end at a row that meets a condition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggr.arguments import shown
from windows.ordered.contract import Carry, Condition, OrderedWindow, Ranges, Rows
from windows.ordered.rows_by_key import last_by_key, next_carry, non_overlapping, positions, previous


@dataclass(frozen=True)
class EmitWhen(OrderedWindow):
    """Windows that end at a row that meets a condition; created by `emit_when`."""

    condition: str
    include: bool = True

    def __post_init__(self) -> None:
        Condition(self.condition)
        if not isinstance(self.include, bool):
            raise ValueError(f"include must be True or False; got {shown(self.include)}")

    @property
    def reads(self) -> tuple[Condition, ...]:
        return (Condition(self.condition),)

    def ranges(self, rows: Rows, carry: Carry) -> tuple[Ranges, Carry]:
        closing_rows = np.flatnonzero(rows.inputs[Condition(self.condition)])
        exclusive_ends = positions(rows, carry)[closing_rows] + self.include
        starts = previous(exclusive_ends, closing_rows, carry.open_starts, rows)
        ranges = non_overlapping(closing_rows, starts, exclusive_ends, rows)
        return ranges, next_carry(carry, rows, last_by_key(closing_rows, exclusive_ends, carry.open_starts, rows))

    def __str__(self) -> str:
        return f"emit_when({self.condition!r}{'' if self.include else ', include=False'})"


def emit_when(condition: str, include: bool = True) -> EmitWhen:
    """Return windows that end at a row that meets a condition.

    Parameters
    ----------
    condition : str
        A condition in SQL, such as ``"state = 'done'"``.
    include : bool
        Whether the row that meets the condition is the last row of the window. Otherwise, it is the first row of the
        next window.

    Returns
    -------
    EmitWhen
        The windows. A window is emitted with the row that meets the condition. An empty window is not emitted.

    Raises
    ------
    ValueError
        If the condition is not a string.

    Examples
    --------
    >>> str(emit_when("state = 'done'", include=False))
    'emit_when("state = \\'done\\'", include=False)'
    """
    return EmitWhen(condition, include)
