"""A measure that is added to a stream is null in windows with earlier rows, and complete in all others."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
MICROS = 1_000_000
BEFORE = {"total": aggr.sum("x"), "mean": aggr.avg("x")}
ADDED = {"n": aggr.count(), "most": aggr.max("x"), "shifted": aggr.sum("x + 1")}
LEVELS = [["10s", "1m", "5m"], ["10s", "hopping(1m, 30s)"], ["session(15s)"], ["1m", "all"]]


def rows_of(rows: list[tuple[int, str, int]]) -> pa.Table:
    times, keys, values = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    ts = pa.array([t * MICROS for t in times], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": ts, "k": pa.array(keys, pa.string()), "x": pa.array(values, pa.int64())})


def frame_of(levels: list[str], measures: dict) -> TiltFrame:
    return TiltFrame(levels, "ts", measures, ["k"])


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["after_close", "on_update", "on_update(mode=changelog)", "periodic(30s)"])
@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_windows_with_rows_from_before_are_null(levels, emit):
    draws = random.Random(SEED)
    for trial in range(8):
        rows = sorted((draws.randrange(400), draws.choice("ab"), draws.randrange(100)) for _ in range(40))
        cut = draws.randrange(len(rows))
        windows = OpenWindows(frame_of(levels, BEFORE), emit, "drop(1h)")
        windows.add_rows(rows_of(rows[:cut]))
        windows.advance(rows[cut][0] * MICROS, 0)
        windows = OpenWindows.from_ipc(windows.to_ipc(), frame_of(levels, {**BEFORE, **ADDED}))
        if draws.random() < 0.5:  # and once more, with nothing new
            windows = OpenWindows.from_ipc(windows.to_ipc())
        windows.add_rows(rows_of(rows[cut:]))
        emitted = windows.results(windows.advance(10**6 * MICROS, 60 * MICROS)).to_pylist()
        last = {(r["level"], r["window_start"], r["k"]): r for r in emitted if r.get("change", 1) == 1}
        assert last
        for (level, start, key), emitted_values in last.items():
            inside = [
                (place, t, x)
                for place, (t, k, x) in enumerate(rows)
                if k == key and (start is None or start.timestamp() <= t < emitted_values["window_end"].timestamp())
            ]
            values = [x for _, _, x in inside]
            assert emitted_values["total"] == sum(values), (SEED, trial, level)
            seen_all = all(place >= cut for place, _, _ in inside)
            expected = (len(values), max(values), sum(x + 1 for x in values)) if seen_all else (None, None, None)
            assert (emitted_values["n"], emitted_values["most"], emitted_values["shifted"]) == expected, (
                SEED,
                trial,
                level,
                start,
                key,
            )


def test_what_was_emitted_and_taken_out_is_known_again():
    """In discarding mode an emission covers what came since the last one: after the first, all of it was seen."""
    windows = OpenWindows(frame_of(["1m"], BEFORE), "on_update(mode=discarding)")
    windows.add_rows(rows_of([(1, "a", 5)]))
    windows = OpenWindows.from_ipc(windows.to_ipc(), frame_of(["1m"], {**BEFORE, **ADDED}))
    counts = []
    for second in (2, 3):
        windows.add_rows(rows_of([(second, "a", 7)]))
        counts += windows.results(windows.advance(second * MICROS))["n"].to_pylist()
    assert counts == [None, 1]


@pytest.mark.store
@pytest.mark.filterwarnings("ignore::tiltframe.store.NotKnown")
def test_a_stream_into_a_store_says_null_there_too(tmp_path):
    store = FrameStore(str(tmp_path / "store"), frame_of(["10s", "1m"], BEFORE))
    stream = ClosedWindows(store, "s")
    stream.add_rows(rows_of([(t, "a", t) for t in (1, 12, 21, 22)]))
    stream.advance(20 * MICROS)
    stream.commit()
    saved = stream.to_ipc()
    store.evolve(frame_of(["10s", "1m"], {**BEFORE, **ADDED}), row_schema=rows_of([]).schema)
    store = FrameStore(str(tmp_path / "store"))
    stream = ClosedWindows.from_ipc(saved, store, "s")
    stream.commit()
    stream.add_rows(rows_of([(t, "a", t) for t in (23, 31, 65)]))
    stream.advance(200 * MICROS)
    stream.commit()
    read = store.query("10s", measures=["total", "n"]).to_pylist()
    rows_of_store = [(int(row["window_start"].timestamp()), row["total"], row["n"]) for row in read]
    assert rows_of_store == [(0, 1, None), (10, 12, None), (20, 66, None), (30, 31, 1), (60, 65, 1)]
    coarse = [(row["total"], row["n"]) for row in store.query("1m", measures=["total", "n"]).to_pylist()]
    assert coarse == [(110, None), (65, 1)]
