"""Comparisons such as =, <, IN, BETWEEN and IS, and the operators AND, OR and NOT. Comparisons are exact.

NaN is the greatest number and equal to itself, and -0.0 equals 0.0. Comparisons with null are null, except for IS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.sql.function_table import (
    ANY,
    CONDITION,
    MANY,
    RAW,
    SKIP,
    Argument,
    Compiler,
    as_boolean,
    kernel_rule,
    term_rule,
)
from aggr.sql.term import BOOL, Kernel, Term, Value, apply, combine_balanced, constant, false_if_null, null
from aggr.sql.types import coerce, literal_as, nanoseconds_since_epoch, unify_types

_KERNELS: Mapping[str, Kernel] = {
    **{"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal},
    **{">": pc.greater, ">=": pc.greater_equal},
}
_MIRRORED_OPERATORS = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HASHABLE_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean),
    *(pa.types.is_date32, pa.types.is_timestamp, pa.types.is_decimal128),
)


def compare(operator: str, a: Term, b: Term) -> Term:
    """Return the term for ``a operator b``, compared in their common type. It is null if a or b is null.

    ``operator`` is ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``. Raise ``ValueError`` if there is no common type.
    """
    (a, b), kind = unify_types([a, b])
    if a.is_constant_null or b.is_constant_null:
        return null(BOOL)
    if pa.types.is_nested(kind):
        raise ValueError(f"values of type {kind} cannot be compared; compare their fields or elements instead")
    if a.literal is not None and b.literal is None:
        a, b = b, a
        operator = _MIRRORED_OPERATORS[operator]
    if a.literal is None and b.literal is not None:
        fit = literal_as(b, a.type, kind)
        if fit is not None:
            b = constant(fit)
            kind = a.type
    if pa.types.is_timestamp(kind) and a.type != b.type and kind.unit == "ns":
        a = nanoseconds_since_epoch(a)
        b = nanoseconds_since_epoch(b)
        kind = unify_types([a, b])[1]
    return apply(comparison(operator, kind, b.literal), coerce(a, kind), coerce(b, kind), kind=BOOL)


def comparison(operator: str, kind: pa.DataType, literal: pa.Scalar | None = None) -> Kernel:
    """Return the kernel (a function of arrays) that compares two values of the type ``kind``.

    ``literal`` is the second value if it is a constant.
    """
    kernel = _KERNELS[operator]
    if not pa.types.is_floating(kind):
        return kernel
    if literal is not None and literal.is_valid and not math.isnan(literal.as_py()):
        if operator not in (">", ">="):
            return kernel
        # NaN is greater than the constant, so the result for NaN is true. If a is null, both operands of OR are null,
        # so the result is null.
        return lambda a, b: pc.or_kleene(pc.is_nan(a), kernel(a, b))
    return {
        "=": _equal,
        "<>": lambda a, b: pc.invert(_equal(a, b)),
        "<": _less,
        "<=": lambda a, b: pc.invert(_less(b, a)),
        ">": lambda a, b: _less(b, a),
        ">=": lambda a, b: pc.invert(_less(a, b)),
    }[operator]


def _equal(a: Value, b: Value) -> Value:
    return pc.or_kleene(pc.equal(a, b), pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))


def _less(a: Value, b: Value) -> Value:
    return pc.or_kleene(pc.less(a, b), pc.and_kleene(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


for _kind, _operator in zip((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _KERNELS, strict=True):
    term_rule(_kind, this=ANY, expression=ANY)(partial(compare, _operator))


@term_rule(exp.NullSafeEQ, this=ANY, expression=ANY)
def null_safe(a: Term, b: Term) -> Term:
    """Return the term for ``a IS NOT DISTINCT FROM b``: true if a and b are equal, or both null."""

    def kernel(equal: Value, left: Value, right: Value) -> Value:
        return pc.coalesce(equal, pc.and_kleene(left, right))

    return apply(kernel, compare("=", a, b), *(apply(pc.is_null, term, kind=BOOL) for term in (a, b)), kind=BOOL)


term_rule(exp.NullSafeNEQ, this=ANY, expression=ANY)(lambda a, b: apply(pc.invert, null_safe(a, b)))


@term_rule(exp.Is, this=ANY, expression=RAW)
def is_operator(term: Term, operand: exp.Expr) -> Term:
    """Return the term for IS NULL, IS TRUE or IS FALSE; ``operand`` is the word after IS. The result is never null."""
    if isinstance(operand, exp.Null):
        return apply(pc.is_null, term, kind=BOOL)
    if not isinstance(operand, exp.Boolean):
        raise ValueError(
            f"IS must be followed by NULL, TRUE, FALSE or DISTINCT FROM; got {operand.sql(dialect='spark')}"
        )
    term = as_boolean(term)
    return apply(false_if_null, term if operand.this else apply(pc.invert, term), kind=BOOL)


def operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of AND, or of OR, in order.

    If an operand is a chain of the same operator, for example in parentheses, its operands are listed instead.
    """
    parts = list[exp.Expr]()
    pending = [node]
    while pending:
        part = pending.pop()
        inner = part.unnest()
        if type(inner) is type(node):
            pending += [inner.expression, inner.this]
        else:
            parts.append(inner)
    return parts


def _read_conditions(compiler: Compiler, node: exp.Expr, name: str) -> list[Term]:
    return [as_boolean(compiler.term(part)) for part in operands(node)]


kernel_rule(exp.Not, this=CONDITION)(pc.invert)
term_rule(exp.And, this=Argument(_read_conditions), expression=SKIP)(partial(combine_balanced, pc.and_kleene))
term_rule(exp.Or, this=Argument(_read_conditions), expression=SKIP)(partial(combine_balanced, pc.or_kleene))


@term_rule(exp.Between, this=ANY, low=ANY, high=ANY)
def between(term: Term, low: Term, high: Term) -> Term:
    """Return the term for ``term BETWEEN low AND high``, which includes both ends."""
    return combine_balanced(pc.and_kleene, [compare(">=", term, low), compare("<=", term, high)])


@term_rule(exp.In, this=ANY, expressions=MANY)
def is_in(term: Term, items: Sequence[Term]) -> Term:
    """Return the term for ``term IN (items)``, compared in a common type.

    The result is null if the term is null, or if it equals no item and one of the items is null.
    """
    (term, *items), kind = unify_types([term, *items])
    if term.is_constant_null:
        return null(BOOL)
    valid_items = [item for item in items if not item.is_constant_null]
    can_hash = term.literal is None and any(test(kind) for test in _HASHABLE_TYPES)
    hashed = [item for item in valid_items if can_hash and item.literal is not None]
    compared_items = [item for item in valid_items if not (can_hash and item.literal is not None)]
    parts = [compare("=", coerce(term, kind), coerce(item, kind)) for item in compared_items]
    if hashed:
        parts.append(_is_in_constants(term, hashed, kind))
    if len(valid_items) < len(items):
        parts.append(null(BOOL))
    return combine_balanced(pc.or_kleene, parts)


def _is_in_constants(term: Term, items: Sequence[Term], kind: pa.DataType) -> Term:
    """Return the term for ``term IN (items)``, which looks values up in a hash table.

    The items must be constants other than null. ``kind`` is the common type of the comparison.
    """
    scalars = [literal_as(item, term.type, kind) for item in items]
    if None in scalars:
        term = coerce(term, kind)
        scalars = [coerce(item, kind).literal for item in items]
    floating = pa.types.is_floating(term.type)
    nan, zero = (pa.scalar(number, term.type) for number in (math.nan, 0.0)) if floating else (None, None)

    def hash_key(value: Value) -> Value:
        """Return floats with 0.0 for -0.0, and the same bits for every NaN, because a hash table distinguishes bits."""
        return pc.if_else(pc.is_nan(value), nan, pc.add(value, zero)) if floating else value

    values = hash_key(pa.array(scalars, term.type))

    def kernel(value: Value) -> Value:
        return pc.if_else(pc.is_valid(value), pc.is_in(hash_key(value), value_set=values), pa.scalar(None, BOOL))

    return apply(kernel, term, kind=BOOL)
