"""Values that hdr skips are counted in states, reported by each interface, and recorded with the commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import RefusedValues

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"p": aggr.hdr("ms", bad_values="skip"), "n": aggr.count()}, ["k"])
ROWS = pa.table({"ts": [0, 0, 60_000, 60_000], "k": ["a", "b", "a", "a"], "ms": [5, -1, -2, 9]})
SAYS = r"p, hdr\('ms', bad_values='skip'\): invalid values skipped: 2$"


def test_doors_report_and_commits_record(place):
    with pytest.warns(RefusedValues, match=SAYS) as caught:
        states = rollup(ROWS, FRAME)
    assert caught[0].filename == __file__
    store = FrameStore(place, FRAME)
    with pytest.warns(RefusedValues, match=SAYS) as caught:
        store.append_rows(ROWS, "w", 1)
    assert caught[0].filename == __file__
    notes: list[str] = []
    assert store.append(states, "w", 2, note=notes.append)
    assert not store.append(states, "w", 2, note=notes.append)
    assert store.append_rows(ROWS.slice(0, 1), "w", 3, note=notes.append)
    assert len(notes) == 1
    assert store.refused_values("w") == {1: {"p": 2}, 2: {"p": 2}}
    assert store.refused_values("another") == {}
    [row] = store.query(per="all", keys=[], measures=["p", "n"]).to_pylist()
    assert (row["p"]["count"], row["n"]) == (2 + 2 + 1, 4 + 4 + 1)
    with pytest.warns(RefusedValues):
        refused_row = rollup(ROWS.slice(1, 1), FRAME)
    store.retract(refused_row, "w", 4)
    [row] = store.query(per="all", keys=[], measures=["p", "n"]).to_pylist()
    assert (row["p"]["count"], row["n"]) == (2 + 2 + 1, 4 + 4 + 1 - 1)
    assert set(store.refused_values("w")) == {1, 2}


def test_tasks_that_write_parts_of_a_commit_record_their_values(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    with pytest.warns(RefusedValues):
        parts = [rollup(ROWS.filter(pa.compute.equal(ROWS["k"], key)), FRAME) for key in "ab"]
    commit = store.begin("tasks", 7, parts[0].schema)
    receipts = [commit.write(part) for part in parts]
    with pytest.warns(RefusedValues, match=SAYS) as caught:
        assert commit.commit(receipts)
    assert caught[0].filename == __file__
    assert store.refused_values("tasks") == {7: {"p": 2}}


def test_the_command_says_it_on_standard_error(tmp_path, capfd):
    (tmp_path / "rows.csv").write_text("ts,ms\n0,1\n0,-2\n60000,1\n")
    options = ["--time", "ts", "--measure", "p=hdr(ms, bad_values=skip)", "--levels", "1m,1h"]
    command = ["rollup", tmp_path / "rows.csv", *options, "--store", tmp_path / "store"]
    status, out, err = call(capfd, *command)
    assert (status, out) == (0, "")
    assert "p, hdr('ms', bad_values='skip'): invalid values skipped: 1\n" in err
