"""Parsing: from the text of a condition to a tree of SQL expressions in which nothing is unread.

The language is Spark's, but for two things: a quote is written twice inside a string, as in every SQL, and whatever the
compiler does not read is refused here, by node and by argument (`READ`), with a sentence of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import errors
from sqlglot import expressions as exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from aggr.arguments import is_unicode, shortened, shown
from aggr.sql.grammar import unread

Builder = Callable[[list[Any]], exp.Expr]
_CLOCK_PARTS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute, exp.Second)
_ESCAPED = set("0bnrtZ%_u'\"\\") | set("1234567")  # what may follow a backslash in a string
_MOST_CHARACTERS = 10_000_000
CONDITION, EXPRESSION = "condition", "expression"  # what an error calls a text that chooses rows, or gives them values
_A = {CONDITION: "a condition", EXPRESSION: "an expression"}
_SAY = {CONDITION: '"status >= 500"', EXPRESSION: '"price * quantity"'}


def _zoned_part(build: Builder) -> Builder:
    """Read ``hour(ts, 'Europe/Berlin')`` as the hour of ``ts AT TIME ZONE 'Europe/Berlin'``."""

    def read(args: list[Any]) -> exp.Expr:
        if len(args) == 2:
            args[:] = [_at_zone(*args)]  # in place: the parser counts them afterwards
        return build(args)

    return read


def _zoned_truncation(build: Builder) -> Builder:
    """Read ``date_trunc('day', ts, 'Europe/Berlin')`` likewise; Spark's parser would leave the zone out."""

    def read(args: list[Any]) -> exp.Expr:
        if len(args) > 3:
            raise errors.ParseError("date_trunc takes a unit, a time and perhaps a zone")
        return build([args[0], _at_zone(args[1], args[2])] if len(args) == 3 else args)

    return read


def _day_of_week(part: str, args: list[Any]) -> exp.Expr:
    if len(args) != 1:
        raise errors.ParseError(f"{part} takes a time and perhaps a zone")
    return exp.Extract(this=exp.Var(this=part), expression=args[0])


def _at_zone(time: exp.Expr, zone: exp.Expr) -> exp.Expr:
    return exp.AtTimeZone(this=time, zone=zone)


class Conditions(Spark):
    """Spark's SQL, with quotes written twice inside strings."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with quotes written twice inside strings."""

        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(SparkParser):
        """Spark's functions; those of times take a zone as their last argument, which Spark's do not."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **SparkParser.FUNCTIONS,
            **{kind.sql_name(): _zoned_part(SparkParser.FUNCTIONS[kind.sql_name()]) for kind in _CLOCK_PARTS},
            "DOW": _zoned_part(lambda args: _day_of_week("DOW", args)),
            "ISODOW": _zoned_part(lambda args: _day_of_week("ISODOW", args)),
            "DATE_TRUNC": _zoned_truncation(SparkParser.FUNCTIONS["DATE_TRUNC"]),
        }


_DIALECT = Conditions()


def parsed(text: str, what: str = CONDITION) -> exp.Expr:
    """Parse a condition or a value.

    Parameters
    ----------
    text : str
        An expression in SQL.
    what : "condition" or "expression"
        What an error calls it.

    Returns
    -------
    tree, every node and argument of which the compiler reads

    Raises
    ------
    ValueError
        If it is no text, no SQL, or uses what is not known here.

    Examples
    --------
    >>> parsed("status >= 500").key
    'gte'
    """
    if not isinstance(text, str):
        raise ValueError(f"{_A[what]} must be text, say {_SAY[what]}; got {shown(text)}")
    return _parsed(text, what)


@lru_cache(maxsize=256)
def _parsed(text: str, what: str) -> exp.Expr:
    given = shortened(text)
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"{_A[what]} has at most {_MOST_CHARACTERS:,} characters; {given!r} has {len(text):,}")
    if not is_unicode(text):
        raise ValueError(f"{_A[what]} is Unicode text, without halves of letters; got {given!r}")
    try:
        tree = _tree(text)
        problem = unread(tree, _A[what])
    except errors.TokenError:
        raise ValueError(f"cannot read the {what} {given!r} as SQL: a quote or a comment is not closed") from None
    except errors.ParseError as error:
        near = next((str(e.get("highlight") or "").strip() for e in error.errors), "")
        place = f"it breaks off or goes wrong at {near!r}" if near else "an expression is missing"
        raise ValueError(f"cannot read the {what} {given!r} as SQL: {place}") from None
    except (errors.SqlglotError, TypeError, AttributeError, KeyError, IndexError):
        raise ValueError(f"cannot read the {what} {given!r} as SQL") from None
    except RecursionError:
        raise ValueError(
            f"the {what} {given!r} is nested too deeply; leave out parentheses that a chain of AND, OR or + does "
            "not need, and write a choice of values as IN (…)"
        ) from None
    if problem:
        raise ValueError(f"cannot read the {what} {given!r}: {problem}")
    return tree


def name_of(column: exp.Column) -> str:
    """Name a column as written, with whatever stands before its last dot."""
    return ".".join(part.name for part in column.parts)


def column_in(name: str, names: Collection[str]) -> str | None:
    """Find the column that a name reads: itself, or the one whose field it is.

    Parameters
    ----------
    name : str
        Such as ``http.status``.
    names : collection of str
        The columns that there are.

    Returns
    -------
    str or None
        None where neither is there.

    Examples
    --------
    >>> column_in("http.status", ["http", "ms"]), column_in("ms", ["ms"]), column_in("http.status", ["ms"])
    ('http', 'ms', None)
    """
    while name not in names:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def columns_of(text: str | None, what: str = CONDITION) -> tuple[str, ...]:
    """Name the columns that a condition or a value reads, in order of appearance.

    Parameters
    ----------
    text : str or None
        None reads none.
    what : "condition" or "expression"
        What an error calls it.

    Returns
    -------
    tuple of str
        Each name once.

    Raises
    ------
    ValueError
        If it cannot be read.

    Examples
    --------
    >>> columns_of("status >= 500 and host = 'a'")
    ('status', 'host')
    """
    if text is None:
        return ()
    parsed(text, what)
    return _columns(text, what)


@lru_cache(maxsize=256)
def _columns(text: str, what: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(column) for column in parsed(text, what).find_all(exp.Column, bfs=False)))


def column_of(text: str) -> str | None:
    """Name the column that an expression is, if it is one and nothing else.

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
        If it cannot be read.

    Examples
    --------
    >>> column_of("`latency ms`"), column_of("a.b"), column_of("lower(a)")
    ('latency ms', 'a.b', None)
    """
    tree = parsed(text, EXPRESSION)
    return name_of(tree) if isinstance(tree, exp.Column) else None


def _tree(text: str) -> exp.Expr:
    found = _DIALECT.tokenize(text)
    for token in found:
        if token.token_type == TokenType.STRING:
            _check_escapes(text[token.start : token.end + 1])
    if not found:
        raise errors.ParseError("nothing to parse")
    trees = _DIALECT.parser(error_level=errors.ErrorLevel.IMMEDIATE).parse_into(exp.Condition, found, text)
    if len(trees) != 1 or trees[0] is None:
        raise errors.ParseError("several")
    return trees[0].transform(_field_as_column) if trees[0].find(exp.Bracket, exp.Dot) else trees[0]


def _field_as_column(node: exp.Expr) -> exp.Expr:
    """Name a field of a record by its path: ``p.quantiles['0.99']`` is ``p.quantiles.0.99``."""
    parts = list[str]()
    while isinstance(node, exp.Bracket | exp.Dot):
        inner = node.expressions if isinstance(node, exp.Bracket) else [node.expression]
        if len(inner) != 1 or not isinstance(inner[0], exp.Literal | exp.Identifier):
            return node
        parts.append(inner[0].name)
        node = node.this
    if not parts or not isinstance(node, exp.Column):
        return node
    path = ".".join([name_of(node), *reversed(parts)])
    return exp.Column(this=exp.Identifier(this=path, quoted=True))


def _check_escapes(written: str) -> None:
    """Refuse a backslash before a letter that it means nothing with: DuckDB would keep it, and Spark drop it."""
    escaped = False
    for character in written:
        if escaped and character not in _ESCAPED:
            raise ValueError(
                f"the string {written} has a backslash before {character!r}; write \\\\ for a backslash, "
                "\\n, \\t, \\' or \\\" for what they stand for"
            )
        escaped = character == "\\" and not escaped
