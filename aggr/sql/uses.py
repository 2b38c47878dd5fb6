"""Uses: how an expression uses the values of a column, for example as text or as numbers."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from sqlglot import expressions as exp

from aggr.sql.entry_columns import has_entry_columns
from aggr.sql.fields import entry_column_of, name_of
from aggr.sql.function_table import COMPARISONS, DOUBLE, NUMBER, TABLE, TEXT
from aggr.sql.number_columns import Use
from aggr.sql.parse import CONDITION, parse_sql

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
_CONCATENATIONS = (exp.DPipe, exp.Concat)
_COMPARISON_NODES = (*COMPARISONS, exp.Between, exp.In)
_CHOICES = (exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
_NOT_NUMBERS = exp.DataType.TEXT_TYPES | exp.DataType.TEMPORAL_TYPES


def uses_of(text: str | None, what: str = CONDITION) -> tuple[tuple[str, Use], ...]:
    """List the columns that a condition or an expression reads, each with the way in which the column is used.

    Parameters
    ----------
    text : str or None
        The condition or expression; None reads no columns.
    what : "condition" or "expression"
        The word for the text in error messages.

    Returns
    -------
    tuple of (str, Use)
        The columns in the order of their occurrence. A column that is used in two ways is listed twice.

    Raises
    ------
    ValueError
        If the text cannot be parsed.

    Examples
    --------
    >>> [(name, use.value) for name, use in uses_of("zip = '007' AND price * 2 > 5")]
    [('zip', 'text'), ('price', 'number')]
    """
    return () if text is None else _uses(text, what)


@lru_cache(maxsize=256)
def _uses(text: str, what: str) -> tuple[tuple[str, Use], ...]:
    tree = parse_sql(text, what)
    uses = [(name_of(column), use_of(column)) for column in tree.find_all(exp.Column, bfs=False)]
    return tuple(dict.fromkeys(uses))


def uses_among(text: str | None, names: Collection[str], what: str = CONDITION) -> tuple[tuple[str, Use], ...]:
    """List the columns like `uses_of`, but list an entry column instead of the record and the key that it replaces.

    A table with repeated rows may contain the values of ``fields[class]`` as an entry column
    (`aggr.sql.entry_columns`). If ``names`` contains this column, it is listed instead of ``fields`` and ``class``.

    Parameters
    ----------
    text : str or None
        The condition or expression; None reads no columns.
    names : collection of str
        The columns of the table.
    what : "condition" or "expression"
        The word for the text in error messages.

    Returns
    -------
    tuple of (str, Use)
        The columns in the order of their occurrence.

    Raises
    ------
    ValueError
        If the text cannot be parsed.

    Examples
    --------
    >>> [name for name, _ in uses_among("fields[class]", ["fields", "class"], "expression")]
    ['fields', 'class']
    """
    if text is None or not has_entry_columns(names):
        return uses_of(text, what)
    uses = list[tuple[str, Use]]()
    replaced_nodes = set[int]()
    for node in parse_sql(text, what).find_all(exp.Column, exp.Bracket, bfs=False):
        entry = entry_column_of(node, names)
        if entry is not None:
            replaced_nodes |= {id(node.this), id(node.expressions[0])}
            uses.append((entry, use_of(node)))
        elif isinstance(node, exp.Column) and id(node) not in replaced_nodes:
            uses.append((name_of(node), use_of(node)))
    return tuple(dict.fromkeys(uses))


def use_of(column: exp.Expr) -> Use:
    """Return how the expression around a column uses the column.

    `Use.VALUE` means that the values of the column are results of the complete expression.
    """
    node = column
    while (parent := node.parent) is not None:
        if isinstance(parent, _ARITHMETIC):
            return Use.NUMBER
        if isinstance(parent, _CONCATENATIONS):
            return Use.TEXT
        if isinstance(parent, _COMPARISON_NODES):
            return _comparison_use(parent)
        if isinstance(parent, exp.Cast):  # also TRY_CAST, because ``exp.TryCast`` is a subclass
            return Use.TEXT if parent.to.this in _NOT_NUMBERS else Use.NUMBER
        if isinstance(parent, _CHOICES):
            literals = _literal_kinds(parent)
            if literals or isinstance(parent, exp.Greatest | exp.Least):
                return Use.TEXT if True in literals else Use.ORDER
        elif not isinstance(parent, exp.Paren):
            return _argument_use(parent, str(node.arg_key))
        node = parent
    return Use.VALUE


def _comparison_use(node: exp.Expr) -> Use:
    """Return how a comparison uses its columns: `Use.TEXT` if it has a literal text, otherwise `Use.ORDER`."""
    return Use.TEXT if True in _literal_kinds(node) else Use.ORDER


def _literal_kinds(node: exp.Expr) -> set[bool]:
    """Return the kinds of constants among a node's arguments: True for text, False for numbers.

    The branches of CASE count as its arguments. Constants inside other expressions are ignored.
    """
    is_text = set[bool]()
    for child in node.iter_expressions():
        inner = child.unnest()
        if isinstance(inner, exp.Literal):
            is_text.add(bool(inner.is_string))
        elif isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal):
            is_text.add(False)
        elif isinstance(inner, exp.If) and isinstance(node, exp.Case):
            is_text |= {bool(part.is_string) for part in inner.iter_expressions() if isinstance(part, exp.Literal)}
    return is_text


def _argument_use(node: exp.Expr, argument: str) -> Use:
    """Return how the function of a node uses an argument.

    It is `Use.TEXT` or `Use.NUMBER` if the function requires text or numbers, and otherwise `Use.ANY`.
    """
    rule = TABLE.get(type(node))
    read = rule.arguments[argument].read if rule is not None and argument in rule.arguments else None
    if read is TEXT.read:
        return Use.TEXT
    return Use.NUMBER if read in (NUMBER.read, DOUBLE.read) else Use.ANY
