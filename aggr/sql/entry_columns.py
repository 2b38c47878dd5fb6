"""Entry columns: columns that contain, for each row, the value of one entry of a record.

A key such as ``class = each(fields)`` repeats a row for each entry of the record ``fields``. In the table of the
repeated rows, the entry column contains the value of the entry for which the row was repeated. ``fields[class]`` reads
this column, so the record is not copied to each row.
"""

from __future__ import annotations

from collections.abc import Collection

_ENTRY_OF = "\ue001"  # a character of Unicode's private use area, which does not occur in the names of users' columns


def entry_column(record: str, key: str) -> str:
    """Return the name of the entry column for ``record[key]``.

    >>> entry_column("fields", "class") == "fields[class]"
    False
    """
    return f"{_ENTRY_OF}{record}[{key}]"


def has_entry_columns(names: Collection[str]) -> bool:
    """Return whether a table with the columns ``names`` has an entry column."""
    return any(name.startswith(_ENTRY_OF) for name in names)
