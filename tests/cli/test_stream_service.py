"""tiltframe stream as a service: events with wrong times, late rows, two processes of one stream, signals, closed
pipes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tiltframe import FrameStore
from tiltframe.streaming import OpenWindows

STREAM = [sys.executable, "-m", "tiltframe.cli", "stream", "--time", "ts", "--measure", "n=count()"]
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
BEGIN = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)


def line(seconds: float, **more: object) -> str:
    return json.dumps({"ts": (BEGIN + dt.timedelta(seconds=seconds)).isoformat(), **more}) + "\n"


@pytest.fixture
def run(forked):
    return partial(run_command, forked)


def run_command(forked, text: str, *options: str, status: int = 0) -> tuple[list[dict], str]:
    ended, output, errors = forked.run([*STREAM[3:], *options], text=text)
    assert ended == status, errors
    return [json.loads(row) for row in output.splitlines()], errors


def one_by_one(process: subprocess.Popen, *texts: str) -> None:
    """Write lines so that each is a batch."""
    for text in texts:
        process.stdin.write(text)
        process.stdin.flush()
        time.sleep(0.7)


@pytest.mark.long
@pytest.mark.parametrize("windows", [["--levels", "10s"], ["--ordered", "count(1)"]])
def test_a_row_of_a_wrong_clock_is_a_bad_row(tmp_path, windows, run):
    state = str(tmp_path / "state")
    ahead = line(10 * 366 * 86_400)
    _, error_text = run(line(1) + ahead + line(2), *windows, "--state", state, status=2)
    assert "line 2 of standard input: the time 2034-" in error_text
    assert "--ahead 1h" in error_text
    rows, error_text = run(line(3) + ahead + line(12) + line(25), *windows, "--state", state, "--bad-rows", "skip")
    assert sum(row["n"] for row in rows) == 3
    assert error_text == "tiltframe: 1 bad rows were left out\n"
    _, error_text = run(line(26) + ahead, *windows, "--state", state, "--ahead", "none")
    assert error_text == ""


@pytest.mark.long
def test_files_of_a_wrong_clock(tmp_path, run):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text(line(1) + line(10 * 366 * 86_400))
    _, error_text = run("", str(tmp_path / "in"), "--once", "--levels", "10s", status=2)
    assert "1.jsonl: the time 2034-" in error_text
    rows, _ = run("", str(tmp_path / "in"), "--once", "--levels", "10s", "--bad-rows", "skip")
    assert [row["n"] for row in rows] == [1]
    _, error_text = run("", "--levels", "10s", "--ahead", "soon", status=2)
    assert "--ahead must be a duration such as 1h, or none" in error_text


@pytest.mark.long
def test_late_rows_are_reported_without_a_terminal(tmp_path):
    options = ["--levels", "10s", "--emit", "on_update", "--dropped", str(tmp_path / "late")]
    process = subprocess.Popen([*STREAM, *options], **PIPES)
    one_by_one(process, line(25))
    assert json.loads(process.stdout.readline())["n"] == 1
    one_by_one(process, line(1) + line(2))
    out, error_text = process.communicate(timeout=60)
    warning, count = error_text.splitlines()
    assert "a row with the time 2024-05-01T10:00:01Z came late, behind the watermark 2024-05-01T10:00:25Z" in warning
    assert "--disorder" in warning
    assert count == f"tiltframe: 2 late rows were dropped, and kept in {tmp_path}/late"
    assert out == ""


@pytest.mark.long
def test_two_processes_started_together(tmp_path):
    """Of two with one state, one is refused; of two with one store alone, one fails when it commits."""
    (tmp_path / "in").mkdir()
    for file in range(7):
        (tmp_path / "in" / f"{file}.jsonl").write_text("".join(line(file * 100 + i) for i in range(100)))
    for options in (["--state", str(tmp_path / "state")], []):
        store = tmp_path / f"store{len(options)}"
        command = [*STREAM, str(tmp_path / "in"), "--levels", "10s,1m", "--store", str(store), *options]
        both = [subprocess.Popen(command, **PIPES) for _ in range(2)]
        deadline = time.monotonic() + 120
        while all(process.poll() is None for process in both) and time.monotonic() < deadline:
            time.sleep(0.1)
        (refused,) = [process for process in both if process.poll() is not None]
        (other,) = [process for process in both if process is not refused]
        while time.monotonic() < deadline and total(store) < 690:
            time.sleep(0.5)
        other.send_signal(signal.SIGTERM)
        error_text = refused.communicate(timeout=60)[1]
        assert refused.returncode == 2, error_text
        assert ("is used by another process" if options else "another process writes the stream") in error_text
        other.communicate(timeout=60)
        assert other.returncode == 143
        assert total(store) == 690  # the last window is open, and in the state
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "state", "store0", "store2"]


def total(store: Path) -> int:
    try:
        return sum(FrameStore(store).query("all").column("n").to_pylist())
    except (OSError, ValueError):
        return 0


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_what_was_read(tmp_path, number, status):
    state, store = tmp_path / "state", str(tmp_path / "store")
    for options in (["--emit", "on_update"], ["--store", store]):
        state.unlink(missing_ok=True)
        process = subprocess.Popen([*STREAM, "--levels", "10s", "--state", str(state), *options], **PIPES)
        one_by_one(process, line(1) + line(12))
        if "--store" not in options:
            process.stdout.readline()
        deadline = time.monotonic() + 60
        while "--store" in options and not state.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(number)
        _, error_text = process.communicate(timeout=60)
        assert (process.returncode, error_text) == (status, "")
        assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 2
        assert os.listdir(tmp_path).count(".state.lock") == 0


@pytest.mark.long
def test_a_closed_pipe_says_what_to_send_again(tmp_path, run):
    """The rows that are told to be sent again, and those of the state, are all rows."""
    state = tmp_path / "state"
    options = ["--levels", "10s", "--emit", "on_update", "--state", str(state)]
    process = subprocess.Popen([*STREAM, *options], **PIPES)
    one_by_one(process, line(1) + line(2))
    process.stdout.readline()
    process.stdout.close()
    with process:
        with contextlib.suppress(BrokenPipeError):  # the process may end before it is sent line 4
            one_by_one(process, line(3), line(4))
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        error_text = process.stderr.read()
    assert process.returncode == 141
    assert "send line 3 of standard input, and those after it, again" in error_text
    assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 2
    rows, _ = run(line(3) + line(4), *options)
    assert [row["n"] for row in rows] == [4]
