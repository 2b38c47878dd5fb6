"""Run commands in processes that are forked from a server process, which saves about a second of imports per command.

Tests of the input and output of commands use it. Tests of signals and of the start of a command need a new interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn


class ForkedCommands:
    """Starts commands in a server process, which `close` ends."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair()
        with other:
            command = [sys.executable, "-m", "tests.forked_commands", str(other.fileno())]
            root = Path(__file__).parents[1]
            self._server = subprocess.Popen(command, pass_fds=[other.fileno()], cwd=root)

    def start(
        self, arguments: Sequence[str], streams: Sequence[int], *, folder: Path, environment: dict[str, str]
    ) -> None:
        """Start a command. ``streams`` are the file descriptors of its standard input, output and error."""
        request = json.dumps({"arguments": arguments, "folder": str(folder), "environment": environment})
        socket.send_fds(self._socket, [request.encode()], list(streams))

    def wait(self) -> int:
        """Return the exit status of the command that was started last."""
        self._socket.settimeout(300)
        status = self._socket.recv(16)
        assert status, "the server of commands has ended"
        return int(status)

    def run(
        self, arguments: Sequence[object], *, text: str | bytes = "", folder: Path | None = None
    ) -> tuple[int, str, str]:
        """Run a command with the standard input ``text``. Return its exit status, its output and its error output."""
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].buffer.write(text.encode() if isinstance(text, str) else text)
            files[0].seek(0)
            self.start(
                list(map(str, arguments)),
                [file.fileno() for file in files],
                folder=folder or Path.cwd(),
                environment=dict(os.environ),
            )
            status = self.wait()
            for file in files[1:]:
                file.seek(0)
            return status, files[1].read(), files[2].read()

    def close(self) -> None:
        self._socket.close()
        self._server.wait()


def serve(connection: socket.socket) -> NoReturn:
    """Fork a process for each command, until the other end of the connection closes."""
    import tiltframe.cli.app  # noqa: F401

    gc.freeze()  # the collector would copy the pages that processes share
    assert threading.active_count() == 1, "a fork copies only one thread"
    while True:
        request, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not request:
            os._exit(0)  # at a normal end, extension modules would report frozen objects as leaks
        child = os.fork()
        if child == 0:
            run(json.loads(request), streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def run(request: dict, streams: Sequence[int]) -> NoReturn:
    """Run a command with the streams ``streams``, as in a new interpreter, and end this process."""
    from tiltframe.command import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["tiltframe", *request["arguments"]]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    status = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
