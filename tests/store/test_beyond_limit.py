"""Groups beyond an absorbing limit are null in queries of a store, in whichever commit or merge they exceed it, and are
reported.
"""

from __future__ import annotations

import random
import warnings

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import BeyondLimit

pytestmark = pytest.mark.store

LIMIT = 3
MEASURES = {"values": aggr.count_distinct("x", max=LIMIT, beyond="null"), "n": aggr.count()}
MINUTE = 60_000


def counts_of(rows: list[dict], length: int) -> dict[tuple[int, str], int | None]:
    """Count distinct values by window and key, without the library."""
    groups: dict[tuple[int, str], set[int]] = {}
    for row in rows:
        groups.setdefault((row["ts"] // length, row["k"]), set()).add(row["x"])
    return {group: len(values) if len(values) <= LIMIT else None for group, values in groups.items()}


def queried(store: FrameStore, level: str, length: int) -> dict[tuple[int, str], int | None]:
    results = store.query(per=level, keys=["k"]).to_pylist()
    return {(int(row["window_start"].timestamp() * 1000) // length, row["k"]): row["values"] for row in results}


def test_commits_and_compaction_in_any_order(place):
    rng = random.Random(5)
    store = FrameStore(place, TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"]))
    rows = [{"ts": rng.randrange(40) * MINUTE, "k": rng.choice("abc"), "x": rng.randrange(6)} for _ in range(300)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondLimit)
        for number in range(4):
            store.append_rows(pa.Table.from_pylist(rows[number::4]), "w", number)
    expected = {length: counts_of(rows, length) for length in (MINUTE, 60 * MINUTE)}
    assert None in expected[MINUTE].values()
    assert {1, 2, 3} <= set(expected[MINUTE].values())
    for _ in range(2):
        assert queried(store, "1m", MINUTE) == expected[MINUTE]
        assert queried(store, "1h", 60 * MINUTE) == expected[60 * MINUTE]
        store.compact()


def test_python_warns_with_the_number_of_groups_of_each_level(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"])
    rows = pa.table({"ts": [0, 0, 0, MINUTE, 0], "k": ["a", "a", "a", "a", "b"], "x": [1, 2, 3, 4, 1]})
    says = "values, .*: the results of groups with more values than the limit are null: 1 at level 1h$"
    with pytest.warns(BeyondLimit, match=says) as caught:
        states = rollup(rows, frame)
    assert caught[0].filename == __file__
    store = FrameStore(tmp_path / "store", frame)
    with pytest.warns(BeyondLimit, match=says) as caught:
        store.append_rows(rows, "w", 1)
    assert caught[0].filename == __file__
    notes: list[str] = []
    assert store.append(states, "w", 2, note=notes.append)
    assert len(notes) == 1
    assert not store.append(states, "w", 2, note=notes.append)  # nothing was added
    assert len(notes) == 1


def test_the_command_says_it_on_standard_error(tmp_path, capfd):
    (tmp_path / "rows.csv").write_text("ts,x\n0,1\n0,2\n60000,1\n")
    options = ["--time", "ts", "--measure", "n=count_distinct(x, max=1, beyond=null)", "--levels", "1m,1h"]
    store = ["--store", tmp_path / "store"]
    command = ["rollup", tmp_path / "rows.csv", *options, *store]
    status, out, err = call(capfd, *command)
    assert (status, out) == (0, "")
    assert "n, count_distinct('x', max=1, beyond='null'): the results of groups with more values" in err
    assert "are null: 1 at level 1m, 1 at level 1h\n" in err
    query = ["query", tmp_path / "store", "--per", "1m", "--format", "csv"]
    assert call(capfd, *query)[1].splitlines()[1:] == [
        '"1970-01-01T00:00:00Z","1970-01-01T00:01:00Z",,false',
        '"1970-01-01T00:01:00Z","1970-01-01T00:02:00Z",1,false',
    ]
