"""Sessions with late rows: if the lateness is at least the gap, a stream equals a batch job over the rows that are not
late.
"""

from __future__ import annotations

import os
import random
import warnings

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, finish, rollup
from tiltframe.streaming import Drop, OpenWindows

SECOND = 1_000_000
TRIALS = int(os.environ.get("TRIALS", "25"))
MEASURES = {"n": aggr.count(), "total": aggr.sum("i"), "last": aggr.last("i")}
KEYS = ["a", "b", None]


def frame(gap: int) -> TiltFrame:
    return TiltFrame([f"session({gap}s)"], "ts", MEASURES, ["k"])


def rows_of(draw: random.Random, gap: int) -> pa.Table:
    """Draw rows roughly in order, whose disorder is from none to many gaps."""
    n = draw.randrange(1, 120)
    disorder = draw.choice([0, gap / 2, gap, 3 * gap, 20 * gap])
    spread = draw.choice([0.2, 0.5, 1, 2]) * gap * n
    # whole seconds, so that intervals often touch
    times = [int(at + draw.gauss(0, 1) * disorder) for at in sorted(draw.uniform(0, spread) for _ in range(n))]
    keys = [draw.choice(KEYS[: draw.randrange(1, 4)]) for _ in range(n)]
    stamps = pa.array([at * SECOND for at in times], pa.timestamp("us", "UTC"))
    return pa.table({"ts": stamps, "k": pa.array(keys, pa.string()), "i": range(n)})


def standing(emitted: list[dict], stands: dict[tuple, dict]) -> None:
    """Follow a changelog."""
    for row in emitted:
        window = row["k"], row["window_start"], row["window_end"]
        if row["change"] < 0:
            del stands[window]
        else:
            assert window not in stands
            stands[window] = {name: row[name] for name in MEASURES}


def stream(draw: random.Random, rows: pa.Table, gap: int, late: str | Drop) -> tuple[dict[tuple, dict], set[int]]:
    """Run a stream with random batches, watermarks and restarts; return what stands in the end, and the late rows."""
    emit = draw.choice(["after_close", "on_update", "after_close(delay=2s, mode=changelog)"])
    emit = emit if "mode" in emit else f"{emit}(mode=changelog)"
    windows, stands, dropped = OpenWindows(frame(gap), emit, late), {}, set()
    behind, at = draw.choice([0, gap, 5 * gap]), 0
    while at < rows.num_rows:
        batch = rows.slice(at, draw.choice([1, 1, 3, 20]))
        at += batch.num_rows
        dropped |= set(windows.add_rows(batch)["i"].to_pylist())
        if draw.random() < 0.8:
            newest = max(rows["ts"].cast(pa.int64()).to_pylist()[:at])
            standing(windows.results(windows.advance(newest - behind * SECOND)).to_pylist(), stands)
        if draw.random() < 0.2:
            windows = OpenWindows.from_ipc(windows.to_ipc())
    assert windows.progress.late_rows == len(dropped)
    standing(windows.results(windows.close()).to_pylist(), stands)
    return stands, dropped


def batch(rows: pa.Table, gap: int) -> dict[tuple, dict]:
    results = finish(rollup(rows, frame(gap)), frame(gap)).to_pylist()
    return {(r["k"], r["window_start"], r["window_end"]): {name: r[name] for name in MEASURES} for r in results}


@pytest.mark.long
def test_a_stream_is_the_batch_over_the_rows_that_were_not_late():
    some_late = 0
    for trial in range(TRIALS):
        draw = random.Random(trial)
        gap = draw.choice([1, 3, 10])
        rows = rows_of(draw, gap)
        late = draw.choice(["drop", f"drop({gap}s)", f"drop({gap + 1}s)", f"drop({4 * gap}s)"])
        stands, dropped = stream(draw, rows, gap, late)
        accepted = rows.filter(pa.array([i not in dropped for i in range(rows.num_rows)]))
        assert stands == batch(accepted, gap), (trial, gap, late)
        some_late += bool(dropped)
    assert some_late > TRIALS / 10  # otherwise nothing was tried


@pytest.mark.long
@pytest.mark.slow
def test_rows_in_time_are_never_late():
    """A row whose own interval the watermark has not passed counts, whatever came before."""
    for trial in range(max(TRIALS // 4, 10)):
        draw = random.Random(trial)
        gap = draw.choice([1, 3, 10])
        rows = rows_of(draw, gap)
        windows, newest = OpenWindows(frame(gap)), -(2**60)
        for i, at in enumerate(rows["ts"].cast(pa.int64()).to_pylist()):
            late = windows.add_rows(rows.slice(i, 1)).num_rows
            assert not late or at + gap * SECOND <= newest
            newest = max(newest, at)
            windows.advance(newest)


def test_a_row_next_to_a_forgotten_session_is_late():
    """The case that Flink, Beam and Spark answer with two sessions that overlap."""
    seconds = lambda *at: pa.table({"ts": [s * 1000 for s in at], "k": ["a"] * len(at), "i": [*at]})  # noqa: E731
    for late, dropped, results in ((Drop("0s"), 0, 2), (Drop("5s"), 1, 1), ("drop", 1, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            windows = OpenWindows(frame(5), "after_close", late)
        windows.add_rows(seconds(0))
        first = windows.advance((5 + 5 if dropped else 5) * SECOND + SECOND).num_rows
        assert windows.add_rows(seconds(4)).num_rows == dropped
        assert first + windows.close().num_rows == results


def test_the_default_lateness_is_the_gap():
    assert OpenWindows(frame(5)).late == Drop("5s")
    assert OpenWindows(TiltFrame(["10s"], "ts", MEASURES, ["k"])).late == Drop("0s")
    saved = OpenWindows(frame(5)).to_ipc()
    assert OpenWindows.from_ipc(saved).late == Drop("5s")


def test_a_smaller_lateness_warns():
    with pytest.warns(UserWarning, match=r"the lateness 0s is shorter than the gap 5s .*drop\(5s\)"):
        OpenWindows(frame(5), late="drop(0s)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OpenWindows(frame(5))
        OpenWindows(frame(5), late="drop(5s)")
        OpenWindows(frame(5), late="true_window")


def test_panes_that_came_at_once_are_judged_as_a_whole():
    from tiltframe.merged_windows import merge_panes
    from tiltframe.reducing import reduce_rows

    windows = OpenWindows(frame(5))

    def add(*at):
        rows = pa.table({"ts": [s * 1000 for s in at], "k": ["a"] * len(at), "i": [*at]})
        return windows.add(merge_panes(reduce_rows(rows, windows.partial_frame), windows.partial_frame)).num_rows

    add(0)
    windows.advance(11 * SECOND)
    assert add(4) == 1  # its own interval is closed, and it would join [0, 5)
    assert add(6) == 0  # after the forgotten session
    assert add(12) == 0
    assert np.array_equal(windows._levels[0].windows.starts, [6 * SECOND, 12 * SECOND])
