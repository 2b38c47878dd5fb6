"""Measure whether tests detect mutants, which are changes of the code at one sampled place, and how many of them the
tests of ``make test`` alone detect.

python -m tests.mutation [--seed 0] [--mutants 150] [--only FILE …] [--out benchmarks/results/mutation.json]
python -m tests.mutation --again [--out …]    try the mutants that survived again, with the present tests

The code is changed in a copy of the source, whose compiled loops have a separate cache. A mutant is killed if a test
fails, if it cannot be imported or compiled, or if the tests take far longer than without the change. For each part of
the code, `tests/mutation.toml` lists the tests. They run first as in ``make test``, with one parameter each and without
long tests. If all pass, they run as in ``make test-all``, with all parameters. A mutant that these do not kill
survives; the file gives the reason for each survivor that no test can kill. Tests that start Spark or PostgreSQL are
left out.
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
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import click

from aggr.bench.timing import circumstances
from tests.docs.pages import ROOT, copy_source
from tests.mutants import Mutant, drawn, found_again

VERDICTS = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())
PART = {file: code["part"] for code in VERDICTS["code"] for file in code["files"]}
TESTS = {file: code["tests"] for code in VERDICTS["code"] for file in code["files"]}
SEEDS = dict.fromkeys(("TILTFRAME_SEED", "SEED"), "0")  # without a mutant no draw fails
SELECTIONS = {  # the arguments of pytest by which these two commands select tests
    "test": ["-m", "not spark and not long", "--few", "1"],
    "test-all": ["-m", "not spark"],
}
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
        self.limits: dict[tuple[str, str], float] = {}  # seconds that the tests of a file may take

    def failure(self, files: list[str], command: str, limit: float | None = None) -> str:
        """Run the tests and the examples of files, as a key of `SELECTIONS` selects them. Return their output if a test
        fails or if they take longer than ``limit`` seconds, otherwise an empty text.
        """
        tests = [f"tests/{test}.py" for test in TESTS[files[0]]]
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-k", "not postgres"]
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments, *SELECTIONS[command], *files, *tests],
            cwd=self.root,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output = run.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return f"the tests took longer than {limit:.0f} s"
        return output if run.returncode else ""

    def limit(self, file: str, command: str) -> float:
        """Return how many seconds the tests of a file may take: half a minute more than four times as long as without
        a mutant.
        """
        if (file, command) not in self.limits:
            alike = [other for other in TESTS if TESTS[other] == TESTS[file]]
            begun = time.monotonic()
            if failure := self.failure(alike, command):
                raise SystemExit(f"without a mutant, tests of {file} fail:\n{failure}")
            limit = 30 + 4 * (time.monotonic() - begun)
            self.limits |= {(other, command): limit for other in alike}
        return self.limits[file, command]

    def killed_by(self, file: str, mutant: Mutant) -> str:
        """Run the tests on a mutant of a file, and return the first key of `SELECTIONS` whose tests kill it, or
        ``"none"``.
        """
        for command in SELECTIONS:
            limit = self.limit(file, command)
            try:
                self._put(file, mutant.code)
                if self.failure([file], command, limit):
                    return command
            finally:
                self._put(file, self.code[file])
        return "none"

    def _put(self, file: str, code: str) -> None:
        (self.root / file).write_text(code)
        # Python recognizes changed code by its time in seconds and its size, which may both be equal.
        shutil.rmtree((self.root / file).parent / "__pycache__", ignore_errors=True)


def judged(file: str, survivor: dict[str, Any]) -> str:
    """Return the reason in `tests/mutation.toml` why no test can kill a survivor, or an empty text if there is none."""
    change = (file, survivor["before"], survivor["after"])
    verdict = {
        (verdict["file"], verdict["before"], verdict["after"]): verdict for verdict in VERDICTS.get("survivors", ())
    }.get(change)
    return f"{verdict['is']}: {verdict['why']}" if verdict else ""


def tried_again(copy: Copy, figures: dict[str, Any]) -> Iterator[str]:
    """Try the survivors in ``figures`` again, and yield a line for each."""
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


def in_turn(copy: Copy, seed: int, files: Sequence[str]) -> Iterator[tuple[str, Mutant]]:
    """Draw mutants of ``files``, one of each in turn."""
    rounds = zip_longest(*(drawn(copy.code[file], f"{seed} {file}") for file in files))
    return (
        (file, mutant)
        for round_of_files in rounds
        for file, mutant in zip(files, round_of_files, strict=True)
        if mutant
    )


def tried(copy: Copy, figures: dict[str, Any], mutants: Iterable[tuple[str, Mutant]]) -> Iterator[str]:
    """Try mutants, count them in ``figures``, and yield a line for each."""
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
@click.option("--only", type=click.Choice(list(PART)), multiple=True, help="A file to change; by default all files.")
@click.option("--again", is_flag=True, help="Try the survivors again.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks" / "results" / "mutation.json")
def main(seed: int, mutants: int, only: tuple[str, ...], again: bool, out: Path) -> None:
    """Try mutants, and write how many were killed, and the survivors. The exit status is 1 if there is a survivor
    without a reason.
    """
    files = only or tuple(PART)
    now = circumstances(("numba", "cosmic-ray"))
    counts = dict.fromkeys((*SELECTIONS, "none"), 0)
    nothing = {file: {"part": PART[file], **counts, "survivors": []} for file in files}
    figures = (
        json.loads(out.read_text()) | {"again at": now["commit"]} if again else now | {"seed": seed, "files": nothing}
    )
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        copy = Copy(Path(folder))
        trials = (
            tried_again(copy, figures) if again else tried(copy, figures, islice(in_turn(copy, seed, files), mutants))
        )
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
