"""A store read together with the saved state of a stream: all rows of the stream are counted once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.command_line import call
from tests.crash_processes import FRAME, CrashProcesses, rows, stream
from tests.serve.servers import serving
from tiltframe import FrameStore, Query, StoreError, TiltFrame, rollup
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.store.testing import MemoryBackend

pytestmark = [pytest.mark.store]
TRIALS, KILLS = (int(os.environ.get("TRIALS", default)) for default in ("6", "30"))
SECOND = 1_000_000
MEASURES = {"n": aggr.count(), "s": aggr.sum("x"), "p": aggr.dds("x", [0.5]), "last": aggr.last("x", by="ts")}


def assert_states(store, table):
    """Compare all levels with a rollup of all rows, to the bit."""
    batch_states = rollup(table, store.frame)
    for level in store.frame.levels:
        expected = batch_states.filter(pc.equal(batch_states["level"], level.name))
        states = store.states(level)
        assert states.num_rows == expected.num_rows
        for name in expected.column_names:
            assert same_bits(states[name], expected[name]), (level, name)


def naive(table, seconds):
    """Counts and exact sums of windows and keys, a row at a time."""
    sums = {}
    for row in table.to_pylist():
        window = row["ts"] // (1000 * seconds) * seconds, row["k"]
        n, total = sums.get(window, (0, Fraction(0)))
        sums[window] = n + 1, total + Fraction(row["x"])
    return {window: (n, float(total)) for window, (n, total) in sums.items()}


def batch(draws, now, table):
    """Some rows about a moment in seconds, some of them late."""
    n = draws.randrange(1, 30)
    times = [max(0, int((now - draws.expovariate(0.2)) * 1000)) for _ in range(n)]
    columns = [times, [draws.choice(["a", "b", None]) for _ in range(n)], [draws.uniform(-1e9, 1e9) for _ in range(n)]]
    return pa.table(columns, schema=table.schema)


@pytest.mark.long
@pytest.mark.parametrize("trial", range(TRIALS))
def test_random_streams_saved_killed_and_gone_on_with(trial):
    draws = random.Random(trial)
    table = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("x", pa.float64())]).empty_table()
    frame = TiltFrame(draws.choice([["1s", "10s", "1m"], ["5s", "1m"], ["1s"]]), "ts", MEASURES, ["k"])
    store = FrameStore(MemoryBackend(), frame, row_schema=table.schema)
    emit = draws.choice(["after_close", "after_close(delay=3s)", "after_close(timeout=5s)"])
    late = draws.choice(["true_window", "drop(4s)", "drop"])
    flow, now, accepted, other_rows = ClosedWindows(store, "s", emit, late, compact_every=4), 0.0, table, table
    saved, seen = flow.to_ipc(), table  # what the file has, and the rows of it
    for step in range(draws.randrange(10, 40)):
        now += draws.expovariate(0.5)
        act = draws.random()
        if act < 0.5:
            more = batch(draws, now, table)
            dropped = flow.add_rows(more)
            accepted = without(pa.concat_tables([accepted, more]), dropped)
            flow.advance(int((now - 2) * SECOND), int(now * SECOND))
        elif act < 0.6:
            other = batch(draws, now, table)
            store.append_rows(other, "other", step)
            other_rows = pa.concat_tables([other_rows, other])
        elif act < 0.75:
            saved, seen = flow.to_ipc(), accepted
        elif act < 0.9:
            saved, seen = flow.to_ipc(), accepted
            flow.commit()
        else:  # killed; it goes on from what is saved
            flow, accepted = ClosedWindows.from_ipc(saved, store, "s", emit, late, compact_every=4), seen
            flow.commit()
        if step % 4:
            continue
        read = store.with_open(saved)
        every = pa.concat_tables([seen, other_rows])
        assert_states(read, every)
        for level in frame.levels:
            results = {
                (int(row["window_start"].timestamp()), row["k"]): (row["n"], row["s"])
                for row in read.query(level.name, flat=True).to_pylist()
            }
            assert results == naive(every, {"1s": 1, "5s": 5, "10s": 10, "1m": 60}[level.name]), (trial, step)


def without(table, dropped):
    """Take rows out, each once."""
    dropped_rows = [tuple(row.values()) for row in dropped.to_pylist()]
    left = []
    for i, row in reversed(list(enumerate(table.to_pylist()))):
        if (at := tuple(row.values())) in dropped_rows:
            dropped_rows.remove(at)
        else:
            left.append(i)
    assert not dropped_rows
    return table.take(pa.array(left[::-1], pa.int64()))


def test_a_state_that_is_older_than_the_store_is_refused(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    flow = ClosedWindows(store, "s")
    states = []
    for number in range(3):
        flow.add_rows(rows("s", number))
        states.append(flow.to_ipc())  # held open, and nothing on its way
        flow.advance(int(rows("s", number)["ts"][0].as_py()) * 1000 + 20 * SECOND)
        states.append(flow.to_ipc())
        flow.commit()
    assert_states(store.with_open(states[-1]), pa.concat_tables([rows("s", number) for number in range(3)]))
    for old in states[:-1]:
        with pytest.raises(StoreError, match="is older than the store"):
            store.with_open(old).query("1m")
    changed = ClosedWindows.from_ipc(states[-1], store, "s")
    changed.uncommitted_windows = changed.uncommitted_windows.slice(1)  # another commit of this number is in the store
    with pytest.raises(StoreError, match="is older than the store"):
        store.with_open(changed.to_ipc()).query("1m")
    other = FrameStore(tmp_path / "o", FRAME)
    other.append(rollup(rows("s", 0), FRAME), "w", 0)
    with pytest.raises(StoreError, match="name the store of this stream"):
        other.with_open(states[-1]).query("1m")
    with pytest.raises(StoreError, match="not a saved state of open windows"):
        store.with_open(b"x").query("1m")
    with pytest.raises(StoreError, match=r"cannot read the saved state: .*no such file"):
        store.with_open(tmp_path / "none").query("1m")
    message = r"a saved stream must be a path, such as .*, or the bytes that to_ipc returns; got 3"
    with pytest.raises(TypeError, match=message):
        store.with_open(3)
    for write in ("compact", "vacuum", "verify"):
        with pytest.raises(ValueError, match="to write, open the store without"):
            getattr(store.with_open(states[-1]), write)()
    with pytest.raises(ValueError, match="to write, open the store without"):
        store.with_open(states[-1]).copy_to(tmp_path / "copy")
    with pytest.raises(ValueError, match="to write, open the store without"):
        store.with_open(states[-1]).append(rollup(rows("s", 9), FRAME), "w", 0)


def test_another_frame_is_refused_and_an_added_measure_is_not_known(tmp_path):
    counts = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()}, ["k"])
    store = FrameStore(tmp_path / "s", counts)
    flow = ClosedWindows(store, "s")
    flow.add_rows(rows("s", 0))
    flow.advance(int(rows("s", 0)["ts"][0].as_py()) * 1000 + 20 * SECOND)
    saved = flow.to_ipc()
    flow.commit()
    store.evolve(TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"]), rows("s", 0).schema)
    answer = store.with_open(saved).ask(Query("1m", flat=True))
    assert answer.table().select(["n", "s"]).to_pylist() == [{"n": 3, "s": None}, {"n": 1, "s": None}]
    other = FrameStore(tmp_path / "o", TiltFrame(["1s", "1m"], "ts", {"n": aggr.count()}, ["k"]))
    other.append_rows(rows("w", 0), "w", 0)
    with pytest.raises(StoreError, match="another frame"):
        other.with_open(saved).query("1m")


@pytest.mark.slow
@pytest.mark.long
def test_kills_of_the_stream_leave_every_row_once(tmp_path):
    path, file, chance = str(tmp_path / "s"), tmp_path / "state", random.Random(int(os.environ.get("SEED", "7")))
    FrameStore(path, FRAME, row_schema=rows("s", 0).schema)
    processes, batches = CrashProcesses(tmp_path), [rows("s", 0).slice(0, 0)]
    store, reads, highest = None, 0, 0

    def look():
        """Read the store with the newest state: it has the rows of some whole batches, and not fewer than before."""
        nonlocal highest
        n = (store.query("all", keys=[])["n"].to_pylist() or [0])[0]
        assert n % 4 == 0
        assert n // 4 >= highest
        highest = n // 4
        while len(batches) <= highest:
            batches.append(rows("s", len(batches) - 1))

    for turn in range(KILLS):
        child = processes.start(stream.__name__, path, str(file))
        processes.wait(child)
        store = store or FrameStore(path).with_open(file)
        until = time.monotonic() + chance.random() * 0.4
        while time.monotonic() < until:
            look()
            reads += 1
        acknowledged = processes.kill(child)
        look()
        assert highest >= acknowledged[-1]
        if turn % 5 == 4:
            assert_states(store, pa.concat_tables(batches[: highest + 1]))
    processes.close()
    print(f"\n{KILLS} kills; {highest} batches, asked {reads} times next to the stream")
    assert reads > KILLS


@pytest.mark.slow
@pytest.mark.long
def test_the_command_and_the_server_follow_a_stream(tmp_path, capfd):
    path, file = str(tmp_path / "web"), tmp_path / "web.state"
    into = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "10s,1m", "--store", path]
    command = [sys.executable, "-m", "tiltframe.cli", "stream", *into, "--state", str(file)]

    def say(process, *seconds):
        process.stdin.write("".join(json.dumps({"ts": second * 1000, "k": "a"}) + "\n" for second in seconds))
        process.stdin.flush()

    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        say(process, 1, 2, 11, 12, 13)
        arguments = ["query", path, "--per", "1m", "--no-keys", "--format", "json", "--with-open", str(file)]
        for _ in range(600):
            if file.exists() and Path(path).exists() and call(capfd, *arguments)[0] == 0:
                break
            time.sleep(0.1)
        status, out, _ = call(capfd, *arguments)
        assert (status, json.loads(out)["n"]) == (0, 5)
        assert json.loads(call(capfd, *arguments[:-2])[1])["n"] == 2
        with serving(tmp_path, path, "--with-open", file) as server:
            words = {"store": "web", "per": "1m", "keys": "", "now": "2024-05-01"}
            first = server.query(**words)
            assert [row["n"] for row in first.json()["rows"]] == [5]
            assert server.query(**words, headers={"If-None-Match": first.headers["ETag"]}).status == 304
            say(process, 14)  # closes nothing; the state is saved all the same
            for _ in range(300):
                time.sleep(0.1)
                say(process, 14)
                if server.query(**words, headers={"If-None-Match": first.headers["ETag"]}).status == 200:
                    break
            second = server.query(**words)
            assert second.headers["ETag"] != first.headers["ETag"]
            assert second.json()["rows"][0]["n"] > 5
            file.rename(tmp_path / "away")
            assert "cannot read the saved state" in server.query(**words, limit=3).json()["error"]
        process.stdin.close()
    status, _, err = call(capfd, "serve", path, "--writable", "--with-open", str(file))
    assert (status, "cannot accept events" in err) == (2, True)
    status, _, err = call(capfd, "serve", path, f"other={path}", "--with-open", str(file))
    assert (status, "name the store of the state" in err) == (2, True)
    status, _, err = call(capfd, "serve", path, "--with-open", f"other={file}")
    assert (status, "no store 'other' is served" in err) == (2, True)
