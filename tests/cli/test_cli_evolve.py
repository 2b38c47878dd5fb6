"""tiltframe evolve: adding and dropping measures and levels, and wrong arguments."""

from __future__ import annotations

import json
from functools import partial

import pytest

pytestmark = pytest.mark.store

ROWS = [{"ts": "2024-05-01T10:00:00Z", "ms": 1.5}, {"ts": "2024-05-01T10:00:30Z", "ms": 3.0}]
LATER = [{"ts": "2024-05-02T10:00:00Z", "ms": 8.0}]


@pytest.fixture
def run(forked):
    return partial(run_command, forked)


def run_command(forked, folder, *args, status=0):
    """Run the command in a process of its own; return its output, or its errors where it must fail."""
    ended, output, errors = forked.run(args, folder=folder)
    assert ended == status, errors
    return errors if status else output


@pytest.fixture
def folder(tmp_path, run):
    """A folder with a store of two rows."""
    for name, rows in (("first", ROWS), ("later", LATER)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--time", "ts", "--measure", "n=count()", "--measure", "mean=avg(ms)", "--levels", "1m,1h")
    run(tmp_path, "rollup", "first.jsonl", *options, "--store", "web")
    return tmp_path


@pytest.mark.slow
@pytest.mark.long
def test_measures_and_levels_are_added_and_dropped(folder, run):
    more = ("--measure", "total=sum(ms)", "--measure", "most=max(ms)", "--type", "ms=float64")
    run(folder, "evolve", "web", *more, "--drop", "n", "--levels", "1d")
    options = ("--time", "ts", "--measure", "mean=avg(ms)", "--measure", "total=sum(ms)", "--measure", "most=max(ms)")
    run(folder, "rollup", "later.jsonl", *options, "--levels", "1m,1h,1d", "--store", "web")
    days = [json.loads(line) for line in run(folder, "query", "web", "--per", "1d", "--format", "json").splitlines()]
    values = [(day["window_start"][:10], day["mean"], day["total"], day["most"]) for day in days]
    assert values == [("2024-05-01", 2.25, 4.5, None), ("2024-05-02", 8.0, 8.0, 8.0)]
    assert all("n" not in day for day in days)


@pytest.mark.slow
@pytest.mark.long
def test_mistakes_are_one_sentence_and_change_nothing(folder, run):
    before = run(folder, "inspect", "web")
    for message, arguments in {
        "the store has no measure 'm'": ("--drop", "m"),
        "cannot be added and dropped at once": ("--drop", "n", "--measure", "n=count()"),
        "choose another name for the new measure": ("--measure", "mean=sum(ms)"),
        "10m does not consist of whole windows of 1h": ("--levels", "10m"),
        "the types of ms determine": ("--measure", "most=max(ms)"),
    }.items():
        error = run(folder, "evolve", "web", *arguments, status=2)
        assert message in error, error
        assert error.count("\n") == 1, error
    assert "there is no store" in run(folder, "evolve", "nowhere", "--drop", "n", status=2)
    assert run(folder, "inspect", "web") == before
