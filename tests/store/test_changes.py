"""Changes are the windows whose states differ, compared with all states of two versions; a watcher that is killed."""

from __future__ import annotations

import json
import os
import random
import time

import pytest

from tests.command_line import call
from tests.crash_processes import BEGIN, FRAME, CrashProcesses, append, compact, rows, watch
from tiltframe import FrameStore, rollup
from tiltframe.store import SeenParts
from tiltframe.store.testing import MemoryBackend

pytestmark = [pytest.mark.store, pytest.mark.slow, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]
KILLS = int(os.environ.get("TRIALS", "12"))  # at random moments


def states_of(store):
    """All states by level, window and key, as text."""
    return {
        (level.name, row["window_start"], row["k"]): repr(row)
        for level in FRAME.levels
        for row in store.states(level.name).to_pylist()
    }


def named(windows):
    return [(row["level"], row["window_start"], row["k"]) for row in windows.to_pylist()]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "folder", "postgres"])
def test_changes_are_the_windows_whose_states_differ(kind, tmp_path, request):
    place = request.getfixturevalue("postgres") if kind == "postgres" else str(tmp_path / "s")
    store = FrameStore(MemoryBackend() if kind == "memory" else place, FRAME, retention={"10s": "2m"})
    draws, number = random.Random(4), 0

    def random_states(at=None):
        return rollup(rows(draws.choice("ab"), draws.randrange(30), at), FRAME)

    work = {
        "append": lambda: store.append(random_states(), "w", number),
        "compact": lambda: store.compact(),
        "replace": lambda: store.replace(random_states(BEGIN + 600_000), (BEGIN + 600_000, BEGIN + 720_000)),
        "expire": lambda: store.expire(now=BEGIN + draws.randrange(400_000)),
        "several": lambda: [store.append(random_states(), "v", number), store.compact()],
        "retract": lambda: [store.append(states := random_states(), "u", number), store.retract(states, "x", number)],
        "nothing": lambda: None,
    }
    store.append(random_states(), "w", number)
    changes, before = store.changes(), states_of(store)
    assert sorted(map(str, named(changes.windows))) == sorted(map(str, before))
    for name in [*work, *draws.choices([*work], k=4 if kind == "memory" else 0)]:
        number += 1
        work[name]()
        changes, after = store.changes(SeenParts.from_json(changes.seen.to_json())), states_of(store)
        got = named(changes.windows)
        assert len(got) == len(set(got))
        assert set(got) == {key for key in {*before, *after} if before.get(key) != after.get(key)}, name
        before = after
    store.append(random_states(), "w", number + 1)
    store.compact()
    if kind == "memory":
        store.backend.vacuum(0.0)
    assert {key for key in states_of(store) if before.get(key) != states_of(store)[key]} <= set(
        named(store.changes(changes.seen).windows)
    )
    with pytest.raises(ValueError, match="since must be a SeenParts"):
        store.changes(3)
    with pytest.raises(ValueError, match=r"pass text that SeenParts\.to_json wrote"):
        SeenParts.from_json("[]")


def test_watch_goes_on_from_a_file(tmp_path, capfd):
    store = FrameStore(str(tmp_path / "s"), FRAME)
    store.append(rollup(rows("w", 0), FRAME), "w", 0)
    looked = ["watch", store.uri, "--since", str(tmp_path / "seen.json"), "--once"]
    assert call(capfd, *looked)[:2] == (0, "")
    store.append(rollup(rows("w", 1), FRAME), "w", 1)
    status, out, _ = call(capfd, *looked)
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, {line["k"] for line in lines}, {line["level"] for line in lines}) == (
        0,
        {"w:1"},
        {"10s", "1m", "10m"},
    )
    assert all(line["version"] == store.version() for line in lines)
    assert call(capfd, *looked)[:2] == (0, "")
    (tmp_path / "seen.json").write_text("{}")
    assert call(capfd, *looked)[0] == 2


@pytest.mark.long
def test_a_watcher_that_is_killed_tells_of_every_change(tmp_path):
    path, chance, processes = str(tmp_path / "s"), random.Random(5), CrashProcesses(tmp_path)
    store = FrameStore(path, FRAME)
    store.append(rollup(rows("w", 0), FRAME), "w", 0)
    (tmp_path / "seen.json").write_text(store.changes().seen.to_json())
    (lines := tmp_path / "lines").touch()
    for turn in range(KILLS):
        working = processes.start((append, append, compact)[turn % 3].__name__, path)
        told_bytes, until = lines.stat().st_size, time.monotonic() + 2
        watching = processes.start(watch.__name__, path, str(tmp_path))
        while turn % 3 == 1 and lines.stat().st_size == told_bytes and time.monotonic() < until:
            time.sleep(0.01)  # until it is at work
        time.sleep(chance.random() * 0.2)
        for child in (watching, working):
            processes.kill(child)
    processes.close()
    seen = SeenParts.from_json((tmp_path / "seen.json").read_text())
    assert _lines(lines), "nothing was ever told"
    reported = {(row["level"], row["window_start"], row["k"]) for row in _lines(lines)}
    reported |= {
        (level, start.strftime("%Y-%m-%dT%H:%M:%SZ"), k) for level, start, k in named(store.changes(seen).windows)
    }
    new = {(level, start.strftime("%Y-%m-%dT%H:%M:%SZ"), k) for level, start, k in states_of(store) if k != "w:0"}
    assert reported == new


def _lines(file):
    """Read whole lines; the last one may be cut."""
    texts = file.read_text().splitlines(keepends=True)
    return [json.loads(text) for text in texts if text.endswith("\n")]
