"""Every bad input ends in one clear message, and nothing is written.

The inputs are the tables in `tests.bad_inputs`, one per interface.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import pytest

import aggr
from tests.bad_inputs import (
    aggr_api,
    command_others,
    command_rollup,
    command_store,
    frame_api,
    ordered_api,
    others_api,
    store_api,
    windows_api,
)
from tests.bad_inputs.check import Bad, assert_names_options, assert_sentence, traces
from tests.bad_inputs.world import make_world
from tiltframe.cli.app import main

CALLS = [*windows_api.CASES, *frame_api.CASES, *ordered_api.CASES, *store_api.CASES, *aggr_api.CASES, *others_api.CASES]
LINES = [*command_rollup.CASES, *command_store.CASES, *command_others.CASES]
_SECONDS = 30  # what takes longer hangs
IN_PROCESSES = [*LINES[:: len(LINES) // 6], *(line for line in LINES if line.name == "query --where = command")]


@pytest.fixture(scope="module")
def original_world(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("bad"))
    return world, traces(world.root)


@pytest.fixture
def world(original_world, monkeypatch):
    """A world that must be as it was; what was written is undone for those that follow."""
    world, before = original_world
    monkeypatch.chdir(world.root)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(_SECONDS)
    yield world
    signal.alarm(0)
    if traces(world.root) != before:
        written = sorted(set(traces(world.root).items()) ^ set(before.items()))
        world.restore()
        pytest.fail(f"something was written: {written[:3]}")


@pytest.mark.parametrize("bad", CALLS, ids=lambda bad: bad.name)
def test_call(bad, world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((ValueError, TypeError, aggr.UnknownFunction)) as error:
            bad.call(world)
    assert_sentence(str(error.value), bad)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_line(line, world, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tiltframe"])
    with pytest.raises(SystemExit) as end:
        main(line.argv(world))
    out, err = capfd.readouterr()
    assert (end.value.code, out) == (2, "")
    assert_line(err, line, world)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("line", IN_PROCESSES, ids=lambda line: line.name)
def test_line_in_a_process(line, world):
    command = [sys.executable, "-m", "tiltframe.cli", *line.argv(world)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert_line(done.stderr, line, world)


def assert_line(err, line, world):
    assert err.startswith("tiltframe: ")
    assert err.endswith("\n")
    assert_sentence(err.removesuffix("\n"), Bad(line.name, main, line.says))
    assert_names_options(err, line.argv(world))


def test_the_list_is_long_and_its_names_are_unique():
    names = [bad.name for bad in [*CALLS, *LINES]]
    assert len(names) >= 5000
