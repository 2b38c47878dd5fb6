"""Equalities: the two sides of each equality of a condition such as ``ticker = symbol AND upper(venue) = market``."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.sql.fields import name_of
from aggr.sql.parse import parse_sql, to_sql


class Side(NamedTuple):
    """One side of an equality.

    ``text`` is the SQL of the side, or the name of its column, without qualifiers. ``qualifiers`` contains the removed
    qualifiers. ``is_column`` is whether the side consists only of a column.
    """

    text: str
    qualifiers: frozenset[str]
    is_column: bool


def equalities(text: str, qualifiers: Collection[str] = ()) -> list[tuple[Side, Side]]:
    """Return the sides of the equalities that a condition connects by AND.

    Parameters
    ----------
    text : str
        An SQL condition.
    qualifiers : names
        Words that may precede the name of a column, such as ``row`` in ``row.symbol``. They are removed.

    Returns
    -------
    list of (Side, Side)

    Raises
    ------
    ValueError
        If the text cannot be parsed, or contains anything other than equalities.

    Examples
    --------
    >>> [(left.text, right.text) for left, right in equalities("row.a = b AND (upper(c) = d AND e = f)", ["row"])]
    [('a', 'b'), ('UPPER(c)', 'd'), ('e', 'f')]
    """
    return _of_node(parse_sql(text).copy(), qualifiers)


def _of_node(node: exp.Expr, qualifiers: Collection[str]) -> list[tuple[Side, Side]]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return _of_node(node.left, qualifiers) + _of_node(node.right, qualifiers)
    if not isinstance(node, exp.EQ):
        raise ValueError(
            f"cannot join on {shown(to_sql(node))}; write equalities connected by AND, such as 'ticker = symbol', and "
            "filter the joined rows afterwards"
        )
    return [(_side(node.left, qualifiers), _side(node.right, qualifiers))]


def _side(node: exp.Expr, qualifiers: Collection[str]) -> Side:
    """Return one side of an equality, and remove the qualifiers from the columns of ``node``."""
    removed = set()
    for column in list(node.find_all(exp.Column)):
        first, *path = column.parts
        if not path or first.name not in qualifiers:
            continue
        removed.add(first.name)
        parts = [*reversed(path), None, None, None]
        for level, part in zip(("this", "table", "db", "catalog"), parts, strict=False):
            column.set(level, part)
    node = node.unnest()
    if isinstance(node, exp.Column):
        return Side(name_of(node), frozenset(removed), is_column=True)
    return Side(to_sql(node), frozenset(removed), is_column=False)
