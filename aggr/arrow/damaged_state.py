"""Damaged states: the error for values that no state can have, and checks that raise it."""

from __future__ import annotations

import pyarrow as pa

# the end of each message about a damaged state
RESTORE = "; restore the states from a backup, or reduce the rows again"


class DamagedState(ValueError):
    """Raised for a column of states that contains values that no function can have written. The column is damaged, or
    its type is not that of the states to read.
    """


def damaged_state(reader: str, damage: object) -> DamagedState:
    """Return the error for a damaged state. Its message names ``reader``, the function that reads the state, and says
    how to repair the state.
    """
    return DamagedState(f"a damaged state of {reader}: {damage}{RESTORE}")


def field_of_type(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return a field of states, cast to ``dtype``. Raises `DamagedState` if the cast fails, or the field has nulls.

    >>> field_of_type(pa.array([1], pa.int32()), pa.int64()).type
    DataType(int64)
    """
    if column.type != dtype:
        try:
            column = column.cast(dtype)
        except (pa.ArrowException, TypeError):
            raise DamagedState(f"has type {column.type}, not {dtype}") from None
    if _has_null(column):
        raise DamagedState("contains null in some states")
    return column


def refuse_nulls(column: pa.Array) -> None:
    """Raise `DamagedState` if a field has nulls. A state may be null as a whole, but its fields may not."""
    if column.null_count:
        raise DamagedState("contains null in some states")


def _has_null(column: pa.Array) -> bool:
    if column.null_count:
        return True
    if pa.types.is_struct(column.type):
        return any(_has_null(column.field(i)) for i in range(column.type.num_fields))
    return pa.types.is_list(column.type) and bool(column.values.null_count) and bool(column.flatten().null_count)
