"""CPU time and elapsed time of a commit to a store of four levels. If a second checkout of the project is passed, both
checkouts are measured alternately.

python -m benchmarks.commits [CHECKOUT]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa

import aggr
from tiltframe import FrameStore, TiltFrame, rollup

FRAME = TiltFrame(["10s", "1m", "10m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "p": aggr.dds("x")}, ["k"])
WARM = 10
COMMITS = 40
ROUNDS = 3


def states(commit: int) -> pa.Table:
    """Return the states of 200 rows in the minute that begins ``commit`` minutes after the start of 1970."""
    times = [commit * 60_000 + 300 * i for i in range(200)]
    return rollup(pa.table({"ts": times, "x": [float(i % 97) for i in range(200)], "k": ["a", "b"] * 100}), FRAME)


def measure(folder: str, commits: int = COMMITS) -> tuple[float, float]:
    """Return the median CPU time and the median elapsed time of a commit, in milliseconds. The first `WARM` commits are
    not counted.
    """
    store = FrameStore(f"{folder}/store", FRAME)
    tables = [states(i) for i in range(WARM + commits)]
    times = []
    for number, table in enumerate(tables):
        start = time.process_time(), time.perf_counter()
        assert store.append(table, "benchmark", number)
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    processor, clock = (1e3 * statistics.median(column) for column in zip(*times[WARM:], strict=True))
    return processor, clock


def measure_checkout(checkout: str) -> tuple[float, float]:
    """Run `measure` in a new process with the code in the folder ``checkout``, which may be another release, and return
    its results.
    """
    environment = {**os.environ, "PYTHONPATH": checkout}
    command = [sys.executable, os.path.abspath(__file__), "--json"]
    process = subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE)
    processor, clock = json.loads(process.stdout.splitlines()[-1])
    return processor, clock


def main() -> None:
    """Print the medians of `measure`. If another checkout is passed, print the medians of both checkouts, and the
    median of the other checkout divided by the median of this one.
    """
    if sys.argv[1:] in ([], ["--json"]):
        with tempfile.TemporaryDirectory() as folder:
            processor, clock = measure(folder)
        print(
            json.dumps([processor, clock])
            if sys.argv[1:]
            else f"a commit at four levels: {processor:.1f} ms of CPU time, {clock:.1f} ms elapsed"
        )
        return
    checkouts = [os.getcwd(), os.path.abspath(sys.argv[1])]
    rounds = [[measure_checkout(checkout) for checkout in checkouts] for _ in range(ROUNDS)]
    for column, time_name in enumerate(("of CPU time", "elapsed")):
        own_median, other_median = (
            statistics.median(one_round[index][column] for one_round in rounds) for index in (0, 1)
        )
        ratio = f"this checkout is {other_median / own_median:.2f} times as fast"
        print(
            f"a commit at four levels: {own_median:.1f} ms {time_name}, {other_median:.1f} ms in the other checkout: "
            f"{ratio}"
        )


if __name__ == "__main__":
    main()
