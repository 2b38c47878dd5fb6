"""The table of supported SQL: each function and operator, its arguments and their types, and how Arrow computes it.

    @computes(exp.Replace, names="replace", this=TEXT, expression=written("the text to replace"), ...)
    def replace(text, old, new):                 # text: an array or an Arrow expression; old, new: constants
        return pc.replace_substring(text, old, new)

Nodes and arguments that are not in the table raise an error. The names that the parser and `docs/conditions.md` know
are exactly those in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from sqlglot import ErrorLevel
from sqlglot import expressions as exp

from aggr.arrow.normalize import is_number
from aggr.sql.fields import name_of, named
from aggr.sql.literals import number
from aggr.sql.number_columns import Use, column_read, number_column
from aggr.sql.term import BOOL, Kernel, Term, apply, constant, null
from aggr.sql.types import coerce, named_type
from aggr.sql.zones import UTC, localized

Take = Callable[["Compiler", exp.Expr, str], Any]
Make = TypeVar("Make", bound=Callable[..., Any])

_REQUIRED = object()


class Argument(NamedTuple):
    """The rule for an argument of a node.

    ``take`` returns the argument; its parameters are the compiler, the node and the name of the argument.
    Without ``take``, the argument is ignored. ``default`` is the value of a missing argument.
    """

    take: Take | None
    default: Any = _REQUIRED


class Rule(NamedTuple):
    """The rule for a node of one type.

    ``names`` are the names of the function in SQL, and ``called`` is its name in error messages. ``arguments`` are the
    rules for the arguments, by their names in sqlglot. ``make`` returns the term of the node from the arguments.
    """

    names: tuple[str, ...]
    called: str
    arguments: dict[str, Argument]
    make: Callable[..., Term]


TABLE: dict[type[exp.Expr], Rule] = {}


def reads(*kinds: type[exp.Expr], names: str = "", called: str = "", **arguments: Argument) -> Callable[[Make], Make]:
    """Return a decorator that enters a function in the table. The function returns the term of a node.

    ``kinds`` are the types of the node. ``names`` are the names of the function in SQL, and ``called`` is its name in
    error messages. ``arguments`` are the rules for the arguments of the node, in the order of the function's
    parameters.
    """

    def enter(make: Make) -> Make:
        for kind in kinds:
            TABLE[kind] = Rule(tuple(names.split()), called or kind.key, arguments, make)
        return make

    return enter


def computes(
    *kinds: type[exp.Expr], names: str = "", called: str = "", gives: pa.DataType = BOOL, **arguments: Argument
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that enters a kernel in the table. A kernel is a function of Arrow arrays or expressions.

    The parameters are those of `reads`. If an argument that must be a constant is NULL, the kernel is not called, and
    the result is a null of the type ``gives``.
    """

    def enter(kernel: Kernel) -> Kernel:
        def make(*arguments: Any) -> Term:
            if None in [argument for argument in arguments if not isinstance(argument, Term)]:
                return null(gives)
            terms = [argument for argument in arguments if isinstance(argument, Term)]

            def filled(*values: Any) -> Any:
                remaining_values = iter(values)
                return kernel(
                    *(next(remaining_values) if isinstance(argument, Term) else argument for argument in arguments)
                )

            return apply(filled, *terms)

        reads(*kinds, names=names, called=called, **arguments)(make)
        return kernel

    return enter


def read_as_value(column: exp.Expr) -> Use:
    """Return `Use.VALUE`. This is the default of `Compiler.use_of`."""
    return Use.VALUE


@dataclass(frozen=True, eq=False)
class Compiler:
    """A compiler of nodes to terms over the columns of ``schema``.

    Columns of timestamps are converted to the time zone ``timezone``, which determines their hours and days. Values of
    columns without a zone are taken as UTC.
    """

    schema: pa.Schema
    timezone: str = UTC
    outer: Use = Use.KEEP  # how the values of the complete expression are used
    # returns how the expression around a column uses the column
    use_of: Callable[[exp.Expr], Use] = read_as_value

    def column(self, node: exp.Expr) -> Term:
        """Return the term of a column.

        If the expression needs numbers, and the schema has a number column for this column, return the term of the
        number column.
        """
        name = name_of(node)  # type: ignore[arg-type]
        if number_column(name) in self.schema.names:
            use = self.use_of(node)
            name = column_read(name, self.schema.names, self.outer if use is Use.VALUE else use)
        return named(name, self.schema, self.timezone)

    def term(self, node: exp.Expr) -> Term:
        """Return the term of a node. Raise ``ValueError`` if types cannot be combined."""
        rule = TABLE[type(node)]
        arguments = []
        for name, argument in rule.arguments.items():
            if argument.take is not None:
                absent = _nothing(node.args.get(name)) and argument.default is not _REQUIRED
                arguments.append(argument.default if absent else argument.take(self, node, name))
        return localized(rule.make(*arguments), self.timezone)


def called(node: exp.Expr) -> str:
    """Return the name of a node's function for error messages."""
    return TABLE[type(node)].called


def maybe(argument: Argument, default: Any) -> Argument:
    """Return the rule ``argument`` for an argument that may be left out. Its value is ``default`` then."""
    return argument._replace(default=default)


def typed(check: Callable[[Term, str], Term]) -> Argument:
    """Return the rule for an argument whose term is passed to ``check``.

    ``check`` returns the term to use, or raises an error. It also receives the name of the function, for the message.
    """
    return Argument(lambda compiler, node, name: check(compiler.term(node.args[name]), called(node)))


def require_text(term: Term, what: str) -> Term:
    """Return ``term`` if its type is text, or a null text for NULL. Raise ``ValueError`` for other types."""
    if term.null:
        return null(pa.string())
    if not pa.types.is_string(term.type):
        raise ValueError(f"{what} needs text; got {term.type}; CAST it AS STRING")
    return term


def require_number(term: Term, what: str) -> Term:
    """Return ``term`` if its type is a number, or a null float64 for NULL. Raise ``ValueError`` for other types."""
    if term.null:
        return null(pa.float64())
    if not is_number(term.type):
        raise ValueError(f"{what} needs numbers; got {named_type(term.type)}; CAST it to a number, such as DOUBLE")
    return term


def as_boolean(term: Term, what: str = "") -> Term:
    """Return ``term`` if its type is boolean, or a null boolean for NULL. Raise ``ValueError`` for other types."""
    if term.null:
        return null(BOOL)
    if not pa.types.is_boolean(term.type):
        raise ValueError(
            f"AND, OR, NOT and CASE need conditions; got a value of type {term.type}; write a comparison, such as x > 0"
        )
    return term


def written_text(compiler: Compiler, node: exp.Expr, what: str) -> str | None:
    """Return the text of a literal, or None for NULL.

    Raise ``ValueError`` for other nodes. ``what`` is the subject of the message.
    """
    term = compiler.term(node)
    if term.null:
        return None
    if term.literal is None or not pa.types.is_string(term.type):
        raise ValueError(f"{what} must be a constant, written as text in quotes; got {_shown(node)}")
    value: str | None = term.literal.as_py()
    return value


def written(what: str) -> Argument:
    """Return the rule for an argument that must be a literal text.

    ``what`` names the argument in error messages, with ``{}`` in place of the function's name.
    """
    return Argument(lambda compiler, node, name: written_text(compiler, node.args[name], what.format(called(node))))


def whole_number(what: str) -> Argument:
    """Return the rule for an argument that must be a literal whole number. ``what`` names it in error messages."""

    def take(compiler: Compiler, node: exp.Expr, name: str) -> int:
        term = compiler.term(node.args[name])
        if term.always_null or term.literal is None or not pa.types.is_integer(term.type):
            raise ValueError(f"{what} must be a constant, written as a whole number; got {_shown(node.args[name])}")
        return int(term.literal.as_py())

    return Argument(take)


ANY = Argument(lambda compiler, node, name: compiler.term(node.args[name]))
MANY = Argument(lambda compiler, node, name: [compiler.term(part) for part in node.args.get(name) or ()], ())
TEXT, NUMBER, CONDITION = typed(require_text), typed(require_number), typed(as_boolean)
DOUBLE = typed(lambda term, what: coerce(require_number(term, what), pa.float64()))
RAW = Argument(lambda compiler, node, name: node.args[name])  # the argument itself, which is not compiled
SKIP = Argument(None, None)  # an argument that is ignored, or that the rule of another argument reads

reads(exp.Paren, this=ANY)(lambda term: term)
reads(exp.Null)(null)
reads(exp.Boolean, this=RAW)(lambda true: constant(bool(true), BOOL))
reads(exp.Literal, this=RAW, is_string=RAW)(lambda text, quoted: constant(pa.scalar(text) if quoted else number(text)))
_COLUMN = Argument(lambda compiler, node, name: compiler.column(node))
reads(exp.Column, this=_COLUMN, table=SKIP, db=SKIP, catalog=SKIP)(lambda term: term)
_READ_WITHIN = {exp.Identifier: "this quoted", exp.Var: "this", exp.DataType: "this expressions nested"}
# These nodes have rules only so that they are accepted. The rules of their parent nodes read their contents.
for _part, _names in {**_READ_WITHIN, exp.DataTypeParam: "this"}.items():
    TABLE[_part] = Rule((), _part.key, dict.fromkeys(_names.split(), SKIP), null)

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_COMPARING = (*COMPARISONS, exp.Like, exp.ILike, exp.RegexpLike, exp.Is, exp.In, exp.Between)
_PREDICATES = (*_COMPARING, exp.Not, exp.And, exp.Or)
_SUPPORTED = (
    "comparisons, AND, OR, NOT, IN (…), BETWEEN, LIKE, ILIKE, RLIKE, IS, CASE, COALESCE, CAST, + - * / %, and "
    "functions of text, numbers and times"
)


def unread(tree: exp.Expr, what: str) -> str | None:
    """Return an error message about the first unsupported part of a tree, or None if all parts are supported.

    ``what`` names the text in the message, such as "a condition". A comparison that is an operand of another comparison
    must be in parentheses, because engines group such operators differently.
    """
    for node in tree.walk():
        rule = TABLE.get(type(node))
        if rule is None:
            return f"{what} cannot use {_shown(node)}; it supports {_SUPPORTED}"
        for name, value in node.args.items():
            if name not in rule.arguments and not _nothing(value):
                return f"{what} cannot use {_shown(node)}: its argument {name!r} is not supported; leave it out"
        if isinstance(node, exp.In) and not node.expressions:
            return "IN needs a list of values in parentheses, such as status IN (200, 404)"
        for name, argument in rule.arguments.items():
            if argument.default is _REQUIRED and node.args.get(name) is None:
                return f"{what} cannot use {_shown(node)}: an argument is missing; add it"
        if isinstance(node, _COMPARING) and _unclear(node):
            return (
                f"{_shown(node)} is ambiguous, because engines group it differently; put parentheses around the part "
                "that belongs together"
            )
    return None


def _unclear(node: exp.Expr) -> bool:
    compared = ["this", "low", "high"] if isinstance(node, exp.In | exp.Is) else ["this", "low", "high", "expression"]
    return any(isinstance(node.args.get(name), _PREDICATES) for name in compared)


def _nothing(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


def _shown(node: exp.Expr) -> str:
    """Return a node as SQL in quotes, on one line and shortened to 80 characters, for error messages."""
    try:
        text = " ".join(node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE).split())
    except Exception:
        text = ""
    text = text or getattr(node, "sql_name", node.key.upper)()
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
