"""Type widening: if a value does not fit the type that was inferred for its column, read the files again with a wider
type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Rows = TypeVar("Rows")


class WiderTypeNeeded(ValueError):
    """An error: the inferred type of a column cannot represent a value, or would change it.

    ``column`` is the name of the column, and ``kind`` a type that represents the value. `read_widening` reads the rows
    again with this type. If the rows can be read only once, the user sees the error.
    """

    def __init__(self, column: str, kind: pa.DataType, describe: Callable[[], str]) -> None:
        """Create the error for the column ``column`` and the wider type ``kind``. ``describe`` is a function that
        returns the message for users.
        """
        super().__init__(column, kind)
        self.column = column
        self.kind = kind
        self._describe = describe

    def __str__(self) -> str:
        """Return the message for users. This may read the file again to name the line of the value."""
        return self._describe()


def read_widening(rows: Rows, read: Callable[[Rows], T], widened: Callable[[Rows, WiderTypeNeeded], Rows]) -> T:
    """Return ``read(rows)``. If ``read`` raises `WiderTypeNeeded`, call ``read`` again with ``widened(rows, error)``:
    the same rows, whose column ``error.column`` has the type ``error.kind``. If the same column needs the same type a
    second time, raise the error.
    """
    seen = set[tuple[str, str]]()
    while True:
        try:
            return read(rows)
        except WiderTypeNeeded as needed:
            if (needed.column, str(needed.kind)) in seen:
                raise
            seen.add((needed.column, str(needed.kind)))
            rows = widened(rows, needed)
