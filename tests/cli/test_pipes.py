"""A command ends without a message if its reader ends (``| head -1``), and with one message if the disk is full."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.test_cli_terminals import FRAME
from tests.command_line import call

pytestmark = [pytest.mark.slow, pytest.mark.store]

STREAM = ["stream", *FRAME, "--type", "ts=timestamp"]
QUERY = ["query", "store", "--per", "10s", "--format"]
COMMANDS = [[*QUERY, "csv"], [*QUERY, "json"], [*QUERY, "table"], ["functions"], STREAM]


def lines(count: int) -> str:
    rows = (
        {"ts": f"2024-05-01T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z", "host": "ab"[i % 2]} for i in range(count)
    )
    return "".join(json.dumps({**row, "ms": 1}) + "\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """More windows than a pipe holds: 64 kB."""
    folder = tmp_path_factory.mktemp("pipes")
    (folder / "rows.jsonl").write_text(lines(40_000))
    subprocess.run([*COMMAND, "rollup", "rows.jsonl", *FRAME, "--store", "store"], cwd=folder, check=True)
    return folder


COMMAND = [sys.executable, "-m", "tiltframe.cli"]


# a stream has lost results then, and says so: the next test
@pytest.mark.parametrize("arguments", COMMANDS[:-1], ids=lambda words: " ".join(words[:1] + words[-1:]))
@pytest.mark.long
def test_a_reader_that_goes_ends_it_quietly(arguments, folder):
    pipe = subprocess.PIPE
    with (
        open(folder / "rows.jsonl") as rows,
        subprocess.Popen([*COMMAND, *arguments], stdin=rows, stdout=pipe, stderr=pipe, cwd=folder) as process,
    ):
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.wait(timeout=120), process.stderr.read()) == (0, b"")


@pytest.mark.long
def test_what_came_before_is_saved_though_nobody_reads(folder, tmp_path):
    pipe, state = subprocess.PIPE, tmp_path / "state"
    with (
        open(folder / "rows.jsonl") as rows,
        subprocess.Popen(
            [*COMMAND, *STREAM, "--state", state], stdin=rows, stdout=pipe, stderr=pipe, cwd=folder
        ) as process,
    ):
        process.stdout.close()
        error_text = process.stderr.read().decode()
    assert process.returncode == 141
    assert "standard output was closed" in error_text
    assert "send line 1 of standard input, and those after it, again" in error_text
    assert state.exists()


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words[:1] + words[-1:]))
@pytest.mark.long
def test_a_full_disk_is_one_sentence(arguments, folder):
    with open(folder / "rows.jsonl") as rows, open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdin=rows, stdout=full, stderr=subprocess.PIPE, cwd=folder, text=True
        )
    *before, last_line = done.stderr.splitlines()
    assert (done.returncode, last_line) == (2, "tiltframe: No space left on device")
    assert all(line.startswith("tiltframe: the following error loses the open windows") for line in before)


@pytest.mark.parametrize("after", [0.4, 1.2])
@pytest.mark.parametrize("arguments", [[*QUERY, "csv"], STREAM], ids=lambda words: words[0])
def test_ctrl_c_on_a_terminal_ends_it_in_at_most_a_sentence(arguments, after, folder):
    """The key itself: the terminal sends the signal to whoever is in front of it."""
    script = f"import tiltframe.cli as cli; print('ready', flush=True); cli.main({arguments!r})"
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-c", script])
    assert b"ready" in os.read(terminal, 100)
    time.sleep(after)
    os.write(terminal, b"\x03")
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            break
        shown += piece
    os.close(terminal)
    status = os.WEXITSTATUS(os.waitpid(process, 0)[1])
    text = shown.decode(errors="replace")
    assert "Traceback" not in text
    assert sum(line.startswith("tiltframe: ") for line in text.replace("\r", "").split("\n")) <= 1, text[-500:]
    assert status in (0, 130), text[-500:]


@pytest.mark.long
def test_a_query_into_a_file_that_is_interrupted_leaves_none(folder, tmp_path, capfd, monkeypatch):
    """What is written is there whole, or not at all."""
    monkeypatch.chdir(folder)
    out = tmp_path / "results.csv"
    process = subprocess.Popen([*COMMAND, *QUERY, "csv", "--out", out], stderr=subprocess.PIPE, cwd=folder, text=True)
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, error_text = process.communicate(timeout=120)
    full_output = call(capfd, *QUERY, "csv")[1]
    assert "Traceback" not in error_text
    assert [path.read_text() == full_output for path in tmp_path.iterdir()] in ([], [True])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", [[*QUERY, "csv"], STREAM, ["rollup", "-", *FRAME, "--store", "other"]])
def test_a_closed_standard_stream_is_the_null_device(closed, arguments, folder):
    """As for processes of supervisors and cron."""
    program = [sys.executable, "-c", "from tiltframe_command import main; main()", *arguments]
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *program],
        cwd=folder, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert b"Traceback" not in ran.stderr
    assert ran.returncode in (0, 2)
    if arguments[0] == "query":
        assert ran.returncode == 0
        assert bool(ran.stdout) == (">&-" not in closed.replace("2>&-", ""))
