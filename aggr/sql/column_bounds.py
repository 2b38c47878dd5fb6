"""Bounds of columns under a condition, with which readers skip files and row groups that have no matching rows.

A bound is necessary but not sufficient: every row for which the condition is true lies within it, but other rows may
too. Conditions that do not restrict a column in a simple way, such as NOT, LIKE and arithmetic, have no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from sqlglot import expressions as exp

from aggr.arrow.normalize import normalized_type
from aggr.sql.comparisons import operands
from aggr.sql.fields import name_of
from aggr.sql.function_table import Compiler
from aggr.sql.parse import parse_sql
from aggr.sql.term import Term
from aggr.sql.types import literal_as, unify_types
from aggr.sql.zones import UTC

_TypeTest = Callable[[pa.DataType], bool]
# the types of columns that can have bounds
_BOUNDED_TYPES: tuple[_TypeTest, ...] = (
    *(pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date32),
    *(pa.types.is_string, pa.types.is_decimal128),
)
_MIRRORED_COMPARISONS: Mapping[type[exp.Expr], type[exp.Expr]] = {
    **{exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
}


@dataclass(frozen=True)
class Bound:
    """The values that a column can have in rows for which a condition is true; null is never possible.

    Parameters
    ----------
    low, high : value, optional
        The smallest and the greatest value, both included. They are int for whole numbers, times (in their unit) and
        dates (in days since 1970), Decimal, or str. None means that the values are not bounded on that side.
    values : set of values, optional
        All possible values. None means that they are unknown.
    """

    low: Any = None
    high: Any = None
    values: frozenset[Any] | None = None

    @classmethod
    def of_values(cls, values: Iterable[Any]) -> Bound:
        """Return the bound of a column whose possible values are known.

        Parameters
        ----------
        values : iterable of values
            The values, of one type, as in `Bound`. If there are no values, the bound is empty.

        Returns
        -------
        Bound
        """
        distinct_values = frozenset(values)
        return cls(min(distinct_values, default=None), max(distinct_values, default=None), distinct_values)

    @property
    def empty(self) -> bool:
        """Whether no value is possible, so that the condition is never true."""
        return self.values is not None and not self.values

    def holds(self, value: Any) -> bool:
        """Return whether a value lies between ``low`` and ``high``.

        Parameters
        ----------
        value : value
            A value of the type of ``low`` and ``high``, which must not be null.

        Returns
        -------
        bool
        """
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def __and__(self, other: Bound) -> Bound:
        """Return the bound of the values that lie within both this bound and ``other``."""
        if self.values is None and other.values is None:
            lows = [end for end in (self.low, other.low) if end is not None]
            highs = [end for end in (self.high, other.high) if end is not None]
            low = max(lows, default=None)
            high = min(highs, default=None)
            is_empty = low is not None and high is not None and low > high
            return Bound.of_values(()) if is_empty else Bound(low, high)
        if self.values is not None and other.values is not None:
            return Bound.of_values(self.values & other.values)
        finite, interval = (self, other) if self.values is not None else (other, self)
        assert finite.values is not None
        return Bound.of_values(value for value in finite.values if interval.holds(value))


def bounds(condition: str, schema: pa.Schema, timezone: str = UTC) -> dict[str, Bound]:
    """Return the bounds that a condition sets on the columns of a schema.

    Parameters
    ----------
    condition : str
        An SQL condition, as described in `docs/conditions.md`.
    schema : pa.Schema
    timezone : str
        The IANA name of the time zone in which times are interpreted.

    Returns
    -------
    dict of name -> Bound
        The bounded columns. They can have whole numbers, decimals of up to 38 digits, text, times and dates. Floats
        have no bounds, because the minimum and maximum in files ignore NaN.

    Raises
    ------
    ValueError
        If the condition is invalid.

    Guarantee
    ---------
    A row for which the condition is true lies within every bound.

    Examples
    --------
    >>> schema = pa.schema([("host", pa.string()), ("port", pa.int32())])
    >>> bounds("host = 'a' AND (port < 10 OR port IN (20, 30)) AND port <> 7", schema)
    {'host': Bound(low='a', high='a', values=frozenset({'a'})), 'port': Bound(low=None, high=30, values=None)}
    """
    return _bounds_of(parse_sql(condition).unnest(), Compiler(schema, timezone))


def _bounds_of(node: exp.Expr, compiler: Compiler) -> dict[str, Bound]:
    """Return the bound of each column that the condition ``node`` restricts, by the name of the column."""
    if isinstance(node, exp.And):
        parts = [_bounds_of(part, compiler) for part in operands(node)]
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: reduce(Bound.__and__, (part[name] for part in parts if name in part)) for name in names}
    if isinstance(node, exp.Or):
        parts = [_bounds_of(part, compiler) for part in operands(node)]
        parts = [part for part in parts if not any(bound.empty for bound in part.values())] or parts[:1]
        names = dict.fromkeys(name for name in parts[0] if all(name in part for part in parts))
        joined = {name: _union_of_bounds([part[name] for part in parts]) for name in names}
        return {name: bound for name, bound in joined.items() if bound != Bound()}
    try:
        return _bounds_of_comparison(node, compiler)
    except (pa.ArrowException, ValueError, OverflowError, TypeError, RecursionError):
        return {}  # an invalid comparison has no bounds; the evaluation of the condition raises the error


def _union_of_bounds(alternatives: Sequence[Bound]) -> Bound:
    """Return a bound that contains all values of several bounds."""
    if all(bound.values is not None for bound in alternatives):
        return Bound.of_values(frozenset[Any]().union(*(bound.values or () for bound in alternatives)))
    lows = [bound.low for bound in alternatives]
    highs = [bound.high for bound in alternatives]
    return Bound(None if None in lows else min(lows), None if None in highs else max(highs))


def _bounds_of_comparison(node: exp.Expr, compiler: Compiler) -> dict[str, Bound]:
    if isinstance(node, exp.In):
        return _bound_of_column(compiler, node.this, node.expressions, Bound.of_values)
    if isinstance(node, exp.Between):
        return _bound_of_column(compiler, node.this, [node.args["low"], node.args["high"]], _bound_of_range)
    if type(node) not in _BOUND_OF_COMPARISON:
        return {}
    left = node.this.unnest()
    right = node.expression.unnest()
    comparison_class = type(node)
    if not isinstance(left, exp.Column):
        left, right = right, left
        comparison_class = _MIRRORED_COMPARISONS.get(comparison_class, comparison_class)
    return _bound_of_column(compiler, left, [right], _BOUND_OF_COMPARISON[comparison_class])


def _bound_of_column(
    compiler: Compiler, node: exp.Expr, constant_nodes: Sequence[exp.Expr], bound: Callable[[list[Any]], Bound]
) -> dict[str, Bound]:
    """Return ``{name: bound}`` for a comparison of a column, ``node``, with the constants in ``constant_nodes``.

    ``bound`` computes the bound from the values of the constants. Return {} if ``node`` is not a column of a type with
    bounds, or if one of ``constant_nodes`` is not a constant that the type of the column can represent.
    """
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return {}
    name = name_of(node)
    if name not in compiler.schema.names:  # a field of a struct, which cannot have a bound
        return {}
    if not any(test(normalized_type(compiler.schema.field(name).type)) for test in _BOUNDED_TYPES):
        return {}
    (column, *terms), common_type = unify_types(
        [compiler.term(node), *(compiler.term(constant) for constant in constant_nodes)]
    )
    if any(term.literal is None for term in terms):
        return {}
    constants = [_bound_value(term, column.type, common_type) for term in terms if not term.is_untyped_null]
    if any(value is None for value in constants) or (len(constants) < len(terms) and bound != Bound.of_values):
        return {}
    return {name: bound(constants)}


def _bound_value(term: Term, column_type: pa.DataType, common_type: pa.DataType) -> Any:
    """Return a constant as a value of a `Bound` of a column of type ``column_type``.

    Conditions compare values in the type ``common_type``. Return None if the same comparison in the type
    ``column_type`` could have another result.
    """
    assert term.literal is not None
    if pa.types.is_temporal(column_type) and pa.types.is_date32(column_type) != pa.types.is_date32(term.type):
        return None
    scalar = literal_as(term, column_type, common_type)
    if scalar is None or scalar.type != column_type:
        return None
    return scalar.value if pa.types.is_temporal(column_type) else scalar.as_py()


def _bound_of_range(low_and_high: list[Any]) -> Bound:
    return Bound(low=low_and_high[0]) & Bound(high=low_and_high[1])


_BOUND_OF_COMPARISON: Mapping[type[exp.Expr], Callable[[list[Any]], Bound]] = {
    exp.EQ: Bound.of_values,
    **dict.fromkeys((exp.LT, exp.LTE), lambda values: Bound(high=values[0])),
    **dict.fromkeys((exp.GT, exp.GTE), lambda values: Bound(low=values[0])),
    # ``x = NULL`` is never true, so its bound is empty. ``x <=> NULL`` is true for nulls, so it must not have a bound.
    # `_bound_of_column` returns a bound for NULL only if it is called with the function `Bound.of_values` itself. It is
    # called with a lambda here, so it returns no bound for NULL.
    exp.NullSafeEQ: lambda values: Bound.of_values(values),
}
