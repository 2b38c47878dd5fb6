"""Select: parse a query of one table with sqlglot, and read the windows in GROUP BY and the times in conditions."""

from __future__ import annotations

import datetime as dt
import re
from typing import NoReturn

from sqlglot import errors, exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType

_SPARK = Spark()
_UNITS = {"SECOND": "1s", "MINUTE": "1m", "HOUR": "1h", "DAY": "1d", "WEEK": "1w", "MONTH": "1mo", "YEAR": "1y"}
_LENGTH = re.compile(r"\s*([0-9]{1,9})\s+(second|minute|hour|day)s?\s*", re.IGNORECASE)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?")
_SUPPORTED_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit"}


def parse_select(query: str) -> exp.Select:
    """Return the syntax tree of a query, which must be a single SELECT from one table. Raise ``ValueError`` for other
    queries.

    The word ``window`` is read as the name of a function. Otherwise, sqlglot would read ``GROUP BY window(…)`` as the
    beginning of the clause WINDOW.
    """
    try:
        tokens = _SPARK.tokenize(query)
        for token in tokens:
            if token.token_type == TokenType.WINDOW:
                token.token_type = TokenType.VAR
        (select,) = _SPARK.parser().parse(tokens, query)
    except (errors.SqlglotError, ValueError) as error:
        raise ValueError(
            f"cannot parse the query: {str(error).splitlines()[0]}; write a single SELECT from one table, or run this "
            "query on the table with Spark"
        ) from None
    if not isinstance(select, exp.Select):
        refuse("the query", "is not a single SELECT")
    passed_clauses = [name for name, clause in select.args.items() if clause and name != "kind"]
    unsupported_clauses = [name for name in passed_clauses if name not in _SUPPORTED_CLAUSES]
    if unsupported_clauses:
        refuse(f"the clause {unsupported_clauses[0].strip('_')}", "is not supported")
    if kind := select.args.get("kind"):  # The kind of ``SELECT AS STRUCT …`` is STRUCT.
        refuse(f"the clause {kind}", "is not supported")
    if any(subquery is not select for subquery in select.find_all(exp.Query)):
        refuse("a query inside the query", "is not supported")
    group = select.args.get("group")
    if group is not None and any(clause for name, clause in group.args.items() if name != "expressions"):
        refuse(text_of(group), "is not a plain list of expressions; ROLLUP, CUBE and GROUPING SETS are not supported")
    source = select.args.get("from_")
    if (
        source is None
        or not isinstance(source.this, exp.Table)
        or any(value for name, value in source.this.args.items() if name not in ("this", "db", "alias"))
    ):
        refuse("FROM", "must name exactly one table")
    return select


def window_of_group(group: exp.Expr, time: str) -> tuple[str | None, str]:
    """Return two values for an expression of GROUP BY: the window by which the expression groups the column ``time``,
    as a text such as ``1h``, and the name of the result column. If the expression is not a window of ``time``, return
    None for the text.
    """
    if isinstance(group, exp.Anonymous) and group.name.lower() == "window" and len(group.expressions) == 2:
        column_of_time, length = group.expressions
        match = _LENGTH.fullmatch(length.name) if isinstance(length, exp.Literal) else None
        window_text = f"{match[1]}{match[2][0].lower()}" if match else None
        column = "window"
    elif isinstance(group, exp.TimestampTrunc):
        column_of_time = group.this
        window_text = _UNITS.get(group.text("unit").upper())
        column = "__time"
    else:
        return None, ""
    is_time = isinstance(column_of_time, exp.Column) and column_of_time.name.lower() == time.lower()
    return (window_text if is_time else None), column


def time_of_literal(literal: exp.Expr) -> dt.datetime | None:
    """Return the time that a literal of SQL represents. The literal is a text, such as ``'2024-05-01'``, or TIMESTAMP
    or DATE followed by a text. Return None for other literals.
    """
    if isinstance(literal, exp.Cast) and literal.to.this.name in ("TIMESTAMPTZ", "TIMESTAMP", "DATE"):
        literal = literal.this
    is_time_literal = isinstance(literal, exp.Literal) and literal.is_string and _MOMENT.fullmatch(literal.name)
    return dt.datetime.fromisoformat(literal.name).replace(tzinfo=dt.UTC) if is_time_literal else None


def parse_column(text: str) -> exp.Expr:
    """Return the syntax tree of a column that is written as text in SQL, such as ``window.start``."""
    column: exp.Expr = exp.maybe_parse(text, dialect=_SPARK)
    return column


def without_table_names(tree: exp.Expr) -> exp.Expr:
    """Return an expression without the names of tables before the names of columns: ``host`` instead of ``t.host``. The
    columns remain unambiguous, because the query reads only one table. ``window.start`` and ``window.end`` are not
    changed.
    """
    return tree.transform(
        lambda node: exp.column(node.this) if isinstance(node, exp.Column) and node.table.lower() != "window" else node
    )


def normalized_text(tree: exp.Expr) -> str:
    """Return the text of a group or an aggregate of a query in a normalized form. Groups and aggregates that differ
    only in the case or the quotes of names have the same text.
    """
    return text_of(without_table_names(tree)).replace("`", "").lower()


def text_of(tree: exp.Expr) -> str:
    """Return the text of a part of a query in Spark's SQL."""
    return tree.sql(dialect=_SPARK)


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def refuse(part: str, reason: str) -> NoReturn:
    """Raise ``ValueError`` for a part of a query that cannot be answered from a store. The message consists of the part
    and the reason, such as "the clause distinct" and "is not supported".
    """
    raise ValueError(f"{part} {reason}; run this query on the table with Spark")
