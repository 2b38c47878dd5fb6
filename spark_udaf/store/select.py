"""Select: a query of one table as sqlglot parses it, and what its groups, moments and names say."""

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
_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "kind"}


def parsed(query: str) -> exp.Select:
    """Parse a query; ``window`` before a bracket is a function, which sqlglot takes for a clause behind GROUP BY."""
    try:
        tokens = _SPARK.tokenize(query)
        for token in tokens:
            if token.token_type == TokenType.WINDOW:
                token.token_type = TokenType.VAR
        (select,) = _SPARK.parser().parse(tokens, query)
    except (errors.SqlglotError, ValueError) as error:
        raise ValueError(f"the query cannot be read here: {str(error).splitlines()[0]}") from None
    if not isinstance(select, exp.Select):
        refuse("the query", "is no single SELECT")
    others = [name for name, clause in select.args.items() if clause and name not in _CLAUSES]
    if others or select.args.get("kind"):
        refuse(f"the clause {others[0].strip('_') if others else select.args['kind']}", "is not rewritten")
    if any(each is not select for each in select.find_all(exp.Query)):
        refuse("a query inside the query", "is not rewritten")
    group = select.args.get("group")
    if group is not None and any(clause for name, clause in group.args.items() if name != "expressions"):
        refuse(text_of(group), "has more than a list of groups")
    source = select.args.get("from_")
    if (
        source is None
        or not isinstance(source.this, exp.Table)
        or any(value for name, value in source.this.args.items() if name not in ("this", "db", "alias"))
    ):
        refuse("FROM", "must name one table")
    return select


def time_group(group: exp.Expr, time: str) -> tuple[str | None, str]:
    """Read a group by the time: its window, and the column that it becomes."""
    if isinstance(group, exp.Anonymous) and group.name.lower() == "window" and len(group.expressions) == 2:
        of, length = group.expressions
        words = _LENGTH.fullmatch(length.name) if isinstance(length, exp.Literal) else None
        size, column = (f"{words[1]}{words[2][0].lower()}" if words else None), "window"
    elif isinstance(group, exp.TimestampTrunc):
        of, size, column = group.this, _UNITS.get(group.text("unit").upper()), "__time"
    else:
        return None, ""
    named = isinstance(of, exp.Column) and of.name.lower() == time.lower()
    return (size if named else None), column


def moment_of(literal: exp.Expr) -> dt.datetime | None:
    """Read a moment that stands as text, or as TIMESTAMP or DATE and text."""
    if isinstance(literal, exp.Cast) and literal.to.this.name in ("TIMESTAMPTZ", "TIMESTAMP", "DATE"):
        literal = literal.this
    known = isinstance(literal, exp.Literal) and literal.is_string and _MOMENT.fullmatch(literal.name)
    return dt.datetime.fromisoformat(literal.name).replace(tzinfo=dt.UTC) if known else None


def column_of(text: str) -> exp.Expr:
    """Parse the name of a column, quoted where it must be."""
    column: exp.Expr = exp.maybe_parse(text, dialect=_SPARK)
    return column


def unqualified(tree: exp.Expr) -> exp.Expr:
    """Leave out the table's name before columns; Spark has found that there is one table alone."""
    return tree.transform(
        lambda node: exp.column(node.this) if isinstance(node, exp.Column) and node.table.lower() != "window" else node
    )


def same_text(tree: exp.Expr) -> str:
    """Write a group or an aggregate, so that equal ones are equal, whatever the case of names."""
    return text_of(unqualified(tree)).replace("`", "").lower()


def text_of(tree: exp.Expr) -> str:
    """Write a part of a query in Spark's SQL."""
    return tree.sql(dialect=_SPARK)


def quoted(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"


def refuse(part: str, why: str) -> NoReturn:
    """Say why a part of a query cannot be answered here."""
    raise ValueError(f"{part} {why}; ask Spark for the query of the table")
