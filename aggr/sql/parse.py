"""Parsing: convert the text of a condition to a tree of supported SQL expressions.

The language is Spark's SQL, with two differences. A quote inside a string is doubled, as in standard SQL. Nodes and
arguments that are not in the table of functions raise an error with a message of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import errors
from sqlglot import expressions as exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from aggr.arguments import is_unicode, shortened, shown
from aggr.sql import arithmetic, casts, choices, comparisons, json_text, records, text, times
from aggr.sql.fields import name_of
from aggr.sql.function_table import TABLE, unsupported_part

Builder = Callable[..., exp.Expr]
# these modules are imported because they enter their functions in the table of functions
_TABLE_MODULES = (arithmetic, casts, choices, comparisons, json_text, records, text, times)
_RULES_BY_NAME = {name.upper(): rule for rule in TABLE.values() for name in rule.names}
_OWN_NODES = {
    name.upper(): node for node, rule in TABLE.items() for name in rule.names if node.__module__.startswith(__package__)
}
# arguments of sqlglot's nodes that do not count as arguments of a call, such as the type after AS in CAST
_NOT_COUNTED = {"to", "negate", "position", "safe", "typed", "ignore_nulls"}
# for each function of a time, the index of the time among the arguments; a zone may follow the time
_TIME_POSITIONS = {"DATE_TRUNC": 1, **dict.fromkeys((kind.key.upper() for kind in times.CLOCK_PARTS), 0)}
# the characters that are allowed after a backslash in a string
_ESCAPED_CHARACTERS = set("0bnrtZ%_u'\"\\") | set("1234567")
_MAX_CHARACTERS = 10_000_000
# the words for a text in error messages: a condition is boolean and selects rows, an expression computes values
CONDITION = "condition"
EXPRESSION = "expression"
_WITH_ARTICLE = {CONDITION: "a condition", EXPRESSION: "an expression"}
_EXAMPLES = {CONDITION: '"status >= 500"', EXPRESSION: '"price * quantity"'}


def _day_of_week(part: str) -> Builder:
    return lambda args: exp.Extract(this=exp.Var(this=part), expression=args[0] if args else None)


def _builder_of_nodes(name: str) -> Builder:
    """Return the function that creates the node of the SQL function ``name`` from a list of arguments."""
    if name in ("DOW", "ISODOW"):
        return _day_of_week(name)
    if name in _OWN_NODES:
        build_own: Builder = _OWN_NODES[name].from_arg_list  # type: ignore[attr-defined]
        return lambda args: build_own(args)
    build: Builder = SparkParser.FUNCTIONS[name]
    return build


def _builder(name: str) -> Builder:
    """Return the function that the parser calls for the SQL function ``name``. It creates a node from the arguments.

    It raises ``ValueError`` for superfluous arguments, which sqlglot would ignore. In functions of times, a zone may
    follow the time: ``hour(ts, 'Europe/Berlin')`` is the hour of ``ts AT TIME ZONE 'Europe/Berlin'``.
    """
    build = _builder_of_nodes(name)
    arguments = _RULES_BY_NAME[name].arguments
    if "DOW" in name:
        max_arguments = 1
    else:
        max_arguments = 10**9 if "expressions" in arguments else len(arguments.keys() - _NOT_COUNTED)
    time_position = _TIME_POSITIONS.get(name, 0 if "DOW" in name else None)

    def build_node(args: list[Any], dialect: Any) -> exp.Expr:
        if time_position is not None and len(args) == time_position + 2:
            in_zone = exp.AtTimeZone(this=args[time_position], zone=args[time_position + 1])
            in_zone.meta[times.IS_FUNCTION_ZONE] = True
            # ``args`` is changed in place, because the parser later counts the elements of this list
            args[time_position:] = [in_zone]
        if len(args) > max_arguments:
            limit = "1 argument" if max_arguments == 1 else f"{max_arguments} arguments"
            raise ValueError(f"{name.lower()} takes at most {limit}; got {len(args)}")
        return build(args, dialect=dialect) if "dialect" in build.__code__.co_varnames else build(args)

    return build_node


class Conditions(Spark):
    """The dialect of conditions: Spark's SQL, but with doubled quotes inside strings, and only the functions in the
    table of functions.
    """

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer. Two quotes inside a string stand for one quote."""

        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(SparkParser):
        """Spark's parser, which knows only the functions in the table of functions."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name: _builder(name)
            for name in _RULES_BY_NAME
            if name in _OWN_NODES or name not in SparkParser.FUNCTION_PARSERS
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: read
            for name, read in SparkParser.FUNCTION_PARSERS.items()
            if name in _RULES_BY_NAME.keys() - _OWN_NODES.keys()
        }


_DIALECT = Conditions()


def parse_sql(text: str, what: str = CONDITION) -> exp.Expr:
    """Return the tree of a condition or an expression, for the compiler.

    ``what`` is "condition" or "expression", the word for the text in error messages. Raise ``ValueError`` if ``text``
    is not text, is not SQL, or uses syntax that is not supported.

    >>> parse_sql("status >= 500").key
    'gte'
    """
    if not isinstance(text, str):
        raise ValueError(f"{_WITH_ARTICLE[what]} must be text, such as {_EXAMPLES[what]}; got {shown(text)}")
    return _parse_cached(text, what)


@lru_cache(maxsize=256)
def _parse_cached(text: str, what: str) -> exp.Expr:
    excerpt = shortened(text)
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(
            f"{_WITH_ARTICLE[what]} must have at most {_MAX_CHARACTERS:,} characters; {excerpt!r} has {len(text):,}; "
            "shorten it"
        )
    if not is_unicode(text):
        raise ValueError(f"{_WITH_ARTICLE[what]} must be valid Unicode text, without lone surrogates; got {excerpt!r}")
    try:
        tree = _parse_tree(text, what)
        problem = unsupported_part(tree, _WITH_ARTICLE[what])
    except errors.TokenError:
        raise ValueError(
            f"cannot read the {what} {excerpt!r} as SQL: a quote or a comment is not closed; close it"
        ) from None
    except errors.ParseError as error:
        near = next((str(e.get("highlight") or "").strip() for e in error.errors), "")
        place = f"the error is at {shown(near[:40])}" if near else "it ends before the expression is complete"
        raise ValueError(f"cannot read the {what} {excerpt!r} as SQL: {place}") from None
    except (errors.SqlglotError, TypeError, AttributeError, KeyError, IndexError):
        raise ValueError(
            f"cannot read the {what} {excerpt!r} as SQL; write {_WITH_ARTICLE[what]} such as {_EXAMPLES[what]}"
        ) from None
    except ValueError as error:
        raise ValueError(f"cannot read the {what} {excerpt!r}: {error}") from None
    except RecursionError:
        raise ValueError(
            f"the {what} {excerpt!r} is nested too deeply; leave out parentheses that are not needed, "
            "and write a choice of values as IN (…)"
        ) from None
    if problem:
        raise ValueError(f"cannot read the {what} {excerpt!r}: {problem}")
    return tree


def columns_of(text: str | None, what: str = CONDITION) -> tuple[str, ...]:
    """Return the columns that a condition or an expression reads, in the order of their first occurrence.

    Parameters
    ----------
    text : str or None
        The condition or expression; None reads no columns.
    what : "condition" or "expression"
        The word for the text in error messages.

    Returns
    -------
    tuple of str
        The names, each once.

    Raises
    ------
    ValueError
        If the text cannot be parsed.

    Examples
    --------
    >>> columns_of("status >= 500 and host = 'a'")
    ('status', 'host')
    """
    if text is None:
        return ()
    parse_sql(text, what)
    return _columns(text, what)


@lru_cache(maxsize=256)
def _columns(text: str, what: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(column) for column in parse_sql(text, what).find_all(exp.Column, bfs=False)))


def column_of(text: str) -> str | None:
    """Return the column of an expression that consists only of a column.

    Parameters
    ----------
    text : str
        SQL.

    Returns
    -------
    str or None
        None for any other expression.

    Raises
    ------
    ValueError
        If the text cannot be parsed.

    Examples
    --------
    >>> column_of("`latency ms`"), column_of("a.b"), column_of("lower(a)")
    ('latency ms', 'a.b', None)
    """
    tree = parse_sql(text, EXPRESSION)
    return name_of(tree) if isinstance(tree, exp.Column) else None


def to_sql(node: exp.Expr) -> str:
    """Return a tree as SQL. If this text is parsed, the result is an equal tree."""
    return node.sql(dialect=_DIALECT)


def _parse_tree(text: str, what: str) -> exp.Expr:
    tokens = _DIALECT.tokenize(text)
    for token in tokens:
        if token.token_type == TokenType.STRING:
            _check_escapes(text[token.start : token.end + 1])
    if not tokens:
        raise ValueError(f"the text is empty; write {_WITH_ARTICLE[what]}")
    trees = _DIALECT.parser(error_level=errors.ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)
    if len(trees) > 1:
        raise ValueError("the text contains several expressions; write only one")
    if not trees or trees[0] is None:
        raise errors.ParseError("the text has no expression")
    return trees[0].transform(_simplified_node) if trees[0].find(exp.Bracket, exp.Dot, exp.Escape) else trees[0]


def _simplified_node(node: exp.Expr) -> exp.Expr:
    """Return a node in the form that the compiler reads.

    A field becomes a column whose name is the path: ``p.quantiles['0.99']`` becomes ``p.quantiles.0.99``. ESCAPE
    becomes an argument of its LIKE. Other nodes are unchanged.
    """
    if isinstance(node, exp.Escape) and isinstance(node.this, exp.Like | exp.ILike):
        node.this.set("escape", node.expression)
        return node.this
    parts = list[str]()
    outermost = node
    while isinstance(node, exp.Bracket | exp.Dot):
        inner = node.expressions if isinstance(node, exp.Bracket) else [node.expression]
        if len(inner) != 1 or not isinstance(inner[0], exp.Literal | exp.Identifier):
            return outermost
        parts.append(inner[0].name)
        node = node.this
    if not parts or not isinstance(node, exp.Column):
        return outermost
    path = ".".join([name_of(node), *reversed(parts)])
    return exp.Column(this=exp.Identifier(this=path, quoted=True))


def _check_escapes(literal: str) -> None:
    """Raise ``ValueError`` if a backslash in a string precedes a character that is not in `_ESCAPED_CHARACTERS`.

    DuckDB would keep such a backslash, and Spark would drop it.
    """
    is_escaped = False
    for character in literal:
        if is_escaped and character not in _ESCAPED_CHARACTERS:
            raise ValueError(
                f"the string {literal} has a backslash before {character!r}; write \\\\ for a backslash; the escapes "
                "\\n, \\t, \\' and \\\" are allowed"
            )
        is_escaped = character == "\\" and not is_escaped
