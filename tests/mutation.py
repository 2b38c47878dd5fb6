"""Count the mutants that tests detect, and those that the tests of ``make test`` alone detect. A mutant is a
change of the code at one place, which is chosen at random.

python -m tests.mutation [--seed 0] [--mutants 150] [--only FILE …] [--out benchmarks/results/mutation.json]
python -m tests.mutation --again [--out …]    run the present tests on the mutants that have survived

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
from tests.mutants import Mutant, draw_mutants, find_mutant

VERDICTS = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())
PART_OF_FILE = {file: code["part"] for code in VERDICTS["code"] for file in code["files"]}
TESTS_OF_FILE = {file: code["tests"] for code in VERDICTS["code"] for file in code["files"]}
SEEDS = dict.fromkeys(
    ("TILTFRAME_SEED", "SEED"), "0"
)  # the seeds of random tests, with which no test fails without a mutant
SELECTIONS = {  # the arguments of pytest by which these two commands select tests
    "test": ["-m", "not spark and not long", "--few", "1"],
    "test-all": ["-m", "not spark"],
}
SAME_STAMP = """
import numba.core.caching
# All files get the same stamp, so that only loops whose code a mutant changes are compiled again.
numba.core.caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: 0
"""


class Copy:
    """A copy of the source, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.root = copy_source(folder)
        with (self.root / "conftest.py").open("a") as conftest:
            conftest.write(SAME_STAMP)
        self.environment = os.environ | SEEDS | {"PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(folder / "numba")}
        self.code = {file: (self.root / file).read_text() for file in PART_OF_FILE}
        self.limits: dict[tuple[str, str], float] = {}  # seconds that the tests of a file may take

    def failure(self, files: list[str], command: str, limit: float | None = None) -> str:
        """Run the tests and the examples of files, as a key of `SELECTIONS` selects them. Return their output if a test
        fails or if they take longer than ``limit`` seconds, otherwise an empty text.
        """
        tests = [f"tests/{test}.py" for test in TESTS_OF_FILE[files[0]]]
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-k", "not postgres"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments, *SELECTIONS[command], *files, *tests],
            cwd=self.root,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"the tests took longer than {limit:.0f} s"
        return output if process.returncode else ""

    def limit(self, file: str, command: str) -> float:
        """Return the number of seconds that the tests of a file may take: four times as long as without a mutant, plus
        half a minute.
        """
        if (file, command) not in self.limits:
            files_with_same_tests = [
                other_file for other_file in TESTS_OF_FILE if TESTS_OF_FILE[other_file] == TESTS_OF_FILE[file]
            ]
            start = time.monotonic()
            if failure := self.failure(files_with_same_tests, command):
                raise SystemExit(f"without a mutant, tests of {file} fail:\n{failure}")
            limit = 30 + 4 * (time.monotonic() - start)
            self.limits |= {(other_file, command): limit for other_file in files_with_same_tests}
        return self.limits[file, command]

    def killing_command(self, file: str, mutant: Mutant) -> str:
        """Run the tests on a mutant of a file, and return the first key of `SELECTIONS` whose tests kill it, or
        ``"none"``.
        """
        for command in SELECTIONS:
            limit = self.limit(file, command)
            try:
                self._write_file(file, mutant.code)
                if self.failure([file], command, limit):
                    return command
            finally:
                self._write_file(file, self.code[file])
        return "none"

    def _write_file(self, file: str, code: str) -> None:
        (self.root / file).write_text(code)
        # Python recognizes changed code by its time in seconds and its size, which may both be equal.
        shutil.rmtree((self.root / file).parent / "__pycache__", ignore_errors=True)


def reason_of_survivor(file: str, survivor: dict[str, Any]) -> str:
    """Return the reason in `tests/mutation.toml` why no test can kill a survivor, or an empty text if there is none."""
    change = (file, survivor["before"], survivor["after"])
    verdict = {
        (verdict["file"], verdict["before"], verdict["after"]): verdict for verdict in VERDICTS.get("survivors", ())
    }.get(change)
    return f"{verdict['is']}: {verdict['why']}" if verdict else ""


def try_survivors_again(copy: Copy, figures: dict[str, Any]) -> Iterator[str]:
    """Run the tests on the survivors in ``figures`` again, and yield a line for each."""
    alive = [
        (file, survivor)
        for file, results_of_file in figures["files"].items()
        for survivor in results_of_file["survivors"]
        if survivor["now"] != "killed"
    ]
    for file, survivor in alive:
        mutant = find_mutant(copy.code[file], survivor["line"], survivor["before"], survivor["after"])
        survivor["now"] = (
            reason_of_survivor(file, survivor) if copy.killing_command(file, mutant) == "none" else "killed"
        )
        yield f"{file}:{survivor['line']}: {survivor['after']}: {survivor['now'] or 'survives'}"


def draw_in_turn(copy: Copy, seed: int, files: Sequence[str]) -> Iterator[tuple[str, Mutant]]:
    """Return an iterator over random mutants of ``files``, one of each file in turn."""
    rounds = zip_longest(*(draw_mutants(copy.code[file], f"{seed} {file}") for file in files))
    return (
        (file, mutant)
        for round_of_files in rounds
        for file, mutant in zip(files, round_of_files, strict=True)
        if mutant
    )


def try_mutants(copy: Copy, figures: dict[str, Any], mutants: Iterable[tuple[str, Mutant]]) -> Iterator[str]:
    """Run the tests on mutants, count the mutants in ``figures``, and yield a line for each."""
    for file, mutant in mutants:
        start, results_of_file = time.monotonic(), figures["files"][file]
        command = copy.killing_command(file, mutant)
        results_of_file[command] += 1
        if command == "none":
            survivor = {"line": mutant.line, "before": mutant.before, "after": mutant.after}
            results_of_file["survivors"].append(survivor | {"now": reason_of_survivor(file, survivor)})
        yield f"{time.monotonic() - start:5.1f} s, {command}: {file}:{mutant.line}: {mutant.before}  ->  {mutant.after}"


@click.command()
@click.option("--seed", default=0, show_default=True, help="The seed of the random choice of mutants.")
@click.option("--mutants", default=150, show_default=True, help="The number of mutants, an equal share of each file.")
@click.option(
    "--only", type=click.Choice(list(PART_OF_FILE)), multiple=True, help="A file to change; by default all files."
)
@click.option("--again", is_flag=True, help="Try the survivors again.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks" / "results" / "mutation.json")
def main(seed: int, mutants: int, only: tuple[str, ...], again: bool, out: Path) -> None:
    """Run the tests on mutants, and write the numbers of killed mutants, and the survivors. Exit with status 1 if there
    is a survivor without a reason.
    """
    files = only or tuple(PART_OF_FILE)
    present_figures = circumstances(("numba", "cosmic-ray"))
    counts = dict.fromkeys((*SELECTIONS, "none"), 0)
    empty_results = {file: {"part": PART_OF_FILE[file], **counts, "survivors": []} for file in files}
    figures = (
        json.loads(out.read_text()) | {"again at": present_figures["commit"]}
        if again
        else present_figures | {"seed": seed, "files": empty_results}
    )
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        copy = Copy(Path(folder))
        trials = (
            try_survivors_again(copy, figures)
            if again
            else try_mutants(copy, figures, islice(draw_in_turn(copy, seed, files), mutants))
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
