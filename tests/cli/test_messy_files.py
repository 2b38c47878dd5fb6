"""Messy files and contradicting options: each ends in one clear message, and nothing is written.

``TRIALS`` is the number of cases that are tried, and ``TILTFRAME_SEED`` is the seed from which they are drawn.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_inputs.check import Bad, assert_names_options, assert_sentence, traces
from tests.bad_inputs.messy_files import COMMANDS, FILES, is_refused, json_text
from tests.bad_inputs.option_pairs import CONTRADICTIONS, LINES, TWICE, both_wrong
from tests.bad_inputs.world import make_world
from tests.command_line import call
from tiltframe.cli.app import main

pytestmark = pytest.mark.store

TRIALS = int(os.environ.get("TRIALS", 200))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
REFUSED_PAIRS = [pair for pair in itertools.product(COMMANDS, FILES) if is_refused(*pair)]


def sample_of(cases):
    """Draw as many as are tried, all if there are no more."""
    print("seed", SEED)
    return random.Random(SEED).sample(cases, min(TRIALS, len(cases)))


def refused(capfd, name, argv, says=()):
    """Run a line of the command line, which must end in one sentence."""
    status, out, err = call(capfd, *argv)
    assert (status, out) == (2, ""), (name, argv, out + err)
    assert err.startswith("tiltframe: ")
    try:
        assert_sentence(err.removeprefix("tiltframe: ").removesuffix("\n"), Bad(name, main, says))
        assert_names_options(err, argv)
    except AssertionError as error:
        raise AssertionError((name, argv, err)) from error


@pytest.fixture
def desk(tmp_path, monkeypatch, capfd):
    """A store, a file that can be read, and a folder that has such a one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arriving").mkdir()
    for file in (tmp_path / "good.jsonl", tmp_path / "arriving" / "good.jsonl"):
        file.write_text(json_text())
    rollup = [word.format(file="good.jsonl", root=".") for word in COMMANDS["rollup into a store"]]
    assert call(capfd, *rollup)[0] == 0
    return tmp_path


def test_messy_files(desk, capfd, monkeypatch):
    good, arriving, folder = Path("good.jsonl"), Path("arriving"), Path("messy")
    before = traces(desk)
    for command, messy in sample_of(REFUSED_PAIRS):
        folder.mkdir()
        file = folder / f"x{messy.ending}"
        file.write_bytes(messy.data)
        places = {"file": file, "folder": folder, "good": good, "arriving": arriving, "root": "."}
        with file.open("rb") as stdin, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", type("Stdin", (), {"buffer": stdin, "isatty": lambda: False}))
            refused(capfd, (command, messy.name), [word.format(**places) for word in COMMANDS[command]])
        assert (file.read_bytes(), [path.name for path in folder.iterdir()]) == (messy.data, [file.name])
        shutil.rmtree(folder)
        assert traces(desk) == before, (command, messy.name)


NO_RIGHTS = ["rollup", "rollup of two", "stream", "query", "inspect", "rollup into a file"]


@pytest.mark.slow
@pytest.mark.parametrize("command", NO_RIGHTS)
def test_a_file_that_nobody_may_read(command, desk):
    """Root without its capabilities has the rights of others, which are none here."""
    folder = desk / "messy"
    folder.mkdir()
    (folder / "x.jsonl").write_text(json_text())
    places = {"file": folder / "x.jsonl", "folder": folder, "good": "good.jsonl", "root": desk}
    (folder / "x.jsonl").chmod(0)
    before = sorted(path for path in desk.rglob("*"))
    as_others = ["setpriv", "--bounding-set=-all"] * (os.geteuid() == 0)
    argv = [*as_others, sys.executable, "-m", "tiltframe.cli", *(word.format(**places) for word in COMMANDS[command])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert_sentence(done.stderr.removesuffix("\n"), Bad(command, main, ("ermission|not readable|is a file",)))
    assert sorted(path for path in desk.rglob("*")) == before


@pytest.fixture
def world(tmp_path, monkeypatch):
    """What the other bad inputs are tried on."""
    world = make_world(tmp_path)
    monkeypatch.chdir(world.root)
    return world


@pytest.mark.parametrize("line", [*CONTRADICTIONS, *TWICE], ids=lambda line: line.name)
def test_options_that_contradict_each_other(line, world, capfd):
    before = traces(world.root)
    refused(capfd, line.name, line.argv(world), line.says)
    assert traces(world.root) == before


def test_two_mistakes_in_a_line(world, capfd):
    before, draws = traces(world.root), random.Random(SEED)
    pairs = [both_wrong(draws) for _ in range(TRIALS)]
    for line in sample_of(pairs):
        refused(capfd, line.name, line.argv(world))
        assert traces(world.root) == before, line.name


def test_the_lists_are_long():
    assert len(REFUSED_PAIRS) > 8000
    assert len(LINES) > 1000
    assert len(CONTRADICTIONS) + len(TWICE) > 80
