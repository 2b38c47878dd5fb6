"""Windows with a large overlap are merged as ranges of panes, and a limit applies where they are listed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, finish, rollup
from tiltframe.overlapping_windows import ranges_of_panes
from tiltframe.streaming import OpenWindows
from windows import hopping

MINUTE = 60_000_000
SEVERAL = ["hopping(1h, 5m)", "hopping(6h, 40m)", "hopping(50m, 20m)", "hopping(1d, 7m)"]


def rows(seed: int, n: int = 200) -> pa.Table:
    rng = np.random.default_rng(seed)
    minutes = np.sort(rng.choice([rng.integers(0, 300, n), rng.integers(0, 20_000, n)]))
    return pa.table(
        {
            "ts": pa.array(rng.permutation(minutes) * MINUTE, pa.timestamp("us", "UTC")),
            "k": pa.array(rng.choice(["a", "b", None], n)),
            "x": pa.array(rng.integers(-5, 50, n), mask=rng.random(n) < 0.2),
        }
    )


@pytest.mark.parametrize("level", SEVERAL)
@pytest.mark.parametrize("seed", range(4))
def test_windows_hold_the_rows_of_their_time(level, seed):
    measures = {"n": aggr.count(), "total": aggr.sum("x"), "most": aggr.max("x")}
    data, frame = rows(seed), TiltFrame([level], "ts", measures, ["k"])
    expected: dict[tuple, list] = {}
    size, hop = (int(period.period.size) for period in (frame.levels[0].size, frame.levels[0].hop))
    for row in data.set_column(0, "ts", data["ts"].cast(pa.int64())).to_pylist():
        for start in range(row["ts"] // hop * hop, row["ts"] - size, -hop):
            expected.setdefault((start, row["k"]), []).append(row["x"])
    results = finish(rollup(data, frame), frame)
    results = results.set_column(1, "window_start", results["window_start"].cast(pa.int64())).to_pylist()
    for row in results:
        values = expected.pop((row["window_start"], row["k"]))
        numbers = [x for x in values if x is not None]
        assert row["n"] == len(values)
        assert row["total"] == (sum(numbers) if numbers else None)
        assert row["most"] == max(numbers, default=None)
    assert not expected
    order = [(row["window_start"], row["k"] is None, row["k"] or "") for row in results]
    assert order == sorted(order)


def test_keys_far_apart_in_time():
    first = np.array([-(2**61), 2**61, 5])
    ranges = ranges_of_panes(np.array([0, 0, 7]), first, first + 1)
    numbers = [-(2**61), -(2**61) + 1, 2**61, 2**61 + 1, 5, 6]
    assert ranges.keys.tolist() == [0, 0, 0, 0, 7, 7]
    assert ranges.numbers.tolist() == numbers
    assert ranges.first.tolist() == [0, 0, 1, 1, 2, 2]
    assert ranges.last.tolist() == [1, 1, 2, 2, 3, 3]


MEMORY = f"""
import resource
import numpy as np, pyarrow as pa, aggr
from tiltframe import TiltFrame, rollup
def run(rows, step):
    data = pa.table({{"ts": pa.array(np.arange(rows) * step, pa.timestamp("us", "UTC")), "x": np.arange(rows)}})
    measures = {{"n": aggr.count(), "s": aggr.sum("x"), "d": aggr.dds("x")}}
    return rollup(data, TiltFrame(["hopping(1d, 1m)"], "ts", measures)).num_rows
run(3, {MINUTE})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert run(4320, {MINUTE}) == 4320 + 1439
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_overlap():
    process = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert int(process.stdout) < 200  # MB; one state for each window of each pane took 700


def test_what_assign_lists_is_bounded():
    with pytest.raises(ValueError, match=r"2,000 times lie in 172,800,000 windows of .* pass fewer times"):
        hopping("1d", "1s").assign(np.arange(2000) * 1_000_000)


def test_a_stream_counts_each_window_once():
    stream = OpenWindows(TiltFrame(["hopping(1d, 1m)"], "ts", {"n": aggr.count()}), late="drop")
    stream.add_rows(pa.table({"ts": pa.array(np.arange(300) * MINUTE, pa.timestamp("us", "UTC"))}))
    emitted = stream.results(stream.advance(10 * 24 * 60 * MINUTE))
    counts = Counter(emitted.column("n").to_pylist())
    assert emitted.num_rows == 300 + 1439
    assert counts[300] == 1440 - 300 + 1
