"""where: a condition in SQL, evaluated over Arrow columns.

Conditions are parsed by sqlglot and computed by Arrow, with SQL's three-valued logic: a row stays only where the
condition is true, not where it is null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from numpy.typing import NDArray
from sqlglot import expressions as sql

from aggr.plain import plain

Value = Any  # an Arrow array or scalar

_COMPARE: Mapping[type[sql.Expr], Callable[[Value, Value], Value]] = {
    sql.EQ: pc.equal,
    sql.NEQ: pc.not_equal,
    sql.LT: pc.less,
    sql.LTE: pc.less_equal,
    sql.GT: pc.greater,
    sql.GTE: pc.greater_equal,
}
_LOGIC: Mapping[type[sql.Expr], Callable[[Value, Value], Value]] = {sql.And: pc.and_kleene, sql.Or: pc.or_kleene}
_ARITHMETIC: Mapping[type[sql.Expr], Callable[[Value, Value], Value]] = {
    sql.Add: pc.add_checked,
    sql.Sub: pc.subtract_checked,
    sql.Mul: pc.multiply_checked,
}
_OTHERS = (
    *(sql.Column, sql.Identifier, sql.Literal, sql.Boolean, sql.Null, sql.Paren, sql.Neg, sql.Not, sql.Is, sql.In),
    *(sql.Between, sql.Like, sql.Div),
)
_KNOWN = (*_COMPARE, *_LOGIC, *_ARITHMETIC, *_OTHERS)


@lru_cache(maxsize=256)
def checked_condition(condition: str) -> sql.Expr:
    """Parse a condition; raises ``ValueError`` where it is no SQL, or uses what is not known here."""
    if not isinstance(condition, str):
        raise ValueError(f'a condition must be text, say "status >= 500"; got {condition!r}')
    try:
        tree = sqlglot.parse_one(condition, dialect="mysql")  # quotes as Spark's, and '' inside them
        nodes = list(tree.walk())
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0].removesuffix(".")
        raise ValueError(f"cannot read the condition {condition!r} as SQL: {reason}") from None
    except RecursionError:
        raise ValueError("a condition is nested too deeply; write a long chain of OR as IN (…)") from None
    for node in nodes:
        literal_like = isinstance(node, sql.Like) and not _is_text(node.expression)
        if not isinstance(node, _KNOWN) or literal_like or (isinstance(node, sql.In) and not node.expressions):
            raise ValueError(
                f"a condition cannot use {node.sql(dialect='mysql')!r}; it knows comparisons, AND, OR, NOT, IN (…), "
                "BETWEEN, LIKE 'text', IS NULL and arithmetic"
            )
    return tree


def columns_of(condition: str | None) -> tuple[str, ...]:
    """Name the columns that a condition reads, in order of appearance.

    >>> columns_of("status >= 500 and host = 'a'")
    ('status', 'host')
    """
    if condition is None:
        return ()
    return tuple(dict.fromkeys(_name(column) for column in checked_condition(condition).find_all(sql.Column)))


def rows_where(condition: str, table: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
    """Find the rows for which a condition is true.

    Parameters
    ----------
    condition : str
        SQL: comparisons, ``AND OR NOT``, ``IN``, ``BETWEEN``, ``LIKE``, ``IS NULL``, ``+ - * /``, numbers, strings.
        A string compared with a timestamp is ISO 8601, UTC unless it carries an offset. Dividing by 0 gives null.
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
        if name not in table.schema.names:
            there = ", ".join(table.schema.names)
            raise ValueError(f"the condition {condition!r} names a column {name!r}; there are {there}")
    try:
        mask = _evaluate(checked_condition(condition), table)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ValueError(f"cannot compute the condition {condition!r}: {str(error).splitlines()[0]}") from None
    if pa.types.is_null(mask.type):
        mask = mask.cast(pa.bool_())
    if not pa.types.is_boolean(mask.type):
        raise ValueError(f"the condition {condition!r} gives {mask.type}, not true or false")
    if isinstance(mask, pa.Scalar):
        return np.full(table.num_rows, mask.as_py() is True)
    rows: NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return rows


def _evaluate(node: sql.Expr, table: pa.Table | pa.RecordBatch) -> Value:
    def value(of: sql.Expr) -> Value:
        return _evaluate(of, table)

    kind = type(node)
    if kind in _COMPARE:
        return _compare(_COMPARE[kind], value(node.this), value(node.expression))
    if kind in _LOGIC:
        return _LOGIC[kind](*(value(side).cast(pa.bool_()) for side in (node.this, node.expression)))
    if kind in _ARITHMETIC:
        return _ARITHMETIC[kind](*(_wide(value(side)) for side in (node.this, node.expression)))
    match node:
        case sql.Column():
            return plain(table.column(_name(node)))
        case sql.Literal():
            return pa.scalar(node.this) if node.is_string else _number(node.this)
        case sql.Neg(this=sql.Literal(is_string=False) as literal):
            return _number(f"-{literal.this}")
        case sql.Boolean():
            return pa.scalar(bool(node.this))
        case sql.Paren():
            return value(node.this)
        case sql.Neg():
            return pc.negate_checked(_wide(value(node.this)))
        case sql.Not():
            return pc.invert(value(node.this).cast(pa.bool_()))
        case sql.Is(expression=sql.Null()):
            return pc.is_null(value(node.this))
        case sql.Is():
            return pc.fill_null(_compare(pc.equal, value(node.this), value(node.expression)), False)
        case sql.In():
            column = value(node.this)
            return reduce(pc.or_kleene, (_compare(pc.equal, column, value(item)) for item in node.expressions))
        case sql.Between():
            low, high = (_compare(f, value(node.this), value(node.args[end])) for f, end in _ENDS)
            return pc.and_kleene(low, high)
        case sql.Like():
            return pc.match_like(value(node.this), node.expression.this)
        case sql.Div():
            top, bottom = (pc.cast(value(side), pa.float64()) for side in (node.this, node.expression))
            return pc.divide(top, pc.if_else(pc.equal(bottom, 0.0), pa.scalar(None, pa.float64()), bottom))
    return pa.scalar(None, pa.null())


_ENDS = ((pc.greater_equal, "low"), (pc.less_equal, "high"))


def _compare(operation: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
    """Compare two values in a type that holds both."""
    if pa.types.is_null(a.type) or pa.types.is_null(b.type):
        rows = next((v for v in (a, b) if not isinstance(v, pa.Scalar)), None)
        return pa.scalar(None, pa.bool_()) if rows is None else pa.nulls(len(rows), pa.bool_())
    a, b = _literal_as(a, b.type), _literal_as(b, a.type)
    floating = pa.types.is_floating(a.type) or pa.types.is_floating(b.type)
    return operation(*(_comparable(v, floating) for v in (a, b)))


def _literal_as(value: Value, other: pa.DataType) -> Value:
    """Give a literal the type of what it is compared with: text as a time or a date, a decimal as a float."""
    if not isinstance(value, pa.Scalar):
        return value
    if pa.types.is_string(value.type) and not pa.types.is_string(other):
        if not pa.types.is_timestamp(other):
            return value.cast(other)
        moment = dt.datetime.fromisoformat(value.as_py())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return pa.scalar(moment, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", other.tz))
    if pa.types.is_decimal(value.type) and pa.types.is_floating(other):
        return pa.scalar(float(value.as_py()))
    return value


def _comparable(value: Value, floating: bool) -> Value:
    """Widen unsigned integers, which Arrow would squeeze into int64, and integers beside floats."""
    if floating and pa.types.is_integer(value.type):
        return pc.cast(value, pa.float64(), safe=False)
    return pc.cast(value, pa.decimal128(20, 0)) if pa.types.is_uint64(value.type) else value


def _wide(value: Value) -> Value:
    """Widen numbers before arithmetic, so that small types do not wrap."""
    if pa.types.is_uint64(value.type):
        return pc.cast(value, pa.decimal128(20, 0))
    if pa.types.is_integer(value.type):
        return pc.cast(value, pa.int64())
    return pa.scalar(float(value.as_py())) if isinstance(value, pa.Decimal128Scalar) else value


def _name(column: sql.Column) -> str:
    """Name a column as written, with whatever stands before its last dot."""
    return ".".join(part.name for part in column.parts)


def _number(text: str) -> pa.Scalar:
    if text.removeprefix("-").isdigit():
        whole = int(text)
        return pa.scalar(whole) if -(2**63) <= whole < 2**63 else pa.scalar(Decimal(whole))
    return pa.scalar(float(text)) if "e" in text.lower() else pa.scalar(Decimal(text))


def _is_text(node: Any) -> bool:
    return isinstance(node, sql.Literal) and bool(node.is_string)
