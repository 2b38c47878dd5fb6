"""tiltframe stream as a process: lines in, windows out, stopped and gone on with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.conftest import CONFORMANCE  # noqa: F401  the profile of hypothesis
from tiltframe.streaming import OpenWindows

COMMAND = [sys.executable, "-m", "tiltframe.cli", "stream", "--time", "ts", "--key", "k", "--measure", "n=count()"]


def lines(*given: tuple[float, str]) -> str:
    return "".join(json.dumps({"ts": int(t * 1000), "k": k, "other": [1]}) + "\n" for t, k in given)


def run(text: str, *options: str, status: int = 0) -> list[tuple]:
    done = subprocess.run([*COMMAND, *options], input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    return told(done.stdout) if status == 0 else done.stderr


def told(out: str) -> list[tuple]:
    rows = [json.loads(line) for line in out.splitlines()]
    return [(r["level"], r["window_start"], r["k"], r["n"], r["reason"], r["revision"], r["partial"]) for r in rows]


@pytest.mark.slow
def test_lines_to_windows():
    got = run(lines((1, "a"), (2, "b"), (61, "a")).rstrip("\n"), "--levels", "10s,1m")
    first, second = "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"
    assert sorted(got) == [
        ("10s", first, "a", 1, "close", 0, False),
        ("10s", first, "b", 1, "close", 0, False),
        ("10s", second, "a", 1, "close", 0, False),
        ("1m", first, "a", 1, "close", 0, False),
        ("1m", first, "b", 1, "close", 0, False),
        ("1m", second, "a", 1, "close", 0, False),
    ]


@pytest.mark.slow
def test_a_state_goes_on(tmp_path):
    state = tmp_path / "state"
    options = [
        "--levels",
        "10s",
        "--emit",
        "on_update(mode=accumulating)",
        "--late",
        "true_window",
        "--state",
        str(state),
    ]
    start = "1970-01-01T00:00:00Z"
    assert run(lines((1, "a")), *options) == [("10s", start, "a", 1, "update", 0, True)]
    assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 1
    assert run(lines((2, "a")), *options) == [("10s", start, "a", 2, "update", 1, True)]
    said = run("", *[*options[:1], "1m", *options[2:]], status=2)
    assert "the saved windows are of another frame: levels is ['10s'] here and ['1m'] there" in said


@pytest.mark.slow
def test_ctrl_c_saves_what_was_read(tmp_path):
    state = tmp_path / "state"
    options = ["--levels", "10s", "--emit", "on_update", "--state", str(state)]
    process = subprocess.Popen(
        [*COMMAND, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write(lines((1, "a"), (1, "b")))
    process.stdin.flush()
    assert [json.loads(process.stdout.readline())["k"] for _ in range(2)] == ["a", "b"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("{", [], "cannot read standard input as JSON lines"),
        ('{"ts": 1}\n', [], "no column 'k'"),
        ("", ["--emit", "sometimes"], "there is no emit policy 'sometimes'"),
        ("", ["--late", "drop(1x)"], "cannot read the lateness '1x'"),
        ("", ["--state", "."], "there is a folder"),
    ],
)
def test_mistakes_are_one_sentence(text, options, said):
    err = run(text, "--levels", "10s", *options, status=2)
    assert said in err
    assert err.count("\n") == 1
