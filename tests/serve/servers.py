"""A real server in its own process, and a client for its requests."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pyarrow as pa

import aggr
from tiltframe import FrameStore, TiltFrame

RUN = "from tiltframe.cli import main; main()"
FRAME = TiltFrame(
    ["1m", "1h"],
    "ts",
    {
        "n": aggr.count(),
        "bytes": aggr.sum("bytes"),
        "paid": aggr.sum("paid"),
        "rate": aggr.max("rate"),
        "latency": aggr.dds("ms", quantiles=[0.5, 0.99]),
    },
    ["host"],
)


def rows(hours=2, per_minute=3):
    """Rows of some hours of 2024-05-01, among them numbers that no double holds, NaN and infinities."""
    times = [1_714_557_600_000 + 60_000 * m + i for m in range(60 * hours) for i in range(per_minute)]
    odd = [float("nan"), float("inf"), -float("inf"), 1.5, None]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("ms", "UTC")),
            "host": [["a", "b", None, 'c"d'][i % 4] for i in range(len(times))],
            "bytes": pa.array([2**53 + 1 + i for i in range(len(times))], pa.int64()),
            "paid": pa.array([f"{i}.10" for i in range(len(times))]).cast(pa.decimal128(20, 2)),
            "rate": pa.array([odd[i % 5] for i in range(len(times))], pa.float64()),
            "ms": pa.array([float(i * i % 97 + 1) for i in range(len(times))]),
        }
    )


def make_store(place, name=None, frame=FRAME, data=None):
    """Make a store of two hours."""
    store = FrameStore(place, frame, name=name)
    store.append_rows(rows() if data is None else data, "test", 1)
    return store


class Answer(NamedTuple):
    """What a server has answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)


class Server:
    """A server that runs."""

    def __init__(self, process, log: Path):
        """Wait until it says that it listens."""
        self.process, self._log = process, log
        for _ in range(600):
            if listens := re.search(r"at http://(\S+):(\d+)/", log.read_text()):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.host, self.port = listens[1].strip("[]"), int(listens[2])

    def log(self, lines=0):
        """Read the log: objects, at least so many; a line is written after its answer."""
        for _ in range(200):
            if self._log.read_text().count("\n") >= lines:
                break
            time.sleep(0.05)
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def ask(self, path, body=None, method=None, headers=None) -> Answer:
        """Send a request, and wait for its answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def query(self, headers=None, **words) -> Answer:
        """Ask by an address."""
        return self.ask("/v1/query?" + urlencode(words, doseq=True), headers=headers)

    def stop(self, signum=signal.SIGTERM):
        """Stop it, and return its exit status."""
        self.process.send_signal(signum)
        return self.process.wait(30)


@contextmanager
def serving(folder: Path, *words):
    """Run a server on a free port."""
    log = folder / "log"
    command = [sys.executable, "-c", RUN, "serve", *map(str, words), "--listen", "127.0.0.1:0"]
    with log.open("w") as err, subprocess.Popen(command, stderr=err, stdout=subprocess.PIPE) as process:
        try:
            yield Server(process, log)
        finally:
            process.kill()


def free_port():
    """Find a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def settled(tab):
    """Wait until the page in a browser's tab shows what its address asks for, and return what it says of it."""
    tab.locator("#status:not(:empty)").wait_for()
    tab.locator("#results:not(.busy)").wait_for()
    return tab.locator("#status").inner_text()


def summarized(tab):
    """Wait until the overview in a browser's tab has all stores."""
    tab.locator("#overview[aria-busy=false] .card").first.wait_for()
