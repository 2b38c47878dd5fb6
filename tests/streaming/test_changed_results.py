"""Emission only of changed results, default policies of frames over all of time, and keys that expire by their span."""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.equal_rows import equal_rows

SECOND = 1_000_000
GREATEST = TiltFrame(["all"], "ts", {"max": aggr.max("x")})
KEYED = TiltFrame(["all"], "ts", {"n": aggr.count()}, ["k"])


def at(*moments: int, **columns: list) -> pa.Table:
    return pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC")), **columns})


@pytest.mark.parametrize("batch", ["", "batch=2s, "])
@pytest.mark.parametrize("mode", ["accumulating", "changelog"])
def test_a_row_that_leaves_the_result_unchanged_emits_nothing(batch, mode):
    """Timeplus, EMIT ON UPDATE: the maximum 3 is emitted once, and not again for a smaller row."""
    windows, emitted = OpenWindows(GREATEST, f"on_update({batch}mode={mode}, changed=result)"), []
    for step, x in enumerate([3.0, 2.0, 5.0]):
        windows.add_rows(at(step, x=[x]))
        results = windows.results(windows.advance(now=2 * SECOND * (step + 1)))
        emitted.append([(row["max"], row.get("change", 1)) for row in results.to_pylist()])
        windows = OpenWindows.from_ipc(windows.to_ipc())
    retracted = [(3.0, -1)] if mode == "changelog" else []
    assert emitted == [[(3.0, 1)], [], [*retracted, (5.0, 1)]]


@pytest.mark.parametrize("seed", range(40))
def test_emissions_are_the_changes_of_the_results_of_windows(seed):
    """A naive evaluator: the results per window so far, and for each of them whether it differs from the last one."""
    draws = random.Random(seed)
    frame = TiltFrame(["10s"], "ts", {"max": aggr.max("x"), "rows": aggr.collect("y")}, ["k"])
    mode = draws.choice(["accumulating", "changelog"])
    windows = OpenWindows(frame, f"on_update(changed=result, mode={mode})", "drop(5s)")
    expected, last, values, watermark = [], {}, {}, 0
    got = []
    for _ in range(25):
        batch = [
            (max(0, watermark + draws.randrange(-4, 9) * SECOND), draws.choice("ab"), draws.randrange(4), y)
            for y in (draws.choice([None, None, None, 1]) for _ in range(draws.randrange(3)))
        ]
        table = at(
            *(row[0] for row in batch),
            k=pa.array([row[1] for row in batch], pa.string()),
            x=pa.array([row[2] for row in batch], pa.int64()),
            y=pa.array([row[3] for row in batch], pa.int64()),
        )
        assert windows.add_rows(table).num_rows == sum(
            row[0] // (10 * SECOND) * 10 * SECOND + 15 * SECOND <= watermark for row in batch
        )
        for ts, key, x, y in batch:
            start = ts // (10 * SECOND) * 10 * SECOND
            if start + 15 * SECOND > watermark:
                values.setdefault((start, key), []).append((x, y))
        watermark += draws.randrange(3) * SECOND
        for window, rows in sorted(values.items()):
            result = (max(x for x, _ in rows), [y for _, y in rows if y is not None] or None)
            if last.get(window) != result:
                expected.append((*window, *result))
                last[window] = result
        for row in windows.results(windows.advance(watermark)).to_pylist():
            if row.get("change", 1) > 0:
                start = round(row["window_start"].timestamp()) * SECOND
                got.append((start, row["k"], row["max"], row["rows"] or None))
        if draws.random() < 0.3:
            windows = OpenWindows.from_ipc(windows.to_ipc())
    assert sorted(got, key=str) == sorted(expected, key=str)


def test_the_policy_before_does_not_hide_a_result():
    """Emissions by another policy in between are not the last ones any more."""
    frame = TiltFrame(["all"], "ts", {"sum": aggr.sum("x")})
    windows, sums = OpenWindows(frame, "on_update(changed=result)"), []
    for step, (x, emit) in enumerate([(3, "on_update"), (1, "on_update(changed=result)"), (-1, None)]):
        windows.add_rows(at(step, x=[x]))
        sums += windows.results(windows.advance()).column("sum").to_pylist()
        windows = OpenWindows.from_ipc(windows.to_ipc(), emit=emit)
    assert sums == [3, 4, 3]


def test_rows_are_equal_by_their_values_at_any_depth():
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.float64())))])
    before = [{"m": [("a", [1.0, math.nan])]}, {"m": [("a", [1.0])]}, None, {"m": []}, {"m": [("a", None)]}]
    after = [{"m": [("a", [1.0, math.nan])]}, {"m": [("a", [2.0])]}, None, {"m": None}, {"m": [("a", [])]}]
    tables = [pa.table({"r": pa.array(rows, kind)}) for rows in (before, after)]
    assert equal_rows(*tables, columns=["r"]).tolist() == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        ("on_update(changed=value)", "changed must be one of rows, result; got 'value'"),
        ("on_update(changed=result, mode=discarding)", "leave out one of them"),
        ("periodic(1s, repeat, changed=result)", "leave out one of them"),
        ("after_key_expire(1m, changed=result)", "changed=result has no effect"),
        ("after_key_expire", "needs timeout or maxspan"),
        ("on_update(delay=1s)", "delay=1s keeps windows open after their end"),
    ],
)
def test_settings_without_effect_are_refused(emit, message):
    with pytest.raises(ValueError, match=message):
        OpenWindows(KEYED, emit)


def test_windows_over_all_time_are_emitted_every_two_seconds():
    """Timeplus: a global aggregation without EMIT is EMIT PERIODIC 2s."""
    windows = OpenWindows(TiltFrame(["all"], "ts", {"n": aggr.count()}))
    windows.add_rows(at(0))
    steps = [windows.results(windows.advance(now=now)).to_pylist() for now in (SECOND, 2 * SECOND)]
    assert [[(row["n"], row["reason"]) for row in step] for step in steps] == [[], [(1, "period")]]
    assert str(OpenWindows(TiltFrame(["1s", "all"], "ts", {"n": aggr.count()})).emit) == "after_close"


def test_a_key_expires_by_its_span_without_a_timeout():
    windows = OpenWindows(KEYED, "after_key_expire(maxspan=500ms)")
    windows.add_rows(at(0, 100_000, 300_000, 700_000, k=["a", "a", "b", "b"]))
    assert windows.advance(499_999).num_rows == 0
    first = windows.results(windows.advance(500_000)).to_pylist()
    windows.add_rows(at(750_000, k=["a"]))
    then = windows.results(windows.advance(800_000)).to_pylist()
    assert [(row["k"], row["n"], row["reason"]) for row in [*first, *then]] == [
        ("a", 2, "expired"),
        ("b", 2, "expired"),
    ]
    assert [row["k"] for row in windows.results(windows.close()).to_pylist()] == ["a"]


def test_rows_that_do_not_meet_the_condition_are_ignored():
    windows = OpenWindows(KEYED, where="status >= 500")
    rows = at(0, 1, 2, k=["a", "a", "b"], status=[500, None, 200])
    windows.add_rows(rows)
    windows = OpenWindows.from_ipc(windows.to_ipc())
    windows.add_rows(rows)
    assert [(row["k"], row["n"]) for row in windows.results(windows.close()).to_pylist()] == [("a", 2)]
    assert windows.progress.rows == 2
