"""where: a condition in SQL, evaluated over Arrow columns.

Conditions are parsed by sqlglot and computed by Arrow, with SQL's three-valued logic: a row
stays only where the condition is true, not where it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from numpy.typing import NDArray
from sqlglot import expressions as sql

Value = Any  # an Arrow array, chunked array or scalar

_COMPARE: Mapping[type[sql.Expr], Callable[[Value, Value], Value]] = {
    sql.EQ: pc.equal,
    sql.NEQ: pc.not_equal,
    sql.LT: pc.less,
    sql.LTE: pc.less_equal,
    sql.GT: pc.greater,
    sql.GTE: pc.greater_equal,
}
_COMBINE: Mapping[type[sql.Expr], Callable[[Value, Value], Value]] = {
    sql.And: pc.and_kleene,
    sql.Or: pc.or_kleene,
    sql.Add: pc.add,
    sql.Sub: pc.subtract,
    sql.Mul: pc.multiply,
}


@lru_cache(maxsize=256)
def parsed(condition: str) -> sql.Expr:
    """Parse a condition; raises ``ValueError`` where it is no SQL, or uses what is not known here."""
    try:
        tree = sqlglot.parse_one(condition, dialect="mysql")  # quotes as Spark's, and '' inside them
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0].removesuffix(".")
        raise ValueError(f"cannot read the condition {condition!r} as SQL: {reason}") from None
    return tree


def columns_of(condition: str | None) -> tuple[str, ...]:
    """Name the columns that a condition reads, in order of appearance.

    >>> columns_of("status >= 500 and host = 'a'")
    ('status', 'host')
    """
    if condition is None:
        return ()
    return tuple(dict.fromkeys(column.name for column in parsed(condition).find_all(sql.Column)))


def rows_where(condition: str, table: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
    """Find the rows for which a condition is true.

    Parameters
    ----------
    condition : str
        SQL: comparisons, ``AND OR NOT``, ``IN``, ``BETWEEN``, ``LIKE``, ``IS NULL``, ``+ - * /``, numbers, strings.
    table : table or batch

    Returns
    -------
    array of bool, shape (rows,)

    Raises
    ------
    ValueError
        If the condition cannot be read, names a column that is not there, or compares what cannot be compared.

    Examples
    --------
    >>> rows_where("status >= 500", pa.table({"status": [200, 503, None]}))
    array([False,  True, False])
    """
    for name in columns_of(condition):
        if name not in table.column_names:
            raise ValueError(f"the condition {condition!r} names a column {name!r}; there are {table.column_names}")
    try:
        mask = _evaluate(parsed(condition), table)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ValueError(f"cannot compute the condition {condition!r}: {str(error).splitlines()[0]}") from None
    if not pa.types.is_boolean(mask.type):
        raise ValueError(f"the condition {condition!r} gives {mask.type}, not true or false")
    if isinstance(mask, pa.Scalar):
        return np.full(table.num_rows, mask.as_py() is True)
    rows: NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return rows


def _evaluate(node: sql.Expr, table: pa.Table | pa.RecordBatch) -> Value:
    def value(of: sql.Expr) -> Value:
        return _evaluate(of, table)

    match node:
        case sql.Column():
            return table.column(node.name)
        case sql.Literal():
            return pa.scalar(node.this if node.is_string else _number(node.this))
        case sql.Boolean():
            return pa.scalar(bool(node.this))
        case sql.Null():
            return pa.scalar(None, pa.bool_())
        case sql.Paren():
            return value(node.this)
        case sql.Neg():
            return pc.negate(value(node.this))
        case sql.Not():
            return pc.invert(value(node.this))
        case sql.Is():
            if isinstance(node.expression, sql.Null):
                return pc.is_null(value(node.this))
            return pc.fill_null(pc.equal(*_alike(value(node.this), value(node.expression))), False)
        case sql.In() if node.expressions:
            column = value(node.this)
            return reduce(pc.or_kleene, (pc.equal(*_alike(column, value(item))) for item in node.expressions))
        case sql.Between():
            column, low, high = value(node.this), value(node.args["low"]), value(node.args["high"])
            return pc.and_kleene(pc.greater_equal(*_alike(column, low)), pc.less_equal(*_alike(column, high)))
        case sql.Like():
            return pc.match_like(value(node.this), value(node.expression).as_py())
        case sql.Div():
            return pc.divide(*(pc.cast(side, pa.float64()) for side in (value(node.this), value(node.expression))))
    for table_of, prepare in ((_COMPARE, _alike), (_COMBINE, lambda a, b: (a, b))):
        if type(node) in table_of:
            return table_of[type(node)](*prepare(value(node.this), value(node.expression)))
    raise ValueError(
        f"a condition cannot use {node.sql(dialect='mysql')!r}; it knows comparisons, AND, OR, NOT, IN, BETWEEN, "
        "LIKE, IS NULL and arithmetic"
    )


def _alike(a: Value, b: Value) -> tuple[Value, Value]:
    """Give a string literal the type of the column it is compared with: a timestamp, a date, a number."""
    for this, other in ((a, b), (b, a)):
        if isinstance(this, pa.Scalar) and pa.types.is_string(this.type) and not pa.types.is_string(other.type):
            kind = other.type
            if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
                continue
            literal = this.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(kind) else this
            literal = (
                pa.scalar(literal.as_py(), pa.timestamp("us", kind.tz)) if literal is not this else this.cast(kind)
            )
            return (literal, b) if this is a else (a, literal)
    return a, b


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)
