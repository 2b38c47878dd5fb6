"""Comparisons: =, <, IN, BETWEEN, IS and their kind, exact and null-aware.

NaN is the greatest number and equal to itself, -0.0 equals 0.0, and null compares to null but in IS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggr.sql.term import BOOL, Kernel, Term, Value, apply, balanced, constant, known, null
from aggr.sql.types import coerce, fitted, instant, meet

_KERNELS: Mapping[str, Kernel] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HASHED: tuple[Callable[[pa.DataType], bool], ...] = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean),
    *(pa.types.is_date32, pa.types.is_timestamp, pa.types.is_decimal128),
)


def compare(operator: str, a: Term, b: Term) -> Term:
    """Compare two terms in their common type: ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``.

    Raises ``ValueError`` where they have none.
    """
    (a, b), kind = meet([a, b])
    if a.always_null or b.always_null:
        return null(BOOL)
    if pa.types.is_nested(kind):
        raise ValueError(f"values of type {kind} cannot be compared")
    if a.literal is not None and b.literal is None:
        a, b, operator = b, a, _MIRRORED[operator]
    if a.literal is None and b.literal is not None:
        fit = fitted(b, a.type, kind)
        if fit is not None:
            b, kind = constant(fit), a.type
    if pa.types.is_timestamp(kind) and a.type != b.type and kind.unit == "ns":
        a, b = instant(a), instant(b)
        kind = meet([a, b])[1]
    return apply(comparison(operator, kind, b.literal), coerce(a, kind), coerce(b, kind), kind=BOOL)


def comparison(operator: str, kind: pa.DataType, literal: pa.Scalar | None = None) -> Kernel:
    """Find the kernel that compares values of one type, of which the second may be a constant that is known."""
    if not pa.types.is_floating(kind):
        return _KERNELS[operator]
    if literal is not None and literal.is_valid and not math.isnan(literal.as_py()):
        kernel = _KERNELS[operator]
        if operator not in (">", ">="):
            return kernel
        return lambda a, b: pc.or_kleene(pc.is_nan(a), kernel(a, b))  # both are null where a is
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


def null_safe(a: Term, b: Term) -> Term:
    """Compare two terms so that null equals null, and nothing else: IS NOT DISTINCT FROM."""

    def kernel(equal: Value, left: Value, right: Value) -> Value:
        return pc.coalesce(equal, pc.and_kleene(left, right))

    return apply(kernel, compare("=", a, b), is_null(a), is_null(b), kind=BOOL)


def is_null(term: Term) -> Term:
    """Say where a term is null."""
    return apply(pc.is_null, term, kind=BOOL)


def is_truth(term: Term, wanted: bool) -> Term:
    """Say where a condition is true, or is false; null is neither."""
    return apply(known if wanted else lambda value: known(pc.invert(value)), term, kind=BOOL)


def negated(term: Term) -> Term:
    """Say where a condition is false; null where it is null."""
    return apply(pc.invert, term, kind=BOOL)


def between(term: Term, low: Term, high: Term) -> Term:
    """Say where a term is from ``low`` to ``high``, both included."""
    return balanced(pc.and_kleene, [compare(">=", term, low), compare("<=", term, high)])


def is_in(term: Term, items: Sequence[Term]) -> Term:
    """Say where a term is one of many, all compared in one common type; null where it is none and one is null."""
    terms, kind = meet([term, *items])
    term, given = terms[0], [item for item in terms[1:] if not item.always_null]
    if term.always_null:
        return null(BOOL)
    missing = len(given) < len(items)
    able = term.literal is None and any(test(kind) for test in _HASHED)
    hashed = [item for item in given if able and item.literal is not None]
    others = [item for item in given if not (able and item.literal is not None)]
    parts = [compare("=", coerce(term, kind), coerce(item, kind)) for item in others]
    if hashed:
        parts.append(_among(term, hashed, kind))
    if missing:
        parts.append(null(BOOL))
    return balanced(pc.or_kleene, parts)


def _among(term: Term, items: Sequence[Term], kind: pa.DataType) -> Term:
    """Look a term up among constants that are not null."""
    scalars = [fitted(item, term.type, kind) for item in items]
    if any(scalar is None for scalar in scalars):
        term = coerce(term, kind)
        scalars = [coerce(item, kind).literal for item in items]
    values = pa.array(scalars, term.type)
    if pa.types.is_floating(term.type):
        values = _hashable(values, term.type)

    def kernel(value: Value) -> Value:
        looked = _hashable(value, term.type) if pa.types.is_floating(term.type) else value
        return pc.if_else(pc.is_valid(value), pc.is_in(looked, value_set=values), pa.scalar(None, BOOL))

    return apply(kernel, term, kind=BOOL)


def _hashable(value: Value, kind: pa.DataType) -> Value:
    """Write -0.0 as 0.0, and every NaN with the same bits: hashing would tell them apart."""
    return pc.if_else(pc.is_nan(value), pa.scalar(math.nan, kind), pc.add(value, pa.scalar(0.0, kind)))
