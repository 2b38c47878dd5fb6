"""All options are checked before anything is done: a mistake in any option leaves every byte of a store unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup

pytestmark = pytest.mark.store

FRAME = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "10s,1m,1h"]
ROWS = '{"ts": "2024-05-01T10:00:00Z", "k": "a"}\n{"ts": "2024-05-01T11:00:00Z", "k": "b"}\n'
DAY = "2024-05-01,2024-05-02"


@pytest.fixture
def desk(tmp_path, monkeypatch, capfd):
    """A store of two commits, some of whose windows are old enough to expire."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text(ROWS + "\n" * len(name[:1]) + ("\n" if name == "b.jsonl" else ""))
        assert call(capfd, "rollup", name, *FRAME, "--store", "st", "--retention", "10s=1d")[0] == 0
    store = FrameStore("st")
    finest = rollup(pa.table({"ts": [0], "k": ["z"]}), store.frame).slice(0, 1)
    store.append(finest, "late", 1)
    Path("new.jsonl").write_text(ROWS + ROWS)
    Path("bad.jsonl").write_text(ROWS + "{")
    Path("half.csv").write_text('ts,k\n0,"a\n')
    return tmp_path


def everything(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


OPTIONS = {
    "expire --clean": ["expire", "st", "--clean", "x"],
    "expire --retention --clean": ["expire", "st", "--retention", "10s=2d", "--clean", "x"],
    "expire --retention --now": ["expire", "st", "--retention", "10s=2d", "--now", "x"],
    "expire --now": ["expire", "st", "--now", ""],
    "expire --retention": ["expire", "st", "--retention", "10s=soon"],
    "expire --retention of no level": ["expire", "st", "--retention", "7s=1d"],
    "expire --retention twice": ["expire", "st", "--retention", "10s=1d,10s=2d"],
    "expire --retention of one level twice": ["expire", "st", "--retention", "1m=1d,60s=2d"],
    "expire --name": ["expire", "st", "--name", "other"],
    "expire of nothing": ["expire", "nope", "--clean", "1d"],
    "compact --clean": ["compact", "st", "--clean", "x"],
    "compact --clean of nothing": ["compact", "st", "--clean", ""],
    "compact --before": ["compact", "st", "--before", "x"],
    "compact --before a pattern": ["compact", "st", "--before", "2024-**-**"],
    "compact --name": ["compact", "st", "--name", "2"],
    "rollup --retention": ["rollup", "new.jsonl", *FRAME, "--store", "st", "--retention", "10s=x"],
    "rollup --retention, a bad file": ["rollup", "bad.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d"],
    "rollup --retention, no file": ["rollup", "nope.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d"],
    "rollup --retention, a quote": ["rollup", "half.csv", *FRAME, "--store", "st", "--retention", "10s=2d"],
    "rollup --retention, a range": [
        *["rollup", "new.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d", "--replace-within", "x"]
    ],
    "rollup --retention, an empty range": [
        *[
            "rollup",
            "new.jsonl",
            *FRAME,
            "--store",
            "st",
            "--retention",
            "10s=2d",
            "--replace-within",
            "2030-01-01,2030-01-02",
        ]
    ],
    "rollup --replace-within nothing": ["rollup", "new.jsonl", *FRAME, "--store", "st", "--replace-within", ""],
    "rollup of good and bad": ["rollup", "new.jsonl", "bad.jsonl", *FRAME, "--store", "st"],
    "rollup of bad within": ["rollup", "new.jsonl", "bad.jsonl", *FRAME, "--store", "st", "--replace-within", DAY],
    "rollup --type": ["rollup", "new.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d", "--type", "k=x"],
    "rollup --encoding": ["rollup", "new.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d", "--encoding", "x"],
    "rollup into a new store": ["rollup", "bad.jsonl", *FRAME, "--store", "new"],
    "rollup a range of a new store": [
        "rollup",
        "new.jsonl",
        *FRAME,
        "--store",
        "new",
        "--replace-within",
        "2024-05-01T",
    ],
    "query --out": ["query", "st", "--per", "7s", "--out", "out.json", "--format", "json"],
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_mistake_in_any_option_changes_nothing(case, desk, capfd):
    before = everything(desk)
    status, out, err = call(capfd, *OPTIONS[case])
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert everything(desk) == before


METHODS = {
    "compact": lambda store, states: store.compact("x"),
    "expire": lambda store, states: store.expire("x"),
    "vacuum": lambda store, states: store.vacuum("x"),
    "rebuild": lambda store, states: store.rebuild("x"),
    "replace in no range": lambda store, states: store.replace(states, "x"),
    "replace in broken windows": lambda store, states: store.replace(
        states, ("2024-05-01T10:00:01", "2024-05-01T11:00")
    ),
    "replace outside": lambda store, states: store.replace(states, "2025-01-01 **:**:**"),
    "replace by other states": lambda store, states: store.replace(states.drop_columns(["n"]), DAY),
    "append nobody's": lambda store, states: store.append(states, "", 1),
    "retention": lambda store, states: FrameStore(store.uri, retention={"10s": "x"}),
}


@pytest.mark.parametrize("case", METHODS)
@pytest.mark.parametrize("where", ["st", "new"])
def test_a_mistake_in_any_argument_changes_nothing(case, where, desk):
    frame = TiltFrame(["10s", "1m", "1h"], "ts", {"n": aggr.count()}, ["k"])
    states = rollup(pa.table({"ts": ["2024-05-01T10:00:00Z"], "k": ["q"]}), frame)
    store = FrameStore(where, frame)
    before = everything(desk)
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        METHODS[case](store, states)
    assert everything(desk) == before


def test_what_is_right_is_done(desk, capfd):
    assert call(capfd, "rollup", "new.jsonl", *FRAME, "--store", "st", "--retention", "10s=2d")[0] == 0
    assert FrameStore("st").retention == {"10s": "2d"}
    nothing_new = ["rollup", "new.jsonl", *FRAME, "--store", "st", "--retention"]
    for argument, text in (
        ("10s=3d", "10s 3d"),
        ("10s=none", "for ever at every level"),
        ("10s=3d,1m=9d", "10s 3d, 1m 9d"),
    ):
        status, _, error = call(capfd, *nothing_new, argument)
        assert (status, error.splitlines()[-1]) == (0, f"st: the retention is now {text}")
        assert "retention" not in call(capfd, *nothing_new, argument)[2]
    assert FrameStore("st").retention == {"10s": "3d", "1m": "9d"}
    assert call(capfd, "expire", "st", "--retention", "10s=4d,1m=none", "--now", "2024-06-01", "--clean", "2d")[0] == 0
    assert FrameStore("st").retention == {"10s": "4d"}
    assert call(capfd, "compact", "st", "--before", "2024-06-01", "--clean", "0s")[0] in (0, 2)
    out = call(capfd, "query", "st", "--per", "all", "--no-keys", "--format", "json")[1]
    assert json.loads(out)["n"] == 9
