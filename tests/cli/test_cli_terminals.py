"""Every command writes the same to standard output, whether its streams are terminals (ptys) or not."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.forked_commands import ForkedCommands

pytestmark = [pytest.mark.slow, pytest.mark.store]

LINES = [
    json.dumps({"ts": f"2024-05-01T10:{i // 60:02}:{i % 60:02}Z", "host": "ab"[i % 2], "ms": i}) for i in range(240)
]
FRAME = ["--time", "ts", "--key", "host", "--measure", "n=count()", "--measure", "ms=max(ms)", "--levels", "10s,1m"]
COMMANDS = {  # what makes no difference is left out
    "stream": ["stream", *FRAME, "--type", "ts=timestamp"],
    "stream of files": ["stream", "arriving", "--once", *FRAME],
    "stream, updates": ["stream", *FRAME, "--emit", "on_update"],
    "rollup into a store": ["rollup", "arriving", *FRAME, "--store", "{new}"],
    "query": ["query", "store", "--per", "1m", "--format", "csv"],
    "query, json": ["query", "store", "--per", "10s", "--format", "json"],
    "check": ["check", "store"],
    "compact": ["compact", "store"],
    "--help": ["--help"],
    "a mistake": ["query", "nowhere", "--per", "1m"],
}
ALL = list(itertools.product((False, True), repeat=3))
ONE_BY_ONE = [
    (False, False, False),
    (False, True, False),
    (False, False, True),
    (True, True, True),
]


OWN_PROCESSES = ("query",)  # commands whose output in pipes is that of an interpreter of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with files to roll up, and a store of them."""
    folder = tmp_path_factory.mktemp("terminals")
    (folder / "arriving").mkdir()
    (folder / "arriving" / "a.jsonl").write_text("\n".join(LINES) + "\n")
    run(folder, ["rollup", "arriving", *FRAME, "--store", "store"], (False, False, False))
    return folder


class _Reader(threading.Thread):
    """What comes out of one end, read as it comes."""

    def __init__(self, end: int) -> None:
        super().__init__(daemon=True)
        self.end, self.found = end, b""
        self.start()

    def run(self) -> None:
        while True:
            try:
                piece = os.read(self.end, 1 << 16)
            except OSError:  # the other end of a pty was closed
                return
            if not piece:
                return
            self.found += piece


def run(
    folder: Path, arguments: list[str], terminals: tuple[bool, bool, bool], forked: ForkedCommands | None = None
) -> tuple[int, str, str]:
    """Run a command with each of its streams a terminal or a pipe; return its status, and what it wrote to both.

    With `forked`, the process is forked; otherwise, a new interpreter is started.
    """
    ours, terminal_output = [], []
    for place, terminal in enumerate(terminals):
        own, other = pty.openpty() if terminal else os.pipe() if place else os.pipe()[::-1]
        ours.append(own)
        terminal_output.append(other)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "NO_COLOR": "1"}
    if forked is not None:
        forked.start(arguments, terminal_output, folder=folder, environment=environment)
    else:
        command = [sys.executable, "-m", "tiltframe.cli", *arguments]
        program = subprocess.Popen(
            command,
            stdin=terminal_output[0],
            stdout=terminal_output[1],
            stderr=terminal_output[2],
            cwd=folder,
            env=environment,
        )
    for end in terminal_output:
        os.close(end)
    readers = [_Reader(end) for end in ours[1:]]
    if arguments[0] == "stream" and "arriving" not in arguments:
        for line in LINES:
            os.write(ours[0], line.encode() + b"\n")
        time.sleep(0.5)  # a line of progress is shown meanwhile
    os.write(ours[0], b"\x04") if terminals[0] else os.close(ours[0])
    status = program.wait(timeout=120) if forked is None else forked.wait()
    for reader in readers:
        reader.join(timeout=10)
    out, err = (reader.found.decode().replace("\r\n", "\n") for reader in readers)
    return status, out, err


def plain(text: str) -> list[str]:
    """Take out what a terminal is told to do, and empty lines."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07", "\n", text).replace("\r", "\n")
    return [line.rstrip() for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.long
def test_standard_output_is_the_same_on_a_terminal_and_in_a_pipe(name, folder, forked):
    outputs = {}
    for place, terminals in enumerate(ALL if name == "stream" else ONE_BY_ONE):
        new = f"new{name.replace(' ', '')}{place}"
        is_own_process = name in OWN_PROCESSES and not any(terminals)
        arguments = [part.format(new=new) for part in COMMANDS[name]]
        outputs[terminals] = run(folder, arguments, terminals, None if is_own_process else forked)
    status, expected, _ = outputs[False, False, False]
    assert status == (2 if name == "a mistake" else 0)
    assert expected or name in ("rollup into a store", "compact", "a mistake")
    for terminals, (ended, out, err) in outputs.items():
        assert ended == status, (terminals, err)
        assert "Traceback" not in err
        if not terminals[1]:
            assert plain(out) == plain(expected), terminals
        elif name.startswith("stream"):
            lines = [line for line in plain(out) if line.startswith("{")]
            assert lines == plain(expected), terminals
