"""Times: their parts, units, intervals, and time zones."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.sql.function_table import ANY, RAW, Argument, Compiler, literal_argument, term_rule
from aggr.sql.term import Kernel, Term, Value, apply, constant, null
from aggr.sql.types import coerce, unify_types
from aggr.sql.zones import STEPS_PER_SECOND, follows_clock, from_local, to_local, without_zone
from aggr.time_zones import canonical_zone

_PARTS: dict[str, Kernel] = {
    **{"YEAR": pc.year, "QUARTER": pc.quarter, "MONTH": pc.month, "DAY": pc.day},
    **{"HOUR": pc.hour, "MINUTE": pc.minute, "SECOND": pc.second},
    "DOW": partial(pc.day_of_week, week_start=7),
    "ISODOW": partial(pc.day_of_week, count_from_zero=False),
}
# The parser creates an AT TIME ZONE node for the zone in a call such as hour(ts, 'UTC'). This key in the metadata of
# the node distinguishes it from an AT TIME ZONE that is written in the SQL.
IS_FUNCTION_ZONE = "of_a_function"
_CLOCK_UNITS = ("HOUR", "MINUTE", "SECOND")
_TRUNCATION_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_CLOCK_UNITS)
_EXACT_UNITS = {"nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s"}
_CALENDAR_UNITS = ("year", "quarter", "month", "week", "day")
# Seconds that are added to the seconds since 1970, so that weeks begin on Monday. January 1, 1970, was a Thursday.
_UNIT_OFFSETS = {"week": 3 * 86_400}
_UNIT_ABBREVIATIONS = {
    "ns": "nanosecond",
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "h": "hour",
}
_UNIT_ABBREVIATIONS |= {"d": "day", "w": "week", "mo": "month", "q": "quarter", "y": "year"}
_UNIT_ABBREVIATIONS |= {"msec": "millisecond", "usec": "microsecond", "sec": "second", "min": "minute", "mon": "month"}
_UNIT_NAMES = (*_EXACT_UNITS, "minute", "hour", *reversed(_CALENDAR_UNITS))
_DIFFERENCE_UNITS = (
    {name: name for name in _UNIT_NAMES} | {f"{name}s": name for name in _UNIT_NAMES} | _UNIT_ABBREVIATIONS
)
_SECONDS_PER_UNIT = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}


def require_time(term: Term, what: str) -> Term:
    """Return ``term`` as a time. A date becomes its first instant. Raise ``ValueError`` for other types."""
    if term.is_untyped_null:
        return null(pa.timestamp("us", "UTC"))
    if pa.types.is_date32(term.type):
        return coerce(term, pa.timestamp("us"))
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"{what} needs a time or a date; got {term.type}; CAST it AS TIMESTAMP")
    return term


def extract(part: str, term: Term) -> Term:
    """Return the term for one part, such as HOUR, of a date, or of a time as its time zone shows it.

    EPOCH is the number of seconds since 1970 in UTC, with fractions.
    """
    if part == "EPOCH":
        return apply(_epoch_seconds, require_time(term, "epoch"), kind=pa.float64())
    if part not in _PARTS:
        raise ValueError(f"cannot extract {part}; the allowed parts are {', '.join(_PARTS)}, EPOCH")
    time = require_time(term, part.lower())
    return apply(partial(_part_of, kind=time.type, part=part), time, kind=pa.int64())


def _part_of(value: Value, kind: pa.DataType, part: str) -> Value:
    """Return one part of each time, such as the hour, in local time. ``kind`` is the type of the times, with the time
    zone.
    """
    return _PARTS[part](to_local(value) if follows_clock(kind) else value)


term_rule(exp.Extract, names="extract dow isodow", this=RAW, expression=ANY)(
    lambda part, term: extract(part.name.upper(), term)
)
CLOCK_PARTS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute, exp.Second)
for _kind in CLOCK_PARTS:
    _part = "DAY" if _kind is exp.DayOfMonth else _kind.key.upper()
    term_rule(_kind, names=_kind.key, this=ANY)(partial(extract, _part))


@term_rule(exp.TimestampTrunc, names="date_trunc", unit=RAW, this=ANY)
def date_trunc(unit: exp.Expr, term: Term) -> Term:
    """Return the term for times rounded down to a unit on the clock of their zone. Weeks begin on Monday."""
    name = unit.name.upper()
    if name not in _TRUNCATION_UNITS:
        raise ValueError(f"cannot truncate to {unit.name}; the allowed units are {', '.join(_TRUNCATION_UNITS)}")
    term = require_time(term, "date_trunc")
    if follows_clock(term.type):
        return apply(partial(_floor_in_zone, kind=term.type, unit=name), term, kind=term.type)
    return apply(lambda value: pc.floor_temporal(value, unit=name.lower()), term, kind=term.type)


def _floor_in_zone(value: Value, kind: pa.DataType, unit: str) -> Value:
    """Return times rounded down to a unit of local time.

    At the end of daylight saving time, the clock shows an hour twice. Times in the two hours are rounded down to
    different instants.
    """
    local = to_local(value)
    floor = pc.floor_temporal(local, unit=unit.lower())
    earliest = from_local(floor, kind.tz)
    if unit not in _CLOCK_UNITS:
        return earliest
    elapsed = pc.subtract(local.cast(pa.int64()), floor.cast(pa.int64()))
    same_offset = pc.subtract(value.cast(pa.int64()), elapsed).cast(kind)
    return pc.if_else(pc.equal(to_local(same_offset), floor), same_offset, earliest)


def _epoch_seconds(value: Value) -> Value:
    unit = value.type.unit if not isinstance(value, pc.Expression) else None
    if unit is None:
        raise ValueError("a filter of files cannot use epoch; compare times instead")
    return pc.divide(value.cast(pa.int64()).cast(pa.float64(), safe=False), float(STEPS_PER_SECOND[unit]))


def _epoch_milliseconds(value: Value) -> Value:
    """Return the milliseconds since 1970 (UTC) as int64, rounded down."""
    if isinstance(value, pc.Expression):
        raise ValueError("a filter of files cannot use epoch_ms; compare times instead")
    value = without_zone(value)
    unit = value.type.unit
    if unit in ("s", "ms"):
        return value.cast(pa.timestamp("ms")).cast(pa.int64())
    return pc.floor_temporal(value, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())


class EpochMs(exp.Expression, exp.Func):
    """The node of ``epoch_ms(time)``, which Spark calls unix_millis."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}
    _sql_names: ClassVar[list[str]] = ["EPOCH_MS"]


@term_rule(EpochMs, names="epoch_ms", this=ANY)
@term_rule(exp.UnixMillis, names="unix_millis", this=ANY)
def epoch_ms(term: Term) -> Term:
    """Return the term for the milliseconds since 1970 (UTC), rounded down."""
    return apply(_epoch_milliseconds, require_time(term, "epoch_ms"), kind=pa.int64())


class DateDifference(exp.Expression, exp.Func):
    """The node of ``date_diff(unit, start, end)``, with DuckDB's order of arguments."""

    arg_types: ClassVar[dict[str, bool]] = {"unit": True, "this": True, "expression": True}
    _sql_names: ClassVar[list[str]] = ["DATE_DIFF"]


@term_rule(DateDifference, names="date_diff", unit=literal_argument("the unit of date_diff"), this=ANY, expression=ANY)
def date_diff(unit: str | None, start: Term, end: Term) -> Term:
    """Return the term for the number of boundaries of a unit, such as the starts of hours, between two times.

    The number is negative if ``end`` is before ``start``. Days and longer units begin on the clock of the times' zone.
    """
    name = _DIFFERENCE_UNITS.get((unit or "").lower())
    if name is None:
        raise ValueError(
            f"the unit of date_diff must be one of {', '.join(dict.fromkeys(_DIFFERENCE_UNITS.values()))}, or an "
            f"abbreviation such as 'ms' or 's'; got {shown(unit)}"
        )
    if start.is_untyped_null or end.is_untyped_null:
        return null(pa.int64())
    times, kind = unify_types([require_time(start, "date_diff"), require_time(end, "date_diff")])
    return apply(partial(_boundaries_between, unit=name), *(coerce(term, kind) for term in times), kind=pa.int64())


def _boundaries_between(start: Value, end: Value, unit: str) -> Value:
    """Return the number of boundaries of a unit between each start and end: the difference of their unit numbers."""
    first, last = (_unit_numbers(value, unit) for value in (start, end))
    return pc.subtract_checked(last, first)


def _unit_numbers(value: Value, unit: str) -> Value:
    """Return the number of the unit that contains each time. Consecutive units have consecutive numbers.

    Days and longer units follow the clock of the times' zone. If the clock is not a whole number of hours ahead of UTC,
    hours and minutes also begin on this clock. All other units are parts of seconds, which begin at the same instants
    in all zones.
    """
    if isinstance(value, pc.Expression):
        raise ValueError("a filter of files cannot use date_diff; compare times instead")
    has_clock = follows_clock(value.type)
    if unit in _CALENDAR_UNITS:
        local = to_local(value) if has_clock else value
        if unit in ("year", "quarter", "month"):
            years = pc.year(local)
            if unit == "year":
                return years
            per_year, part = (4, pc.quarter(local)) if unit == "quarter" else (12, pc.month(local))
            return pc.add(pc.multiply(years, per_year), part)
        floored = pc.floor_temporal(local, unit=unit)
    elif has_clock and unit in ("hour", "minute"):
        floored = _floor_in_zone(value, value.type, unit.upper())
    else:
        instants = without_zone(value)
        floored = instants if unit == "nanosecond" else pc.floor_temporal(instants, unit=unit)
    steps = without_zone(floored).cast(pa.timestamp(_EXACT_UNITS.get(unit, "s"))).cast(pa.int64())
    if unit in _EXACT_UNITS:
        return steps
    return _divide_down(pc.add(steps, _UNIT_OFFSETS.get(unit, 0)), _SECONDS_PER_UNIT[unit.upper()])


def _divide_down(numbers: Value, divisor: int) -> Value:
    """Return the quotients of whole numbers, rounded down; ``pc.divide`` rounds negative quotients up."""
    lowered = pc.if_else(pc.less(numbers, 0), pc.subtract(numbers, divisor - 1), numbers)
    return pc.divide(lowered, divisor)


@term_rule(exp.Interval, this=RAW, unit=RAW)
def interval(count: exp.Expr, unit: exp.Expr) -> Term:
    """Return the term for an interval in a unit of fixed length, such as ``INTERVAL '1' DAY``."""
    if not isinstance(count, exp.Literal):
        received = count.sql(dialect="spark")
        raise ValueError(f"the length of an interval must be a constant, as in INTERVAL '1' DAY; got {received}")
    name = unit.name.upper().removesuffix("S")
    if name not in _SECONDS_PER_UNIT:
        raise ValueError(f"the unit of an interval must be one of {', '.join(_SECONDS_PER_UNIT)}; got {unit.name}")
    try:
        microseconds = int(count.name) * _SECONDS_PER_UNIT[name] * 1_000_000
    except ValueError:
        raise ValueError(f"an interval needs a whole number of {name}; got {count.name!r}") from None
    return constant(pa.scalar(microseconds, pa.int64()).cast(pa.duration("us")))


def _read_zone_operand(compiler: Compiler, node: exp.Expr, name: str) -> tuple[Term, bool]:
    """Return the term of the operand of AT TIME ZONE, and whether its times are local times.

    They are local times if the operand is a column whose type has no zone, and AT TIME ZONE is written in the SQL. In a
    call with a zone, such as ``hour(ts, 'Europe/Berlin')``, the times of such a column are read as UTC.
    """
    operand = node.args[name].unnest()
    if isinstance(operand, exp.Column) and not node.meta.get(IS_FUNCTION_ZONE):
        column = Compiler(compiler.schema).column(operand)
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            return column, True
    return compiler.term(node.args[name]), False


@term_rule(exp.AtTimeZone, this=Argument(_read_zone_operand), zone=literal_argument("the zone of AT TIME ZONE"))
def at_time_zone(operand: tuple[Term, bool], zone: str | None) -> Term:
    """Return the term for times in a zone: ``ts AT TIME ZONE 'Europe/Berlin'``. ``operand`` is the result of
    `_read_zone_operand`.

    If the type of the column ``ts`` has no zone, its values are read as local times of the zone in the SQL, as in
    DuckDB and PostgreSQL.
    """
    term, is_local = operand
    if zone is None:
        raise ValueError("AT TIME ZONE needs the name of a time zone, such as 'Europe/Berlin'; got NULL")
    zone = canonical_zone(zone)
    if term.is_untyped_null:
        return null(pa.timestamp("us", zone))
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"AT TIME ZONE needs a time; got {term.type}; CAST it AS TIMESTAMP")
    if is_local:
        kind = pa.timestamp(term.type.unit, zone)
        return apply(lambda local: from_local(local, zone).cast(kind), term, kind=kind)
    return coerce(term, pa.timestamp(term.type.unit, zone))
