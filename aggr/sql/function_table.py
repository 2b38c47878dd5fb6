"""The table of supported SQL: each function and operator, its arguments and their types, and how Arrow computes it.

    @kernel_rule(exp.Replace, names="replace", this=TEXT, expression=literal_argument("the text to replace"), ...)
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
from aggr.sql.fields import name_of, term_at_path
from aggr.sql.literals import number
from aggr.sql.number_columns import Use, column_to_read, number_column
from aggr.sql.term import BOOL, Kernel, Term, apply, constant, null
from aggr.sql.types import coerce, named_type
from aggr.sql.zones import UTC, localize

ArgumentReader = Callable[["Compiler", exp.Expr, str], Any]
Make = TypeVar("Make", bound=Callable[..., Any])

_REQUIRED = object()


class Argument(NamedTuple):
    """The rule for an argument of a node of the parsed SQL.

    ``read`` returns the argument; its parameters are the compiler, the node and the name of the argument.
    Without ``read``, the argument is ignored. ``default`` is the value of a missing argument.
    """

    read: ArgumentReader | None
    default: Any = _REQUIRED


class Rule(NamedTuple):
    """The rule for the nodes of one type, such as the calls of one function, in the parsed SQL.

    ``names`` are the names of the function in SQL, and ``error_name`` is its name in error messages. ``arguments`` are
    the rules for the arguments, by their names in sqlglot. ``make`` returns the term of the node from the arguments.
    """

    names: tuple[str, ...]
    error_name: str
    arguments: dict[str, Argument]
    make: Callable[..., Term]


TABLE: dict[type[exp.Expr], Rule] = {}


def term_rule(
    *kinds: type[exp.Expr], names: str = "", error_name: str = "", **arguments: Argument
) -> Callable[[Make], Make]:
    """Return a decorator that enters a function in the table. The function returns the term of a node.

    ``kinds`` are the types of the node. ``names`` are the names of the function in SQL, and ``error_name`` is its name
    in error messages. ``arguments`` are the rules for the arguments of the node, in the order of the function's
    parameters.
    """

    def add_rule(make: Make) -> Make:
        for kind in kinds:
            TABLE[kind] = Rule(tuple(names.split()), error_name or kind.key, arguments, make)
        return make

    return add_rule


def kernel_rule(
    *kinds: type[exp.Expr], names: str = "", error_name: str = "", null_type: pa.DataType = BOOL, **arguments: Argument
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that enters a kernel in the table. A kernel is a function of Arrow arrays or expressions.

    The parameters are those of `term_rule`. If an argument that must be a constant is NULL, the kernel is not called,
    and the result is a null of the type ``null_type``.
    """

    def add_rule(kernel: Kernel) -> Kernel:
        def make(*arguments: Any) -> Term:
            if None in [argument for argument in arguments if not isinstance(argument, Term)]:
                return null(null_type)
            terms = [argument for argument in arguments if isinstance(argument, Term)]

            def call_kernel(*values: Any) -> Any:
                remaining_values = iter(values)
                return kernel(
                    *(next(remaining_values) if isinstance(argument, Term) else argument for argument in arguments)
                )

            return apply(call_kernel, *terms)

        term_rule(*kinds, names=names, error_name=error_name, **arguments)(make)
        return kernel

    return add_rule


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
    # how the values of the complete expression are used
    expression_use: Use = Use.KEEP
    # a function that returns how the expression around a column uses the column
    use_of: Callable[[exp.Expr], Use] = read_as_value

    def column(self, node: exp.Expr) -> Term:
        """Return the term of a column.

        If the expression needs numbers, and the schema has a number column for this column, return the term of the
        number column.
        """
        name = name_of(node)  # type: ignore[arg-type]
        if number_column(name) in self.schema.names:
            use = self.use_of(node)
            name = column_to_read(name, self.schema.names, self.expression_use if use is Use.VALUE else use)
        return term_at_path(name, self.schema, self.timezone)

    def term(self, node: exp.Expr) -> Term:
        """Return the term of a node. Raise ``ValueError`` if types cannot be combined."""
        rule = TABLE[type(node)]
        arguments = []
        for name, argument in rule.arguments.items():
            if argument.read is not None:
                is_absent = _is_absent(node.args.get(name)) and argument.default is not _REQUIRED
                arguments.append(argument.default if is_absent else argument.read(self, node, name))
        return localize(rule.make(*arguments), self.timezone)


def error_name_of(node: exp.Expr) -> str:
    """Return the name of a node's function for error messages."""
    return TABLE[type(node)].error_name


def optional(argument: Argument, default: Any) -> Argument:
    """Return the rule ``argument`` for an argument that may be left out. ``default`` is the value if it is left out."""
    return argument._replace(default=default)


def checked_argument(check: Callable[[Term, str], Term]) -> Argument:
    """Return the rule for an argument whose term is passed to ``check``.

    ``check`` returns the term to use, or raises an error. It also receives the name of the function, for the message.
    """
    return Argument(lambda compiler, node, name: check(compiler.term(node.args[name]), error_name_of(node)))


def require_text(term: Term, what: str) -> Term:
    """Return ``term`` if its type is text, or a null text for NULL. Raise ``ValueError`` for other types."""
    if term.is_untyped_null:
        return null(pa.string())
    if not pa.types.is_string(term.type):
        raise ValueError(f"{what} needs text; got {term.type}; CAST it AS STRING")
    return term


def require_number(term: Term, what: str) -> Term:
    """Return ``term`` if its type is a number, or a null float64 for NULL. Raise ``ValueError`` for other types."""
    if term.is_untyped_null:
        return null(pa.float64())
    if not is_number(term.type):
        raise ValueError(f"{what} needs numbers; got {named_type(term.type)}; CAST it to a number, such as DOUBLE")
    return term


def as_boolean(term: Term, what: str = "") -> Term:
    """Return ``term`` if its type is boolean, or a null boolean for NULL. Raise ``ValueError`` for other types."""
    if term.is_untyped_null:
        return null(BOOL)
    if not pa.types.is_boolean(term.type):
        raise ValueError(
            f"AND, OR, NOT and CASE need conditions; got a value of type {term.type}; write a comparison, such as x > 0"
        )
    return term


def literal_text(compiler: Compiler, node: exp.Expr, what: str) -> str | None:
    """Return the text of a literal, or None for NULL.

    Raise ``ValueError`` for other nodes. ``what`` is the subject of the message.
    """
    term = compiler.term(node)
    if term.is_untyped_null:
        return None
    if term.literal is None or not pa.types.is_string(term.type):
        raise ValueError(f"{what} must be a constant, written as text in quotes; got {_shown_sql(node)}")
    value: str | None = term.literal.as_py()
    return value


def literal_argument(what: str) -> Argument:
    """Return the rule for an argument that must be a literal text.

    ``what`` names the argument in error messages, with ``{}`` in place of the function's name.
    """
    return Argument(
        lambda compiler, node, name: literal_text(compiler, node.args[name], what.format(error_name_of(node)))
    )


def whole_number(what: str) -> Argument:
    """Return the rule for an argument that must be a literal whole number.

    ``what`` names the argument in error messages.
    """

    def take(compiler: Compiler, node: exp.Expr, name: str) -> int:
        term = compiler.term(node.args[name])
        if term.is_constant_null or term.literal is None or not pa.types.is_integer(term.type):
            raise ValueError(f"{what} must be a constant, written as a whole number; got {_shown_sql(node.args[name])}")
        return int(term.literal.as_py())

    return Argument(take)


ANY = Argument(lambda compiler, node, name: compiler.term(node.args[name]))
MANY = Argument(lambda compiler, node, name: [compiler.term(part) for part in node.args.get(name) or ()], ())
TEXT = checked_argument(require_text)
NUMBER = checked_argument(require_number)
CONDITION = checked_argument(as_boolean)
DOUBLE = checked_argument(lambda term, what: coerce(require_number(term, what), pa.float64()))
# the rule for an argument that is used as the parser returns it, and is not compiled to a term
RAW = Argument(lambda compiler, node, name: node.args[name])
# the rule for an argument that is ignored, or that is read by the rule of another argument
SKIP = Argument(None, None)

term_rule(exp.Paren, this=ANY)(lambda term: term)
term_rule(exp.Null)(null)
term_rule(exp.Boolean, this=RAW)(lambda true: constant(bool(true), BOOL))
term_rule(exp.Literal, this=RAW, is_string=RAW)(
    lambda text, quoted: constant(pa.scalar(text) if quoted else number(text))
)
_COLUMN = Argument(lambda compiler, node, name: compiler.column(node))
term_rule(exp.Column, this=_COLUMN, table=SKIP, db=SKIP, catalog=SKIP)(lambda term: term)
_READ_BY_PARENTS = {exp.Identifier: "this quoted", exp.Var: "this", exp.DataType: "this expressions nested"}
# Nodes inside other nodes, such as identifiers, have rules only so that they are accepted. The rules of the outer nodes
# read the contents of the inner nodes.
for _part, _names in {**_READ_BY_PARENTS, exp.DataTypeParam: "this"}.items():
    TABLE[_part] = Rule((), _part.key, dict.fromkeys(_names.split(), SKIP), null)

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_COMPARISON_NODES = (*COMPARISONS, exp.Like, exp.ILike, exp.RegexpLike, exp.Is, exp.In, exp.Between)
_PREDICATE_NODES = (*_COMPARISON_NODES, exp.Not, exp.And, exp.Or)
_SUPPORTED = (
    "comparisons, AND, OR, NOT, IN (…), BETWEEN, LIKE, ILIKE, RLIKE, IS, CASE, COALESCE, CAST, + - * / %, and "
    "functions of text, numbers and times"
)


def unsupported_part(tree: exp.Expr, what: str) -> str | None:
    """Return an error message about the first unsupported part of a tree, or None if all parts are supported.

    ``what`` names the text in the message, such as "a condition". A comparison that is an operand of another comparison
    must be in parentheses, because engines group such operators differently.
    """
    for node in tree.walk():
        rule = TABLE.get(type(node))
        if rule is None:
            return f"{what} cannot use {_shown_sql(node)}; it supports {_SUPPORTED}"
        for name, value in node.args.items():
            if name == "symmetric" and isinstance(node, exp.Between) and value:
                return f"{what} cannot use BETWEEN SYMMETRIC; write x BETWEEN least(a, b) AND greatest(a, b)"
            if name not in rule.arguments and not _is_absent(value):
                return f"{what} cannot use {_shown_sql(node)}: its argument {name!r} is not supported; leave it out"
        if isinstance(node, exp.In) and not node.expressions:
            return "IN needs a list of values in parentheses, such as status IN (200, 404)"
        for name, argument in rule.arguments.items():
            if argument.default is _REQUIRED and node.args.get(name) is None:
                return f"{what} cannot use {_shown_sql(node)}: an argument is missing; add it"
        if isinstance(node, _COMPARISON_NODES) and _is_ambiguous(node):
            return (
                f"{_shown_sql(node)} is ambiguous, because engines group it differently; put parentheses around the "
                "part that belongs together"
            )
    return None


def _is_ambiguous(node: exp.Expr) -> bool:
    operand_names = (
        ["this", "low", "high"] if isinstance(node, exp.In | exp.Is) else ["this", "low", "high", "expression"]
    )
    return any(isinstance(node.args.get(name), _PREDICATE_NODES) for name in operand_names)


def _is_absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


def _shown_sql(node: exp.Expr) -> str:
    """Return a node as SQL in quotes, on one line and shortened to 80 characters, for error messages."""
    try:
        text = " ".join(node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE).split())
    except Exception:
        text = ""
    text = text or getattr(node, "sql_name", node.key.upper)()
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
