"""Conditions: write bounds of keys as SQL conditions for PostgreSQL.

Text is compared by its bytes in UTF-8, as in Arrow, whatever the encoding of the database. The bytes are written in
hexadecimal digits, so no characters must be escaped.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tiltframe.store.backends import KeyBound
from tiltframe.store.backends.postgres.literals import moment

# PostgreSQL can represent all dates and times within this number of days before and after 1970. Its first date is in
# 4714 BC.
_SAFE_DAYS = 6_000 * 365
_DAY = 86_400_000_000  # the length of a day in microseconds


def bound_conditions(column: str, bound: KeyBound) -> list[str]:
    """Return SQL conditions that are all true for the rows whose key lies within a bound. The list is empty if
    PostgreSQL may order values of the key's type differently from Arrow.

    >>> low, high = pa.scalar(3), pa.scalar(5)
    >>> bound_conditions("t.port", KeyBound("port", pa.int64(), low, high, None))
    ['t.port >= 3', 't.port <= 5']
    >>> bound_conditions("t.host", KeyBound("host", pa.string(), None, None, pa.array(["a", "it's"])))
    ["convert_to(t.host, 'UTF8') IN (decode('61', 'hex'), decode('69742773', 'hex'))"]
    """
    writer = _writer(bound.dtype)
    if writer is None:
        return []
    template, write = writer
    column = template.format(column)
    if bound.values is not None:
        values = [write(value) for value in bound.values]
        return [f"{column} IN ({', '.join(v for v in values if v)})"] if all(values) else []
    limits = ((sign, limit) for sign, limit in ((">=", bound.low), ("<=", bound.high)) if limit is not None)
    limit_texts = ((sign, write(limit)) for sign, limit in limits)
    return [f"{column} {sign} {text}" for sign, text in limit_texts if text is not None]


def _writer(dtype: pa.DataType) -> tuple[str, Callable[[pa.Scalar], str | None]] | None:
    """Return two values for comparisons of a type in SQL: a template, into which the name of a column is inserted, and
    a function that returns a value of the type as SQL. Return None if the type is not supported.
    """
    if pa.types.is_string(dtype):
        return "convert_to({}, 'UTF8')", _text
    if pa.types.is_integer(dtype) or pa.types.is_decimal(dtype):
        return "{}", lambda value: f"{value.as_py():f}" if pa.types.is_decimal(dtype) else str(value.as_py())
    if pa.types.is_timestamp(dtype):
        return ("{}" if dtype.tz else "{} AT TIME ZONE 'UTC'"), _time
    return ("{}", _date) if pa.types.is_date32(dtype) else None


def _text(value: pa.Scalar) -> str:
    return f"decode('{value.as_py().encode().hex()}', 'hex')"


def _time(value: pa.Scalar) -> str | None:
    micros = value.cast(pa.int64()).as_py()
    return moment(str(micros)) if abs(micros) < _SAFE_DAYS * _DAY else None


def _date(value: pa.Scalar) -> str | None:
    days = value.cast(pa.int32()).as_py()
    return f"date '1970-01-01' + ({days})" if abs(days) < _SAFE_DAYS else None
