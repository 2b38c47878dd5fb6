"""Frames of sessions, hopping windows, windows with offsets and all of time, compared with naive evaluators."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.arrow.bit_equality import same_bits
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.level_chain import climb, join_levels
from tiltframe.merged_windows import merge_panes
from tiltframe.reducing import partial_states
from tiltframe.rolling_up import rollup_batches
from windows import AllTime, Intervals, TimeWindow, hopping, session, window

MINUTE = 60_000_000
MEASURES = {
    "rows": aggr.count(),
    "whole": aggr.sum("i"),
    "lo": aggr.min("x"),
    "hi": aggr.max("x"),
    "total": aggr.sum("x"),
    "mean": aggr.avg("x"),
    "first": aggr.first("i"),
    "last": aggr.last("i"),
    "p": aggr.dds("x"),
}


def events(n: int, seed: int) -> pa.Table:
    """Rows of three keys, one of them null: gaps below, at and above half an hour, ties, in no order."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([0, 1, MINUTE, 10 * MINUTE, 30 * MINUTE - 1, 30 * MINUTE, 30 * MINUTE + 1, 200 * MINUTE], n)
    at = int(rng.integers(-(10**14), 17 * 10**14)) + np.cumsum(steps)
    return pa.table(
        {
            "ts": pa.array(rng.permutation(at)).cast(pa.timestamp("us", "UTC")),
            "host": pa.array([None if k == 0 else f"h{k}" for k in rng.integers(0, 3, n)], pa.string()),
            "x": pa.array(rng.lognormal(0, 20, n)),
            "i": pa.array(rng.integers(-5, 1000, n), pa.int64()),
        }
    )


def rows_of(table: pa.Table, keys: list[str]) -> dict[tuple, list[dict]]:
    micros = table["ts"].cast(pa.int64()).to_pylist()
    groups = defaultdict(list)
    for at, row in zip(micros, table.to_pylist(), strict=True):
        groups[tuple(row[k] for k in keys)].append({**row, "at": at})
    return groups


def naive_sessions(table: pa.Table, keys: list[str], gap: int) -> dict[tuple, list[dict]]:
    sessions = {}
    for key, rows in rows_of(table, keys).items():
        start, rows_of_session = None, []
        for row in sorted(rows, key=lambda row: row["at"]):
            if rows_of_session and row["at"] > rows_of_session[-1]["at"] + gap:
                sessions[(start, rows_of_session[-1]["at"] + gap, *key)] = rows_of_session
                rows_of_session = []
            start = row["at"] if not rows_of_session else start
            rows_of_session = [*rows_of_session, row]
        sessions[(start, rows_of_session[-1]["at"] + gap, *key)] = rows_of_session
    return sessions


def naive_hopping(table: pa.Table, keys: list[str], size: int, hop: int, offset: int = 0) -> dict[tuple, list[dict]]:
    rows_by_window = defaultdict(list)
    for key, rows in rows_of(table, keys).items():
        for row in rows:
            start = (row["at"] - offset) // hop * hop + offset
            while start + size > row["at"]:
                rows_by_window[(start, start + size, *key)].append(row)
                start -= hop
    return rows_by_window


def check_against(results: pa.Table, keys: list[str], expected: dict[tuple, list[dict]]) -> None:
    starts, window_ends = (results[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
    got = {
        (start, end, *(row[k] for k in keys)): row
        for start, end, row in zip(starts, window_ends, results.to_pylist(), strict=True)
    }
    assert len(got) == results.num_rows
    assert got.keys() == expected.keys()
    for window_of, rows in expected.items():
        xs, row = [r["x"] for r in rows], got[window_of]
        exact = sum(map(Fraction, xs))
        assert (row["rows"], row["whole"], row["lo"], row["hi"]) == (
            len(rows),
            sum(r["i"] for r in rows),
            min(xs),
            max(xs),
        )
        assert (row["total"], row["mean"]) == (float(exact), float(exact / len(xs)))
        assert row["first"] == min(rows, key=lambda r: (r["at"], r["i"]))["i"]
        assert row["last"] == max(rows, key=lambda r: (r["at"], r["i"]))["i"]
        assert row["p"]["count"] == len(rows)


@pytest.mark.parametrize("keys", [["host"], []], ids=["keys", "no keys"])
@pytest.mark.parametrize("seed", range(4))
def test_sessions_against_a_naive_evaluation(seed, keys):
    table = events(500, seed)
    frame = TiltFrame(["session(30m)"], "ts", MEASURES, keys)
    expected = naive_sessions(table, keys, 30 * MINUTE)
    assert any(len(rows) > 3 for rows in expected.values())
    assert any(len(rows) == 1 for rows in expected.values())
    check_against(finish(rollup(table, frame), frame), keys, expected)


@pytest.mark.parametrize("keys", [["host"], []], ids=["keys", "no keys"])
@pytest.mark.parametrize(
    ("name", "size", "hop", "offset"),
    [
        ("hopping(1h, 20m)", 60, 20, 0), ("hopping(1h, 25m)", 60, 25, 0), ("hopping(1h, 25m, offset=7m)", 60, 25, 7),
        ("hopping(1h, 1h)", 60, 60, 0), ("tumbling(1h, offset=7m)", 60, 60, 7),
        ("tumbling(1d, offset=6h)", 1440, 1440, 360),
    ],
)  # fmt: skip
def test_hopping_windows_and_offsets_against_a_naive_evaluation(name, size, hop, offset, keys):
    table = events(500, 5)
    frame = TiltFrame([name], "ts", MEASURES, keys)
    expected = naive_hopping(table, keys, size * MINUTE, hop * MINUTE, offset * MINUTE)
    check_against(finish(rollup(table, frame), frame), keys, expected)


FRAMES = [["session(30m)"], ["hopping(1h, 25m)"], ["10m", "hopping(1h, 20m)", "1d", "all"], ["tumbling(1h, offset=7m)"]]


@pytest.mark.long
@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans(), st.sampled_from(FRAMES))
@settings(max_examples=40, deadline=None)
def test_any_split_of_the_rows_equals_the_whole(seed, cuts, merge_early, levels):
    table, frame = events(200, seed % 11), TiltFrame(levels, "ts", MEASURES, ["host"])
    rng = np.random.default_rng(seed)
    shuffled = table.take(pa.array(rng.permutation(len(table))))
    edges = np.sort(rng.integers(0, len(table) + 1, cuts))
    pieces = [shuffled.slice(a, b - a) for a, b in zip([0, *edges], [*edges, len(table)], strict=True)]
    batches = [p.to_batches() or [pa.RecordBatch.from_pylist([], p.schema)] for p in pieces]
    if merge_early:
        tree = next(partial_states(batches[0], frame))
        for part in batches[1:]:
            tree = merge_panes(pa.concat_tables([tree, next(partial_states(part, frame))]), frame)
        states = join_levels(climb(merge_panes(tree, frame), frame), frame)
    else:
        states = rollup_batches([batch for part in batches for batch in part], frame)
    unsplit = rollup(table, frame)
    assert all(same_bits(states.column(name), unsplit.column(name)) for name in unsplit.column_names)


def test_a_late_row_bridges_two_sessions():
    frame = TiltFrame(["session(30m)"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])

    def states(*minutes: int) -> pa.Table:
        rows = pa.table({"ts": [m * 60_000 for m in minutes], "k": ["a"] * len(minutes), "x": list(minutes)})
        return next(partial_states(rows.to_batches(), frame))

    apart = merge_panes(pa.concat_tables([states(0), states(50, 100)]), frame)
    assert apart.num_rows == 3
    assert join_levels(climb(apart, frame), frame)["window_end"].cast(pa.int64()).to_pylist() == [
        m * MINUTE for m in (30, 80, 130)
    ]
    bridged = merge_panes(pa.concat_tables([apart, states(25)]), frame)
    assert finish(join_levels(climb(bridged, frame), frame), frame).select(["n", "s"]).to_pylist() == [
        {"n": 3, "s": 75},
        {"n": 1, "s": 100},
    ]
    again = merge_panes(pa.concat_tables([bridged, states(80)]), frame)  # touches on both sides: 50 + 30 and 100
    assert finish(join_levels(climb(again, frame), frame), frame).select(["n", "s"]).to_pylist() == [{"n": 5, "s": 255}]


def test_states_carry_their_window_from_the_first_reduction_on():
    table = events(300, 2)
    for levels in FRAMES:
        frame = TiltFrame(levels, "ts", MEASURES, ["host"])
        partial = next(partial_states(table.to_batches(), frame))
        expected = ["window_start", "window_end", "host", *(c.name for c in frame.states)]
        assert partial.column_names == expected
        for level, states in climb(merge_panes(partial, frame), frame):
            assert states.column_names == expected
            assert level in frame.levels


def test_every_level_is_the_rows_reduced_at_that_level():
    table = events(400, 3)
    chain = ["10m", "hopping(1h, 20m)", "hopping(2h, 1h)", "1d", "all"]
    states = rollup(table, TiltFrame(chain, "ts", MEASURES, ["host"]))
    for level in chain:
        alone = rollup(table, TiltFrame([level], "ts", MEASURES, ["host"]))
        merged = states.filter(pa.compute.equal(states["level"], level))
        assert all(same_bits(merged.column(c), alone.column(c)) for c in alone.column_names)


def test_the_whole_has_no_start_and_no_end():
    frame = TiltFrame([AllTime()], "ts", {"n": aggr.count()}, ["k"])
    results = finish(rollup(pa.table({"ts": [0, 10**15, -(10**14)], "k": ["a", "b", "a"]}), frame), frame)
    assert results.drop_columns(["level"]).to_pylist() == [
        {"window_start": None, "window_end": None, "k": "a", "n": 2},
        {"window_start": None, "window_end": None, "k": "b", "n": 1},
    ]


@pytest.mark.parametrize("levels", FRAMES)
def test_frames_of_any_windows_travel_and_take_no_rows(levels):
    frame = TiltFrame(levels, "ts", MEASURES, ["host"])
    for other in (pickle.loads(pickle.dumps(frame)), TiltFrame.from_dict(frame.describe())):
        assert other == frame
        assert hash(other) == hash(frame)
    empty = rollup(events(0, 0), frame)
    assert (empty.num_rows, empty.schema) == (0, frame.states_schema(events(0, 0).schema))


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["session(30m)", "1d"], r"session\(30m\) depends on the rows"),
        (["1h", "session(30m)"], r"session\(30m\) depends on the rows, and must be the only level"),
        (["session(30m)", "all"], r"session\(30m\) depends on the rows"),
        (["all", "1d"], "1d does not consist of whole windows of all"),
        (["10m", "hopping(1h, 25m)"], "its panes have the size 5m, and 10m is longer"),
        (["hopping(1h, 10m)", "30m"], r"hopping\(1h, 10m\) is longer"),
        (["hopping(1h, 10m)", "hopping(60m, 10m)"], "have the same size; name only one of them"),
        (["hopping(1h, 7m)", "1d"], "windows of 1m"),
        (
            ["1h", "tumbling(1d, offset=90m)"],
            r"offset=90m\) have an edge at .*T01:30 UTC, inside the window of 1h",
        ),
        ([window("1h", "Asia/Tokyo")], "time zone Asia/Tokyo, but the frame uses UTC; create them with timezone='UTC'"),
        ([hopping("1h", "10m", "Asia/Tokyo")], "time zone Asia/Tokyo, but the frame uses UTC"),
        ([5], "cannot read 5 as a window"),
    ],
)
def test_levels_that_do_not_go_together_are_refused(levels, message):
    if levels == ["hopping(1h, 7m)", "1d"]:
        assert TiltFrame(levels, "ts", MEASURES).panes == window("1m")  # panes of a minute are in every day
        return
    with pytest.raises(ValueError, match=message):
        TiltFrame(levels, "ts", MEASURES)


def test_windows_may_be_given_as_values():
    frame = TiltFrame(
        [hopping("1h", "10m", "Asia/Tokyo"), window("1d", "Asia/Tokyo"), "all"], "ts", MEASURES, timezone="Asia/Tokyo"
    )
    assert repr(frame).startswith("TiltFrame(hopping(1h, 10m) → 1d → all in Asia/Tokyo; ")
    assert TiltFrame([session("30m")], "ts", MEASURES, timezone="Asia/Tokyo").level("session(30 min)") == session("30m")
    with pytest.raises(ValueError, match="the frame has no level '1h'"):
        frame.level("1h")


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["session(30m)"], r"follow each other on the clock, and windows of session\(30m\) do not; store 1h instead$"),
        (
            ["hopping(1h, 10m)", "1d"],
            r"windows of hopping\(1h, 10m\) do not; store 10m instead, and query hopping\(1h, 10m\)$",
        ),
        (["1h", "all"], "windows of all do not"),
    ],
)
def test_a_store_refuses_windows_whose_end_does_not_follow_from_their_start(tmp_path, levels, message):
    with pytest.raises(ValueError, match=message):
        FrameStore(tmp_path / "s", TiltFrame(levels, "ts", MEASURES, ["host"]))
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_a_store_keeps_levels_with_an_offset(place):
    frame = TiltFrame(
        ["tumbling(1h, offset=7m)", "tumbling(1d, offset=7m)"],
        "ts",
        {"n": aggr.count(), "whole": aggr.sum("i")},
        ["host"],
    )
    table, store = events(300, 6), FrameStore(place, frame)
    store.append(rollup(table.slice(0, 150), frame), "w", 1)
    FrameStore(place).append(rollup(table.slice(150), frame), "w", 2)
    store = FrameStore(place)
    assert store.frame == frame
    expected = finish(rollup(table, frame), frame)
    for level in frame.levels:
        got = store.query(per=level.name).drop_columns(["partial"])
        assert got.equals(expected.filter(pa.compute.equal(expected["level"], level.name)))
    assert store.query(per="all")["n"].to_pylist() == [
        len(rows) for rows in rows_of(table.sort_by("host"), ["host"]).values()
    ]
    store.compact()
    assert (
        store.query(per=frame.levels[0])["n"].to_pylist()
        == expected["n"].to_pylist()[: len(store.query(per=frame.levels[0]))]
    )


@dataclass(frozen=True)
class Half(TimeWindow):
    """The first half of each hour; the second half lies in no window."""

    name = "half"

    @property
    def length(self) -> float:
        return 30.0 * MINUTE

    def assign(self, times):
        starts = times // (60 * MINUTE) * (60 * MINUTE)
        rows = np.flatnonzero(times - starts < 30 * MINUTE)
        return Intervals(rows, starts[rows], starts[rows] + 30 * MINUTE)


def test_rows_may_lie_in_no_window(tmp_path):
    frame = TiltFrame([Half()], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
    rows = pa.table({"ts": [0, 29 * 60_000, 30 * 60_000, 61 * 60_000], "k": ["a"] * 4, "x": [1, 2, 4, 8]})
    results = finish(rollup(rows, frame), frame)
    assert results.select(["n", "s"]).to_pylist() == [{"n": 2, "s": 3}, {"n": 1, "s": 8}]
    assert pickle.loads(pickle.dumps(frame)) == frame
    for levels in (["10m", Half()], [Half(), "1d"], [Half(), "all"], ["10m", Half(), "1h", "1d"]):
        assert TiltFrame(levels, "ts", MEASURES).disjoint
    for levels in (["1h", Half()], ["20m", Half()], ["10m", Half(), "tumbling(1h, offset=20m)"]):
        with pytest.raises(ValueError, match=r"have an edge at .* UTC, inside the window of|1h is longer"):
            TiltFrame(levels, "ts", MEASURES)
    with pytest.raises(ValueError, match="windows of half do not"):
        FrameStore(tmp_path / "s", frame)


def test_sums_of_sessions_are_exact():
    frame = TiltFrame(["session(1h)"], "ts", {"s": aggr.sum("x")})
    rows = pa.table({"ts": [0, 1, 2, 3], "x": [1e300, 1.0, -1e300, math.ulp(1.0)]})
    assert finish(rollup(rows, frame), frame)["s"].to_pylist() == [1.0 + math.ulp(1.0)]
