"""Push-down: what Spark is going to filter, turned into less to read.

Spark evaluates every filter nevertheless, so only what means the same here beyond doubt is taken.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tiltframe.frame import START
from tiltframe.store.core.backend import Range
from tiltframe.store.core.ranges import EVER
from tiltframe.store.query.plan import QueryPlan

_SIGNS = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}
_MOST_VALUES = 100  # of IN (…): each is compared on its own
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bounds_of(filters: Iterable[Filter]) -> Range:
    """Find the range that filters leave of the starts of windows.

    >>> start, second = ("window_start",), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    >>> bounds_of([GreaterThan(start, _EPOCH), LessThanOrEqual(start, second), EqualTo(("host",), "a")])
    (1, 1000001)
    """
    low, high = EVER
    for each in filters:
        if getattr(each, "attribute", None) == (START,):
            least, end = _bounds(each)
            low, high = max(low, least), min(high, end)
    return low, high


def _bounds(each: Filter) -> Range:
    given = each.value if isinstance(each, In) else [getattr(each, "value", None)]
    moments = [_micros(value) for value in given if value is not None]
    known = [at for at in moments if at is not None]
    if not known or len(known) < len(moments):
        return EVER
    low, high = min(known), max(known)
    equal = (low, high + 1)
    ranges = {EqualTo: equal, EqualNullSafe: equal, In: equal, LessThan: (EVER[0], high)}
    ranges |= {LessThanOrEqual: (EVER[0], high + 1), GreaterThan: (low + 1, EVER[1])}
    ranges |= {GreaterThanOrEqual: (low, EVER[1])}
    return ranges.get(type(each), EVER)


def _micros(value: Any) -> int | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


def with_filters(plan: QueryPlan, schema: pa.Schema, filters: Iterable[Filter]) -> QueryPlan:
    """Add the filters on keys to the condition of a query plan; ``schema`` is of the stored keys.

    >>> import aggr, tiltframe
    >>> from tiltframe.store.query.plan import plan_query
    >>> plan = plan_query(tiltframe.TiltFrame(["1h"], "ts", {"n": aggr.count()}, ["host"]), "1h")
    >>> filters = [EqualTo(("host",), "it's"), Not(In(("host",), ("a", "b"))), IsNotNull(("window_end",))]
    >>> with_filters(plan, pa.schema([("host", pa.string())]), filters).where
    "`host` = 'it''s' AND NOT (`host` IN ('a', 'b'))"
    """
    kinds = {name: schema.field(name).type for name in plan.keys}
    found = [text for text in (condition(each, kinds) for each in filters) if text is not None]
    given = [] if plan.where is None else [f"({plan.where})"]
    return replace(plan, where=" AND ".join(given + found)) if found else plan


def condition(each: Filter, kinds: dict[str, pa.DataType]) -> str | None:
    """Write a filter on a key as a condition in SQL; None for every filter that is not sure to mean the same."""
    if isinstance(each, Not):
        child = each.child
        unsure = isinstance(child, EqualNullSafe) or (isinstance(child, In) and None in child.value)
        text = None if unsure else condition(child, kinds)
        return None if text is None else f"NOT ({text})"
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in kinds:
        return None
    dtype, name = kinds[path[0]], "`" + path[0].replace("`", "``") + "`"
    if isinstance(each, IsNull | IsNotNull):
        return f"{name} IS NULL" if isinstance(each, IsNull) else f"NOT ({name} IS NULL)"
    if isinstance(each, In):
        literals = _literals([value for value in each.value if value is not None], dtype)
        return f"{name} IN ({', '.join(literals)})" if literals else None
    if isinstance(each, EqualNullSafe):
        if each.value is None:
            return f"{name} IS NULL"
        each = EqualTo(each.attribute, each.value)
    literals = _literals([getattr(each, "value", None)], dtype) if type(each) in _SIGNS else None
    return f"{name} {_SIGNS[type(each)]} {literals[0]}" if literals else None


def _literals(values: Sequence[Any], dtype: pa.DataType) -> list[str] | None:
    """Write values of a key's type as literals; None for other values, none, and too many."""
    literals = [_literal(value, dtype) for value in values[: _MOST_VALUES + 1]]
    known = [text for text in literals if text is not None]
    return known if known and len(known) == len(literals) <= _MOST_VALUES else None


def _literal(value: Any, dtype: pa.DataType) -> str | None:
    if isinstance(value, str) and pa.types.is_string(dtype):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if isinstance(value, int) and not isinstance(value, bool) and pa.types.is_integer(dtype):
        return str(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime) and pa.types.is_date32(dtype):
        return f"'{value.isoformat()}'"
    return None
