"""Flat columns: convert structs to columns without structs, in which the same rows are equal and sort in the same
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def flat_columns(columns: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield columns without structs. Two rows are equal in these columns if and only if they are equal in ``columns``.

    A struct becomes a column of booleans, which are true for null structs, followed by the columns of its fields. A
    null struct therefore differs from a struct with null fields. If rows are sorted by these columns in ascending
    order, with nulls last, a null struct comes last.

    >>> [column.to_pylist() for column in flat_columns([pa.array([{"a": 1}, {"a": None}, None])])]
    [[False, False, True], [1, None, None]]
    """
    for column in columns:
        if pa.types.is_struct(column.type):
            yield column.is_null()
            yield from flat_columns(column.flatten())
        else:
            yield column
