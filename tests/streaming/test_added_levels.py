"""A level that is added to a saved stream is null in windows that began before, and complete in all others."""

from __future__ import annotations

import os
import random

import pytest

import aggr
from tests.streaming.test_added_measures import MICROS, frame_of, rows_of
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.saved import OtherSavedFrame

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
MEASURES = {"total": aggr.sum("x"), "mean": aggr.avg("x")}
SIZES = {"10s": 10, "1m": 60, "5m": 300, "15m": 900}
LEVELS = [["10s"], ["10s", "1m"], ["10s", "1m", "5m"], ["10s", "1m", "5m", "15m"]]


def last_results(outputs):
    """Return the last result of each window, as (level, start in seconds, key) -> (total, mean)."""
    results: dict[tuple, tuple] = {}
    for output in outputs:
        for row in output.to_pylist():
            if row.get("change", 1) == 1:
                start = int(row["window_start"].timestamp())
                results[row["level"], start, row["k"]] = row["total"], row["mean"]
    return results


@pytest.mark.parametrize("late", ["drop", "drop(2m)"])
@pytest.mark.parametrize(
    "emit", ["after_close", "after_close(delay=30s)", "on_update", "on_update(mode=changelog)", "periodic(30s)"]
)
def test_windows_from_the_watermark_on_are_complete(emit, late):
    draws = random.Random(SEED)
    for trial in range(2):
        rows = sorted((draws.randrange(900), draws.choice("ab"), draws.randrange(100)) for _ in range(90))
        cuts = sorted(draws.sample(range(1, len(rows)), 3))
        windows, outputs, since = OpenWindows(frame_of(LEVELS[0], MEASURES), emit, late), [], {}
        for stage, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            if stage:
                windows = OpenWindows.from_ipc(windows.to_ipc(), frame_of(LEVELS[stage], MEASURES))
                since[windows.frame.levels[-1].name] = rows[begin][0]
            for place in range(begin, end):
                windows.add_rows(rows_of(rows[place : place + 1]))
                watermark = rows[min(place + 1, len(rows) - 1)][0]  # no row is late
                outputs.append(windows.results(windows.advance(watermark * MICROS, place * 20 * MICROS)))
        outputs.append(windows.results(windows.close()))
        got = last_results(outputs)
        for (level, start, key), result in got.items():
            values = [x for t, k, x in rows if k == key and start <= t < start + SIZES[level]]
            known = start >= since.get(level, 0)
            expected = (sum(values), sum(values) / len(values)) if known else (None, None)
            assert result == expected, (SEED, trial, level, start, key)
        for level, first in since.items():
            starts = {(t // SIZES[level] * SIZES[level], k) for t, k, _ in rows}
            due = {(level, start, k) for start, k in starts if start >= first}
            assert due <= got.keys(), (SEED, trial, level)


@pytest.mark.parametrize(
    ("emit", "late", "reason"),
    [
        ("on_update(mode=discarding)", "drop", "in the mode discarding, rows that were emitted are no longer"),
        ("after_close", "buffer(3)", "remove windows from memory that the watermark has not passed"),
    ],
)
def test_policies_that_forget_rows_are_refused(emit, late, reason):
    windows = OpenWindows(frame_of(["10s"], MEASURES), emit, late)
    windows.add_rows(rows_of([(1, "a", 5)]))
    with pytest.raises(OtherSavedFrame, match=f"the level 1m cannot be added to the saved windows: .*{reason}"):
        OpenWindows.from_ipc(windows.to_ipc(), frame_of(["10s", "1m"], MEASURES))


@pytest.mark.parametrize("levels", [["5s", "10s", "5m"], ["10s", "1m", "5m"], ["10s"], ["1m", "5m"]])
def test_only_coarser_levels_are_added_and_none_is_removed(levels):
    windows = OpenWindows(frame_of(["10s", "5m"], MEASURES))
    windows.add_rows(rows_of([(1, "a", 5)]))
    with pytest.raises(OtherSavedFrame, match=r"levels is \['10s', '5m'\] in the saved state"):
        OpenWindows.from_ipc(windows.to_ipc(), frame_of(levels, MEASURES))


def test_a_hopping_level_is_not_added():
    windows = OpenWindows(frame_of(["10s"], MEASURES))
    windows.add_rows(rows_of([(1, "a", 5)]))
    with pytest.raises(OtherSavedFrame, match="do not follow each other without gaps or overlaps"):
        OpenWindows.from_ipc(windows.to_ipc(), frame_of(["10s", "hopping(1m, 30s)"], MEASURES))
