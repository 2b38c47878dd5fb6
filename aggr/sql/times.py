"""Times: their parts, their units, intervals, and time zones."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.sql.function_table import ANY, RAW, Argument, Compiler, reads, written
from aggr.sql.term import Kernel, Term, Value, apply, constant, null
from aggr.sql.types import coerce
from aggr.sql.zones import follows_clock, from_local
from aggr.time_zones import canonical_zone

_PARTS: dict[str, Kernel] = {
    **{"YEAR": pc.year, "QUARTER": pc.quarter, "MONTH": pc.month, "DAY": pc.day},
    **{"HOUR": pc.hour, "MINUTE": pc.minute, "SECOND": pc.second},
    "DOW": partial(pc.day_of_week, week_start=7),
    "ISODOW": partial(pc.day_of_week, count_from_zero=False),
}
OF_A_FUNCTION = "of_a_function"  # marks a zone that is the last argument of a function, in which its times are read
_CLOCK_UNITS = ("HOUR", "MINUTE", "SECOND")
_TRUNCATED = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_CLOCK_UNITS)
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}


def require_time(term: Term, what: str) -> Term:
    """Return a term as a time, a date as its first instant; raises ``ValueError`` for other types."""
    if term.null:
        return null(pa.timestamp("us", "UTC"))
    if pa.types.is_date32(term.type):
        return coerce(term, pa.timestamp("us"))
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"{what} takes a time or a date, got {term.type}; CAST it AS TIMESTAMP")
    return term


def extract(part: str, term: Term) -> Term:
    """Return a part of a date, or of a time in its zone."""
    if part not in _PARTS:
        raise ValueError(f"cannot extract {part}; there are {', '.join(_PARTS)}")
    return apply(lambda value: _PARTS[part](value), require_time(term, part.lower()), kind=pa.int64())


reads(exp.Extract, names="extract dow isodow", this=RAW, expression=ANY)(
    lambda part, term: extract(part.name.upper(), term)
)
CLOCK_PARTS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute, exp.Second)
for _kind in CLOCK_PARTS:
    _part = "DAY" if _kind is exp.DayOfMonth else _kind.key.upper()
    reads(_kind, names=_kind.key, this=ANY)(partial(extract, _part))


@reads(exp.TimestampTrunc, names="date_trunc", unit=RAW, this=ANY)
def date_trunc(unit: exp.Expr, term: Term) -> Term:
    """Round a time down to a unit, in its zone; weeks begin on Monday."""
    name = unit.name.upper()
    if name not in _TRUNCATED:
        raise ValueError(f"cannot truncate to {unit.name}; there are {', '.join(_TRUNCATED)}")
    term = require_time(term, "date_trunc")
    if follows_clock(term.type):
        return apply(partial(_floored_in_zone, kind=term.type, unit=name), term, kind=term.type)
    return apply(lambda value: pc.floor_temporal(value, unit=name.lower()), term, kind=term.type)


def _floored_in_zone(value: Value, kind: pa.DataType, unit: str) -> Value:
    """Round down to a unit of local time; a repeated hour is not merged with the first one."""
    local = pc.local_timestamp(value)
    floor = pc.floor_temporal(local, unit=unit.lower())
    first = from_local(floor, kind.tz)
    if unit not in _CLOCK_UNITS:
        return first
    passed = pc.subtract(local.cast(pa.int64()), floor.cast(pa.int64()))
    near = pc.subtract(value.cast(pa.int64()), passed).cast(kind)
    return pc.if_else(pc.equal(pc.local_timestamp(near), floor), near, first)


@reads(exp.Interval, this=RAW, unit=RAW)
def interval(count: exp.Expr, unit: exp.Expr) -> Term:
    """Return an interval of a fixed unit: INTERVAL '1' DAY."""
    if not isinstance(count, exp.Literal):
        raise ValueError("an interval is written as INTERVAL '1' DAY")
    name = unit.name.upper().removesuffix("S")
    if name not in _SECONDS:
        raise ValueError(f"an interval is of {', '.join(_SECONDS)}; got {unit.name}")
    try:
        steps = int(count.name) * _SECONDS[name] * 1_000_000
    except ValueError:
        raise ValueError(f"an interval is a whole number of {name}; got {count.name!r}") from None
    return constant(pa.scalar(steps, pa.int64()).cast(pa.duration("us")))


def _moment(compiler: Compiler, node: exp.Expr, name: str) -> tuple[Term, bool]:
    """Compile the operand of AT TIME ZONE; also return whether it is a local time, that is, a column without a zone."""
    operand = node.args[name].unnest()
    if isinstance(operand, exp.Column) and not node.meta.get(OF_A_FUNCTION):
        moment = Compiler(compiler.schema).column(operand)
        if pa.types.is_timestamp(moment.type) and moment.type.tz is None:
            return moment, True
    return compiler.term(node.args[name]), False


@reads(exp.AtTimeZone, this=Argument(_moment), zone=written("the zone of AT TIME ZONE"))
def at_time_zone(moment: tuple[Term, bool], zone: str | None) -> Term:
    """Read times in a zone: ``ts AT TIME ZONE 'Europe/Berlin'``.

    A column without a zone is interpreted as local times of the zone, as in DuckDB and PostgreSQL.
    """
    term, is_local = moment
    if zone is None:
        raise ValueError("AT TIME ZONE takes the name of a zone, say 'Europe/Berlin'; got NULL")
    zone = canonical_zone(zone)
    if term.null:
        return null(pa.timestamp("us", zone))
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"a time zone is of times, got {term.type}; CAST it AS TIMESTAMP")
    if is_local:
        kind = pa.timestamp(term.type.unit, zone)
        return apply(lambda local: from_local(local, zone).cast(kind), term, kind=kind)
    return coerce(term, pa.timestamp(term.type.unit, zone))
