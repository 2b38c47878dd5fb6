"""Streams that are killed between two commits: seconds until the next commit, and rows that are lost or counted twice.

The process is ``tiltframe stream`` with a store and a saved state. It reads files of a folder, is killed by SIGKILL at
random times, and is started again. Another process reads the same files without a kill.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.musthold import LimitedFigure
from tiltframe import FrameStore

_STREAM = "--stream s --time ts --key k --measure n=count() --measure total=sum(k) --levels 10s,1m,10m,1h --once"
_MAX_SECONDS = 120.0  # the maximum time, in seconds, from the start of a stream to its first commit


@dataclass
class StreamRuns:
    """The runs of one stream, from a folder of files into a store."""

    input_folder: Path
    folder: Path
    # The seconds of all runs together.
    seconds: float = 0.0
    # For each run, the seconds from its start to its first commit.
    seconds_to_commit: list[float] = field(default_factory=list)
    # For each run that was killed, the seconds from its last commit to the kill.
    seconds_to_kill: list[float] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def run(self, kill_after: float | None = None) -> bool:
        """Run the stream in a new process. Kill the process ``kill_after`` seconds after its first commit. Without
        ``kill_after``, wait until the process has read all files and closed all windows. Return whether the process
        ended without a kill.
        """
        options = [*_STREAM.split(), "--store", str(self.store), "--state", str(self.folder / "state")]
        options += ["--drain"] if kill_after is None else []
        start = time.perf_counter()
        commits_before = self._commits()
        with subprocess.Popen(
            [sys.executable, "-m", "tiltframe.cli", "stream", str(self.input_folder), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while (commits := self._commits()) == commits_before and process.poll() is None:
                assert time.perf_counter() - start < _MAX_SECONDS, "the stream does not commit"
                time.sleep(0.005)
            self.seconds_to_commit.append(time.perf_counter() - start)
            last_commit = time.perf_counter()
            while kill_after is not None and process.poll() is None and time.perf_counter() - start < _MAX_SECONDS:
                if (newest := self._commits()) != commits:
                    commits = newest
                    last_commit = time.perf_counter()
                if time.perf_counter() - start > self.seconds_to_commit[-1] + kill_after:
                    process.kill()
                    self.seconds_to_kill.append(time.perf_counter() - last_commit)
                    break
                time.sleep(0.005)
            status = process.wait()
        self.seconds += time.perf_counter() - start
        was_killed = kill_after is not None and status == -signal.SIGKILL
        assert status == 0 or was_killed, f"the stream failed with status {status}"
        return not was_killed

    def _commits(self) -> int:
        """Return the number of commits to the store. Each commit has a file in the log of the store's table."""
        return sum(1 for _ in self.store.glob("tiltframe/_delta_log/*.json"))


def crashes(batches: Iterator[pa.Table], kills: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Write a file for each table of ``batches``, whose columns are ``ts`` and the integer ``k``. Kill a stream of
    these files up to ``kills`` times. Return the figures with their limits.
    """
    rng = Random(48)
    totals = (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        input_folder = Path(folder) / "arrived"
        input_folder.mkdir()
        for number, batch in enumerate(batches):
            pq.write_table(batch, input_folder / f"{number:06}.parquet")
            totals = (totals[0] + batch.num_rows, totals[1] + pc.sum(batch["k"]).as_py())
        streams = {}
        for name in ("without", "with"):
            (Path(folder) / name).mkdir()
            streams[name] = StreamRuns(input_folder, Path(folder) / name)
        killed_stream = streams["with"]
        while len(killed_stream.seconds_to_kill) < kills and not killed_stream.run(rng.uniform(0, 1.5)):
            pass
        killed_stream.run()
        streams["without"].run()
        wrong_rows = sum(count_wrong_rows(stream.store, totals) for stream in streams.values())
    figures = {
        "kills": len(killed_stream.seconds_to_kill),
        "rows": totals[0],
        "seconds_to_first_commit": median(killed_stream.seconds_to_commit[1:]),
        "seconds_from_commit_to_kill": median(killed_stream.seconds_to_kill),
        "seconds_of_all_runs": killed_stream.seconds,
        "seconds_without_kills": streams["without"].seconds,
        "lost_or_doubled_rows": wrong_rows,
    }
    return figures, [
        LimitedFigure(f"rows lost or counted twice after {figures['kills']} kills", 0, wrong_rows),
        LimitedFigure("seconds from a restart to the first commit", 5, figures["seconds_to_first_commit"]),
    ]


def count_wrong_rows(store: Path, totals: tuple[int, int]) -> int:
    """For each level, compare the number of rows that the store counts with the number of rows that arrived. Return the
    sum of the differences of all levels. A level with the right number of rows and a wrong sum of values counts as a
    difference of one row.
    """
    wrong_rows = 0
    for level in ("10s", "1m", "10m", "1h"):
        results = FrameStore(store).query(level)
        counts = pc.sum(results["n"]).as_py()
        sums = int(pc.sum(results["total"]).as_py())
        wrong_rows += abs(counts - totals[0]) or int(sums != totals[1])
    return wrong_rows
