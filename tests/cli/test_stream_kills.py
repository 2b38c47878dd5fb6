"""A stream into a store that is killed, stopped, drained or started twice does not lose rows, or count them twice."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tiltframe import FrameStore

pytestmark = [pytest.mark.long, pytest.mark.store]

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
STOPS = int(os.environ.get("TILTFRAME_STOPS", "4"))
BEGIN = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
STREAM = [
    sys.executable,
    "-m",
    "tiltframe.cli",
    "stream",
    "--time",
    "ts",
    "--measure",
    "n=count()",
    "--measure",
    "x=sum(x)",
]
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


class ArrivingFiles:
    """Writes files of rows into a folder; some lines cannot be read, and some rows are of a wrong clock."""

    def __init__(self, folder: Path, draws: random.Random) -> None:
        self.folder, self.draws = folder, draws
        self.files = self.rows = self.bad = self.total = 0
        folder.mkdir()

    def write(self) -> None:
        lines = []
        for _ in range(self.draws.randint(1, 40)):
            seconds, x = self.files * 7 + self.draws.uniform(-30, 5), self.draws.randrange(100)
            lines.append(json.dumps({"ts": (BEGIN + dt.timedelta(seconds=seconds)).isoformat(), "x": x}))
            self.rows, self.total = self.rows + 1, self.total + x
        if self.draws.random() < 0.5:
            ahead = {"ts": "2124-05-01T10:00:00Z", "x": self.bad}
            lines.append(self.draws.choice(["{broken %d" % self.bad, json.dumps(ahead)]))  # noqa: UP031
            self.bad += 1
        path = self.folder / f"{self.files:04}.jsonl"
        path.with_suffix(".part").write_text("\n".join(lines) + "\n")
        path.with_suffix(".part").rename(path)
        self.files += 1


def wait_until(is_so: Callable[[], bool], case: str) -> None:
    """Wait for at most two minutes."""
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end, case
        time.sleep(0.05)


@pytest.mark.parametrize("late", [[], ["--late", "drop(0s)"]], ids=["true_window", "drop"])
def test_nothing_is_lost_or_doubled(tmp_path, late):
    draws = random.Random(f"{SEED} {late}")
    arrivals, store, bad = ArrivingFiles(tmp_path / "in", draws), tmp_path / "store", tmp_path / "bad.jsonl"
    command = [
        *STREAM,
        str(tmp_path / "in"),
        "--levels",
        "1s,10s,1m",
        "--store",
        str(store),
        "--state",
        str(tmp_path / "state"),
    ]
    command += ["--bad-rows", str(bad), *late]
    dropped = tmp_path / "dropped.jsonl"
    command += ["--dropped", str(dropped)] if late else []
    lock = tmp_path / ".state.lock"
    for stop in range(STOPS):
        for _ in range(draws.randint(1, 3)):
            arrivals.write()
        case = f"TILTFRAME_SEED={SEED} stop {stop}"
        how = draws.choice(["kill", "kill", "term", "drain", "double", "once"])
        if how in ("drain", "once"):
            done = subprocess.run([*command, "--once", *(["--drain"] if how == "drain" else [])], **PIPES, timeout=120)
            assert done.returncode == 0, f"{case}: {done.stderr}"
            continue
        process = subprocess.Popen(command, **PIPES)
        time.sleep(draws.uniform(0.5, 5))
        if how in ("double", "term"):  # a process that has not begun yet has nothing to save, and no lock
            wait_until(lambda pid=process.pid: lock.exists() and lock.read_text() == str(pid), case)
        if how == "double":
            second = subprocess.run(command, **PIPES, timeout=120)
            assert second.returncode == 2, case
            assert "is used by another process" in second.stderr, case
        process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
        _, error = process.communicate(timeout=120)
        # -SIGTERM: the process had not begun to read
        ended = (143, -signal.SIGTERM) if how == "term" else (-signal.SIGKILL,)
        assert process.returncode in ended, f"{case}: {error}"
    done = subprocess.run([*command, "--once", "--drain"], **PIPES, timeout=120)
    assert done.returncode == 0, done.stderr
    late_rows = [json.loads(line) for line in dropped.read_text().splitlines()] if late and dropped.exists() else []
    (results,) = FrameStore(store).query("all").to_pylist()
    distinct_late = {json.dumps(row, sort_keys=True) for row in late_rows}
    case = f"TILTFRAME_SEED={SEED}"
    if late:
        assert results["n"] + len(late_rows) >= arrivals.rows, case  # a row that was read again may be listed again
        assert results["n"] + len(distinct_late) <= arrivals.rows, case
    else:
        assert (results["n"], results["x"]) == (arrivals.rows, arrivals.total), case
    bad_rows = [json.loads(line) for line in bad.read_text().splitlines()] if bad.exists() else []
    assert len(bad_rows) >= arrivals.bad, case
    assert len({json.dumps(row, sort_keys=True) for row in bad_rows}) == arrivals.bad, case
