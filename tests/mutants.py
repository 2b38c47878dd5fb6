"""Mutants: copies of the code with one change each, made by the operators of Cosmic Ray."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

BINARY = """Add_Sub Sub_Add Mul_FloorDiv Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul LShift_RShift RShift_LShift
BitOr_BitAnd BitAnd_BitOr BitXor_BitAnd"""  # only pairs after which a result may still have the correct type
COMPARISON = "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
OTHER_OPERATORS = """ReplaceUnaryOperator_Delete_USub ReplaceUnaryOperator_Delete_Invert
ReplaceUnaryOperator_Delete_Not AddNot
ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue
ReplaceContinueWithBreak NumberReplacer"""
AUGMENTED = ("+=", "-=", "*=", "//=", "|=", "&=", "^=", "<<=", ">>=")
Span = tuple[tuple[int, int], tuple[int, int]]  # the line and the column of the begin, and those of the end


class RemoveStatement(Operator):
    """Replace a statement that does not assign a name by `pass`: a call, `x += 1`, `x[i] = y` or `raise`."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        if node.type == "simple_stmt":
            kind, parts = node.children[0].type, getattr(node.children[0], "children", ())
            is_change = kind == "expr_stmt" and (parts[0].type == "atom_expr" or parts[1] in AUGMENTED)
            if kind in ("atom_expr", "raise_stmt") or is_change:
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        code, prefix = node.get_code(include_prefix=False), node.get_first_leaf().prefix
        return parso.python.tree.Name("pass" + "\n" * code.count("\n"), node.start_pos, prefix)

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def operators() -> list[Operator]:
    """Return the operators that change code."""
    names = [f"ReplaceBinaryOperator_{pair}" for pair in BINARY.split()]
    names += [f"ReplaceComparisonOperator_{pair}" for pair in COMPARISON.split()]
    provider = OperatorProvider()
    return [RemoveStatement(), *(provider[name]() for name in [*names, *OTHER_OPERATORS.split()])]


@dataclass(frozen=True)
class Mutant:
    """A change of one line. ``before`` and ``after`` are the line, and ``code`` is the code of the changed file."""

    line: int
    before: str
    after: str
    code: str


def draw_mutants(code: str, seed: str) -> Iterator[Mutant]:
    """Yield mutants of a file in random order, one for each span that can be changed. Changes that are not valid Python
    are skipped.
    """
    rng, changes_of_spans = random.Random(seed), list(_changes_by_span(code).values())
    rng.shuffle(changes_of_spans)
    for changes in changes_of_spans:
        mutant = _mutant(code, *rng.choice(changes))
        with suppress(SyntaxError):
            compile(mutant.code, "mutant", "exec")
            yield mutant


def find_mutant(code: str, line: int, before: str, after: str) -> Mutant:
    """Return the mutant of the present code that makes the same change in an equal line. If there are several, return
    the one that is nearest to ``line``.
    """
    lines = [line.strip() for line in code.splitlines()]
    changes = (
        change
        for (begin, _), changes_of_span in _changes_by_span(code).items()
        if lines[begin[0] - 1] == before
        for change in changes_of_span
    )
    equal_mutants = [mutant for mutant in (_mutant(code, *change) for change in changes) if mutant.after == after]
    return min(equal_mutants, key=lambda mutant: abs(mutant.line - line))


def _mutant(code: str, operator: Operator, occurrence: int) -> Mutant:
    changed_code = mutate_code(code, operator, occurrence)
    pairs = zip(code.splitlines(), changed_code.splitlines(), strict=False)
    line, (before, after) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return Mutant(line, before.strip(), after.strip(), changed_code)


def _changes_by_span(code: str) -> dict[Span, list[tuple[Operator, int]]]:
    """Return a dict from the spans of code that can be changed to their changes. A change is a pair of an operator and
    the index of the occurrence at which it is applied.
    """
    changes_by_span: dict[Span, list[tuple[Operator, int]]] = {}
    nodes = list(ast_nodes(parso.parse(code)))
    for operator in operators():
        occurrences = ((node, span) for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (node, span) in enumerate(occurrences):
            if not _is_in_annotation(node):
                changes_by_span.setdefault(span, []).append((operator, occurrence))
    return changes_by_span


def _is_in_annotation(node: Any) -> bool:
    """Return whether a node is in an annotation. Annotations are not changed, because tests do not read them."""
    while (parent := node.parent) is not None:
        if parent.type in ("tfpdef", "annassign") and "=" not in parent.children[: parent.children.index(node)]:
            return True
        if parent.type == "funcdef" and parent.annotation is node:
            return True
        node = parent
    return False
