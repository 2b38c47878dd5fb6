"""Parsing: from the text of a condition to a tree of SQL expressions in which nothing is unread.

The language is Spark's, but for two things: a quote is written twice inside a string, as in every SQL, and whatever the
compiler does not read is refused here, by node and by argument (`READ`), with a sentence of ours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from sqlglot import errors
from sqlglot import expressions as sql
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType

from aggr.predicate.grammar import unread

_ESCAPED = set("0bnrtZ%_u'\"\\") | set("1234567")  # what may follow a backslash in a string
_MOST_CHARACTERS = 10_000_000
CONDITION, EXPRESSION = "condition", "expression"  # what an error calls a text that chooses rows, or gives them values
_A = {CONDITION: "a condition", EXPRESSION: "an expression"}
_SAY = {CONDITION: '"status >= 500"', EXPRESSION: '"price * quantity"'}


class Conditions(Spark):
    """Spark's SQL, with quotes written twice inside strings."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with quotes written twice inside strings."""

        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]


_DIALECT = Conditions()


def parsed(text: str, what: str = CONDITION) -> sql.Expr:
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
        raise ValueError(f"{_A[what]} must be text, say {_SAY[what]}; got {text!r}")
    return _parsed(text, what)


@lru_cache(maxsize=256)
def _parsed(text: str, what: str) -> sql.Expr:
    shown = shortened(text)
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"{_A[what]} has at most {_MOST_CHARACTERS:,} characters; {shown!r} has {len(text):,}")
    try:
        tree = _tree(text)
        problem = unread(tree, _A[what])
    except errors.TokenError:
        raise ValueError(f"cannot read the {what} {shown!r} as SQL: a quote or a comment is not closed") from None
    except errors.ParseError as error:
        near = next((str(e.get("highlight") or "").strip() for e in error.errors), "")
        place = f"it breaks off or goes wrong at {near!r}" if near else "an expression is missing"
        raise ValueError(f"cannot read the {what} {shown!r} as SQL: {place}") from None
    except (errors.SqlglotError, TypeError, AttributeError, KeyError, IndexError):
        raise ValueError(f"cannot read the {what} {shown!r} as SQL") from None
    except RecursionError:
        raise ValueError(
            f"the {what} {shown!r} is nested too deeply; leave out parentheses that a chain of AND, OR or + does "
            "not need, and write a choice of values as IN (…)"
        ) from None
    if problem:
        raise ValueError(f"cannot read the {what} {shown!r}: {problem}")
    return tree


def shortened(text: str) -> str:
    """Cut a condition to what an error shows of it."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def name_of(column: sql.Column) -> str:
    """Name a column as written, with whatever stands before its last dot."""
    return ".".join(part.name for part in column.parts)


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
    return tuple(dict.fromkeys(name_of(column) for column in parsed(text, what).find_all(sql.Column, bfs=False)))


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
    return name_of(tree) if isinstance(tree, sql.Column) else None


def _tree(text: str) -> sql.Expr:
    found = _DIALECT.tokenize(text)
    for token in found:
        if token.token_type == TokenType.STRING:
            _check_escapes(text[token.start : token.end + 1])
    if not found:
        raise errors.ParseError("nothing to parse")
    trees = _DIALECT.parser(error_level=errors.ErrorLevel.IMMEDIATE).parse_into(sql.Condition, found, text)
    if len(trees) != 1 or trees[0] is None:
        raise errors.ParseError("several")
    return trees[0]


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
