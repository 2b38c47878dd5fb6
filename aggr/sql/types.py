"""Types: the common type in which values are compared and computed, and casts to it.

The common type of float32 values is float32. A float and a number of any other type have the common type float64, as in
Spark. Integers and decimals have a common type without rounding: int64, or a decimal type that can represent all values
of both types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arrow.normalize import is_number
from aggr.sql.literals import text_as
from aggr.sql.term import NULL, Term, Value, apply, constant, null
from aggr.sql.zones import UTC, follows_clock, from_local

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_DIGITS |= {pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20}
_UNITS = ("s", "ms", "us", "ns")
_EXACT_FLOAT = 2**53  # whole numbers below this limit are exact as doubles


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type in which values of several types are compared. Raise ``ValueError`` if there is no such type."""
    distinct_kinds = list(dict.fromkeys(kind for kind in kinds if kind != NULL))
    if len(distinct_kinds) <= 1:
        return distinct_kinds[0] if distinct_kinds else NULL
    if all(is_number(kind) for kind in distinct_kinds):
        return _common_number(distinct_kinds)
    if all(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) for kind in distinct_kinds):
        times = [kind for kind in distinct_kinds if pa.types.is_timestamp(kind)]
        unit = _UNITS[max(_UNITS.index(kind.unit) for kind in times)]
        zones = list(dict.fromkeys(kind.tz for kind in times))
        return pa.timestamp(unit, zones[0] if len(zones) == 1 else UTC)
    if all(pa.types.is_time(kind) for kind in distinct_kinds):
        return pa.time64("ns")
    raise ValueError(
        f"cannot compare {named_type(distinct_kinds[0])} with {named_type(distinct_kinds[1])}; CAST one of them"
    )


def unify_types(terms: Sequence[Term]) -> tuple[list[Term], pa.DataType]:
    """Return terms that can be compared, and their common type. This function does not cast them to the common type.

    A literal text is parsed as a value of the other terms' type. Other terms are returned unchanged.
    """
    typed_kinds = [
        t.type for t in terms if not t.is_untyped_null and not (pa.types.is_string(t.type) and t.literal is not None)
    ]
    if typed_kinds and any(not pa.types.is_string(kind) for kind in typed_kinds):
        kind = common_type(typed_kinds)
        terms = [t if t.type in (kind, NULL) or t.type in typed_kinds else _parse_literal(t, kind) for t in terms]
    return list(terms), common_type([t.type for t in terms])


def _parse_literal(term: Term, kind: pa.DataType) -> Term:
    assert term.literal is not None
    if not term.literal.is_valid:
        return null(kind)
    return constant(text_as(term.literal.as_py(), kind))


def coerce(term: Term, kind: pa.DataType) -> Term:
    """Return ``term`` with its values cast to ``kind``.

    The type ``kind`` must be able to represent the values, except that a floating-point type rounds them.
    """
    return term if term.type == kind else apply(caster(term.type, kind), term, kind=kind)


def caster(old: pa.DataType, new: pa.DataType) -> Callable[[Value], Value]:
    """Return the function that casts values of the type ``old`` to ``new``.

    A cast to a floating-point type rounds the values.
    """
    if old == new:
        return lambda value: value
    if pa.types.is_floating(new) and pa.types.is_decimal(old):
        # Arrow's cast from decimal to float is not correctly rounded: the decimal 0.3 would not become the float 0.3
        return lambda value: value.cast(pa.string()).cast(new)
    if pa.types.is_floating(new):
        return lambda value: value.cast(new, safe=False)
    if pa.types.is_timestamp(new) and pa.types.is_date32(old):
        local = pa.timestamp(new.unit)
        if follows_clock(new):
            return lambda value: from_local(value.cast(local), new.tz)
        return lambda value: value.cast(local).cast(new)
    return lambda value: value.cast(new)


def literal_as(term: Term, kind: pa.DataType, common_type: pa.DataType) -> pa.Scalar | None:
    """Convert a constant to ``kind``, the type of the column that it is compared with, so that the column is not cast.

    Conditions compare values in ``common_type``, the common type of the column and the constant. Return None if the
    same comparison in the type ``kind`` could have another result.
    """
    scalar = term.literal
    if scalar is None or not scalar.is_valid:
        return None
    value: Any = scalar.as_py() if not pa.types.is_temporal(scalar.type) else None
    if pa.types.is_floating(common_type) and not pa.types.is_floating(kind):
        is_exact = isinstance(value, float | int) and abs(value) < _EXACT_FLOAT and value == int(value)
        if not is_exact or not pa.types.is_integer(kind):
            return None
        value = int(value)
    if kind == scalar.type:
        return scalar
    try:
        if value is None:
            is_date = pa.types.is_timestamp(kind) and pa.types.is_date32(scalar.type)
            converted = caster(scalar.type, kind)(scalar) if is_date else scalar.cast(kind)
            # a timestamp becomes a date only if it is the start of a day
            return converted if pa.types.is_timestamp(kind) or converted.cast(scalar.type) == scalar else None
        if pa.types.is_integer(kind) and value == int(value):
            return pa.scalar(int(value), kind)
        if pa.types.is_floating(kind):
            converted = scalar.cast(kind, safe=False)
            return converted if converted.as_py() == value else None
        return scalar.cast(kind) if pa.types.is_decimal(kind) else None
    except (pa.ArrowException, OverflowError, ValueError):
        return None


def decimal_type(kind: pa.DataType) -> pa.DataType:
    """Return the decimal type that can represent all values of ``kind``, a type of integers or decimals."""
    return kind if pa.types.is_decimal(kind) else pa.decimal128(_DIGITS[kind], 0)


def nanoseconds_since_epoch(term: Term) -> Term:
    """Return the term for the nanoseconds since 1970 of times or dates, as decimals, because int64 is too small."""
    unit = term.type.unit if pa.types.is_timestamp(term.type) else "s"
    steps = pa.scalar(10 ** (9 - 3 * _UNITS.index(unit)), pa.decimal128(10, 0))
    kind = term.type if pa.types.is_timestamp(term.type) else pa.timestamp("s")

    def count(value: Value) -> Value:
        return pc.multiply(value.cast(kind).cast(pa.int64()).cast(pa.decimal128(19, 0)), steps)

    return apply(count, term)


def _common_number(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the common type of several types of numbers, which are not all equal.

    Raise ``ValueError`` if the common type would be a decimal with more than 76 digits.
    """
    if any(pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    if any(pa.types.is_decimal(kind) for kind in kinds) or pa.uint64() in kinds:
        decimals = [decimal_type(kind) for kind in kinds]
        scale = max(kind.scale for kind in decimals)
        precision = max(kind.precision - kind.scale for kind in decimals) + scale
        if precision > 76:
            raise ValueError(
                f"{named_type(kinds[0])} and {named_type(kinds[1])} cannot have a common type, because it would need "
                "more than 76 digits; CAST one of them to DOUBLE"
            )
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return pa.int64()


def named_type(kind: pa.DataType) -> str:
    """Return the name of a type for error messages."""
    return "text" if pa.types.is_string(kind) else str(kind)
