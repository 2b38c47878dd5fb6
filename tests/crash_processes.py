"""Processes for crash tests of stores, forked from a process that has imported all modules and has not opened a store.

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
from tiltframe.cli.stream_sinks import save_state
from tiltframe.store import OtherFrame
from tiltframe.store.changes import copying
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming.saved import read_extension

FRAME = TiltFrame(["10s", "1m", "10m"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
BEGIN = 1_714_500_000_000  # milliseconds
SPAN = (
    BEGIN + 36_000_000,
    BEGIN + 36_000_000 + 90_000,
)  # the range that `replace` replaces, 90 seconds in milliseconds since 1970
RETENTION = {"10s": "2m", "1m": "20m"}


def rows(writer: str, number: int, at: int | None = None) -> pa.Table:
    """Return the rows of a commit, in three windows of 10 s within two minutes. Their key contains the writer and the
    number of the commit.
    """
    begin = BEGIN + number * 20_000 if at is None else at
    times = [begin, begin + 10_000, begin + 10_001, begin + 70_000]
    return pa.table({"ts": times, "x": [number + 0.1, 1e16, -1e16, 3.0], "k": [f"{writer}:{number}"] * 4})


def replacement_rows(number: int) -> pa.Table:
    """Return the rows with which `replace` replaces the range `SPAN`."""
    return rows("r", number, SPAN[0] + number % 2 * 10_000)


def last_number(store: FrameStore, writer: str) -> int:
    """Return the number of the last commit of a writer, or -1 if it has not committed."""
    last = store.last_commit(writer)
    return -1 if last is None else last


def append(path: str, acknowledge, writer: str = "w") -> None:
    store = FrameStore(path, FRAME)
    number = last_number(store, writer)
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
        last = max(0, last_number(store, "w"), last_number(store, "w0"))
        store.expire(now=BEGIN + last * 20_000)
        acknowledge(0)


def replace(path: str, acknowledge) -> None:
    store, number = FrameStore(path, FRAME), int(time.time() * 1e6)
    while True:
        number += 1
        store.replace(rollup(replacement_rows(number), FRAME), SPAN)
        acknowledge(number)


def read(path: str, acknowledge, levels: str = "all") -> None:
    """Query the store, and assert at every level that it contains complete commits, and that their number does not
    decrease.
    """
    store, highest = FrameStore(path), {}
    while True:
        for level in ("10m", "1m", "10s") if levels == "all" else levels.split():
            counts = store.query(level, keys=[], measures=["n"], where="k not like 'r:%'").column("n").to_pylist()
            total = sum(counts)
            assert total % 4 == 0, f"{level}: {total} is not a whole number of commits"
            assert total >= highest.get(level, 0), f"{level}: {total} after {highest[level]}"
            highest[level] = total
        acknowledge(highest["10m"] // 4)


def retract(path: str, acknowledge, writer: str = "w") -> None:
    """Retract the commits of a writer one by one, as the writer ``eraser``."""
    store = FrameStore(path)
    number = last_number(store, "eraser")
    if number >= 0:
        assert not store.retract(rollup(rows(writer, number), FRAME), "eraser", number)
    while True:
        if number < last_number(store, writer) - 1:
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
    """Stream batches into a store, and save the state of the stream in a file. Every other batch closes windows."""
    store, state_file = FrameStore(path, FRAME), Path(file)
    data = state_file.read_bytes() if state_file.exists() else None
    closed_windows = ClosedWindows(store, "s", compact_every=7)
    if data:
        closed_windows = ClosedWindows.from_ipc(data, store, "s", compact_every=7)
        closed_windows.commit()
    number = read_extension(data)[0]["notes"]["batches"] if data else 0
    while True:
        closed_windows.add_rows(rows("s", number))
        number += 1
        if number % 2:
            closed_windows.advance((BEGIN + number * 20_000) * 1000)
        save_state(state_file, closed_windows.to_ipc({"batches": number}))
        closed_windows.commit()
        acknowledge(number)


def watch(path: str, acknowledge, folder: str) -> None:
    os.dup2(os.open(f"{folder}/lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    cli_watch.callback(path, None, Path(folder) / "seen.json", "1s", False)


def copy(path: str, acknowledge, target: str) -> None:
    store = FrameStore(path)
    copying._PROGRESS_SECONDS = 0.0  # it then records its progress after each group
    while True:
        acknowledge(store.copy_to(target))


GENERATIONS = 3


def evolved_frame(generation: int) -> TiltFrame:
    """Return the frame of a store after ``generation`` changes. Each change adds a measure, and some add a level."""
    added_measures = {f"m{i}": aggr.count(where=f"x > {i}") for i in range(1, generation + 1)}
    levels = [*FRAME.levels, *(["1h"] if generation > 1 else []), *(["1d"] if generation > 2 else [])]
    return TiltFrame(levels, FRAME.time, {**FRAME.measures, **added_measures}, FRAME.keys)


def evolve(path: str, acknowledge) -> None:
    while (generation := FrameStore(path).manifest.generation) < GENERATIONS:
        FrameStore(path).evolve(evolved_frame(generation + 1), rows("w", 0).schema)
        acknowledge(generation + 1)
        time.sleep(0.1)
    FrameStore(path).evolve(evolved_frame(GENERATIONS), rows("w", 0).schema)
    acknowledge(GENERATIONS)
    while True:
        time.sleep(1)


def append_evolving(path: str, acknowledge, writer: str = "w") -> None:
    """Append states of the present frame of the store. Acknowledge the commit and the generation of the frame."""
    store = FrameStore(path)
    number = last_number(store, writer)
    while True:
        number += 1
        is_new = None
        while is_new is None:
            try:
                is_new = store.append(rollup(rows(writer, number), store.frame), writer, number)
            except OtherFrame:
                store = FrameStore(path)
        assert is_new
        acknowledge(number * 100 + store.manifest.generation)
        time.sleep(0.1)
        assert not store.append(rollup(rows(writer, number), store.frame), writer, number)


def maintain_evolving(path: str, acknowledge) -> None:
    """Compact the store and expire windows, with the present frame of the store."""
    store = FrameStore(path)
    while True:
        try:
            store.compact()
            store.expire(now=BEGIN + last_number(store, "w0") * 20_000)
        except OtherFrame:
            store = FrameStore(path)
        acknowledge(0)


def read_evolving(path: str, acknowledge) -> None:
    """Assert the same as `read`, with the first frame of the store and with its present frame."""
    highest: dict[str, int] = {}
    first_store = FrameStore(path)
    while True:
        new_store = FrameStore(path)
        levels = [(new_store, level.name) for level in new_store.frame.levels[:1:-1]]
        for store, level in [(first_store, "10m"), *levels]:
            total = sum(store.query(level, keys=[], measures=["n"])["n"].to_pylist())
            assert total % 4 == 0, f"{level}: {total} is not a whole number of commits"
            assert total >= highest.get(level, 0), f"{level}: {total} after {highest[level]}"
            highest[level] = total
        acknowledge(highest["10m"] // 4)
        time.sleep(0.1)


def main() -> None:
    rollup(rows("warm", 0), FRAME)
    for line in sys.stdin:
        work, path, log, *arguments = json.loads(line)
        if work == "wait":
            _, status = os.waitpid(int(path), 0)
            print(status, flush=True)
            continue
        child = os.fork()
        if not child:
            try:
                file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                globals()[work](path, lambda number, file=file: os.write(file, f"{number}\n".encode()), *arguments)
            except BaseException as error:
                Path(f"{log}.failed").write_text(f"{work}: {type(error).__name__}: {error}")
                os._exit(1)
            os._exit(0)
        print(child, flush=True)


class CrashProcesses:
    """Starts child processes, kills them, and returns the numbers that they have acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, {}
        root = str(Path(__file__).parent.parent)
        script = f"import sys; sys.path.insert(0, {root!r}); from tests import crash_processes; crash_processes.main()"
        command = [sys.executable, "-c", script]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _request(self, *request) -> int:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, work: str, path: str, *arguments: str) -> int:
        log = str(self.folder / f"{work}.{len(self.log)}")
        child = self._request(work, path, log, *arguments)
        self.log[child] = log
        return child

    def wait(self, child: int, seconds: float = 20, times: int = 1) -> None:
        """Wait until a child has acknowledged ``times`` numbers or has failed, but at most ``seconds`` seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.failed(child) and self.count_acknowledged(child) < times:
            time.sleep(0.005)

    def count_acknowledged(self, child: int) -> int:
        """Return the count of numbers that a child has acknowledged."""
        log = Path(self.log[child])
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def failed(self, child: int) -> bool:
        return Path(f"{self.log[child]}.failed").exists()

    def kill(self, child: int) -> list[int]:
        """Kill a child, and return the numbers that it has acknowledged."""
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
