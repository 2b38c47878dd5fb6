"""Arithmetic: + - * / % on numbers, times and dates. What overflows is an error, and dividing by 0 gives null.

Whole numbers are computed in int64, decimals exactly in up to 38 digits (as many as Spark and DuckDB have); / always
gives a float64, and so does everything with a float in it, but for float32 among its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggr.kernels.normalize import is_number
from aggr.sql.term import Kernel, Term, Value, apply, sample
from aggr.sql.types import caster, common, decimal_type

_MOST_DIGITS = 38
_KERNELS = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_UNIT = {"+": "plus", "-": "minus"}
_DURATION = pa.duration("us")


def chain(first: Term, rest: Sequence[tuple[str, Term]]) -> Term:
    """Compute from left to right, without a call per step; raises ``ValueError`` for what is no number or time."""
    if first.null or any(term.null for _, term in rest):
        return apply(lambda value: pa.scalar(None, pa.float64()), first)
    kind, kernels = first.type, list[Kernel]()
    constants = first.literal is not None and all(term.literal is not None for _, term in rest)
    value = sample(first)
    for operator, term in rest:
        kernels.append(_step(operator, kind, term.type))
        value = kernels[-1](value, sample(term))
        kind = value.type
    terms = [term for _, term in rest]

    def kernel(value: Value, *others: Value) -> Value:
        for step, other in zip(kernels, others, strict=True):
            value = step(value, other)
        return value

    return apply(kernel, first, *terms, kind=None if constants else kind)


def _step(operator: str, a: pa.DataType, b: pa.DataType) -> Kernel:
    """Find the kernel of one operation on two types."""
    if pa.types.is_duration(b) or pa.types.is_temporal(a) or pa.types.is_temporal(b):
        return _step_of_times(operator, a, b)
    for kind in (a, b):
        if not is_number(kind):
            named = "text" if pa.types.is_string(kind) else str(kind)
            raise ValueError(f"{operator} takes numbers, got {named}; CAST it")
    if operator == "/":
        return _through(_divide, caster(a, pa.float64()), caster(b, pa.float64()))
    floating = pa.types.is_floating(a) or pa.types.is_floating(b)
    if operator in ("%", "DIV"):
        kind = common([a, b])
        kind = kind if floating or pa.types.is_decimal(kind) else pa.int64()
        if operator == "%":
            return _through(_remainder(kind), caster(a, kind), caster(b, kind))
        if kind != pa.int64():
            raise ValueError(f"DIV takes whole numbers, got {a} and {b}; write floor(a / b)")
        return _through(_quotient, caster(a, kind), caster(b, kind))
    if floating:
        kind = common([a, b])
        return _through(_KERNELS[operator], caster(a, kind), caster(b, kind))
    if pa.types.is_decimal(a) or pa.types.is_decimal(b) or pa.uint64() in (a, b):
        x, y = decimal_type(a), decimal_type(b)
        return _decimals(operator, x, y, caster(a, x), caster(b, y))
    return _through(_KERNELS[operator], caster(a, pa.int64()), caster(b, pa.int64()))


def _through(kernel: Kernel, left: Kernel, right: Kernel) -> Kernel:
    return lambda a, b: kernel(left(a), right(b))


def _divide(a: Value, b: Value) -> Value:
    return pc.divide(a, _not_zero(b, pa.float64()))


def _quotient(a: Value, b: Value) -> Value:
    return pc.divide_checked(a, _not_zero(b, pa.int64()))


def _not_zero(value: Value, kind: pa.DataType) -> Value:
    return pc.if_else(pc.equal(value, pa.scalar(0).cast(kind)), pa.scalar(None, kind), value)


def _remainder(kind: pa.DataType) -> Kernel:
    """Find the remainder that has the sign of what is divided."""
    if not hasattr(pc, "remainder"):
        raise ValueError("% needs a newer pyarrow, one that has pyarrow.compute.remainder")
    # the remainder by -1 is 0; the least int64 would overflow on the way
    whole = kind == pa.int64()

    def kernel(a: Value, b: Value) -> Value:
        divisor = pc.abs(pc.max_element_wise(b, pa.scalar(-(2**63) + 1), skip_nulls=False)) if whole else b
        return pc.remainder(a, _not_zero(divisor, kind))

    return kernel


def _decimals(operator: str, a: pa.DataType, b: pa.DataType, left: Kernel, right: Kernel) -> Kernel:
    """Compute in decimals of up to 76 digits where 38 might not do, and return to 38, which may overflow."""
    scale = a.scale + b.scale if operator == "*" else max(a.scale, b.scale)
    whole = a.precision - a.scale + b.precision - b.scale
    digits = whole + scale if operator == "*" else max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if digits <= _MOST_DIGITS:
        return _through(_KERNELS[operator], left, right)
    if scale > _MOST_DIGITS or digits > 76:
        raise ValueError(f"{a} {operator} {b} may have more than {_MOST_DIGITS} digits; CAST to double or fewer digits")
    wide_a, wide_b = (pa.decimal256(kind.precision, kind.scale) for kind in (a, b))
    kernel, kept = _KERNELS[operator], pa.decimal128(_MOST_DIGITS, scale)
    return lambda x, y: kernel(left(x).cast(wide_a), right(y).cast(wide_b)).cast(kept)


def _step_of_times(operator: str, a: pa.DataType, b: pa.DataType) -> Kernel:
    """Add an interval to a time, or days to a date, or take them away."""
    if (operator == "+" and not pa.types.is_temporal(a)) or (operator == "+" and pa.types.is_duration(a)):
        flipped = _step_of_times(operator, b, a) if not pa.types.is_duration(b) else None
        if flipped:
            return lambda x, y: flipped(y, x)
    if operator in _UNIT:
        if pa.types.is_timestamp(a) and pa.types.is_duration(b):
            finer = pa.duration("ns" if a.unit == "ns" else "us")
            kind = pa.timestamp(finer.unit, a.tz)
            return _through(_KERNELS[operator], caster(a, kind), caster(b, finer))
        if pa.types.is_date32(a) and pa.types.is_duration(b):
            return _through(_KERNELS[operator], caster(a, pa.timestamp("us")), caster(b, _DURATION))
        if pa.types.is_date32(a) and pa.types.is_integer(b):
            days, kernel = caster(b, pa.int64()), _KERNELS[operator]
            return lambda x, y: kernel(x.cast(pa.int32()).cast(pa.int64()), days(y)).cast(pa.int32()).cast(pa.date32())
    raise ValueError(f"{operator} cannot take {a} and {b}; times take an interval, say ts + INTERVAL '1' DAY")


def negative(term: Term) -> Term:
    """Change the sign of a number."""
    if term.null:
        return term
    if not is_number(term.type):
        raise ValueError(f"- takes numbers, got {term.type}")
    if term.type == pa.uint64():
        return apply(lambda value: pc.negate(value.cast(pa.decimal128(20, 0))), term)
    if pa.types.is_integer(term.type):
        return apply(lambda value: pc.negate_checked(value.cast(pa.int64())), term)
    return apply(pc.negate, term)
