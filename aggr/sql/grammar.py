"""Grammar: which nodes and arguments of parsed SQL the compiler reads; all others are refused, whatever they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import ErrorLevel
from sqlglot import expressions as exp

_BINARY = frozenset({"this", "expression"})
_UNARY = frozenset({"this"})
_LIST = frozenset({"this", "expressions"})
_NONE: frozenset[str] = frozenset()

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike)
_RANGES = (exp.Between, exp.In, exp.Is, exp.Escape)
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
PARTS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute, exp.Second)

READ: Mapping[type[exp.Expr], frozenset[str]] = {
    **dict.fromkeys((*COMPARISONS, *ARITHMETIC, exp.And, exp.Or, exp.Nullif, exp.RegexpLike), _BINARY),
    **dict.fromkeys((exp.Like, exp.ILike), _BINARY | {"negate"}),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains, exp.Left, exp.Right, exp.Is, exp.Escape), _BINARY),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren, exp.Lower, exp.Upper, exp.Length, exp.Reverse, exp.Abs), _UNARY),
    **dict.fromkeys((exp.Sqrt, exp.Sign, exp.IsNan, exp.Floor, exp.Ceil, exp.TsOrDsToDate, exp.Boolean), _UNARY),
    **dict.fromkeys((*PARTS, exp.Var), _UNARY),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Div: _BINARY | {"safe", "typed"},
    exp.Null: _NONE,
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: _LIST,
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Coalesce: _LIST,
    **dict.fromkeys((exp.Greatest, exp.Least), _LIST | {"ignore_nulls"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: _UNARY,
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.Trim: frozenset({"this", "expression", "position"}),
    **dict.fromkeys((exp.Replace, exp.RegexpReplace), frozenset({"this", "expression", "replacement"})),
    exp.Round: frozenset({"this", "decimals"}),
    exp.Concat: frozenset({"expressions", "safe"}),
    exp.DPipe: _BINARY | {"safe"},
    exp.Extract: _BINARY,
    exp.TimestampTrunc: frozenset({"this", "unit"}),
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.Interval: frozenset({"this", "unit"}),
}
_PREDICATES = (*COMPARISONS, *PATTERNS, *_RANGES, exp.Not, exp.And, exp.Or)
_KNOWN = (
    "comparisons, AND, OR, NOT, IN (…), BETWEEN, LIKE, ILIKE, RLIKE, IS, CASE, COALESCE, CAST, + - * / %, and "
    "functions of text, numbers and times"
)


def unread(tree: exp.Expr, what: str) -> str | None:
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
        if isinstance(node, exp.In) and not node.expressions:
            return "IN needs a list of values in parentheses, say status IN (200, 404)"
        if isinstance(node, (*COMPARISONS, *PATTERNS, exp.Is, exp.In, exp.Between)) and _unclear(node):
            return f"put parentheses around what {_shown(node)} compares: engines differ in how they group it"
    return None


def _unclear(node: exp.Expr) -> bool:
    operands = [node.this, node.args.get("low"), node.args.get("high")]
    if not isinstance(node, exp.In | exp.Is):
        operands.append(node.args.get("expression"))
    return any(isinstance(operand, _PREDICATES) for operand in operands)


def _nothing(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


def _shown(node: exp.Expr) -> str:
    """Write a node as SQL, on one line and not at length."""
    try:
        text = " ".join(node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE).split())
    except Exception:
        text = ""
    text = text or node.key.upper()
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
