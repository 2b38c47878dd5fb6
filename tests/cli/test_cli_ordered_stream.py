"""tiltframe stream --ordered: results of ordered rows, also from a saved state; late rows and bad rows are written
separately.
"""

from __future__ import annotations

import json
import os
import random
from functools import partial

import pyarrow as pa
import pytest

import aggr
from tiltframe import OrderedFrame, finish_ordered, ordered_rollup, running

COMMAND = ["stream", "--time", "ts", "--key", "k", "--measure", "n=sum(x)"]
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))


@pytest.fixture
def run(forked):
    return partial(run_command, forked)


def run_command(forked, rows: list[dict], *options: str, status: int = 0) -> list[dict] | str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    ended, output, errors = forked.run([*COMMAND, *options], text=text)
    assert ended == status, errors
    return [json.loads(line) for line in output.splitlines()] if status == 0 else errors


def input_rows(n: int = 60) -> list[dict]:
    draws = random.Random(SEED)
    rows = [
        {"ts": 1000 * at + draws.randrange(900), "k": draws.choice("ab"), "x": draws.randrange(9)} for at in range(n)
    ]
    return sorted(rows, key=lambda row: row["ts"] + draws.randrange(20_000))


@pytest.mark.slow
@pytest.mark.long
def test_a_window_and_a_chain_are_those_of_the_batch_job_also_over_restarts(tmp_path, run):
    rows = input_rows()
    table = pa.Table.from_pylist(rows)
    emitted = run(rows, "--ordered", "sliding(3)", "--disorder", "20s")
    batch_result = running(table, {"n": aggr.sum("x")}, "sliding(3)", time="ts", keys=["k"]).to_pylist()
    assert sorted(map(repr, emitted)) == sorted(map(repr, batch_result)), SEED
    options = ["--ordered", "count(2),count(3)", "--disorder", "20s"]
    parts = [run(rows[at : at + 25], *options, "--state", str(tmp_path / "state")) for at in (0, 25)]
    parts.append(run(rows[50:], *options, "--state", str(tmp_path / "state")))
    frame = OrderedFrame(["count(2)", "count(3)"], "ts", {"n": aggr.sum("x")}, ["k"])
    batch_result = finish_ordered(ordered_rollup(table, frame), frame)
    until = max(row["ts"] for row in rows) - 20_000  # what comes after waits in the state
    expected = [(r["level"], r["k"], r["n"]) for r in batch_result.to_pylist() if r["ts"].timestamp() * 1000 < until]
    assert sorted((r["level"], r["k"], r["n"]) for part in parts for r in part) == sorted(expected), SEED


@pytest.mark.slow
@pytest.mark.long
def test_late_and_bad_rows_are_kept_apart(tmp_path, run):
    options = [
        "--ordered",
        "since(minutely())",
        "--state",
        str(tmp_path / "state"),
        "--bad-rows",
        str(tmp_path / "bad"),
    ]
    options += ["--dropped", str(tmp_path / "late")]
    assert run([{"ts": 1000, "k": "a", "x": 1}, {"ts": "?", "k": "a", "x": 1}], *options) == []
    emitted = run([{"ts": 200_000, "k": "a", "x": 2}], *options)
    assert [(row["tick"], row["n"]) for row in emitted] == [(False, 1), (True, 1), (True, None), (True, None)]
    assert run([{"ts": 100_000, "k": "a", "x": 5}], *options) == []
    assert [json.loads(line)["x"] for line in (tmp_path / "late").read_text().splitlines()] == [5]
    assert len((tmp_path / "bad").read_text().splitlines()) == 1
    other = run([], *options[2:], "--ordered", "sliding(2)", status=2)
    assert "windows is ['since(minutely())'] in the saved state and ['sliding(2)'] here" in other


@pytest.mark.slow
@pytest.mark.long
def test_mistakes_are_one_sentence(tmp_path, run):
    mistakes = {
        "pass exactly one of --levels": [],
        "so --emit": ["--ordered", "count(2)", "--emit", "on_update"],
        "a store can contain only time windows": ["--ordered", "count(2)", "--store", str(tmp_path / "store")],
        "as an ordered window": ["--ordered", "1h"],
        "write the zone of ticks in --ordered": ["--ordered", "count(2)", "--timezone", "Europe/Berlin"],
    }
    for message, options in mistakes.items():
        output = run([], *options, status=2)
        assert message in " ".join(output.split()), output
        assert len(output.splitlines()) == 1
        assert len(output) <= 310
    assert not list(tmp_path.iterdir())
