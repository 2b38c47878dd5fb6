"""Processes for crash tests of stores, forked from a process that has imported everything and opened nothing.

`CrashProcesses` starts this process. It forks children. Each child runs a function of this module until it is killed,
and writes acknowledged commits to a file, one line per commit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.cli.query import watch as cli_watch
from tiltframe.cli.stream_sinks import save
from tiltframe.store import OtherFrame
from tiltframe.store.changes import copying
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming.saved import read_extension

FRAME = TiltFrame(["10s", "1m", "10m"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
BEGIN = 1_714_500_000_000  # milliseconds
SPAN = (BEGIN + 36_000_000, BEGIN + 36_000_000 + 90_000)  # what is replaced: of a minute and a half
RETENTION = {"10s": "2m", "1m": "20m"}


def rows(writer: str, number: int, at: int | None = None) -> pa.Table:
    """Rows of a commit: three windows of 10 s, in two minutes; its key tells whose it is."""
    begin = BEGIN + number * 20_000 if at is None else at
    times = [begin, begin + 10_000, begin + 10_001, begin + 70_000]
    return pa.table({"ts": times, "x": [number + 0.1, 1e16, -1e16, 3.0], "k": [f"{writer}:{number}"] * 4})


def replaced(number: int) -> pa.Table:
    """Rows of a replacement of the range."""
    return rows("r", number, SPAN[0] + number % 2 * 10_000)


def last_of(store: FrameStore, writer: str) -> int:
    """The last number of a writer, -1 before its first."""
    last = store.last_commit(writer)
    return -1 if last is None else last


def append(path: str, acknowledge, writer: str = "w") -> None:
    store = FrameStore(path, FRAME)
    number = last_of(store, writer)
    if number >= 0:
        assert not store.append(rollup(rows(writer, number), FRAME), writer, number)
    while True:
        number += 1
        assert store.append(rollup(rows(writer, number), FRAME), writer, number)
        acknowledge(number)


def compact(path: str, acknowledge) -> None:
    store = FrameStore(path)
    while True:
        store.compact()
        acknowledge(0)


def expire(path: str, acknowledge) -> None:
    store = FrameStore(path)
    while True:
        last = max(0, last_of(store, "w"), last_of(store, "w0"))
        store.expire(now=BEGIN + last * 20_000)
        acknowledge(0)


def replace(path: str, acknowledge) -> None:
    store, number = FrameStore(path, FRAME), int(time.time() * 1e6)
    while True:
        number += 1
        store.replace(rollup(replaced(number), FRAME), SPAN)
        acknowledge(number)


def read(path: str, acknowledge, levels: str = "all") -> None:
    """See whole commits that never shrink, at every level."""
    store, highest = FrameStore(path), {}
    while True:
        for level in ("10m", "1m", "10s") if levels == "all" else levels.split():
            counts = store.query(level, keys=[], measures=["n"], where="k not like 'r:%'").column("n").to_pylist()
            total = sum(counts)
            assert total % 4 == 0, f"{level}: {total} is no whole number of commits"
            assert total >= highest.get(level, 0), f"{level}: {total} after {highest[level]}"
            highest[level] = total
        acknowledge(highest["10m"] // 4)


def retract(path: str, acknowledge, writer: str = "w") -> None:
    """Take out what a writer has committed, commit by commit, as one who erases it."""
    store = FrameStore(path)
    number = last_of(store, "eraser")
    if number >= 0:
        assert not store.retract(rollup(rows(writer, number), FRAME), "eraser", number)
    while True:
        if number < last_of(store, writer) - 1:
            number += 1
            assert store.retract(rollup(rows(writer, number), FRAME), "eraser", number)
            acknowledge(number)


def backfill(path: str, acknowledge, source: str) -> None:
    FrameStore(path, FRAME).backfill(
        source, "10m", newest_first=True, progress=lambda done, range_count: acknowledge(done)
    )
    while True:
        time.sleep(1)


def stream(path: str, acknowledge, file: str) -> None:
    """Batches one after the other into a store, their state in a file; every other one closes windows."""
    store, saved = FrameStore(path, FRAME), Path(file)
    data = saved.read_bytes() if saved.exists() else None
    closed = ClosedWindows(store, "s", compact_every=7)
    if data:
        closed = ClosedWindows.from_ipc(data, store, "s", compact_every=7)
        closed.commit()
    number = read_extension(data)[0]["notes"]["batches"] if data else 0
    while True:
        closed.add_rows(rows("s", number))
        number += 1
        if number % 2:
            closed.advance((BEGIN + number * 20_000) * 1000)
        save(saved, closed.to_ipc({"batches": number}))
        closed.commit()
        acknowledge(number)


def watch(path: str, acknowledge, folder: str) -> None:
    os.dup2(os.open(f"{folder}/lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    cli_watch.callback(path, None, Path(folder) / "seen.json", "1s", False)


def copy(path: str, acknowledge, to: str) -> None:
    store, copying._SECONDS = FrameStore(path), 0.0  # it records after each group how far it has come
    while True:
        acknowledge(store.copy_to(to))


GENERATIONS = 3


def evolved_frame(generation: int) -> TiltFrame:
    """The frame of a store that has evolved so often: a measure more each time, and levels."""
    more = {f"m{i}": aggr.count(where=f"x > {i}") for i in range(1, generation + 1)}
    levels = [*FRAME.levels, *(["1h"] if generation > 1 else []), *(["1d"] if generation > 2 else [])]
    return TiltFrame(levels, FRAME.time, {**FRAME.measures, **more}, FRAME.keys)


def evolve(path: str, acknowledge) -> None:
    while (generation := FrameStore(path).manifest.generation) < GENERATIONS:
        FrameStore(path).evolve(evolved_frame(generation + 1), rows("w", 0).schema)
        acknowledge(generation + 1)
        time.sleep(0.1)
    FrameStore(path).evolve(evolved_frame(GENERATIONS), rows("w", 0).schema)
    acknowledge(GENERATIONS)
    while True:
        time.sleep(1)


def append_on(path: str, acknowledge, writer: str = "w") -> None:
    """Append, by the frame that there is; say also by which."""
    store = FrameStore(path)
    number = last_of(store, writer)
    while True:
        number += 1
        new = None
        while new is None:
            try:
                new = store.append(rollup(rows(writer, number), store.frame), writer, number)
            except OtherFrame:
                store = FrameStore(path)
        assert new
        acknowledge(number * 100 + store.manifest.generation)
        time.sleep(0.1)
        assert not store.append(rollup(rows(writer, number), store.frame), writer, number)


def keep_on(path: str, acknowledge) -> None:
    """Compact and expire, by the frame that there is."""
    store = FrameStore(path)
    while True:
        try:
            store.compact()
            store.expire(now=BEGIN + last_of(store, "w0") * 20_000)
        except OtherFrame:
            store = FrameStore(path)
        acknowledge(0)


def read_on(path: str, acknowledge) -> None:
    """See whole commits that never shrink, at every level, by the first frame and by the one that there is."""
    highest: dict[str, int] = {}
    before = FrameStore(path)
    while True:
        now = FrameStore(path)
        for store, level in [(before, "10m"), *((now, level.name) for level in now.frame.levels[:1:-1])]:
            total = sum(store.query(level, keys=[], measures=["n"])["n"].to_pylist())
            assert total % 4 == 0, f"{level}: {total} is no whole number of commits"
            assert total >= highest.get(level, 0), f"{level}: {total} after {highest[level]}"
            highest[level] = total
        acknowledge(highest["10m"] // 4)
        time.sleep(0.1)


def main() -> None:
    rollup(rows("warm", 0), FRAME)
    for line in sys.stdin:
        work, path, log, *more = json.loads(line)
        if work == "wait":
            _, status = os.waitpid(int(path), 0)
            print(status, flush=True)
            continue
        child = os.fork()
        if not child:
            try:
                file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                globals()[work](path, lambda number, file=file: os.write(file, f"{number}\n".encode()), *more)
            except BaseException as error:
                Path(f"{log}.failed").write_text(f"{work}: {type(error).__name__}: {error}")
                os._exit(1)
            os._exit(0)
        print(child, flush=True)


class CrashProcesses:
    """Starts children, kills them, and reports what they have acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, {}
        root = str(Path(__file__).parent.parent)
        script = f"import sys; sys.path.insert(0, {root!r}); from tests import crash_processes; crash_processes.main()"
        command = [sys.executable, "-c", script]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _request(self, *words) -> int:
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, work: str, path: str, *more: str) -> int:
        log = str(self.folder / f"{work}.{len(self.log)}")
        child = self._request(work, path, log, *more)
        self.log[child] = log
        return child

    def wait(self, child: int, seconds: float = 20, times: int = 1) -> None:
        """Wait until a child has acknowledged something, perhaps several times; or has failed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.failed(child) and self.turns(child) < times:
            time.sleep(0.005)

    def turns(self, child: int) -> int:
        """How often a child has acknowledged something."""
        log = Path(self.log[child])
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def failed(self, child: int) -> bool:
        return Path(f"{self.log[child]}.failed").exists()

    def kill(self, child: int) -> list[int]:
        """Kill a child; return what it had acknowledged."""
        os.kill(child, signal.SIGKILL)
        status = self._request("wait", str(child), "")
        failed = Path(f"{self.log[child]}.failed")
        assert not failed.exists(), failed.read_text()
        assert status == signal.SIGKILL, status
        log = Path(self.log[child])
        return [int(line) for line in log.read_text().splitlines()] if log.exists() else []

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
