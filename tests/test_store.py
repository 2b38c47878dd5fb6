"""The folder store: whole or not there, whatever happens to its writer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, rollup
from tiltframe.manifest import StoreError
from tiltframe.store import Store

FRAME = TiltFrame(["1s", "1m"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])


def states(start: int, rows: int = 100) -> pa.Table:
    data = pa.table({"ts": [start * 1000 + i * 10 for i in range(rows)], "x": [1] * rows, "k": ["a"] * rows})
    return rollup(data, FRAME)


def total(store: Store) -> int:
    return sum(store.query("1m").column("n").to_pylist())


def test_commits_add_up_and_count_once(tmp_path):
    store = Store.open_or_create(tmp_path / "s", FRAME)
    assert not (tmp_path / "s").exists()
    assert store.commit(states(0), "one")
    assert store.commit(states(0), "two", ["file"])
    assert not store.commit(states(0), "two")
    again = Store.open(tmp_path / "s")
    assert again.frame == FRAME
    assert total(again) == 200
    assert list(again.commits) == ["one", "two"]
    assert again.commits["two"]["made_from"] == ["file"]
    assert sum(p.is_dir() for p in (tmp_path / "s").iterdir()) == 2


def test_a_query_changes_nothing(tmp_path):
    store = Store.open_or_create(tmp_path / "s", FRAME)
    store.commit(states(0), "one")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    first = store.query("1s")
    assert store.query("1s").equals(first)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(tmp_path / "nope")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file"):
        Store.open_or_create(tmp_path / "file", FRAME)
    with pytest.raises(StoreError, match="not empty and no store"):
        Store.open_or_create(tmp_path, FRAME)


def test_states_of_another_frame_are_refused(tmp_path):
    other = TiltFrame(["1s"], "ts", {"n": aggr.count()})
    store = Store.open_or_create(tmp_path / "s", FRAME)
    with pytest.raises(ValueError, match="not states of this frame"):
        store.commit(rollup(pa.table({"ts": [1]}), other), "one")
    assert not (tmp_path / "s").exists()


def test_damage_is_one_clear_error(tmp_path):
    store = Store.open_or_create(tmp_path / "s", FRAME)
    store.commit(states(0), "one")
    folder = tmp_path / "s" / store.commits["one"]["folder"]
    data = (folder / "1m.parquet").read_bytes()
    (folder / "1m.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError, match="damaged: cannot read"):
        store.query("1m")
    (folder / "1m.parquet").unlink()
    with pytest.raises(StoreError, match="it is missing"):
        store.query("1m")
    manifest = tmp_path / "s" / "tiltframe.json"
    whole = manifest.read_text()
    manifest.write_text(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"damaged: cannot read tiltframe\.json"):
        Store.open(tmp_path / "s")
    manifest.write_text(json.dumps({**json.loads(whole), "format": 99}))
    with pytest.raises(StoreError, match="newer than this release: upgrade"):
        Store.open(tmp_path / "s")


WRITER = """
import sys
sys.path.insert(0, {root!r})
from tests.test_store import FRAME, states, Store
for number in range({begin}, 10**6):
    Store.open_or_create({path!r}, FRAME).commit(states(number), str(number))
    print(number, flush=True)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_whole_commits(tmp_path):
    path, root = str(tmp_path / "s"), os.path.dirname(os.path.dirname(__file__))
    rng, acknowledged = random.Random(0), -1
    for _ in range(12):
        script = WRITER.format(root=root, path=path, begin=acknowledged + 1)
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()  # it is at work
        time.sleep(rng.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        rest = [line, *process.stdout.read().split("\n")]
        process.wait()
        process.stdout.close()
        numbers = [int(text) for text in rest if text.strip().isdigit()]
        acknowledged = max([acknowledged, *numbers])
        store = Store.open(path)
        commits = sorted(int(number) for number in store.commits)
        assert commits == list(range(len(commits)))
        assert acknowledged in (commits[-1], commits[-1] - 1)  # one may be whole and not yet acknowledged
        assert total(store) == 100 * len(commits)
        acknowledged = commits[-1]


def test_a_crash_before_the_first_commit_is_no_obstacle(tmp_path):
    script = (  # killed between the manifest and the first commit
        f"import os, sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})\n"
        "from tests.test_store import FRAME, Store\n"
        f"with Store.open_or_create({str(tmp_path / 's')!r}, FRAME)._writing() as folder:\n"
        "    (folder / '1s.parquet').touch(); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert list((tmp_path / "s").glob("commit-*/1s.parquet"))
    with pytest.raises(StoreError, match="holds nothing yet"):
        Store.open(tmp_path / "s").query("1m")
    other = TiltFrame(["1s"], "ts", {"n": aggr.count()})
    assert Store.open_or_create(tmp_path / "s", other).frame == other  # nothing in it, so it may be any frame's
    store = Store.open_or_create(tmp_path / "s", FRAME)
    store.commit(states(0), "one")
    assert total(Store.open(tmp_path / "s")) == 100
    assert sum(p.name.startswith("commit-") for p in (tmp_path / "s").iterdir()) == 1


def test_commits_without_their_manifest_are_not_written_over(tmp_path):
    Store.open_or_create(tmp_path / "s", FRAME).commit(states(0), "one")
    (tmp_path / "s" / "tiltframe.json").unlink()
    with pytest.raises(StoreError, match=r"damaged: it has commits, and no tiltframe\.json"):
        Store.open_or_create(tmp_path / "s", FRAME)


def test_states_of_other_types_are_refused_before_they_are_written(tmp_path):
    store = Store.open_or_create(tmp_path / "s", FRAME)
    store.commit(states(0), "one")
    data = pa.table({"ts": [1], "x": [1.5], "k": ["a"]})
    with pytest.raises(StoreError, match="keeps states of int64 in 's', and this is states of double"):
        store.commit(rollup(data, FRAME), "two")
    with pytest.raises(StoreError, match="keeps string in 'k', and this is int64"):
        store.commit(rollup(data.set_column(2, "k", pa.array([7])), FRAME), "two")
    assert total(store) == 100


def test_a_writer_of_another_frame_that_came_second_is_refused(tmp_path):
    other = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["k"])
    mine, theirs = Store.open_or_create(tmp_path / "s", FRAME), Store.open_or_create(tmp_path / "s", other)
    mine.commit(states(0), "one", ["file"])
    with pytest.raises(StoreError, match="of another frame: levels"):
        theirs.commit(rollup(pa.table({"ts": [1], "k": ["a"]}), other), "two")
    with pytest.raises(StoreError, match="file was added by someone else"):
        mine.commit(states(0), "three", ["file", "more"])
    assert total(Store.open(tmp_path / "s")) == 100


def test_a_flipped_bit_is_noticed(tmp_path):
    store = Store.open_or_create(tmp_path / "s", FRAME)
    store.commit(states(0), "one")
    file = tmp_path / "s" / store.commits["one"]["folder"] / "1m.parquet"
    whole, before = file.read_bytes(), store.query("1m")
    rng = random.Random(1)
    for _ in range(150):
        at = rng.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        with contextlib.suppress(StoreError):  # noticed
            assert store.query("1m").equals(before)


@pytest.mark.slow
def test_two_writers_at_once_lose_nothing(tmp_path):
    path, root = str(tmp_path / "s"), os.path.dirname(os.path.dirname(__file__))
    script = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "from tests.test_store import FRAME, states, Store\n"
        f"for i in range(15): Store.open_or_create({path!r}, FRAME).commit(states(i), sys.argv[1] + str(i))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, name]) for name in "ab"]
    assert [w.wait() for w in writers] == [0, 0]
    assert total(Store.open(path)) == 2 * 15 * 100
