"""Choices among values: CASE, IF, COALESCE, NULLIF, greatest and least."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arrays import Whole
from aggr.arrow.normalize import one_array
from aggr.sql.comparisons import compare, comparison
from aggr.sql.function_table import ANY, CONDITION, MANY, SKIP, Argument, Compiler, as_boolean, maybe, reads
from aggr.sql.term import Fields, Source, Term, Value, apply, false_if_null, null
from aggr.sql.types import coerce, unify_types


@reads(exp.If, names="if", this=CONDITION, true=ANY, false=maybe(ANY, null()))
def choose(condition: Term, value: Term, otherwise: Term) -> Term:
    """Return the term for ``IF(condition, value, otherwise)``. A condition that is null is not true."""
    return case_when([(condition, value)], otherwise)


def _branches(compiler: Compiler, node: exp.Expr, name: str) -> list[tuple[Term, Term]]:
    return [(compiler.term(branch.this), compiler.term(branch.args["true"])) for branch in node.args[name]]


@reads(exp.Case, this=maybe(ANY, None), ifs=Argument(_branches), default=maybe(ANY, null()))
def case(operand: Term | None, branches: Sequence[tuple[Term, Term]], otherwise: Term) -> Term:
    """Return the term for CASE. ``branches`` contains pairs of WHEN and THEN, and ``otherwise`` is the value of ELSE.

    Without ``operand``, WHEN is a condition. Otherwise, it is a value that is compared with ``operand``.
    """
    conditions = [as_boolean(when) if operand is None else compare("=", operand, when) for when, _ in branches]
    return case_when([(when, value) for when, (_, value) in zip(conditions, branches, strict=True)], otherwise)


@reads(exp.Nullif, names="nullif", this=ANY, expression=ANY)
def nullif(value: Term, other: Term) -> Term:
    """Return the term for ``nullif(value, other)``: null if both are equal, otherwise ``value``."""
    return case_when([(compare("=", value, other), null(value.type))], value)


def case_when(branches: Sequence[tuple[Term, Term]], otherwise: Term) -> Term:
    """Return the term for the value of the first branch whose condition is true, or ``otherwise``.

    ``branches`` contains pairs of condition and value.
    """
    terms, kind = unify_types([*(value for _, value in branches), otherwise])
    if pa.types.is_null(kind):
        return null()
    *values, otherwise = [coerce(null(kind) if term.null else term, kind) for term in terms]
    conditions = [condition for condition, _ in branches]
    count = len(conditions)

    def kernel(last: Value, *arguments: Value) -> Value:
        for condition, value in zip(reversed(arguments[:count]), reversed(arguments[count:]), strict=True):
            last = pc.if_else(false_if_null(condition), value, last)
        return last

    everywhere = apply(kernel, otherwise, *conditions, *values, kind=kind)
    return everywhere if everywhere.literal is not None else _where_taken(everywhere, conditions, values, otherwise)


def _where_taken(everywhere: Term, conditions: Sequence[Term], values: Sequence[Term], otherwise: Term) -> Term:
    """Return a term with the values of ``everywhere``, in which a branch does not fail for rows that do not take it.

    The term ``everywhere`` computes every branch for all rows. This is fast, but a branch may raise an error for a row
    that does not take it. If ``everywhere`` raises an error, the returned term therefore computes each branch again,
    only for the rows that take it. ``conditions``, ``values`` and ``otherwise`` are the parts of ``everywhere``.
    """

    def evaluate(source: Source) -> Value:
        try:
            return everywhere.evaluate(source)
        except (pa.ArrowException, ValueError, OverflowError):
            if isinstance(source, Fields):
                raise
        places, parts = np.arange(source.table.num_rows), list[tuple[Whole, pa.Array]]()
        for condition, value in zip(conditions, values, strict=True):
            is_chosen = _array(false_if_null(condition.evaluate(source)), len(places)).to_numpy(zero_copy_only=False)
            parts.append((places[is_chosen], _array(value.evaluate(source.where(is_chosen)), int(is_chosen.sum()))))
            places, source = places[~is_chosen], source.where(~is_chosen)
        parts.append((places, _array(otherwise.evaluate(source), len(places))))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        return pa.concat_arrays([array.cast(everywhere.type) for _, array in parts]).take(pa.array(order))

    return Term(everywhere.type, evaluate)


def _array(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else one_array(value)


@reads(exp.Coalesce, names="coalesce ifnull nvl", this=ANY, expressions=MANY)
def coalesce(first: Term, further_terms: Sequence[Term]) -> Term:
    """Return the term for the first value that is not null in each row."""
    terms, kind = unify_types([first, *further_terms])
    parts = [coerce(term, kind) for term in terms if not term.null]
    if not parts:
        return null()
    return parts[0] if len(parts) == 1 else apply(pc.coalesce, *parts, kind=kind)


def greatest_or_least(operator: str, first: Term, further_terms: Sequence[Term]) -> Term:
    """Return the term for the greatest of several values in each row, or for the smallest if ``operator`` is ``<``.

    Nulls are ignored. NaN is the greatest value.
    """
    terms, kind = unify_types([first, *further_terms])
    parts = [coerce(term, kind) for term in terms if not term.null]
    if not parts:
        return null()
    order = comparison(operator, kind)

    def kernel(best: Value, *arguments: Value) -> Value:
        for other in arguments:
            best = pc.if_else(pc.coalesce(order(best, other), pc.is_null(other)), best, other)
        return best

    return apply(kernel, *parts, kind=kind)


for _kind, _operator in ((exp.Greatest, ">"), (exp.Least, "<")):
    reads(_kind, names=_kind.key, this=ANY, expressions=MANY, ignore_nulls=SKIP)(partial(greatest_or_least, _operator))
