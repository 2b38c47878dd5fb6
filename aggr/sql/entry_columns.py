"""Entry columns: the values of the entries of a record, if rows are repeated for each entry.

The key ``class = each(fields)`` repeats a row for each entry of the record ``fields``. The table of repeated rows has a
column with the value of each row's entry. ``fields[class]`` reads this column, so the record is not copied to each row.
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
    """Return whether a table with these columns has entry columns."""
    return any(name.startswith(_ENTRY_OF) for name in names)
