"""Grammar: which nodes and arguments of parsed SQL the compiler reads; all others are refused, whatever they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import ErrorLevel
from sqlglot import expressions as sql

_BINARY = frozenset({"this", "expression"})
_UNARY = frozenset({"this"})
_LIST = frozenset({"this", "expressions"})
_NONE: frozenset[str] = frozenset()

COMPARISONS = (sql.EQ, sql.NEQ, sql.LT, sql.LTE, sql.GT, sql.GTE, sql.NullSafeEQ, sql.NullSafeNEQ)
PATTERNS = (sql.Like, sql.ILike, sql.RegexpLike)
_RANGES = (sql.Between, sql.In, sql.Is, sql.Escape)
ARITHMETIC = (sql.Add, sql.Sub, sql.Mul, sql.Div, sql.Mod, sql.IntDiv)
PARTS = (sql.Year, sql.Quarter, sql.Month, sql.Day, sql.DayOfMonth, sql.Hour, sql.Minute, sql.Second)

READ: Mapping[type[sql.Expr], frozenset[str]] = {
    **dict.fromkeys((*COMPARISONS, *ARITHMETIC, sql.And, sql.Or, sql.Nullif, sql.RegexpLike), _BINARY),
    **dict.fromkeys((sql.Like, sql.ILike), _BINARY | {"negate"}),
    **dict.fromkeys((sql.StartsWith, sql.EndsWith, sql.Contains, sql.Left, sql.Right, sql.Is, sql.Escape), _BINARY),
    **dict.fromkeys((sql.Not, sql.Neg, sql.Paren, sql.Lower, sql.Upper, sql.Length, sql.Reverse, sql.Abs), _UNARY),
    **dict.fromkeys((sql.Sqrt, sql.Sign, sql.IsNan, sql.Floor, sql.Ceil, sql.TsOrDsToDate, sql.Boolean), _UNARY),
    **dict.fromkeys((*PARTS, sql.Var), _UNARY),
    sql.Column: frozenset({"this", "table", "db", "catalog"}),
    sql.Identifier: frozenset({"this", "quoted"}),
    sql.Literal: frozenset({"this", "is_string"}),
    sql.Div: _BINARY | {"safe", "typed"},
    sql.Null: _NONE,
    sql.Between: frozenset({"this", "low", "high"}),
    sql.In: _LIST,
    sql.Case: frozenset({"this", "ifs", "default"}),
    sql.If: frozenset({"this", "true", "false"}),
    sql.Coalesce: _LIST,
    **dict.fromkeys((sql.Greatest, sql.Least), _LIST | {"ignore_nulls"}),
    sql.Cast: frozenset({"this", "to"}),
    sql.TryCast: frozenset({"this", "to", "safe"}),
    sql.DataType: frozenset({"this", "expressions", "nested"}),
    sql.DataTypeParam: _UNARY,
    sql.Substring: frozenset({"this", "start", "length"}),
    sql.Trim: frozenset({"this", "expression", "position"}),
    **dict.fromkeys((sql.Replace, sql.RegexpReplace), frozenset({"this", "expression", "replacement"})),
    sql.Round: frozenset({"this", "decimals"}),
    sql.Concat: frozenset({"expressions", "safe"}),
    sql.DPipe: _BINARY | {"safe"},
    sql.Extract: _BINARY,
    sql.TimestampTrunc: frozenset({"this", "unit"}),
    sql.AtTimeZone: frozenset({"this", "zone"}),
    sql.Interval: frozenset({"this", "unit"}),
}
_PREDICATES = (*COMPARISONS, *PATTERNS, *_RANGES, sql.Not, sql.And, sql.Or)
_KNOWN = (
    "comparisons, AND, OR, NOT, IN (…), BETWEEN, LIKE, ILIKE, RLIKE, IS, CASE, COALESCE, CAST, + - * / %, and "
    "functions of text, numbers and times"
)


def unread(tree: sql.Expr, what: str) -> str | None:
    """Say what in a tree the compiler does not read, of ``what``, such as "a condition"; None where it reads all.

    A comparison of a comparison needs parentheses, since engines group it differently.
    """
    for node in tree.walk():
        arguments = READ.get(type(node))
        if arguments is None:
            return f"{what} cannot use {_shown(node)}; it knows {_KNOWN}"
        for name, value in node.args.items():
            if name not in arguments and not _nothing(value):
                return f"{what} cannot use {_shown(node)}: what it says of {name!r} is not known here"
        if isinstance(node, sql.In) and not node.expressions:
            return "IN needs a list of values in parentheses, say status IN (200, 404)"
        if isinstance(node, (*COMPARISONS, *PATTERNS, sql.Is, sql.In, sql.Between)) and _unclear(node):
            return f"put parentheses around what {_shown(node)} compares: engines differ in how they group it"
    return None


def _unclear(node: sql.Expr) -> bool:
    operands = [node.this, node.args.get("low"), node.args.get("high")]
    if not isinstance(node, sql.In | sql.Is):
        operands.append(node.args.get("expression"))
    return any(isinstance(operand, _PREDICATES) for operand in operands)


def _nothing(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


def _shown(node: sql.Expr) -> str:
    """Write a node as SQL, on one line and not at length."""
    try:
        text = " ".join(node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE).split())
    except Exception:
        text = ""
    text = text or node.key.upper()
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
