"""Arithmetic: + - * / % on numbers, times and dates, and functions of numbers. Overflow raises an error, and x / 0 is
null.

Whole numbers are computed in int64, and decimals exactly with up to 38 digits, as in Spark and DuckDB. / always returns
float64. Other operations with a float return float64 as well, unless both operands are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arrow.normalize import is_number, zero_of
from aggr.sql.function_table import (
    DOUBLE,
    NUMBER,
    SKIP,
    Argument,
    Compiler,
    kernel_rule,
    optional,
    term_rule,
    whole_number,
)
from aggr.sql.term import Kernel, Term, Value, apply, constant, false_if_null, null
from aggr.sql.types import caster, coerce, common_type, decimal_type, named_type

HALF_AWAY_FROM_ZERO = "half_towards_infinity"
_MAX_DIGITS = 38
_MAX_WIDE_DIGITS = 76  # the maximum number of digits of Arrow's 256-bit decimals
_KERNELS = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_SUM_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-"}
_PRODUCT_OPERATORS: dict[type[exp.Expr], str] = {exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}

Steps = tuple[Term, Sequence[tuple[str, Term]]]


def _read_chain(compiler: Compiler, node: exp.Expr, name: str) -> Steps:
    """Return the operands of a chain such as ``a + b - c``: the first term, and pairs of operator and term.

    The operators of a chain have the same precedence.
    """
    level = _SUM_OPERATORS if type(node) in _SUM_OPERATORS else _PRODUCT_OPERATORS
    reversed_steps = list[tuple[str, exp.Expr]]()
    while type(node) in level:
        reversed_steps.append((level[type(node)], node.expression))
        node = node.this
    return compiler.term(node), [(operator, compiler.term(part)) for operator, part in reversed(reversed_steps)]


@term_rule(*_SUM_OPERATORS, exp.Mul, exp.IntDiv, this=Argument(_read_chain), expression=SKIP)
@term_rule(exp.Div, this=Argument(_read_chain), expression=SKIP, safe=SKIP, typed=SKIP)
@term_rule(exp.Mod, names="mod", this=Argument(_read_chain), expression=SKIP)
def compute(steps: Steps) -> Term:
    """Return the term of a chain of operators. They are applied from left to right, without recursion.

    Raise ``ValueError`` for types that cannot be combined.
    """
    first, further_steps = steps
    if first.is_untyped_null or any(term.is_untyped_null for _, term in further_steps):
        return null(pa.float64())
    kind = first.type
    kernels = list[Kernel]()
    constants = first.literal is not None and all(term.literal is not None for _, term in further_steps)
    value = first.sample
    for operator, term in further_steps:
        kernels.append(_operator_kernel(operator, kind, term.type))
        value = kernels[-1](value, term.sample)
        kind = value.type

    def kernel(value: Value, *operands: Value) -> Value:
        for step, operand in zip(kernels, operands, strict=True):
            value = step(value, operand)
        return value

    return apply(kernel, first, *(term for _, term in further_steps), kind=None if constants else kind)


def _operator_kernel(operator: str, a: pa.DataType, b: pa.DataType) -> Kernel:
    if pa.types.is_temporal(a) or pa.types.is_temporal(b):  # dates, times and durations
        return _time_kernel(operator, a, b)
    for kind in (a, b):
        if not is_number(kind):
            raise ValueError(f"{operator} needs numbers; got {named_type(kind)}; CAST it to a number, such as DOUBLE")
    if operator == "/":
        return _with_casts(_divide, a, b, pa.float64())
    is_floating = pa.types.is_floating(a) or pa.types.is_floating(b)
    if is_floating and operator != "DIV":
        kind = common_type([a, b])
        return _with_casts(_remainder(kind) if operator == "%" else _KERNELS[operator], a, b, kind)
    is_exact = is_floating or pa.types.is_decimal(a) or pa.types.is_decimal(b) or pa.uint64() in (a, b)
    if operator == "DIV" and is_exact:
        raise ValueError(f"DIV needs whole numbers; got {a} and {b}; write floor(a / b) instead")
    if operator == "%":
        kind = common_type([decimal_type(a), decimal_type(b)]) if is_exact else pa.int64()
        return _with_casts(_remainder(kind), a, b, kind)
    if is_exact:
        return _decimal_kernel(operator, a, b)
    return _with_casts(_divide_whole if operator == "DIV" else _KERNELS[operator], a, b, pa.int64())


def _with_casts(
    kernel: Kernel, a: pa.DataType, b: pa.DataType, left_type: pa.DataType, right_type: pa.DataType = None
) -> Kernel:
    """Return a kernel (a function of arrays) that casts its operands and then calls ``kernel``.

    The operands have the types ``a`` and ``b``. They are cast to ``left_type`` and ``right_type``; without
    ``right_type``, both are cast to ``left_type``.
    """
    left = caster(a, left_type)
    right = caster(b, left_type if right_type is None else right_type)
    return lambda x, y: kernel(left(x), right(y))


def _divide(a: Value, b: Value) -> Value:
    return pc.divide(a, _not_zero(b, pa.float64()))


def _divide_whole(a: Value, b: Value) -> Value:
    return pc.divide_checked(a, _not_zero(b, pa.int64()))


def _not_zero(value: Value, kind: pa.DataType) -> Value:
    return pc.if_else(pc.equal(value, zero_of(kind)), pa.scalar(None, kind), value)


def _remainder(kind: pa.DataType) -> Kernel:
    """Return the kernel (a function of arrays) that computes remainders of the type ``kind``.

    A remainder has the sign of the dividend.
    """
    if not hasattr(pc, "remainder"):
        raise ValueError(
            f"% needs a pyarrow with the function pyarrow.compute.remainder; this is {pa.__version__}: upgrade pyarrow"
        )
    # Whole divisors are replaced by their magnitudes, because the smallest int64 divided by -1 would overflow. A
    # remainder does not depend on the sign of the divisor.
    whole_numbers = kind == pa.int64()

    def kernel(a: Value, b: Value) -> Value:
        divisor = pc.abs(pc.max_element_wise(b, pa.scalar(-(2**63) + 1), skip_nulls=False)) if whole_numbers else b
        return pc.remainder(a, _not_zero(divisor, kind))

    return kernel


def _decimal_kernel(operator: str, a: pa.DataType, b: pa.DataType) -> Kernel:
    """Return a kernel for an operation on decimals. The result of the kernel has at most 38 digits.

    If the types of the operands allow more digits, the result is computed with up to 76 digits and cast to 38. The cast
    raises an error for a result with more than 38 digits.
    """
    x = decimal_type(a)
    y = decimal_type(b)
    kernel = _KERNELS[operator]
    # the number of digits before the decimal point, of each operand
    whole_digits = (x.precision - x.scale, y.precision - y.scale)
    scale = x.scale + y.scale if operator == "*" else max(x.scale, y.scale)
    # the precision that Arrow declares for the result
    digits = scale + (sum(whole_digits) + 1 if operator == "*" else max(whole_digits) + 1)
    if digits <= _MAX_DIGITS:
        return _with_casts(kernel, a, b, left_type=x, right_type=y)
    if scale > _MAX_DIGITS:
        raise ValueError(
            f"{x} {operator} {y} may have more than {_MAX_DIGITS} digits; CAST an operand to DOUBLE or to a decimal "
            "with fewer digits"
        )
    wide = (pa.decimal256(decimal.precision, decimal.scale) for decimal in (x, y))
    narrow = pa.decimal128(_MAX_DIGITS, scale)
    if digits <= _MAX_WIDE_DIGITS:
        return _with_casts(lambda left, right: kernel(left, right).cast(narrow), a, b, *wide)
    # A product of two factors of 38 digits has at most 76 digits, but Arrow computes a type with 77 digits for the
    # product, and rejects this type. The first factor is therefore cast to a type with 37 digits. The cast does not
    # check its values, so a value of 38 digits stays unchanged.
    narrowed = pa.decimal256(_MAX_DIGITS - 1, x.scale)
    return _with_casts(lambda left, right: kernel(left.cast(narrowed, safe=False), right).cast(narrow), a, b, *wide)


def _time_kernel(operator: str, a: pa.DataType, b: pa.DataType) -> Kernel:
    """Return a kernel that adds an interval to times or dates, or subtracts it from them.

    A whole number of days can also be added to dates, or subtracted from them. Raise ``ValueError`` for other types.
    """
    is_duration_first = pa.types.is_duration(a) and not pa.types.is_duration(b)
    if operator == "+" and (is_duration_first or not pa.types.is_temporal(a)):
        swapped = _time_kernel(operator, b, a)
        return lambda x, y: swapped(y, x)
    kernel = _KERNELS.get(operator if operator in "+-" else "")
    if kernel and pa.types.is_timestamp(a) and pa.types.is_duration(b):
        unit = "ns" if a.unit == "ns" else "us"
        return _with_casts(kernel, a, b, left_type=pa.timestamp(unit, a.tz), right_type=pa.duration(unit))
    if kernel and pa.types.is_date32(a) and pa.types.is_duration(b):
        return _with_casts(kernel, a, b, left_type=pa.timestamp("us"), right_type=pa.duration("us"))
    if kernel and pa.types.is_date32(a) and pa.types.is_integer(b):
        days = caster(b, pa.int64())
        sum_of = kernel
        return lambda x, y: sum_of(x.cast(pa.int32()).cast(pa.int64()), days(y)).cast(pa.int32()).cast(pa.date32())
    raise ValueError(f"{operator} cannot take {a} and {b}; add an interval to a time, such as ts + INTERVAL '1' DAY")


@term_rule(exp.Neg, error_name="-", this=NUMBER)
def negate(term: Term) -> Term:
    """Return the term for ``-x``. Integers become int64, except for uint64, which becomes a decimal."""
    if term.literal is not None and pa.types.is_decimal(term.type) and term.literal.as_py() == 2**63:
        return constant(-(2**63), pa.int64())
    if term.type == pa.uint64():
        return apply(lambda value: pc.negate(value.cast(pa.decimal128(20, 0))), term)
    return apply(pc.negate_checked if pa.types.is_integer(term.type) else pc.negate, _as_int64(term))


def _as_int64(term: Term) -> Term:
    return coerce(term, pa.int64()) if pa.types.is_integer(term.type) and term.type != pa.uint64() else term


@term_rule(exp.Abs, names="abs", this=NUMBER)
def absolute_value(term: Term) -> Term:
    """Return the term for ``abs(x)``. Signed integers become int64."""
    signed = pa.types.is_signed_integer(term.type)
    return apply(pc.abs_checked, coerce(term, pa.int64())) if signed else apply(pc.abs, term)


@term_rule(exp.Round, names="round", this=NUMBER, decimals=optional(whole_number("the second argument of round"), 0))
def round_half_away(term: Term, digits: int) -> Term:
    """Return the term for ``round(x, digits)``. Halves are rounded away from zero."""
    if pa.types.is_integer(term.type) and digits >= 0:
        return term
    term = coerce(term, pa.decimal128(20, 0)) if term.type == pa.uint64() else _as_int64(term)
    return apply(lambda value: pc.round(value, ndigits=digits, round_mode=HALF_AWAY_FROM_ZERO), term)


def round_to_whole(kernel: Kernel, term: Term) -> Term:
    """Return the term for ``floor(x)`` or ``ceil(x)``. Floats and decimals keep their type.

    ``kernel`` is the Arrow function that rounds.
    """
    return term if pa.types.is_integer(term.type) else apply(kernel, term)


term_rule(exp.Floor, names="floor", this=NUMBER)(partial(round_to_whole, pc.floor))
term_rule(exp.Ceil, names="ceil ceiling", this=NUMBER)(partial(round_to_whole, pc.ceil))
kernel_rule(exp.Sqrt, names="sqrt", this=DOUBLE)(pc.sqrt)
kernel_rule(exp.Sign, names="sign signum", this=DOUBLE)(pc.sign)
kernel_rule(exp.IsNan, names="isnan", this=DOUBLE)(lambda value: false_if_null(pc.is_nan(value)))
