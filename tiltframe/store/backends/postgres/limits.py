"""Limits of PostgreSQL: check names, values and the number of columns before anything is written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from aggr.extend.columns import one_array
from tiltframe.store.backends import END, LEVEL, StoreError

PART = "_part"
_OWN_COLUMNS = (LEVEL, END, PART)
_SYSTEM_COLUMNS = ("ctid", "tableoid", "xmin", "xmax", "cmin", "cmax")
# The maximum number of columns of a table.
_MAX_COLUMNS = 1600
# The maximum size of a row in bytes. A row must fit into a page of 8 KiB.
_ROW_BYTES = 8100
# The size of a pointer in bytes. A row contains a pointer for each long value that is stored outside the row.
_POINTER_BYTES = 18
# The first date of PostgreSQL, 4714-11-24 BC, in days since 1970.
_FIRST_DAY = -2_440_588
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
# The last date of PostgreSQL, 5874897-12-31, in days since 1970.
_LAST_DAY = 2_145_031_948


def check_columns(columns: pa.Schema) -> None:
    """Raise `StoreError` if PostgreSQL cannot have a table with the columns ``columns``, because of a name, the number
    of columns or the size of a row.
    """
    for name in columns.names:
        if name in _OWN_COLUMNS:
            raise StoreError(
                f"a key cannot be called {name!r} in PostgreSQL, because every table has a column of this name; "
                "rename the key"
            )
        if name in _SYSTEM_COLUMNS:
            raise StoreError(f"PostgreSQL reserves the name {name!r}; rename the key")
        if not name or "\0" in name:
            raise StoreError(f"PostgreSQL cannot have a column called {name!r}; rename the key or the measure")
    count = len(columns) + len(_OWN_COLUMNS)
    if count > _MAX_COLUMNS:
        raise StoreError(
            f"the frame's states take {count:,} columns, and a table in PostgreSQL can have at most {_MAX_COLUMNS:,}; "
            "use fewer measures, or a Delta store (a folder)"
        )
    width = _row_width(columns)
    if width > _ROW_BYTES:
        raise StoreError(
            f"a row of the frame's states takes {width:,} bytes, and a row in PostgreSQL can have at most "
            f"{_ROW_BYTES:,}; use fewer measures, or a Delta store (a folder)"
        )


def check_values(columns: pa.Table) -> None:
    """Raise `StoreError` if PostgreSQL cannot store a key or state, such as text with a NUL character or a time before
    4714 BC.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        for values in _leaves(one_array(column)):
            dtype = values.type
            is_text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
            if is_text and _any(pc.match_substring(values, "\0")):
                raise StoreError(
                    f"PostgreSQL cannot store text with a NUL character, which {field.name!r} "
                    f"contains; remove it, or use a Delta store (a folder)"
                )
            if pa.types.is_timestamp(dtype) and dtype.unit != "ns":
                units = _UNITS_PER_SECOND[dtype.unit]
                _check_range(field.name, values.cast(pa.int64()), _FIRST_DAY * 86_400 * units, 2**63 // 10**6 * units)
            if pa.types.is_date32(dtype):
                _check_range(field.name, values.cast(pa.int32()).cast(pa.int64()), _FIRST_DAY, _LAST_DAY)


def _check_range(name: str, values: pa.Array, first: int, last: int) -> None:
    if _any(pc.less(values, first)) or _any(pc.greater(values, last)):
        raise StoreError(
            f"{name!r} contains dates that PostgreSQL cannot store, such as dates before 4714 BC; use a Delta store (a "
            "folder)"
        )


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _leaves(child)
    elif pa.types.is_list(values.type):
        yield from _leaves(values.flatten())
    else:
        yield values


def _any(matches: pa.Array) -> bool:
    return bool(pc.any(matches).as_py())


def _row_width(columns: pa.Schema) -> int:
    """Return the minimum number of bytes of a row without nulls. Numbers are aligned to multiples of their size."""
    # The bytes of a row without the values of ``columns``: the header, one bit per column, and two timestamps.
    width = 24 + len(columns) // 8 + 16
    for field in columns:
        dtype = field.type
        is_fixed_size = pa.types.is_primitive(dtype) and not pa.types.is_decimal(dtype)
        size = int(max(dtype.bit_width // 8, 2)) if is_fixed_size else 1
        width += -width % size + (size if is_fixed_size else _POINTER_BYTES)
    return width + 3 * _POINTER_BYTES + 3 * 8
