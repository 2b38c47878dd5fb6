"""Measure whether tests detect mutants: the code is changed at one sampled place at a time, and the tests of its file
are run.

python -m tests.mutation [--seed 0] [--mutants 150] [--out benchmarks/results/mutation.json]
python -m tests.mutation --again [--out …]    try the mutants that survived again, with the present tests

The code is changed in a copy of the source, whose compiled loops have a separate cache. A mutant is killed if a test
fails, if it cannot be imported or compiled, or if the tests take far longer than without the change. If no fast test
kills a mutant, more tests are run, including slow ones. A mutant that these do not kill survives. `tests/mutation.toml`
lists the tests of each part of the code, and gives the reason for each survivor that no test can kill.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import click

from aggr.bench.timing import circumstances
from tests.docs.pages import ROOT, copy_source
from tests.mutants import Mutant, drawn, found_again

VERDICTS = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())
PART = {file: code["part"] for code in VERDICTS["code"] for file in code["files"]}
TESTS = {file: (code["tests"], code.get("then", [])) for code in VERDICTS["code"] for file in code["files"]}
SEEDS = dict.fromkeys(("TILTFRAME_SEED", "SEED"), "0")  # without a mutant no draw fails
FEWER = {"TILTFRAME_CONDITIONS": "500", "TILTFRAME_TRIALS": "15", "TRIALS": "2"}  # of fast tests
ONE_STAMP = """
import numba.core.caching
# the names of loops tell one from another: those that a mutant leaves alone are not compiled again for it
numba.core.caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: 0
"""


class Copy:
    """A copy of the source, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.root = copy_source(folder)
        with (self.root / "conftest.py").open("a") as conftest:
            conftest.write(ONE_STAMP)
        self.environment = os.environ | SEEDS | {"PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(folder / "numba")}
        self.code = {file: (self.root / file).read_text() for file in PART}
        self.limits: dict[tuple[str, bool], float] = {}  # seconds that the tests of a file may take

    def failure(self, files: list[str], more: bool, limit: float | None = None) -> str:
        """Run the fast tests of files, or all, and the examples in them; return what they say if not all pass."""
        tests, then = TESTS[files[0]]
        places = [f"tests/{test}.py" for test in (*tests, *(then if more else ()))]
        marks = f"not spark and not long{'' if more else ' and not slow'}"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m"]
        command += [marks, "-k", "not postgres", *files, *places]
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = self.environment | ({} if more else FEWER)
        run = subprocess.Popen(command, cwd=self.root, env=environment, start_new_session=True, **out)
        try:
            output = run.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return "the time is over"
        return output if run.returncode else ""

    def limit(self, file: str, more: bool) -> float:
        """Return how long the tests of a file may take, by how long they take without a mutant."""
        if (file, more) not in self.limits:
            alike = [other for other in TESTS if TESTS[other] == TESTS[file]]
            begun = time.monotonic()
            if failure := self.failure(alike, more):
                raise SystemExit(f"without a mutant, tests of {file} fail:\n{failure}")
            self.limits |= dict.fromkeys(
                ((test_file, more) for test_file in alike), 30 + 4 * (time.monotonic() - begun)
            )
        return self.limits[file, more]

    def killed_by(self, file: str, mutant: Mutant) -> str:
        """Try a mutant of a file, and say which tests kill it: fast, more or none."""
        for more in (False, True):
            limit = self.limit(file, more)
            try:
                self._put(file, mutant.code)
                if self.failure([file], more, limit):
                    return "more" if more else "fast"
            finally:
                self._put(file, self.code[file])
        return "none"

    def _put(self, file: str, code: str) -> None:
        (self.root / file).write_text(code)
        cache = (self.root / file).parent / "__pycache__"  # it knows code by its second and its size
        shutil.rmtree(cache, ignore_errors=True)


def judged(file: str, survivor: dict[str, Any]) -> str:
    """Say why no test can kill a survivor, as it is told; nothing if it is not."""
    change = (file, survivor["before"], survivor["after"])
    verdict = {
        (verdict["file"], verdict["before"], verdict["after"]): verdict for verdict in VERDICTS.get("survivors", ())
    }.get(change)
    return f"{verdict['is']}: {verdict['why']}" if verdict else ""


def tried_again(copy: Copy, figures: dict[str, Any]) -> Iterator[str]:
    """Try those that survived again, and tell of each."""
    alive = [
        (file, survivor)
        for file, results_of_file in figures["files"].items()
        for survivor in results_of_file["survivors"]
        if survivor["now"] != "killed"
    ]
    for file, survivor in alive:
        mutant = found_again(copy.code[file], survivor["line"], survivor["before"], survivor["after"])
        survivor["now"] = judged(file, survivor) if copy.killed_by(file, mutant) == "none" else "killed"
        yield f"{file}:{survivor['line']}: {survivor['after']}: {survivor['now'] or 'survives'}"


def of_all(copy: Copy, seed: int) -> Iterator[tuple[str, Mutant]]:
    """Draw mutants of all files, one of each in turn."""
    rounds = zip_longest(*(drawn(copy.code[file], f"{seed} {file}") for file in PART))
    return (
        (file, mutant) for round_of_files in rounds for file, mutant in zip(PART, round_of_files, strict=True) if mutant
    )


def tried(copy: Copy, figures: dict[str, Any], mutants: Iterable[tuple[str, Mutant]]) -> Iterator[str]:
    """Try mutants, and tell of each."""
    for file, mutant in mutants:
        begun, results_of_file = time.monotonic(), figures["files"][file]
        by = copy.killed_by(file, mutant)
        results_of_file[by] += 1
        if by == "none":
            survivor = {"line": mutant.line, "before": mutant.before, "after": mutant.after}
            results_of_file["survivors"].append(survivor | {"now": judged(file, survivor)})
        yield f"{time.monotonic() - begun:5.1f} s, {by}: {file}:{mutant.line}: {mutant.before}  ->  {mutant.after}"


@click.command()
@click.option("--seed", default=0, show_default=True, help="Which mutants are drawn.")
@click.option("--mutants", default=150, show_default=True, help="How many, an equal share of each file.")
@click.option("--again", is_flag=True, help="Try the survivors again.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks" / "results" / "mutation.json")
def main(seed: int, mutants: int, again: bool, out: Path) -> None:
    """Try mutants, and write what came of them; exit status 1 if one survives of which nothing is told."""
    now = circumstances(("numba", "cosmic-ray"))
    nothing = {file: {"part": PART[file], "fast": 0, "more": 0, "none": 0, "survivors": []} for file in PART}
    figures = (
        json.loads(out.read_text()) | {"again at": now["commit"]} if again else now | {"seed": seed, "files": nothing}
    )
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        copy = Copy(Path(folder))
        trials = tried_again(copy, figures) if again else tried(copy, figures, islice(of_all(copy, seed), mutants))
        for line in trials:
            click.echo(line)
            out.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(
        any(
            not survivor["now"]
            for results_of_file in figures["files"].values()
            for survivor in results_of_file["survivors"]
        )
    )


if __name__ == "__main__":
    main()
