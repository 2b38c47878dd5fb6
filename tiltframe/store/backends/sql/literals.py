"""Literals: identifiers, numbers and moments as SQL text."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """Quote an identifier.

    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Quote identifiers, with commas."""
    return ", ".join(quoted(name) for name in names)


def numbers(values: Sequence[int]) -> str:
    """Write whole numbers as an array."""
    return f"'{{{','.join(str(int(v)) for v in values)}}}'::bigint[]"


def moment(micros: str) -> str:
    """Write microseconds as a moment: hours and the rest, since as a float of microseconds it would be rounded."""
    hour = 3_600_000_000
    return (
        f"(timestamptz 'epoch' + ({micros}) / {hour} * interval '1 hour' "
        f"+ ({micros}) % {hour} * interval '1 microsecond')"
    )
