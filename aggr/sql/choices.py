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
from aggr.sql.function_table import ANY, CONDITION, MANY, SKIP, Argument, Compiler, as_boolean, optional, term_rule
from aggr.sql.term import Fields, Source, Term, Value, apply, false_if_null, null
from aggr.sql.types import coerce, unify_types


@term_rule(exp.If, names="if", this=CONDITION, true=ANY, false=optional(ANY, null()))
def choose(condition: Term, value: Term, otherwise: Term) -> Term:
    """Return the term for ``IF(condition, value, otherwise)``. A null condition counts as false."""
    return case_when([(condition, value)], otherwise)


def _read_branches(compiler: Compiler, node: exp.Expr, name: str) -> list[tuple[Term, Term]]:
    return [(compiler.term(branch.this), compiler.term(branch.args["true"])) for branch in node.args[name]]


@term_rule(exp.Case, this=optional(ANY, None), ifs=Argument(_read_branches), default=optional(ANY, null()))
def case(operand: Term | None, branches: Sequence[tuple[Term, Term]], otherwise: Term) -> Term:
    """Return the term for CASE. ``branches`` contains pairs of WHEN and THEN, and ``otherwise`` is the value of ELSE.

    Without ``operand``, WHEN is a condition. Otherwise, it is a value that is compared with ``operand``.
    """
    conditions = [as_boolean(when) if operand is None else compare("=", operand, when) for when, _ in branches]
    return case_when([(when, value) for when, (_, value) in zip(conditions, branches, strict=True)], otherwise)


@term_rule(exp.Nullif, names="nullif", this=ANY, expression=ANY)
def nullif(value: Term, other: Term) -> Term:
    """Return the term for ``nullif(value, other)``: null if ``value`` equals ``other``, otherwise ``value``."""
    return case_when([(compare("=", value, other), null(value.type))], value)


def case_when(branches: Sequence[tuple[Term, Term]], otherwise: Term) -> Term:
    """Return the term for the value of the first branch whose condition is true, or ``otherwise``.

    ``branches`` contains pairs of condition and value.
    """
    terms, kind = unify_types([*(value for _, value in branches), otherwise])
    if pa.types.is_null(kind):
        return null()
    *values, otherwise = [coerce(null(kind) if term.is_untyped_null else term, kind) for term in terms]
    conditions = [condition for condition, _ in branches]
    count = len(conditions)

    def kernel(last: Value, *arguments: Value) -> Value:
        for condition, value in zip(reversed(arguments[:count]), reversed(arguments[count:]), strict=True):
            last = pc.if_else(false_if_null(condition), value, last)
        return last

    all_branches = apply(kernel, otherwise, *conditions, *values, kind=kind)
    return (
        all_branches
        if all_branches.literal is not None
        else _evaluate_by_branch(all_branches, conditions, values, otherwise)
    )


def _evaluate_by_branch(
    all_branches: Term, conditions: Sequence[Term], values: Sequence[Term], otherwise: Term
) -> Term:
    """Return a term with the values of ``all_branches``. A branch can raise errors only for rows for which it is
    chosen.

    The term ``all_branches`` computes every branch for all rows. This is fast, but a branch may raise an error for a
    row for which another branch is chosen. If ``all_branches`` raises an error, the returned term therefore computes
    each branch again, only for the rows for which the branch is chosen. ``conditions``, ``values`` and ``otherwise``
    are the parts of ``all_branches``.
    """

    def evaluate(source: Source) -> Value:
        try:
            return all_branches.evaluate(source)
        except (pa.ArrowException, ValueError, OverflowError):
            if isinstance(source, Fields):
                raise
        places = np.arange(source.table.num_rows)
        parts = list[tuple[Whole, pa.Array]]()
        for condition, value in zip(conditions, values, strict=True):
            is_chosen = _repeat_scalar(false_if_null(condition.evaluate(source)), len(places)).to_numpy(
                zero_copy_only=False
            )
            parts.append(
                (places[is_chosen], _repeat_scalar(value.evaluate(source.where(is_chosen)), int(is_chosen.sum())))
            )
            places = places[~is_chosen]
            source = source.where(~is_chosen)
        parts.append((places, _repeat_scalar(otherwise.evaluate(source), len(places))))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        return pa.concat_arrays([array.cast(all_branches.type) for _, array in parts]).take(pa.array(order))

    return Term(all_branches.type, evaluate)


def _repeat_scalar(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else one_array(value)


@term_rule(exp.Coalesce, names="coalesce ifnull nvl", this=ANY, expressions=MANY)
def coalesce(first: Term, further_terms: Sequence[Term]) -> Term:
    """Return the term for the first value that is not null in each row."""
    terms, kind = unify_types([first, *further_terms])
    parts = [coerce(term, kind) for term in terms if not term.is_untyped_null]
    if not parts:
        return null()
    return parts[0] if len(parts) == 1 else apply(pc.coalesce, *parts, kind=kind)


def greatest_or_least(operator: str, first: Term, further_terms: Sequence[Term]) -> Term:
    """Return the term for the greatest of several values in each row, or for the smallest if ``operator`` is ``<``.

    Nulls are ignored. NaN is the greatest value.
    """
    terms, kind = unify_types([first, *further_terms])
    parts = [coerce(term, kind) for term in terms if not term.is_untyped_null]
    if not parts:
        return null()
    order = comparison(operator, kind)

    def kernel(result: Value, *arguments: Value) -> Value:
        for other in arguments:
            result = pc.if_else(pc.coalesce(order(result, other), pc.is_null(other)), result, other)
        return result

    return apply(kernel, *parts, kind=kind)


for _kind, _operator in ((exp.Greatest, ">"), (exp.Least, "<")):
    term_rule(_kind, names=_kind.key, this=ANY, expressions=MANY, ignore_nulls=SKIP)(
        partial(greatest_or_least, _operator)
    )
