"""Late types: columns whose type becomes known only after the rows from which types were inferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Rows = TypeVar("Rows")


class LateType(ValueError):
    """An error: the inferred type of a column cannot represent a value, or would change it. The error contains a wider
    type that can represent the value.

    Callers that can read the rows again use the wider type (see `read_widening`). Other callers handle it like any
    other error.
    """

    def __init__(self, column: str, kind: pa.DataType, describe: Callable[[], str]) -> None:
        """Store the column, the wider type, and a function that returns the message."""
        super().__init__(column, kind)
        self.column, self.kind, self._describe = column, kind, describe

    def __str__(self) -> str:
        """Return the message for users. To name the line of the value, this reads the file again."""
        return self._describe()


def read_widening(rows: Rows, read: Callable[[Rows], T], widened: Callable[[Rows, LateType], Rows]) -> T:
    """Read rows. If a type turns out to be too narrow, read again from the first row with the wider type."""
    seen = set[tuple[str, str]]()
    while True:
        try:
            return read(rows)
        except LateType as late:
            if (late.column, str(late.kind)) in seen:
                raise
            seen.add((late.column, str(late.kind)))
            rows = widened(rows, late)
