"""Bounds of columns under a condition; by them a reader skips what cannot be chosen.

A bound is necessary, never sufficient: a row for which the condition is true lies within it, and others may. What says
nothing simple of a column, such as NOT, LIKE and arithmetic, gives no bound.
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
from aggr.sql.parse import parsed
from aggr.sql.term import Term
from aggr.sql.types import literal_as, unify_types
from aggr.sql.zones import UTC

_Kinds = Callable[[pa.DataType], bool]
_COUNTED: tuple[_Kinds, ...] = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date32)
_PLAIN: tuple[_Kinds, ...] = (pa.types.is_string, pa.types.is_decimal128)
_MIRRORED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    **{exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
}


@dataclass(frozen=True)
class Bound:
    """The values that one column can have where a condition is true; it is not null there.

    Parameters
    ----------
    low, high : value, optional
        The least and the greatest, both included: int of whole numbers, of times (in their unit) and of dates (days),
        Decimal, str. None is no end.
    values : set of values, optional
        The only ones, where these are told.
    """

    low: Any = None
    high: Any = None
    values: frozenset[Any] | None = None

    @classmethod
    def of(cls, values: Iterable[Any]) -> Bound:
        """Bound a column by the only values it can have.

        Parameters
        ----------
        values : iterable of values
            Of one type, as `Bound` has them; none at all make the empty bound.

        Returns
        -------
        Bound
        """
        found = frozenset(values)
        return cls(min(found, default=None), max(found, default=None), found)

    @property
    def empty(self) -> bool:
        """Whether no value is possible: the condition chooses no row."""
        return self.values is not None and not self.values

    def holds(self, value: Any) -> bool:
        """Say whether a value lies between the ends.

        Parameters
        ----------
        value : value
            Of the type of the ends, not null.

        Returns
        -------
        bool
        """
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def __and__(self, other: Bound) -> Bound:
        """Bound a column of which both are true."""
        if self.values is None and other.values is None:
            lows = [end for end in (self.low, other.low) if end is not None]
            highs = [end for end in (self.high, other.high) if end is not None]
            low, high = max(lows, default=None), min(highs, default=None)
            none = low is not None and high is not None and low > high
            return Bound.of(()) if none else Bound(low, high)
        if self.values is not None and other.values is not None:
            return Bound.of(self.values & other.values)
        told, rest = (self, other) if self.values is not None else (other, self)
        assert told.values is not None
        return Bound.of(value for value in told.values if rest.holds(value))


def bounds(condition: str, schema: pa.Schema, timezone: str = UTC) -> dict[str, Bound]:
    """Find the bounds that a condition sets on the columns of a schema.

    Parameters
    ----------
    condition : str
        SQL, as `docs/conditions.md` describes it.
    schema : pa.Schema
    timezone : str
        An IANA name: of the clock that times are read on.

    Returns
    -------
    dict of name -> Bound
        Of the columns that are bounded: whole numbers, decimals of up to 38 digits, text, times and dates. Floats have
        none: files tell the least and the greatest of them without NaN.

    Raises
    ------
    ValueError
        If the condition is no SQL.

    Guarantee
    ---------
    A row for which the condition is true lies within every bound.

    Examples
    --------
    >>> schema = pa.schema([("host", pa.string()), ("port", pa.int32())])
    >>> bounds("host = 'a' AND (port < 10 OR port IN (20, 30)) AND port <> 7", schema)
    {'host': Bound(low='a', high='a', values=frozenset({'a'})), 'port': Bound(low=None, high=30, values=None)}
    """
    return _of(parsed(condition).unnest(), Compiler(schema, timezone))


def _of(node: exp.Expr, compiler: Compiler) -> dict[str, Bound]:
    if isinstance(node, exp.And):
        parts = [_of(part, compiler) for part in operands(node)]
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: reduce(Bound.__and__, (part[name] for part in parts if name in part)) for name in names}
    if isinstance(node, exp.Or):
        parts = [_of(part, compiler) for part in operands(node)]
        parts = [part for part in parts if not any(bound.empty for bound in part.values())] or parts[:1]
        names = dict.fromkeys(name for name in parts[0] if all(name in part for part in parts))
        joined = {name: _either([part[name] for part in parts]) for name in names}
        return {name: bound for name, bound in joined.items() if bound != Bound()}
    try:
        return _of_comparison(node, compiler)
    except (pa.ArrowException, ValueError, OverflowError, TypeError, RecursionError):
        return {}  # whoever evaluates the condition says what is wrong with it


def _either(each: Sequence[Bound]) -> Bound:
    """Bound a column of which one of several is true."""
    if all(bound.values is not None for bound in each):
        return Bound.of(frozenset[Any]().union(*(bound.values or () for bound in each)))
    lows, highs = [bound.low for bound in each], [bound.high for bound in each]
    return Bound(None if None in lows else min(lows), None if None in highs else max(highs))


def _of_comparison(node: exp.Expr, compiler: Compiler) -> dict[str, Bound]:
    if isinstance(node, exp.In):
        return _bounded(compiler, node.this, node.expressions, Bound.of)
    if isinstance(node, exp.Between):
        return _bounded(compiler, node.this, [node.args["low"], node.args["high"]], _range)
    if type(node) not in _READ:
        return {}
    left, right, kind = node.this.unnest(), node.expression.unnest(), type(node)
    if not isinstance(left, exp.Column):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    return _bounded(compiler, left, [right], _READ[kind])


def _bounded(
    compiler: Compiler, node: exp.Expr, others: Sequence[exp.Expr], bound: Callable[[list[Any]], Bound]
) -> dict[str, Bound]:
    """Bound a column by what it is compared with, if that is constants which its type holds."""
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return {}
    name = name_of(node)
    if name not in compiler.schema.names:  # a field of a struct
        return {}
    if not any(test(normalized_type(compiler.schema.field(name).type)) for test in (*_COUNTED, *_PLAIN)):
        return {}
    (column, *terms), through = unify_types([compiler.term(node), *(compiler.term(other) for other in others)])
    if any(term.literal is None for term in terms):
        return {}
    found = [_plain(term, column.type, through) for term in terms if not term.null]
    if any(value is None for value in found) or (len(found) < len(terms) and bound != Bound.of):
        return {}
    return {name: bound(found)}


def _plain(term: Term, kind: pa.DataType, through: pa.DataType) -> Any:
    """Write a constant as a value of the column's type; None if that would change the comparison."""
    assert term.literal is not None
    if pa.types.is_temporal(kind) and pa.types.is_date32(kind) != pa.types.is_date32(term.type):
        return None
    scalar = literal_as(term, kind, through)
    if scalar is None or scalar.type != kind:
        return None
    return scalar.value if pa.types.is_temporal(kind) else scalar.as_py()


def _range(ends: list[Any]) -> Bound:
    return Bound(low=ends[0]) & Bound(high=ends[1])


_READ: Mapping[type[exp.Expr], Callable[[list[Any]], Bound]] = {
    exp.EQ: Bound.of,
    **dict.fromkeys((exp.LT, exp.LTE), lambda values: Bound(high=values[0])),
    **dict.fromkeys((exp.GT, exp.GTE), lambda values: Bound(low=values[0])),
    exp.NullSafeEQ: lambda values: Bound.of(values),  # unlike Bound.of itself, it takes no null
}
