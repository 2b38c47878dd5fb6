"""Literals: identifiers, numbers and timestamps as SQL text."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """Return an identifier in quotes.

    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Return identifiers in quotes, separated by commas."""
    return ", ".join(quoted(name) for name in names)


def numbers(values: Sequence[int]) -> str:
    """Return whole numbers as an SQL array."""
    return f"'{{{','.join(str(int(v)) for v in values)}}}'::bigint[]"


def moment(micros: str) -> str:
    """Return an SQL expression that converts microseconds since 1970 UTC to a timestamp. ``micros`` is the SQL
    expression of the microseconds, a whole number.

    The returned expression adds whole hours and the remaining microseconds separately, because PostgreSQL multiplies
    an interval by a double, which would round a large number of microseconds.
    """
    hour = 3_600_000_000
    return (
        f"(timestamptz 'epoch' + ({micros}) / {hour} * interval '1 hour' "
        f"+ ({micros}) % {hour} * interval '1 microsecond')"
    )
