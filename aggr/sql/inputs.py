"""Inputs: a column by its name, or the value of an SQL expression over columns.

A text that is the name of an existing column refers to that column, even if the name contains blanks or operators. Any
other text is an expression, as described in `docs/conditions.md`. The functions therefore receive the names of the
existing columns. An ambiguous text, which names a column and is also an expression over other existing columns, raises
an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress

import pyarrow as pa

from aggr import sql
from aggr.arguments import nearest, shown
from aggr.arrow.normalize import one_array
from aggr.sql.number_columns import Use, column_to_read, columns_needed

_WORDS = re.compile(r"\w+(\.\w+)*")  # a text of this form is a name or a number, never a longer expression


def is_column(text: str, names: Collection[str]) -> bool:
    """Return whether a text is one of the column names ``names``. Raise ``ValueError`` for an ambiguous text.

    >>> is_column("latency ms", ["latency ms"]), is_column("price * 2", ["price"])
    (True, False)
    """
    if text not in names:
        return False
    if not _WORDS.fullmatch(text):
        columns_read = _columns_of_expression(text)
        if columns_read and all(name in names for name in columns_read):
            raise ValueError(
                f"{shown(text)} is the name of a column, and also an expression of {' and '.join(columns_read)}; write "
                f"{quoted(text)} for the column, ({text}) for the expression"
            )
    return True


def columns_in(text: str, names: Collection[str], use: Use = Use.KEEP) -> tuple[str, ...]:
    """Return the columns among ``names`` that a column name or an expression reads.

    ``use`` is how the caller uses the values of the column or expression. Raise ``ValueError`` if the text is neither a
    column nor an expression, if it is ambiguous, or if it reads a column that does not exist.

    >>> columns_in("price * quantity", ["price", "quantity"]), columns_in("latency ms", ["latency ms"])
    (('price', 'quantity'), ('latency ms',))
    >>> columns_in("http.status", ["http"])
    ('http',)
    """
    if is_column(text, names):
        return columns_needed(text, names, use)
    try:
        uses = sql.uses_among(text, names, "expression")
    except ValueError as error:
        raise ValueError(f"the data has no column {shown(text)}; {nearest(text, names)}; {error}") from None
    columns = list[str]()
    for name, part in uses:
        column = sql.column_in(name, names)
        if column is None:
            source = "" if sql.column_of(text) else f", which {shown(text)} uses"
            raise ValueError(f"the data has no column {shown(name)}{source}; {nearest(name, names)}")
        columns += columns_needed(column, names, use if part is Use.VALUE else part)
    return tuple(dict.fromkeys(columns))


def type_in(text: str, schema: pa.Schema, use: Use = Use.KEEP) -> pa.DataType:
    """Return the type of the values of a column name or an expression.

    Raise ``ValueError`` as `columns_in` does, and for types that cannot be combined.
    """
    if is_column(text, schema.names):
        return schema.field(column_to_read(text, schema.names, use)).type
    columns_in(text, schema.names, use)
    return sql.value_type(text, schema, use)


def values_in(text: str, table: pa.Table | pa.RecordBatch, timezone: str = "UTC", use: Use = Use.KEEP) -> pa.Array:
    """Return the values of a column name or an expression, one per row of ``table``.

    Raise ``ValueError`` if they cannot be computed.
    """
    names = table.schema.names
    if is_column(text, names):
        return one_array(table.column(column_to_read(text, names, use)))
    return sql.evaluate(text, table, timezone, use)


def possible_columns(text: str) -> tuple[str, ...]:
    """Return all names in a text that may be columns. The names of the existing columns are not needed.

    The result contains the text itself, and the columns that the text reads if it is an expression. For a name with
    dots, it also contains the part before each dot, because the name may refer to a field of a struct: ``http.status``
    may be the field ``status`` of the column ``http``.

    >>> possible_columns("http.status")
    ('http.status', 'http')
    """
    texts = [text]
    if not _WORDS.fullmatch(text):
        with suppress(ValueError):  # a text that is not an expression may still be a name
            texts += sql.columns_of(text, "expression")
    return tuple(dict.fromkeys(name for text in texts for name in _with_outer_names(text)))


def _with_outer_names(name: str) -> list[str]:
    """Return a name and the names before each of its dots, longest first: ``a.b.c``, ``a.b``, ``a``."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(len(parts), 0, -1)]


def quoted(name: str) -> str:
    """Return the name of a column as an expression that reads it. The name is put in backquotes unless it consists of
    ASCII letters, digits and ``_``, and does not begin with a digit.

    >>> quoted("p99_ms"), quoted("latency ms")
    ('p99_ms', '`latency ms`')
    """
    escaped = name.replace("`", "``")
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{escaped}`"


def _columns_of_expression(text: str) -> tuple[str, ...]:
    """Return the columns that an expression reads.

    The result is empty if the text consists only of a column, or is not an expression.
    """
    try:
        return () if sql.column_of(text) else sql.columns_of(text, "expression")
    except ValueError:
        return ()
