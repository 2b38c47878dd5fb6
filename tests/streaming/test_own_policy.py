"""A custom policy, as in docs/streams.md: one file with an entry point, an additional measure and an
additional column.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame
from tiltframe.streaming import OpenWindows, read_emit, read_late

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Lay the files of the page into a folder as a package installer does."""
    page = (ROOT / "docs/adding-a-policy.md").read_text()
    for name in ("when_over", "within"):
        (code,) = re.findall(rf"```python\n(# {name}\.py\n.*?)```", page, re.DOTALL)
        (tmp_path / f"{name}.py").write_text(code)
    (points,) = re.findall(r'\[project\.entry-points\."tiltframe\.policies"\]\n(.*?)\n\n', page, re.DOTALL)
    info = tmp_path / "when_over-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: when-over\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tiltframe.policies]\n" + points.replace('"', "") + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("when_over", "within"):
        sys.modules.pop(name, None)


def rows(*times_and_values: tuple[int, float | None]) -> pa.Table:
    times = pa.array([second * SECOND for second, _ in times_and_values], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "ms": [ms for _, ms in times_and_values]})


FRAME = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "mean": aggr.avg("ms")})


def emitted(windows: OpenWindows, watermark: int) -> list[tuple]:
    names = ("level", "n", "peak", "reason")
    table = windows.results(windows.advance(watermark * SECOND)).to_pylist()
    return [tuple(row[name] for name in names) for row in table]


def test_its_text_is_read_and_written(site):
    policy = read_emit("when_over(ms, 500, having='peak < 900')")
    assert (policy.column, policy.limit, policy.having) == ("ms", 500, "peak < 900")
    assert read_emit(str(policy)) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(ValueError, match="peak"):
        OpenWindows(TiltFrame(["10s"], "ts", {"peak": aggr.count()}), "when_over(ms, 1)")
    with pytest.raises(ValueError, match="as late policy"):
        read_late("when_over(ms, 1)")


def test_its_measure_is_kept_and_not_emitted_and_goes_on_from_a_saved_state(site):
    windows = OpenWindows(FRAME, "when_over(ms, 500)", "drop(1m)")
    windows.add_rows(rows((1, 3.0), (12, 501.0), (13, None)))
    assert emitted(windows, 5) == [("10s", 2, 501.0, "over"), ("1m", 3, 501.0, "over")]
    windows = OpenWindows.from_ipc(windows.to_ipc())
    windows.add_rows(rows((14, 502.0), (2, 4.0)))
    assert emitted(windows, 5) == [("10s", 3, 502.0, "over"), ("1m", 5, 502.0, "over")]
    assert emitted(windows, 60) == [("10s", 2, 4.0, "close")]
    names = windows.advance(60 * SECOND).column_names
    assert names == ["level", "window_start", "window_end", "n", "mean", "peak", "reason", "revision", "partial"]


def test_windows_from_before_the_policy_have_no_value_of_its_measure(site):
    windows = OpenWindows(FRAME)
    windows.add_rows(rows((1, 600.0)))
    windows = OpenWindows.from_ipc(windows.to_ipc(), emit="when_over(ms, 500)")
    assert emitted(windows, 5) == []  # what its rows had is not known
    windows.add_rows(rows((2, 700.0), (12, 800.0)))
    assert emitted(windows, 5) == [("10s", 1, 800.0, "over")]
    windows = OpenWindows.from_ipc(windows.to_ipc(), emit="when_over(ms, 100)")
    assert emitted(windows, 10) == [("10s", 2, None, "close")]
    windows = OpenWindows.from_ipc(windows.to_ipc(), emit="after_close")  # and back
    windows.add_rows(rows((13, 900.0)))
    assert [(r["level"], r["n"]) for r in windows.results(windows.close()).to_pylist()] == [("10s", 2), ("1m", 4)]


def test_a_late_policy_of_ones_own(site):
    windows = OpenWindows(FRAME, "on_update", "within(30s)")
    assert windows.add_rows(rows((100, 1.0), (70, 1.0), (69, 1.0))).num_rows == 1
    assert windows.add_rows(rows((71, 1.0), (69, 2.0), (200, 1.0))).column("ms").to_pylist() == [2.0]
    assert (windows.progress.rows, windows.progress.late_rows, windows.progress.moved_rows) == (6, 2, 0)


@pytest.mark.slow
@pytest.mark.long
def test_the_command_line_takes_it(site):
    lines = "".join(json.dumps({"ts": s * 1000, "ms": ms}) + "\n" for s, ms in [(1, 3.0), (12, 501.5)])
    command = ["stream", "--time", "ts", "--measure", "n=count()", "--levels", "10s"]
    done = subprocess.run(
        [sys.executable, "-m", "tiltframe.cli", *command, "--emit", "when_over(ms, 500)"],
        input=lines, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert not done.stderr
    emitted_rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["n"], row["peak"], row["reason"]) for row in emitted_rows] == [(1, 3.0, "close"), (1, 501.5, "over")]
