"""The cost of durable commits: two stores in folders, one with and one without ``fsync``, commit alternately.

python -m benchmarks.durability [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import aggr
from aggr.bench.timing import alternate
from tiltframe import FrameStore, TiltFrame, rollup

FRAME = TiltFrame(["10s", "1m", "1h"], "ts", {"n": aggr.count(), "x": aggr.dds("x")}, ["k"])
ROUNDS = 60


def measure(folder: Path, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return the median seconds of a commit at three levels, without and with ``fsync``."""
    rows = pa.table(
        {"ts": range(0, 3_600_000, 1000), "x": [float(i % 100) for i in range(3600)], "k": ["a", "b"] * 1800}
    )
    states = rollup(rows, FRAME)
    stores = [FrameStore(folder / str(durable), FRAME, durable=durable) for durable in (False, True)]
    next_commits = [0, 0]

    def commit(i: int) -> None:
        assert stores[i].append(states, "benchmark", next_commits[i])
        next_commits[i] += 1

    for i in (0, 1):
        commit(i)
    plain, durable = alternate([lambda: commit(0), lambda: commit(1)], rounds)
    return plain, durable


def main() -> None:
    """Print the median time of a commit without ``fsync`` and with it, and the second time divided by the first."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        plain, durable = measure(Path(folder))
    print(
        f"a commit at three levels: {plain * 1e3:.1f} ms, durable {durable * 1e3:.1f} ms: {durable / plain:.2f} times"
    )


if __name__ == "__main__":
    main()
