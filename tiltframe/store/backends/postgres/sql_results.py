"""SQL results: SQL expressions that compute the results of functions from merged states, for the views of `sql_view`.

Functions without an expression have results only in plain tables. `register_sql` registers expressions. Other
distributions register the expressions of their functions in modules, which are named by entry points of the group
``tiltframe.sql_results``::

    [project.entry-points."tiltframe.sql_results"]
    geomean = "aggr_geomean.sql"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa

import aggr
from aggr.extend import load_group
from tiltframe.store.backends.postgres.literals import moment
from tiltframe.store.backends.postgres.sql_terms import (
    SqlAggregates,
    column_of,
    divide_and_round,
    order_terms,
    quotient,
    round_to_double,
    with_special_values,
)

GROUP = "tiltframe.sql_results"
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_WITHOUT_ZONE = " AT TIME ZONE 'UTC'"

# The type of the Python functions that `register_sql` registers. The parameters are the aggregate function, the
# aggregates of the view, the name of the state's column, and the Arrow type of the state.
Reader: TypeAlias = Callable[[Any, SqlAggregates, str, pa.DataType], dict[str, str]]

_READERS: dict[type[aggr.Function], Reader] = {}


def register_sql(*functions: type[aggr.Function]) -> Callable[[Reader], Reader]:
    """Return a decorator that registers the SQL expressions for the results of functions.

    Parameters
    ----------
    *functions : subclasses of Function
        Exactly these classes. Their subclasses are not included.

    Returns
    -------
    callable
        A decorator for a Python function with four parameters: the aggregate function, the aggregates of the view
        (`SqlAggregates`), the name of the state's column, and the Arrow type of the state. The Python function returns
        a dict with one SQL expression for each column of the view. The expressions read the aggregates. The keys of the
        dict are the suffixes that follow the measure's name in the names of the columns, such as ``_mean``, or ``""``
        for none. If the dict is empty, the view reads the results from the plain table.

    Examples
    --------
    docs/adding-a-function.md has a tested example.
    """

    def registered(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(functions, reader))
        return reader

    return registered


def sql_result(function: aggr.Function, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    """Return the SQL expressions that compute a function's result from merged states, one per column of the view. The
    keys are the suffixes that follow the measure's name in the names of the columns, or ``""`` for none. The dict is
    empty if no SQL is registered for the function.
    """
    if type(function) not in _READERS:
        _load_entry_points()
    reader = _READERS.get(type(function))
    return {} if reader is None else reader(function, aggregates, state, dtype)


@cache
def _load_entry_points() -> None:
    """Import the modules that other distributions name by entry points. These modules call `register_sql`."""
    load_group(GROUP, "SQL result", lambda module: None)


@register_sql(aggr.Count)
def _count(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    return {"": f"{aggregates.add(state, 'count')}::bigint"}


@register_sql(aggr.Min, aggr.Max, aggr.BoolAnd, aggr.BoolOr)
def _min_max(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    ((field, extreme),) = function.own_state.fields.items()
    return {"": _extreme(aggregates, (state, field), dtype.field(field).type, extreme.greatest)}


_FUNCTIONS_OF_ONE_EVENT = (aggr.First, aggr.AnyValue, aggr.Last, aggr.ArgMin, aggr.ArgMax)


@register_sql(*_FUNCTIONS_OF_ONE_EVENT)
def _value_of_event(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    (field,) = function.own_state.fields
    return {"": _part_of_event(function, aggregates, state=state, field=field, dtype=dtype, part="value")}


@register_sql(aggr.M4)
def _m4(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    points = {"first": "earliest", "min": "lowest", "max": "highest", "last": "latest"}
    return _points(function, aggregates, state=state, dtype=dtype, points=points)


@register_sql(aggr.Candlestick)
def _candlestick(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    points = {"open": "earliest", "high": "highest", "low": "lowest", "close": "latest"}
    volume = round_to_double(
        f"{aggregates.add_exactly(state, 'weights')} * {_last_digit_value(dtype.field('weight_unit').type)}"
    )
    volume = with_special_values(volume, _flags(aggregates, state, "weight_special"))
    return {
        **_points(function, aggregates, state=state, dtype=dtype, points=points),
        "_volume": f"CASE WHEN {aggregates.add(state, 'count')} > 0 THEN {volume} END",
        "_vwap": _weighted_avg(function, aggregates, state, dtype)[""],
    }


def _points(
    function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType, points: dict[str, str]
) -> dict[str, str]:
    return {
        f"_{name}{suffix}": _part_of_event(function, aggregates, state=state, field=field, dtype=dtype, part=part)
        for name, field in points.items()
        for suffix, part in (("", "value"), ("_time", "time"))
    }


def _part_of_event(
    function: Any, aggregates: SqlAggregates, state: str, field: str, dtype: pa.DataType, part: str
) -> str:
    """Return the SQL expression that merges a field of the kind `aggr.fields.ValueBy`, and returns the value or the
    time of the event in the merged field.

    Such a field contains one event: the event with the smallest or the largest time, or with the smallest or the
    largest value. ``part`` is "value" or "time".
    """
    event_field = function.own_state.fields[field]
    order = ", ".join(
        order_terms(column_of(state, field, name), dtype.field(field).type.field(name).type, is_descending)
        for name, is_descending in (
            (event_field.by, event_field.greatest),
            (event_field.other, event_field.greatest_of_ties),
        )
    )
    return aggregates.pick(column_of(state, field, part), order, column_of(state, field, event_field.by))


@register_sql(aggr.Sum)
def _sum(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    unit = dtype.field("unit").type
    count = aggregates.add(state, "count")
    total = aggregates.add_exactly(state, "sum")
    value = f"round({total} * {_last_digit_value(unit)}, {unit.scale if pa.types.is_decimal(unit) else 0})"
    if pa.types.is_floating(unit):
        value = with_special_values(round_to_double(total), _flags(aggregates, state))
    return {"": f"CASE WHEN {count} > 0 THEN {value} END"}


@register_sql(aggr.Avg)
def _avg(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    unit = dtype.field("unit").type
    count = aggregates.add(state, "count")
    total = aggregates.add_exactly(state, "sum")
    if not pa.types.is_timestamp(unit):
        value = with_special_values(
            round_to_double(quotient(f"{total} * {_last_digit_value(unit)}", count)), _flags(aggregates, state)
        )
    elif unit.unit in _MICROSECONDS:
        micros = moment(f"({divide_and_round(total, count)} * {_MICROSECONDS[unit.unit]})::bigint")
        value = f"{micros}{'' if unit.tz else _WITHOUT_ZONE}"
    else:
        # Times in nanoseconds have no expression, because the mean would have nanoseconds, and PostgreSQL's times have
        # only microseconds.
        return {}
    return {"": f"CASE WHEN {count} > 0 THEN {value} END"}


@register_sql(aggr.Var, aggr.Stdev)
def _variance(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    count = aggregates.add(state, "count")
    total = aggregates.add_exactly(state, "sum")
    squares = aggregates.add_exactly(state, "squares")
    size = _last_digit_value(dtype.field("unit").type)
    squared_deviations = f"({count} * {squares} - {total} * {total}) * {size} * {size}"
    value = round_to_double(
        quotient(squared_deviations, f"({count} * ({count} - {function.ddof}))", isinstance(function, aggr.Stdev))
    )
    value = f"CASE WHEN {_flags(aggregates, state)} <> 0 THEN 'NaN'::float8 ELSE {value} END"
    return {"": f"CASE WHEN {count} > {function.ddof} THEN {value} END"}


@register_sql(aggr.SumOfSquares, aggr.Rms)
def _squares(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    count = aggregates.add(state, "count")
    squares = aggregates.add_exactly(state, "squares")
    flags = _flags(aggregates, state)
    size = _last_digit_value(dtype.field("unit").type)
    total = f"{squares} * {size} * {size}"
    value = round_to_double(quotient(total, count, root=True) if isinstance(function, aggr.Rms) else total)
    special = f"WHEN ({flags} & 1) <> 0 THEN 'NaN'::float8 WHEN {flags} <> 0 THEN 'Infinity'::float8"
    return {"": f"CASE WHEN {count} = 0 THEN NULL {special} ELSE {value} END"}


@register_sql(aggr.BitAnd, aggr.BitOr, aggr.BitXor)
def _bits(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    if dtype.field("bits").type == pa.uint64():
        # Unsigned 64-bit integers have no expression, because PostgreSQL does not have this type.
        return {}
    return {"": aggregates(f"{function.name}({column_of(state, 'bits')})")}


@register_sql(aggr.WeightedAvg)
def _weighted_avg(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    count = aggregates.add(state, "count")
    products, weights = (aggregates.add_exactly(state, field) for field in ("products", "weights"))
    flags = _flags(aggregates, state)
    weight_flags = _flags(aggregates, state, "weight_special")
    mean = round_to_double(
        quotient(f"{products} * {_last_digit_value(dtype.field('unit').type)}", weights, any_size=True)
    )
    infinite = f"CASE WHEN ({flags} & 2) <> 0 THEN 1 ELSE -1 END * sign({weights})::float8 * 'Infinity'::float8"
    is_nan = f"({flags} & 1) <> 0 OR ({flags} & 6) = 6 OR {weight_flags} <> 0"
    return {
        "": f"CASE WHEN {count} = 0 THEN NULL WHEN {is_nan} THEN 'NaN'::float8 WHEN {weights} = 0 THEN NULL "
        f"WHEN {flags} <> 0 THEN {infinite} ELSE {mean} END"
    }


@register_sql(aggr.Dds)
def _dds(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    high = aggregates.add(state, "positive_infinity")
    low = aggregates.add(state, "negative_infinity")
    finite = [
        aggregates.add(state, "zero"),
        *(aggregates.add(state, sign, "total") for sign in ("positive", "negative")),
    ]
    count = f"({' + '.join([high, low, *finite])})"
    total = aggregates.add_exactly(state, "sum", scaled=True)
    flags = f"(CASE WHEN {high} > 0 THEN 2 ELSE 0 END | CASE WHEN {low} > 0 THEN 4 ELSE 0 END)"
    mean = with_special_values(round_to_double(quotient(total, count)), flags)
    return {
        "_count": f"nullif({count}, 0)::bigint",
        **{f"_{end}": _extreme(aggregates, (state, end), pa.float64(), end == "max") for end in ("min", "max")},
        "_sum": f"CASE WHEN {count} > 0 THEN {with_special_values(round_to_double(total), flags)} END",
        "_mean": f"CASE WHEN {count} > 0 THEN {mean} END",
    }


@register_sql(aggr.Hdr)
def _hdr(function: Any, aggregates: SqlAggregates, state: str, dtype: pa.DataType) -> dict[str, str]:
    scaled = ""
    # The minimum and the maximum in states are whole numbers of units. If a unit is 1/n, the minimum and the maximum
    # are divided by n, as in `aggr.hdr`: 3 units of 0.1 are then 0.3, but 3 * 0.1 would be rounded to
    # 0.30000000000000004.
    if function.unit is not None:
        units_per_one = round(1.0 / function.unit)
        is_exact = units_per_one > 1 and 1.0 / units_per_one == function.unit
        scaled = f"::float8 / {units_per_one}::float8" if is_exact else f"::float8 * '{function.unit!r}'::float8"
    return {
        "_count": f"nullif({aggregates.add(state, 'buckets', 'total')}, 0)::bigint",
        **{f"_{end}": aggregates(f"{end}({column_of(state, end)})") + scaled for end in ("min", "max")},
    }


def _extreme(aggregates: SqlAggregates, path: tuple[str, ...], dtype: pa.DataType, greatest: bool) -> str:
    return aggregates.pick(column_of(*path), order_terms(column_of(*path), dtype, greatest), column_of(*path))


def _flags(aggregates: SqlAggregates, state: str, field: str = "special") -> str:
    """Return the SQL expression that merges the flags in the field ``field`` by bitwise or. The flag 1 stands for NaN,
    2 for infinity, and 4 for negative infinity.
    """
    return aggregates(f"bit_or({column_of(state, field)})")


def _last_digit_value(unit: pa.DataType) -> str:
    """Return the value of the last digit of a decimal type as SQL, such as 0.01 for two decimal places. Return 1 for
    other types.
    """
    return f"'1e{-unit.scale}'::numeric" if pa.types.is_decimal(unit) else "1::numeric"
