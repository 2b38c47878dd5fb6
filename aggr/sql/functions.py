"""Functions: of numbers and of times, casts, and choices among values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr.kernels.normalize import is_number, one_array
from aggr.sql.compare import comparison
from aggr.sql.literals import date, read_text, timestamp
from aggr.sql.term import Kernel, Source, Term, Value, apply, constant, known, null
from aggr.sql.text_values import read_values, whole_within
from aggr.sql.types import caster, coerce, decimal_type, meet
from aggr.sql.zones import dated, floored_in_zone, follows_clock

_HALF = "half_towards_infinity"
_UTC = pa.timestamp("us", "UTC")
_PARTS: dict[str, Kernel] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "DAY": pc.day,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
    "DOW": lambda value: pc.day_of_week(value, week_start=7),
    "ISODOW": lambda value: pc.day_of_week(value, count_from_zero=False),
}
_TRUNCATED = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}


def number(term: Term, what: str) -> Term:
    """Take a term as a number; raises ``ValueError`` for other types."""
    if term.null:
        return null(pa.float64())
    if not is_number(term.type):
        raise ValueError(f"{what} takes numbers, got {'text' if pa.types.is_string(term.type) else term.type}")
    return term


def absolute(term: Term) -> Term:
    """Give the absolute value; whole numbers as int64."""
    term = number(term, "abs")
    if pa.types.is_signed_integer(term.type):
        return apply(lambda value: pc.abs_checked(value.cast(pa.int64())), term)
    return apply(pc.abs, term)


def rounded(term: Term, digits: int) -> Term:
    """Round to so many digits after the point, halves away from zero."""
    term = number(term, "round")
    if pa.types.is_integer(term.type):
        if digits >= 0:
            return term
        term = coerce(term, pa.decimal128(20, 0) if term.type == pa.uint64() else pa.int64())
    return apply(lambda value: pc.round(value, ndigits=digits, round_mode=_HALF), term)


def floored(kernel: Kernel, term: Term, what: str) -> Term:
    """Round down or up to a whole number; the type of floats and decimals stays."""
    term = number(term, what)
    return term if pa.types.is_integer(term.type) else apply(kernel, term)


def floating(kernel: Kernel, term: Term, what: str) -> Term:
    """Apply a function of doubles."""
    return apply(kernel, coerce(number(term, what), pa.float64()))


def is_nan(term: Term) -> Term:
    """Say where a number is NaN; false where it is null, as in Spark."""
    term = number(term, "isnan")
    if not pa.types.is_floating(term.type):
        term = coerce(term, pa.float64())
    return apply(lambda value: known(pc.is_nan(value)), term, kind=pa.bool_())


def chosen(conditions: Sequence[Term], values: Sequence[Term], default: Term) -> Term:
    """Choose the value of the first condition that is true."""
    terms, kind = meet([*values, default])
    if pa.types.is_null(kind):
        return null()
    *taken, otherwise = [coerce(null(kind) if term.null else term, kind) for term in terms]
    count = len(conditions)

    def kernel(last: Value, *others: Value) -> Value:
        for condition, value in zip(reversed(others[:count]), reversed(others[count:]), strict=True):
            last = pc.if_else(known(condition), value, last)
        return last

    everywhere = apply(kernel, otherwise, *conditions, *taken, kind=kind)
    return everywhere if everywhere.literal is not None else _where_taken(everywhere, conditions, taken, otherwise)


def _where_taken(everywhere: Term, conditions: Sequence[Term], values: Sequence[Term], otherwise: Term) -> Term:
    """Compute every branch for all rows at once, which is fast; where one fails, each for the rows that take it."""

    def of(source: Source) -> Value:
        try:
            return everywhere.of(source)
        except (pa.ArrowException, ValueError, OverflowError):
            if source.rows is None:
                raise
        places, found = np.arange(source.rows), list[tuple[NDArray[np.int64], pa.Array]]()
        for condition, value in zip(conditions, values, strict=True):
            met = _array(known(condition.of(source)), len(places)).to_numpy(zero_copy_only=False)
            found.append((places[met], _array(value.of(source.where(met)), int(met.sum()))))
            places, source = places[~met], source.where(~met)
        found.append((places, _array(otherwise.of(source), len(places))))
        order = np.argsort(np.concatenate([rows for rows, _ in found]))
        return pa.concat_arrays([array.cast(everywhere.type) for _, array in found]).take(pa.array(order))

    return Term(everywhere.type, of)


def _array(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else one_array(value)


def first_valid(terms: Sequence[Term]) -> Term:
    """Choose the first value that is not null."""
    terms, kind = meet(terms)
    if pa.types.is_null(kind):
        return null()
    parts = [coerce(term, kind) for term in terms if not term.null]
    return parts[0] if len(parts) == 1 else apply(pc.coalesce, *parts, kind=kind)


def extreme(terms: Sequence[Term], operator: str) -> Term:
    """Choose the greatest value (``>``) or the least (``<``), leaving out nulls; NaN is the greatest."""
    terms, kind = meet(terms)
    parts = [coerce(term, kind) for term in terms if not term.null]
    if not parts:
        return null()
    order = comparison(operator, kind)

    def kernel(best: Value, *others: Value) -> Value:
        for other in others:
            best = pc.if_else(pc.coalesce(order(best, other), pc.is_null(other)), best, other)
        return best

    return apply(kernel, *parts, kind=kind)


def part(term: Term, name: str) -> Term:
    """Read a part of a date, or of a time on the clock of its zone."""
    kernel = _PARTS.get(name.upper())
    if kernel is None:
        raise ValueError(f"cannot extract {name}; there are {', '.join(_PARTS)}")
    term = time(term, name.lower())
    if pa.types.is_date32(term.type):
        term = coerce(term, pa.timestamp("us"))
    return apply(lambda value: kernel(value), term, kind=pa.int64())


def truncated(term: Term, unit: str) -> Term:
    """Round a time down to a unit, on the clock of its zone; weeks begin on Monday."""
    if unit.upper() not in _TRUNCATED:
        raise ValueError(f"cannot truncate to {unit}; there are {', '.join(_TRUNCATED)}")
    term = time(term, "date_trunc")
    if pa.types.is_date32(term.type):
        term = coerce(term, pa.timestamp("us"))
    kind = term.type
    if follows_clock(kind):
        return apply(lambda value: floored_in_zone(value, kind, unit), term, kind=kind)
    return apply(lambda value: pc.floor_temporal(value, unit=unit.lower()), term, kind=kind)


def time(term: Term, what: str) -> Term:
    """Take a term as a time or date; raises ``ValueError`` for other types."""
    if term.null:
        return null(_UTC)
    if not (pa.types.is_timestamp(term.type) or pa.types.is_date32(term.type)):
        raise ValueError(f"{what} takes a time or a date, got {term.type}; CAST it AS TIMESTAMP")
    return term


def interval(count: str, unit: str) -> Term:
    """Make a length of time of a fixed unit."""
    name = unit.upper().removesuffix("S")
    if name not in _SECONDS:
        raise ValueError(f"an interval is of {', '.join(_SECONDS)}; got {unit}")
    try:
        steps = int(count) * _SECONDS[name] * 1_000_000
    except ValueError:
        raise ValueError(f"an interval is a whole number of {name}; got {count!r}") from None
    return constant(pa.scalar(steps, pa.int64()).cast(pa.duration("us")))


def cast(term: Term, kind: pa.DataType, attempt: bool) -> Term:
    """Cast to a type; what cannot be cast is an error, and refused at once where engines differ.

    With ``attempt`` a text that is no such value gives null, and a whole number beyond the type; other casts that might
    fail are refused.
    """
    if term.null:
        return null(kind)
    if term.type == kind:
        return term
    if term.literal is not None and pa.types.is_string(term.type) and term.literal.is_valid:
        return _cast_text(term.literal.as_py(), kind, attempt)
    if attempt and pa.types.is_integer(term.type) and pa.types.is_integer(kind):
        return apply(lambda value: whole_within(value, kind), term, kind=kind)
    if attempt and not pa.types.is_string(term.type):
        raise ValueError(f"TRY_CAST from {term.type} to {kind} is not known; use CAST")
    if (pa.types.is_floating(term.type) or pa.types.is_decimal(term.type)) and pa.types.is_integer(kind):
        raise ValueError(f"a CAST from {term.type} to {kind} rounds in DuckDB, and not in Spark; write floor or round")
    if pa.types.is_string(kind) and not _plainly_written(term.type):
        raise ValueError(f"a CAST from {term.type} to text is not known: engines write it differently")
    if pa.types.is_boolean(kind) or (pa.types.is_boolean(term.type) and not pa.types.is_string(kind)):
        raise ValueError(f"a CAST from {term.type} to {kind} is not known; compare, or write IF(x, 1, 0)")
    if pa.types.is_string(term.type):
        return read_values(term, kind, attempt)
    if pa.types.is_date32(kind) and follows_clock(term.type):
        return apply(dated, term, kind=kind)
    if pa.types.is_date32(kind):
        return apply(lambda value: pc.floor_temporal(value, unit="day").cast(kind), time(term, "CAST"), kind=kind)
    if pa.types.is_timestamp(kind):
        return coerce(time(term, "CAST"), kind) if pa.types.is_date32(term.type) else _whole_micros(term, kind)
    if (not is_number(kind) and not pa.types.is_string(kind)) or not (is_number(term.type) or pa.types.is_string(kind)):
        raise ValueError(f"a CAST from {term.type} to {kind} is not known")
    return apply(_to_decimal(term.type, kind) or caster(term.type, kind), term, kind=kind)


def _plainly_written(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind))


def _to_decimal(old: pa.DataType, new: pa.DataType) -> Kernel | None:
    """Round to the digits of a decimal, halves away from zero."""
    if not pa.types.is_decimal(new):
        return None
    if pa.types.is_integer(old):
        return lambda value: value.cast(decimal_type(old)).cast(new)
    return lambda value: pc.round(value, ndigits=new.scale, round_mode=_HALF).cast(new)


def _cast_text(text: str, kind: pa.DataType, attempt: bool) -> Term:
    try:
        if pa.types.is_timestamp(kind):
            return constant(timestamp(text, kind.tz))
        if pa.types.is_date32(kind):
            return constant(date(text))
        read = constant(read_text(text, kind))
        return read if read.type == kind else apply(_to_decimal(read.type, kind) or caster(read.type, kind), read)
    except (ValueError, pa.ArrowException):
        if attempt:
            return null(kind)
        raise


def _whole_micros(term: Term, kind: pa.DataType) -> Term:
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"a CAST from {term.type} to a time is not known")
    if term.type.unit == "ns":
        kind = pa.timestamp("ns", kind.tz)
    return coerce(term, kind)
