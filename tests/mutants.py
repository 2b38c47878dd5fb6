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
BitOr_BitAnd BitAnd_BitOr BitXor_BitAnd"""  # of all pairs those whose result has a type that can be right
COMPARISON = "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
OTHER_OPERATORS = """ReplaceUnaryOperator_Delete_USub ReplaceUnaryOperator_Delete_Invert
ReplaceUnaryOperator_Delete_Not AddNot
ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue
ReplaceContinueWithBreak NumberReplacer"""
AUGMENTED = ("+=", "-=", "*=", "//=", "|=", "&=", "^=", "<<=", ">>=")
Place = tuple[tuple[int, int], tuple[int, int]]  # line and column of begin and end


class RemoveStatement(Operator):
    """Put `pass` in the place of what gives nothing a name: a call, `x += 1`, `x[i] = y`, `raise`."""

    def mutation_positions(self, node: Any) -> Iterator[Place]:
        if node.type == "simple_stmt":
            kind, parts = node.children[0].type, getattr(node.children[0], "children", ())
            changes = kind == "expr_stmt" and (parts[0].type == "atom_expr" or parts[1] in AUGMENTED)
            if kind in ("atom_expr", "raise_stmt") or changes:
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        code, prefix = node.get_code(include_prefix=False), node.get_first_leaf().prefix
        return parso.python.tree.Name("pass" + "\n" * code.count("\n"), node.start_pos, prefix)

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def operators() -> list[Operator]:
    """List the ways to change code."""
    names = [f"ReplaceBinaryOperator_{pair}" for pair in BINARY.split()]
    names += [f"ReplaceComparisonOperator_{pair}" for pair in COMPARISON.split()]
    provider = OperatorProvider()
    return [RemoveStatement(), *(provider[name]() for name in [*names, *OTHER_OPERATORS.split()])]


@dataclass(frozen=True)
class Mutant:
    """A change of one line, and the code of the whole file with it."""

    line: int
    before: str
    after: str
    code: str


def drawn(code: str, seed: str) -> Iterator[Mutant]:
    """Draw mutants of a file: places in any order, one way of each; without what is no Python."""
    draws, ways = random.Random(seed), list(_places(code).values())
    draws.shuffle(ways)
    for way in ways:
        mutant = _mutant(code, *draws.choice(way))
        with suppress(SyntaxError):
            compile(mutant.code, "mutant", "exec")
            yield mutant


def found_again(code: str, line: int, before: str, after: str) -> Mutant:
    """Find a mutant in the code of today: the same change of the same line, nearest to where it was."""
    lines = [line.strip() for line in code.splitlines()]
    ways = (way for (at, _), ways in _places(code).items() if lines[at[0] - 1] == before for way in ways)
    same = [mutant for mutant in (_mutant(code, *way) for way in ways) if mutant.after == after]
    return min(same, key=lambda mutant: abs(mutant.line - line))


def _mutant(code: str, operator: Operator, occurrence: int) -> Mutant:
    changed = mutate_code(code, operator, occurrence)
    pairs = zip(code.splitlines(), changed.splitlines(), strict=False)
    line, (before, after) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return Mutant(line, before.strip(), after.strip(), changed)


def _places(code: str) -> dict[Place, list[tuple[Operator, int]]]:
    """Find the places at which code can be changed, each with the ways: an operator, and which of its occurrences."""
    operators_by_place: dict[Place, list[tuple[Operator, int]]] = {}
    nodes = list(ast_nodes(parso.parse(code)))
    for operator in operators():
        at = ((node, place) for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (node, place) in enumerate(at):
            if not _annotates(node):
                operators_by_place.setdefault(place, []).append((operator, occurrence))
    return operators_by_place


def _annotates(node: Any) -> bool:
    """Say whether a node is within an annotation, which nothing reads."""
    while (parent := node.parent) is not None:
        if parent.type in ("tfpdef", "annassign") and "=" not in parent.children[: parent.children.index(node)]:
            return True
        if parent.type == "funcdef" and parent.annotation is node:
            return True
        node = parent
    return False
