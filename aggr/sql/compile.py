"""Compiling: from a tree of SQL expressions and a schema to a typed term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.kernels.normalize import normalized_type
from aggr.sql import arithmetic, compare, functions, literals, text
from aggr.sql.fields import field_of
from aggr.sql.grammar import PARTS
from aggr.sql.parse import column_in, name_of
from aggr.sql.term import BOOL, Kernel, Term, balanced, column, constant, null, truth
from aggr.sql.zones import UTC, at_zone, in_zone, localized

_COMPARE: Mapping[type[exp.Expr], str] = {
    **{exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="},
}
_SUMS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-"}
_PRODUCTS: Mapping[type[exp.Expr], str] = {exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}
_LOGIC: Mapping[type[exp.Expr], Kernel] = {exp.And: pc.and_kleene, exp.Or: pc.or_kleene}
_OF_TEXT: Mapping[type[exp.Expr], Kernel] = {
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Length: pc.utf8_length,
    exp.Reverse: pc.utf8_reverse,
}
_FOUND: Mapping[type[exp.Expr], Kernel] = {
    exp.StartsWith: pc.starts_with,
    exp.EndsWith: pc.ends_with,
    exp.Contains: pc.match_substring,
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

    def term(self, node: exp.Expr) -> Term:
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
            return functions.part(self.term(node.this), "DAY" if kind is exp.DayOfMonth else node.key)
        return _READERS[kind](self, node)

    def column(self, node: exp.Expr) -> Term:
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

    def is_(self, node: exp.Expr) -> Term:
        """Compile IS NULL, IS TRUE and IS FALSE."""
        term = self.term(node.this)
        if isinstance(node.expression, exp.Null):
            return compare.is_null(term)
        if isinstance(node.expression, exp.Boolean):
            return compare.is_truth(truth(term), bool(node.expression.this))
        raise ValueError("IS takes NULL, TRUE, FALSE or DISTINCT FROM")

    def like(self, node: exp.Expr, escape: str = "\\") -> Term:
        """Compile LIKE and ILIKE, and their negation."""
        pattern = self.term(node.expression)
        term = text.like(self.term(node.this), pattern, escape, isinstance(node, exp.ILike))
        return compare.negated(term) if node.args.get("negate") else term

    def escape(self, node: exp.Expr) -> Term:
        """Compile LIKE with an escape of its own."""
        written = text.constant_text(self.term(node.expression), "ESCAPE")
        if not isinstance(node.this, exp.Like | exp.ILike) or written is None or len(written) != 1:
            raise ValueError("ESCAPE takes one character, say LIKE '10!%' ESCAPE '!'")
        return self.like(node.this, written)

    def case(self, node: exp.Expr) -> Term:
        """Compile both forms of CASE."""
        of = None if node.this is None else self.term(node.this)
        tests = [self.term(when.this) for when in node.args["ifs"]]
        conditions = [truth(t) if of is None else compare.compare("=", of, t) for t in tests]
        values = [self.term(when.args["true"]) for when in node.args["ifs"]]
        return functions.chosen(conditions, values, self.other(node.args.get("default")))

    def if_(self, node: exp.Expr) -> Term:
        """Compile IF(condition, value, other)."""
        condition, value = truth(self.term(node.this)), self.term(node.args["true"])
        return functions.chosen([condition], [value], self.other(node.args.get("false")))

    def other(self, node: exp.Expr | None) -> Term:
        """Compile what may be left out, and then is NULL."""
        return null() if node is None else self.term(node)

    def nullif(self, node: exp.Expr) -> Term:
        """Compile NULLIF(value, value)."""
        value = self.term(node.this)
        same = compare.compare("=", value, self.term(node.expression))
        return functions.chosen([same], [null(value.type)], value)

    def many(self, node: exp.Expr) -> list[Term]:
        """Compile the arguments of a function of several."""
        return [self.term(part) for part in (node.this, *node.expressions)]

    def substring(self, node: exp.Expr) -> Term:
        """Compile SUBSTRING(text, start, length)."""
        length = None if node.args.get("length") is None else self.whole(node.args["length"], "its length")
        if node.args.get("start") is None:
            raise ValueError("substring needs a start, say substring(x, 1, 3)")
        return text.substring(self.term(node.this), self.whole(node.args["start"], "its start"), length)

    def whole(self, node: exp.Expr, what: str) -> int:
        """Read a whole number that is written out."""
        term = self.term(node)
        if term.literal is None or not pa.types.is_integer(term.type):
            raise ValueError(f"{what} must be a whole number that is written out")
        return int(term.literal.as_py())

    def trim(self, node: exp.Expr) -> Term:
        """Compile TRIM, LTRIM and RTRIM."""
        characters = None if node.args.get("expression") is None else self.term(node.expression)
        return text.trim(self.term(node.this), characters, str(node.args.get("position") or "BOTH"))

    def round(self, node: exp.Expr) -> Term:
        """Compile ROUND(number, digits)."""
        digits = node.args.get("decimals")
        return functions.rounded(self.term(node.this), 0 if digits is None else self.whole(digits, "its digits"))

    def cast(self, node: exp.Expr) -> Term:
        """Compile CAST and TRY_CAST, and literals such as DATE '2024-05-01'."""
        kind = in_zone(_type(node.args["to"]), self.timezone)
        return functions.cast(self.term(node.this), kind, bool(node.args.get("safe")))

    def zoned(self, node: exp.Expr) -> Term:
        """Compile a time AT TIME ZONE a zone."""
        zone = text.constant_text(self.term(node.args["zone"]), "the zone of AT TIME ZONE")
        if zone is None:
            raise ValueError("AT TIME ZONE takes the name of a zone, say 'Europe/Berlin'; got NULL")
        return at_zone(self.term(node.this), zone)

    def truncated(self, node: exp.Expr) -> Term:
        """Compile date_trunc(unit, time)."""
        return localized(functions.truncated(self.term(node.this), node.args["unit"].name), self.timezone)

    def interval(self, node: exp.Expr) -> Term:
        """Compile INTERVAL '1' DAY."""
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal) or unit is None:
            raise ValueError("an interval is written as INTERVAL '1' DAY")
        return functions.interval(node.this.name, unit.name)


def operands(node: exp.Expr) -> list[exp.Expr]:
    """List the operands of a chain of AND, or of OR, in order, however it is nested."""
    found, left = list[exp.Expr](), [node]
    while left:
        part = left.pop()
        inner = part.unnest()
        if type(inner) is type(node):
            left += [inner.expression, inner.this]
        else:
            found.append(inner)
    return found


def _steps(node: exp.Expr, level: Mapping[type[exp.Expr], str]) -> tuple[exp.Expr, list[tuple[str, exp.Expr]]]:
    """Take a chain of operators of a level apart: its first operand, and what is done with the others."""
    rest = list[tuple[str, exp.Expr]]()
    while type(node) in level:
        rest.append((level[type(node)], node.expression))
        node = node.this
    return node, rest[::-1]


def _concat(compiler: Compiler, node: exp.Expr) -> Term:
    parts = list[exp.Expr]()
    while isinstance(node, exp.DPipe):
        parts.append(node.expression)
        node = node.this
    parts += reversed(node.expressions) if isinstance(node, exp.Concat) else [node]
    return text.joined([compiler.term(part) for part in reversed(parts)])


def _type(node: exp.Expr) -> pa.DataType:
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


_READERS: Mapping[type[exp.Expr], Callable[[Compiler, Any], Term]] = {
    exp.Column: Compiler.column,
    exp.Literal: lambda c, n: constant(pa.scalar(n.this) if n.is_string else literals.number(n.this)),
    exp.Boolean: lambda c, n: constant(bool(n.this), BOOL),
    exp.Null: lambda c, n: null(),
    exp.Paren: lambda c, n: c.term(n.this),
    exp.Neg: lambda c, n: _negative(c, n),
    exp.Not: lambda c, n: compare.negated(truth(c.term(n.this))),
    exp.NullSafeEQ: lambda c, n: compare.null_safe(c.term(n.this), c.term(n.expression)),
    exp.NullSafeNEQ: lambda c, n: compare.negated(compare.null_safe(c.term(n.this), c.term(n.expression))),
    exp.Is: Compiler.is_,
    exp.In: lambda c, n: compare.is_in(c.term(n.this), [c.term(item) for item in n.expressions]),
    exp.Between: lambda c, n: compare.between(c.term(n.this), c.term(n.args["low"]), c.term(n.args["high"])),
    exp.Like: Compiler.like,
    exp.ILike: Compiler.like,
    exp.Escape: Compiler.escape,
    exp.RegexpLike: lambda c, n: text.rlike(c.term(n.this), c.term(n.expression)),
    exp.Case: Compiler.case,
    exp.If: Compiler.if_,
    exp.Coalesce: lambda c, n: functions.first_valid(c.many(n)),
    exp.Nullif: Compiler.nullif,
    exp.Greatest: lambda c, n: functions.extreme(c.many(n), ">"),
    exp.Least: lambda c, n: functions.extreme(c.many(n), "<"),
    exp.Cast: Compiler.cast,
    exp.TryCast: Compiler.cast,
    exp.Substring: Compiler.substring,
    exp.Left: lambda c, n: text.ends(c.term(n.this), c.whole(n.expression, "its length"), True),
    exp.Right: lambda c, n: text.ends(c.term(n.this), c.whole(n.expression, "its length"), False),
    exp.Trim: Compiler.trim,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Replace: lambda c, n: text.replaced(*(c.term(n.args[a]) for a in ("this", "expression", "replacement"))),
    exp.RegexpReplace: lambda c, n: text.regex_replaced(
        *(c.term(n.args[a]) for a in ("this", "expression", "replacement"))
    ),
    exp.Abs: lambda c, n: functions.absolute(c.term(n.this)),
    exp.Round: Compiler.round,
    exp.Floor: lambda c, n: functions.floored(pc.floor, c.term(n.this), "floor"),
    exp.Ceil: lambda c, n: functions.floored(pc.ceil, c.term(n.this), "ceil"),
    exp.Sqrt: lambda c, n: functions.floating(pc.sqrt, c.term(n.this), "sqrt"),
    exp.Sign: lambda c, n: functions.floating(pc.sign, c.term(n.this), "sign"),
    exp.IsNan: lambda c, n: functions.is_nan(c.term(n.this)),
    exp.Extract: lambda c, n: functions.part(c.term(n.expression), n.this.name),
    exp.TimestampTrunc: Compiler.truncated,
    exp.AtTimeZone: Compiler.zoned,
    exp.TsOrDsToDate: lambda c, n: functions.cast(c.term(n.this), pa.date32(), False),
    exp.Interval: Compiler.interval,
}


def _negative(compiler: Compiler, node: exp.Expr) -> Term:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        value = literals.number(inner.this)
        if pa.types.is_decimal(value.type) and value.type.scale == 0 and value.as_py() == 2**63:
            return constant(-(2**63), pa.int64())
    return arithmetic.negative(compiler.term(inner))


def compiled(tree: exp.Expr, schema: pa.Schema, timezone: str = UTC) -> Term:
    """Compile a checked tree over the columns of a schema; times are read on the clock of a zone."""
    return Compiler(schema, timezone).term(tree)
