"""Mutants: product code that is changed at one place, each tried by the fast tests of its file.

python -m tests.mutation [--seed 0] [--mutants 150] [--out benchmarks/results/mutation.json]
python -m tests.mutation --again [--out …]    tries those that survived anew, with the tests of today

Cosmic Ray changes the code, in a copy of the source, whose loops are compiled into a cache of its own. A mutant is
killed if a test fails, if it cannot be imported or compiled, or if the tests take more than four times as long as without
it; otherwise it survives. `tests/mutation.toml` has the parts of the code with their tests, and says of survivors that no
test can kill why.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import click
import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

from benchmarks.timing import circumstances
from tests.docs.pages import ROOT, copy_source

TOLD = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())
PART = {file: code["part"] for code in TOLD["code"] for file in code["files"]}
TESTS = {file: code["tests"] for code in TOLD["code"] for file in code["files"]}
BINARY = (
    "Add_Sub Sub_Add Mul_FloorDiv Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul LShift_RShift RShift_LShift BitOr_BitAnd \
BitAnd_BitOr BitXor_BitAnd"  # of all pairs those whose result has a type that can be right
)
COMPARISON = "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
OTHERS = "ReplaceUnaryOperator_Delete_USub ReplaceUnaryOperator_Delete_Invert ReplaceUnaryOperator_Delete_Not AddNot \
ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue \
ReplaceContinueWithBreak NumberReplacer"
AUGMENTED = ("+=", "-=", "*=", "//=", "|=", "&=", "^=", "<<=", ">>=")
Place = tuple[tuple[int, int], tuple[int, int]]  # line and column of begin and end
ONE_STAMP = """
import numba.core.caching
# the names of loops tell one from another: those that a mutant leaves alone are not compiled again for it
numba.core.caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: 0
"""


class RemoveStatement(Operator):  # type: ignore[misc]
    """Put `pass` in the place of what gives nothing a name: a call, `x += 1`, `x[i] = y`, `raise`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt":
            kind, parts = node.children[0].type, getattr(node.children[0], "children", ())
            changes = kind == "expr_stmt" and (parts[0].type == "atom_expr" or parts[1] in AUGMENTED)
            if kind in ("atom_expr", "raise_stmt") or changes:
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        code = node.get_code(include_prefix=False)
        prefix = node.get_first_leaf().prefix
        return parso.python.tree.Name(
            "pass" + "\n" * code.count("\n"), node.start_pos, prefix
        )  # lines keep their numbers

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def operators() -> list[Operator]:
    """List the ways to change code."""
    names = [f"ReplaceBinaryOperator_{pair}" for pair in BINARY.split()]
    names += [f"ReplaceComparisonOperator_{pair}" for pair in COMPARISON.split()]
    known = OperatorProvider()
    return [RemoveStatement(), *(known[name]() for name in [*names, *OTHERS.split()])]


def annotates(node: Any) -> bool:
    """Say whether a node is within an annotation, which nothing reads."""
    while (parent := node.parent) is not None:
        if parent.type in ("tfpdef", "annassign") and "=" not in parent.children[: parent.children.index(node)]:
            return True
        if parent.type == "funcdef" and parent.annotation is node:
            return True
        node = parent
    return False


@dataclass(frozen=True)
class Mutant:
    """A change of one line, and the code of the whole file with it."""

    line: int
    before: str
    after: str
    code: str


def places(code: str) -> dict[Place, list[tuple[Operator, int]]]:
    """Find the places at which code can be changed, each with the ways: an operator, and which of its occurrences."""
    found: dict[Place, list[tuple[Operator, int]]] = {}
    nodes = list(ast_nodes(parso.parse(code)))
    for operator in operators():
        at = ((node, place) for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (node, place) in enumerate(at):
            if not annotates(node):
                found.setdefault(place, []).append((operator, occurrence))
    return found


def mutant(code: str, operator: Operator, occurrence: int) -> Mutant:
    """Change code at one place."""
    changed = mutate_code(code, operator, occurrence)
    pairs = zip(code.splitlines(), changed.splitlines(), strict=False)
    line, (before, after) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return Mutant(line, before.strip(), after.strip(), changed)


def drawn(file: str, seed: int) -> Iterator[Mutant]:
    """Draw mutants of a file: places in any order, one way of each; without what is no Python."""
    code, draws = (ROOT / file).read_text(), random.Random(f"{seed} {file}")
    ways = list(places(code).values())
    draws.shuffle(ways)
    for way in ways:
        made = mutant(code, *draws.choice(way))
        with suppress(SyntaxError):
            compile(made.code, file, "exec")
            yield made


def found_again(file: str, survivor: dict[str, Any]) -> Mutant:
    """Find a survivor in the code of today: the same change of the same line, nearest to where it was."""
    code = (ROOT / file).read_text()
    lines = [line.strip() for line in code.splitlines()]
    ways = (way for (at, _), ways in places(code).items() if lines[at[0] - 1] == survivor["before"] for way in ways)
    same = [made for made in (mutant(code, *way) for way in ways) if made.after == survivor["after"]]
    return min(same, key=lambda made: abs(made.line - survivor["line"]))


class Copy:
    """A copy of the source, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.root = copy_source(folder)
        with (self.root / "conftest.py").open("a") as conftest:
            conftest.write(ONE_STAMP)
        seeds = dict.fromkeys(("TILTFRAME_SEED", "SEED"), "0")  # without a mutant no draw fails
        self.environment = os.environ | seeds | {"PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(folder / "numba")}
        self.seconds: dict[str, float] = {}  # that the tests of a file take without a mutant

    def failure(self, files: list[str], limit: float | None = None) -> str:
        """Run the tests of files, and the examples in them; return what they say if one fails or the time is over."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        command += ["-m", "not spark and not slow and not long", "-k", "not postgres", *files, *TESTS[files[0]]]
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        run = subprocess.Popen(command, cwd=self.root, env=self.environment, start_new_session=True, **out)
        try:
            said = run.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return "the time is over"
        return said if run.returncode else ""

    def seconds_of(self, file: str) -> float:
        """Return what the tests of a file take without a mutant, once they are compiled."""
        if file not in self.seconds:
            alike = [other for other in TESTS if TESTS[other] == TESTS[file]]
            for _ in range(2):
                begun = time.monotonic()
                if said := self.failure(alike):
                    raise SystemExit(f"without a mutant, tests of {file} fail:\n{said}")
            self.seconds |= dict.fromkeys(alike, time.monotonic() - begun)
        return self.seconds[file]

    def survives(self, file: str, mutant: Mutant) -> bool:
        """Try a mutant of a file."""
        limit = 4 * self.seconds_of(file) + 30
        place = self.root / file
        try:
            self._put(place, mutant.code)
            return not self.failure([file], limit)
        finally:
            self._put(place, (ROOT / file).read_text())

    def _put(self, place: Path, code: str) -> None:
        place.write_text(code)
        shutil.rmtree(place.parent / "__pycache__", ignore_errors=True)  # it knows code by its second and its size


def judged(file: str, survivor: dict[str, Any]) -> str:
    """Say why no test can kill a survivor, as it is told; nothing where it is not."""
    of = (file, survivor["before"], survivor["after"])
    known = {(told["file"], told["before"], told["after"]): told for told in TOLD.get("survivors", ())}.get(of)
    return f"{known['is']}: {known['why']}" if known else ""


def tried_again(copy: Copy, figures: dict[str, Any]) -> Iterator[str]:
    """Try those that survived again, and tell of each."""
    for file, of in figures["files"].items():
        for survivor in of["survivors"]:
            now = copy.survives(file, found_again(file, survivor))
            survivor["now"] = judged(file, survivor) if now else "killed"
            yield f"{file}:{survivor['line']}: {survivor['after']}: {survivor['now'] or 'survives'}"


def tried(copy: Copy, figures: dict[str, Any], mutants: int) -> Iterator[str]:
    """Try mutants, an equal share of each file, and tell of each."""
    figures["files"] = {file: {"part": PART[file], "mutants": 0, "killed": 0, "survivors": []} for file in PART}
    rounds = zip_longest(*(drawn(file, figures["seed"]) for file in PART))
    for file, made in islice(((f, m) for one in rounds for f, m in zip(PART, one, strict=True) if m), mutants):
        begun, of = time.monotonic(), figures["files"][file]
        survives = copy.survives(file, made)
        of["mutants"] += 1
        of["killed"] += not survives
        if survives:
            survivor = {"line": made.line, "before": made.before, "after": made.after}
            of["survivors"].append(survivor | {"now": judged(file, survivor)})
        what = "survives" if survives else "killed"
        yield f"{time.monotonic() - begun:5.1f} s {what:8}  {file}:{made.line}: {made.before}  ->  {made.after}"


@click.command()
@click.option("--seed", default=0, show_default=True, help="Which mutants are drawn.")
@click.option("--mutants", default=150, show_default=True, help="How many, an equal share of each file.")
@click.option("--again", is_flag=True, help="Try those that survived again.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks" / "results" / "mutation.json")
def main(seed: int, mutants: int, again: bool, out: Path) -> None:
    """Try mutants, and write what came of them; exit status 1 if one survives of which nothing is told."""
    now = circumstances(("numba", "cosmic-ray"))
    figures = json.loads(out.read_text()) | {"again at": now["commit"]} if again else now | {"seed": seed}
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        copy = Copy(Path(folder))
        for said in tried_again(copy, figures) if again else tried(copy, figures, mutants):
            click.echo(said)
            out.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(any(not survivor["now"] for of in figures["files"].values() for survivor in of["survivors"]))


if __name__ == "__main__":
    main()
