"""The current view: results of a level in plain SQL, merged over all readable rows, for tools that know nothing else.

    window_start  window_end  keys…  requests  latency_count  latency_min  latency_max  latency_sum  latency_mean

Sums are exact, added up as numeric and rounded once; quotients and roots are taken to 60 decimal places beyond the
sum's own, and then rounded. Not here: quantiles, means and spreads of hdr, averages of timestamps in nanoseconds, and
measures of other packages. Values of types that PostgreSQL does not know appear as they are stored: durations as whole
numbers. Of ``-0.0`` and ``0.0``, either may be the least of dds. Whole sums are numeric: they cannot overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from aggr.measure import Measure
from tiltframe.frame import END, START, TiltFrame
from tiltframe.store.flat import column_name, flat_schema
from tiltframe.store.pg_session import listed, moment, quoted

_LARGEST = "(2::numeric ^ 1024 - 2::numeric ^ 970)"  # what rounds to it, is infinite
_LEAST = "(5::numeric ^ 1075 * '1e-1075'::numeric)"  # half of the least double
_FACTORS = {"s": 1_000_000, "ms": 1_000, "us": 1}

Columns = Iterator[tuple[str, str]]  # suffix of a measure's name, and what it reads


@dataclass
class Merged:
    """The merged fields of a level's states, by the aggregate that merges each, so that none is computed twice."""

    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, aggregate: str) -> str:
        """Name the column of an aggregate."""
        return self.names.setdefault(aggregate, quoted(f"tiltframe {len(self.names)}"))

    def add(self, *path: str) -> str:
        """Add up counts."""
        return self(f"sum({_of(*path)})")

    def add_exactly(self, *path: str) -> str:
        """Add up exact sums: digits times powers of 2^32, of which negative ones are 5^n / 10^n."""
        power = f"32 * ({_of(*path, 'exponent')} + l.place - 1)"
        return self(
            f"sum((SELECT coalesce(sum(l.digit * CASE WHEN {power} >= 0 THEN 2::numeric ^ ({power})::numeric "
            f"ELSE 5::numeric ^ (-{power})::numeric * ('1e' || {power})::numeric END), 0) "
            f"FROM unnest({_of(*path, 'limbs')}) WITH ORDINALITY AS l (digit, place)))"
        )

    def pick(self, value: str, order: str, present: str) -> str:
        """Choose the first value in an order."""
        return self(f"(array_agg({value} ORDER BY {order}) FILTER (WHERE {present} IS NOT NULL))[1]")


def current_view(frame: TiltFrame, schema: pa.Schema, table: str, parts: str, name: str) -> str:
    """Write the statement that makes the view of a level; tables are given quoted."""
    keys = flat_schema(pa.schema([schema.field(key) for key in frame.keys])).names
    merged = Merged()
    columns: dict[str, str] = {}
    taken = {START, END, *frame.keys, *frame.measures}
    for measure_name, measure in frame.measures.items():
        state = frame.state_of(measure_name)
        for suffix, sql in _results(merged, measure, state, schema.field(state).type):
            if not suffix or measure_name + suffix not in taken:
                columns[column_name(measure_name + suffix)] = sql
    by = ", ".join(f"s.{quoted(column)}" for column in [START, END, *keys])
    inner = "".join(f", {sql} AS {alias}" for sql, alias in merged.names.items())
    outer = "".join(f", {sql} AS {quoted(column)}" for column, sql in columns.items())
    return (
        f"CREATE VIEW {quoted(f'{name}_current')} AS SELECT {listed([START, END, *keys])}{outer} "
        f"FROM (SELECT {by}{inner} FROM {table} AS s JOIN {parts} AS p ON p.part = s._part GROUP BY {by}) AS m"
    )


def _results(merged: Merged, measure: Measure, state: str, kind: pa.DataType) -> Columns:
    """Choose how the results of a measure are read; nothing where SQL has no simple way."""
    function: Any = measure.function
    if function.name == "count":
        yield "", f"{merged.add(state, 'count')}::bigint"
    elif function.name in ("min", "max"):
        value = _of(state, "least" if function.name == "min" else "greatest")
        yield "", merged.pick(value, value + " DESC" * (function.name == "max"), value)
    elif function.name in ("first", "last"):
        event, down = (state, "earliest"), ""
        if function.name == "last":
            event, down = (state, "latest"), " DESC"
        time, value = _of(*event, "time"), _of(*event, "value")
        yield "", merged.pick(value, f"{time}{down}, {value}{down}", time)
    elif function.name in ("sum", "avg", "var", "stdev"):
        yield from _moments(merged, function, state, kind.field("unit").type)
    elif function.name == "dds":
        yield from _dds(merged, state)
    elif function.name == "hdr":
        yield from _hdr(merged, function, state)


def _moments(merged: Merged, function: Any, state: str, unit: pa.DataType) -> Columns:
    count, total = merged.add(state, "count"), merged.add_exactly(state, "sum")
    flags = merged(f"bit_or({_of(state, 'special')})")
    size = f"'1e{-unit.scale}'::numeric" if pa.types.is_decimal(unit) else "1::numeric"
    if function.name == "sum":
        value = f"round({total} * {size}, {unit.scale if pa.types.is_decimal(unit) else 0})"
        if pa.types.is_floating(unit):
            value = _with_special(_rounded(total), flags)
        yield "", f"CASE WHEN {count} > 0 THEN {value} END"
    elif function.name == "avg" and pa.types.is_timestamp(unit):
        if unit.unit in _FACTORS:
            micros = moment(f"({_nearest(total, count)} * {_FACTORS[unit.unit]})::bigint")
            yield "", f"CASE WHEN {count} > 0 THEN {micros}{'' if unit.tz else _NAIVE} END"
    elif function.name == "avg":
        value = _with_special(_rounded(_quotient(f"{total} * {size}", count)), flags)
        yield "", f"CASE WHEN {count} > 0 THEN {value} END"
    else:
        squares = merged.add_exactly(state, "squares")
        off = f"({count} * {squares} - {total} * {total}) * {size} * {size}"
        spread = _quotient(off, f"({count} * ({count} - {function.ddof}))")
        spread = f"sqrt({spread})" if function.name == "stdev" else spread
        value = f"CASE WHEN {flags} <> 0 THEN 'NaN'::float8 ELSE {_rounded(spread)} END"
        yield "", f"CASE WHEN {count} > {function.ddof} THEN {value} END"


def _dds(merged: Merged, state: str) -> Columns:
    high, low = merged.add(state, "positive_infinity"), merged.add(state, "negative_infinity")
    finite = [merged.add(state, "zero"), *(merged.add(state, sign, "total") for sign in ("positive", "negative"))]
    count, total = f"({' + '.join([high, low, *finite])})", merged.add_exactly(state, "sum")
    flags = f"(CASE WHEN {high} > 0 THEN 2 ELSE 0 END | CASE WHEN {low} > 0 THEN 4 ELSE 0 END)"
    yield "_count", f"{count}::bigint"
    for end in ("min", "max"):
        yield f"_{end}", merged(f"{end}({_of(state, end)})")
    yield "_sum", f"CASE WHEN {count} > 0 THEN {_with_special(_rounded(total), flags)} END"
    mean = _with_special(_rounded(_quotient(total, count)), flags)
    yield "_mean", f"CASE WHEN {count} > 0 THEN {mean} END"


def _hdr(merged: Merged, function: Any, state: str) -> Columns:
    yield "_count", f"{merged.add(state, 'buckets', 'total')}::bigint"
    scaled = ""
    if function.unit is not None:  # 3 units of 0.1 are 0.3, as in `aggr.hdr`
        parts = round(1.0 / function.unit)
        exactly = parts > 1 and 1.0 / parts == function.unit
        scaled = f"::float8 / {parts}::float8" if exactly else f"::float8 * '{function.unit!r}'::float8"
    for end in ("min", "max"):
        yield f"_{end}", merged(f"{end}({_of(state, end)})") + scaled


_NAIVE = " AT TIME ZONE 'UTC'"


def _of(*path: str) -> str:
    return f"s.{quoted(column_name('.'.join(path)))}"


def _quotient(value: str, by: str) -> str:
    """Divide, to many more places than a double has; by zero gives null."""
    return f"(round({value}, scale({value}) + 60) / nullif({by}, 0))"


def _rounded(value: str) -> str:
    """Round a numeric to a double; PostgreSQL refuses what becomes 0 or infinite."""
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST} THEN sign({value})::float8 * 'Infinity'::float8 "
        f"WHEN abs({value}) <= {_LEAST} THEN 0::float8 ELSE ({value})::float8 END"
    )


def _with_special(value: str, flags: str) -> str:
    """Let NaN and the infinities win, as in `aggr.numbers`."""
    return (
        f"CASE WHEN ({flags} & 1) <> 0 OR ({flags} & 6) = 6 THEN 'NaN'::float8 "
        f"WHEN ({flags} & 2) <> 0 THEN 'Infinity'::float8 WHEN ({flags} & 4) <> 0 THEN '-Infinity'::float8 "
        f"ELSE {value} END"
    )


def _nearest(total: str, count: str) -> str:
    """Divide whole numbers, rounding half to even; the rest of the division is made to be from 0."""
    rest = f"mod(mod({total}, {count}) + {count}, {count})"
    whole = f"div({total} - {rest}, {count})"
    up = f"2 * {rest} > {count} OR (2 * {rest} = {count} AND mod({whole}, 2) <> 0)"
    return f"({whole} + CASE WHEN {up} THEN 1 ELSE 0 END)"
