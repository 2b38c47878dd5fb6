"""Entry columns: a column with the value for the row's own key, so that ``fields[class]`` can be computed.

A key ``class = each(fields)`` repeats a row for each entry of the record ``fields``. Its table then has the values of
these entries as a column, so that ``fields[class]`` reads the entry itself, without a copy of the record in each row.
"""

from __future__ import annotations

from collections.abc import Collection

_ENTRY_OF = "\ue001"  # from Unicode's private use area, so that it does not occur in a user's column names


def entry_column(record: str, key: str) -> str:
    """Return the name of the column with the values of a record's entries, if rows are repeated per entry.

    >>> entry_column("fields", "class") == "fields[class]"
    False
    """
    return f"{_ENTRY_OF}{record}[{key}]"


def has_entry_columns(names: Collection[str]) -> bool:
    """Return whether a table with these columns has entry columns."""
    return any(name.startswith(_ENTRY_OF) for name in names)
