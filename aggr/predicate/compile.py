"""Compiling: from a tree of SQL expressions and a schema to a typed term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as sql

from aggr.arguments import shown
from aggr.kernels.normalize import normalized_type
from aggr.predicate import arithmetic, compare, functions, literals, text
from aggr.predicate.fields import field_of
from aggr.predicate.grammar import PARTS
from aggr.predicate.parse import column_in, name_of
from aggr.predicate.term import BOOL, Kernel, Term, balanced, column, constant, null, truth
from aggr.predicate.zones import UTC, at_zone, in_zone, localized

_COMPARE: Mapping[type[sql.Expr], str] = {
    **{sql.EQ: "=", sql.NEQ: "<>", sql.LT: "<", sql.LTE: "<=", sql.GT: ">", sql.GTE: ">="},
}
_SUMS: Mapping[type[sql.Expr], str] = {sql.Add: "+", sql.Sub: "-"}
_PRODUCTS: Mapping[type[sql.Expr], str] = {sql.Mul: "*", sql.Div: "/", sql.Mod: "%", sql.IntDiv: "DIV"}
_LOGIC: Mapping[type[sql.Expr], Kernel] = {sql.And: pc.and_kleene, sql.Or: pc.or_kleene}
_OF_TEXT: Mapping[type[sql.Expr], Kernel] = {
    sql.Lower: pc.utf8_lower,
    sql.Upper: pc.utf8_upper,
    sql.Length: pc.utf8_length,
    sql.Reverse: pc.utf8_reverse,
}
_FOUND: Mapping[type[sql.Expr], Kernel] = {
    sql.StartsWith: pc.starts_with,
    sql.EndsWith: pc.ends_with,
    sql.Contains: pc.match_substring,
}
_TYPES = {
    "BOOLEAN": BOOL,
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
}


class Compiler:
    """Compiles expressions over the columns of a schema."""

    def __init__(self, schema: pa.Schema, timezone: str = UTC) -> None:
        """Take the schema that columns are looked up in, and the zone whose clock times are read on."""
        self.schema, self.timezone = schema, timezone

    def term(self, node: sql.Expr) -> Term:
        """Compile a node; raises ``ValueError`` where types do not go together."""
        kind = type(node)
        if kind in _COMPARE:
            return compare.compare(_COMPARE[kind], self.term(node.this), self.term(node.expression))
        if kind in _LOGIC:
            return balanced(_LOGIC[kind], [truth(self.term(part)) for part in operands(node)])
        for level in (_SUMS, _PRODUCTS):
            if kind in level:
                first, rest = _steps(node, level)
                parts = [(sign, self.term(part)) for sign, part in rest]
                return localized(arithmetic.chain(self.term(first), parts), self.timezone)
        if kind in _OF_TEXT:
            return text.mapped(_OF_TEXT[kind], self.term(node.this), node.key)
        if kind in _FOUND:
            return text.contains(_FOUND[kind], self.term(node.this), self.term(node.expression), node.key)
        if kind in PARTS:
            return functions.part(self.term(node.this), "DAY" if kind is sql.DayOfMonth else node.key)
        return _READERS[kind](self, node)

    def column(self, node: sql.Expr) -> Term:
        """Compile a reference to a column."""
        path = name_of(node)  # type: ignore[arg-type]
        name = column_in(path, self.schema.names) or path
        dtype = normalized_type(self.schema.field(name).type)
        if pa.types.is_union(dtype):
            raise ValueError(
                f"the column {name!r} has type {shown(dtype)}, which conditions and expressions cannot read"
            )
        if name == path:
            return column(name, in_zone(dtype, self.timezone))
        return field_of(column(name, dtype), path[len(name) + 1 :], self.timezone)

    def is_(self, node: sql.Expr) -> Term:
        """Compile IS NULL, IS TRUE and IS FALSE."""
        term = self.term(node.this)
        if isinstance(node.expression, sql.Null):
            return compare.is_null(term)
        if isinstance(node.expression, sql.Boolean):
            return compare.is_truth(truth(term), bool(node.expression.this))
        raise ValueError("IS takes NULL, TRUE, FALSE or DISTINCT FROM")

    def like(self, node: sql.Expr, escape: str = "\\") -> Term:
        """Compile LIKE and ILIKE, and their negation."""
        pattern = self.term(node.expression)
        term = text.like(self.term(node.this), pattern, escape, isinstance(node, sql.ILike))
        return compare.negated(term) if node.args.get("negate") else term

    def escape(self, node: sql.Expr) -> Term:
        """Compile LIKE with an escape of its own."""
        written = text.constant_text(self.term(node.expression), "ESCAPE")
        if not isinstance(node.this, sql.Like | sql.ILike) or written is None or len(written) != 1:
            raise ValueError("ESCAPE takes one character, say LIKE '10!%' ESCAPE '!'")
        return self.like(node.this, written)

    def case(self, node: sql.Expr) -> Term:
        """Compile both forms of CASE."""
        of = None if node.this is None else self.term(node.this)
        tests = [self.term(when.this) for when in node.args["ifs"]]
        conditions = [truth(t) if of is None else compare.compare("=", of, t) for t in tests]
        values = [self.term(when.args["true"]) for when in node.args["ifs"]]
        return functions.chosen(conditions, values, self.other(node.args.get("default")))

    def if_(self, node: sql.Expr) -> Term:
        """Compile IF(condition, value, other)."""
        condition, value = truth(self.term(node.this)), self.term(node.args["true"])
        return functions.chosen([condition], [value], self.other(node.args.get("false")))

    def other(self, node: sql.Expr | None) -> Term:
        """Compile what may be left out, and then is NULL."""
        return null() if node is None else self.term(node)

    def nullif(self, node: sql.Expr) -> Term:
        """Compile NULLIF(value, value)."""
        value = self.term(node.this)
        same = compare.compare("=", value, self.term(node.expression))
        return functions.chosen([same], [null(value.type)], value)

    def many(self, node: sql.Expr) -> list[Term]:
        """Compile the arguments of a function of several."""
        return [self.term(part) for part in (node.this, *node.expressions)]

    def substring(self, node: sql.Expr) -> Term:
        """Compile SUBSTRING(text, start, length)."""
        length = None if node.args.get("length") is None else self.whole(node.args["length"], "its length")
        if node.args.get("start") is None:
            raise ValueError("substring needs a start, say substring(x, 1, 3)")
        return text.substring(self.term(node.this), self.whole(node.args["start"], "its start"), length)

    def whole(self, node: sql.Expr, what: str) -> int:
        """Read a whole number that is written out."""
        term = self.term(node)
        if term.literal is None or not pa.types.is_integer(term.type):
            raise ValueError(f"{what} must be a whole number that is written out")
        return int(term.literal.as_py())

    def trim(self, node: sql.Expr) -> Term:
        """Compile TRIM, LTRIM and RTRIM."""
        characters = None if node.args.get("expression") is None else self.term(node.expression)
        return text.trim(self.term(node.this), characters, str(node.args.get("position") or "BOTH"))

    def round(self, node: sql.Expr) -> Term:
        """Compile ROUND(number, digits)."""
        digits = node.args.get("decimals")
        return functions.rounded(self.term(node.this), 0 if digits is None else self.whole(digits, "its digits"))

    def cast(self, node: sql.Expr) -> Term:
        """Compile CAST and TRY_CAST, and literals such as DATE '2024-05-01'."""
        kind = in_zone(_type(node.args["to"]), self.timezone)
        return functions.cast(self.term(node.this), kind, bool(node.args.get("safe")))

    def zoned(self, node: sql.Expr) -> Term:
        """Compile a time AT TIME ZONE a zone."""
        zone = text.constant_text(self.term(node.args["zone"]), "the zone of AT TIME ZONE")
        if zone is None:
            raise ValueError("AT TIME ZONE takes the name of a zone, say 'Europe/Berlin'; got NULL")
        return at_zone(self.term(node.this), zone)

    def truncated(self, node: sql.Expr) -> Term:
        """Compile date_trunc(unit, time)."""
        return localized(functions.truncated(self.term(node.this), node.args["unit"].name), self.timezone)

    def interval(self, node: sql.Expr) -> Term:
        """Compile INTERVAL '1' DAY."""
        unit = node.args.get("unit")
        if not isinstance(node.this, sql.Literal) or unit is None:
            raise ValueError("an interval is written as INTERVAL '1' DAY")
        return functions.interval(node.this.name, unit.name)


def operands(node: sql.Expr) -> list[sql.Expr]:
    """List the operands of a chain of AND, or of OR, in order, however it is nested."""
    found, left = list[sql.Expr](), [node]
    while left:
        part = left.pop()
        inner = part.unnest()
        if type(inner) is type(node):
            left += [inner.expression, inner.this]
        else:
            found.append(inner)
    return found


def _steps(node: sql.Expr, level: Mapping[type[sql.Expr], str]) -> tuple[sql.Expr, list[tuple[str, sql.Expr]]]:
    """Take a chain of operators of a level apart: its first operand, and what is done with the others."""
    rest = list[tuple[str, sql.Expr]]()
    while type(node) in level:
        rest.append((level[type(node)], node.expression))
        node = node.this
    return node, rest[::-1]


def _concat(compiler: Compiler, node: sql.Expr) -> Term:
    parts = list[sql.Expr]()
    while isinstance(node, sql.DPipe):
        parts.append(node.expression)
        node = node.this
    parts += reversed(node.expressions) if isinstance(node, sql.Concat) else [node]
    return text.joined([compiler.term(part) for part in reversed(parts)])


def _type(node: sql.Expr) -> pa.DataType:
    name = str(getattr(node.this, "value", node.this))
    given = [int(part.name) for part in node.expressions]
    if name == "DECIMAL":
        precision, scale = [*given, 0][:2] if given else (10, 0)
        if len(given) > 2 or not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise ValueError("a decimal has 1 to 38 digits, and no more of them after the point: DECIMAL(18, 3)")
        return pa.decimal128(precision, scale)
    if name not in _TYPES or given:
        raise ValueError(f"a CAST to {node.sql()} is not known; there are {', '.join(_TYPES)}, and DECIMAL(18, 3)")
    return _TYPES[name]


_READERS: Mapping[type[sql.Expr], Callable[[Compiler, Any], Term]] = {
    sql.Column: Compiler.column,
    sql.Literal: lambda c, n: constant(pa.scalar(n.this) if n.is_string else literals.number(n.this)),
    sql.Boolean: lambda c, n: constant(bool(n.this), BOOL),
    sql.Null: lambda c, n: null(),
    sql.Paren: lambda c, n: c.term(n.this),
    sql.Neg: lambda c, n: _negative(c, n),
    sql.Not: lambda c, n: compare.negated(truth(c.term(n.this))),
    sql.NullSafeEQ: lambda c, n: compare.null_safe(c.term(n.this), c.term(n.expression)),
    sql.NullSafeNEQ: lambda c, n: compare.negated(compare.null_safe(c.term(n.this), c.term(n.expression))),
    sql.Is: Compiler.is_,
    sql.In: lambda c, n: compare.is_in(c.term(n.this), [c.term(item) for item in n.expressions]),
    sql.Between: lambda c, n: compare.between(c.term(n.this), c.term(n.args["low"]), c.term(n.args["high"])),
    sql.Like: Compiler.like,
    sql.ILike: Compiler.like,
    sql.Escape: Compiler.escape,
    sql.RegexpLike: lambda c, n: text.rlike(c.term(n.this), c.term(n.expression)),
    sql.Case: Compiler.case,
    sql.If: Compiler.if_,
    sql.Coalesce: lambda c, n: functions.first_valid(c.many(n)),
    sql.Nullif: Compiler.nullif,
    sql.Greatest: lambda c, n: functions.extreme(c.many(n), ">"),
    sql.Least: lambda c, n: functions.extreme(c.many(n), "<"),
    sql.Cast: Compiler.cast,
    sql.TryCast: Compiler.cast,
    sql.Substring: Compiler.substring,
    sql.Left: lambda c, n: text.ends(c.term(n.this), c.whole(n.expression, "its length"), True),
    sql.Right: lambda c, n: text.ends(c.term(n.this), c.whole(n.expression, "its length"), False),
    sql.Trim: Compiler.trim,
    sql.Concat: _concat,
    sql.DPipe: _concat,
    sql.Replace: lambda c, n: text.replaced(*(c.term(n.args[a]) for a in ("this", "expression", "replacement"))),
    sql.RegexpReplace: lambda c, n: text.regex_replaced(
        *(c.term(n.args[a]) for a in ("this", "expression", "replacement"))
    ),
    sql.Abs: lambda c, n: functions.absolute(c.term(n.this)),
    sql.Round: Compiler.round,
    sql.Floor: lambda c, n: functions.floored(pc.floor, c.term(n.this), "floor"),
    sql.Ceil: lambda c, n: functions.floored(pc.ceil, c.term(n.this), "ceil"),
    sql.Sqrt: lambda c, n: functions.floating(pc.sqrt, c.term(n.this), "sqrt"),
    sql.Sign: lambda c, n: functions.floating(pc.sign, c.term(n.this), "sign"),
    sql.IsNan: lambda c, n: functions.is_nan(c.term(n.this)),
    sql.Extract: lambda c, n: functions.part(c.term(n.expression), n.this.name),
    sql.TimestampTrunc: Compiler.truncated,
    sql.AtTimeZone: Compiler.zoned,
    sql.TsOrDsToDate: lambda c, n: functions.cast(c.term(n.this), pa.date32(), False),
    sql.Interval: Compiler.interval,
}


def _negative(compiler: Compiler, node: sql.Expr) -> Term:
    inner = node.this
    if isinstance(inner, sql.Literal) and not inner.is_string:
        value = literals.number(inner.this)
        if pa.types.is_decimal(value.type) and value.type.scale == 0 and value.as_py() == 2**63:
            return constant(-(2**63), pa.int64())
    return arithmetic.negative(compiler.term(inner))


def compiled(tree: sql.Expr, schema: pa.Schema, timezone: str = UTC) -> Term:
    """Compile a checked tree over the columns of a schema; times are read on the clock of a zone."""
    return Compiler(schema, timezone).term(tree)
