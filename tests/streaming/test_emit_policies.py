"""Each emit and late policy with an artificial clock: which windows are emitted, when and how often, and
which are not.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame
from tiltframe.merged_windows import merge_panes
from tiltframe.reducing import reduce_rows
from tiltframe.streaming import (
    AfterClose,
    AfterCount,
    AfterKeyExpire,
    Buffer,
    Drop,
    OnUpdate,
    OpenWindows,
    Periodic,
    TrueWindow,
    read_emit,
    read_late,
)

SECOND = 1_000_000
FRAME = TiltFrame(["10s"], "ts", {"n": aggr.count(), "sum": aggr.sum("x")}, ["k"])
GLOBAL = TiltFrame(["all"], "ts", {"n": aggr.count()}, ["k"])


def rows(*times_and_keys: tuple[float, str], column: str | None = None) -> pa.Table:
    times = pa.array([int(t * SECOND) for t, _ in times_and_keys], pa.timestamp("us", "UTC"))
    return pa.table(
        {"ts": times, "k": pa.array([k for _, k in times_and_keys], pa.string()), "x": np.ones(len(times_and_keys))}
    )


def emitted_after(windows: OpenWindows, watermark: float | None = None, now: float | None = None) -> list[tuple]:
    """Advance by seconds; give key, count, reason, revision and partial of what is emitted."""
    micros = [None if at is None else int(at * SECOND) for at in (watermark, now)]
    emitted = windows.results(windows.advance(*micros)).to_pylist()
    return [
        (r["k"], r["n"], r["reason"], r["revision"], r["partial"], *([r["change"]] if "change" in r else []))
        for r in emitted
    ]


def test_after_close_waits_for_the_delay_and_says_late_ones():
    windows = OpenWindows(FRAME, AfterClose(delay="2s"), Drop("5s"))
    windows.add_rows(rows((1, "a"), (9, "b")))
    assert emitted_after(windows, 11) == []
    assert emitted_after(windows, 12) == [("a", 1, "close", 0, False), ("b", 1, "close", 0, False)]
    assert emitted_after(windows, 13) == []
    windows.add_rows(rows((2, "a")))
    assert emitted_after(windows, 16) == [("a", 2, "late", 1, False)]
    assert windows.progress.kept_windows == {"10s": 2}
    assert emitted_after(windows, 17) == []
    assert windows.add_rows(rows((3, "a"), (12, "a"))).column("ts").cast(pa.int64()).to_pylist() == [3 * SECOND]
    progress = windows.progress
    assert (progress.rows, progress.late_rows, progress.emitted_rows, progress.keys) == (5, 1, 3, 1)
    assert progress.open_windows == {"10s": 1}
    assert (progress.watermark_us, progress.watermark) == (
        17 * SECOND,
        dt.datetime(1970, 1, 1, 0, 0, 17, tzinfo=dt.UTC),
    )
    assert progress.as_dict()["watermark"] == "1970-01-01T00:00:17+00:00"
    windows.close()
    assert windows.progress.watermark is None


def test_a_timeout_closes_windows_that_see_no_event():
    windows = OpenWindows(FRAME, AfterClose(timeout="30s"))
    emitted_after(windows, 0, 0)
    windows.add_rows(rows((1, "a"), (2, "b")))
    assert emitted_after(windows, 5, 10) == []
    windows.add_rows(rows((3, "b")))
    assert emitted_after(windows, 5, 39) == []
    assert emitted_after(windows, 5, 40) == [("a", 1, "timeout", 0, False)]
    assert emitted_after(windows, 5, 100) == [("b", 2, "timeout", 0, False)]
    windows.add_rows(rows((4, "a")))
    assert emitted_after(windows, 6, 101) == [("a", 2, "late", 1, False)]
    assert emitted_after(windows, 10, 101) == []
    assert sum(windows.progress.kept_windows.values()) == 0


@pytest.mark.parametrize("clock", ["arrival", "event"])
def test_periodic_emits_what_has_changed_at_multiples_of_its_period(clock):
    windows, at = OpenWindows(GLOBAL, Periodic("10s", clock=clock)), {}

    def tick(second: float) -> list[tuple]:
        at["now" if clock == "arrival" else "watermark"] = second
        return emitted_after(windows, **at)

    assert tick(3) == []
    windows.add_rows(rows((1, "a"), (2, "b")))
    assert tick(9.9) == []
    assert tick(10) == [("a", 1, "period", 0, True), ("b", 1, "period", 0, True)]
    windows.add_rows(rows((3, "b")))
    assert tick(19) == []
    windows = OpenWindows.from_ipc(windows.to_ipc())
    assert tick(45) == [("b", 2, "period", 1, True)]
    assert tick(50) == []


def test_periodic_repeats_if_asked():
    windows = OpenWindows(GLOBAL, Periodic("10s", repeat=True))
    emitted_after(windows, now=0)
    windows.add_rows(rows((1, "a")))
    assert [emitted_after(windows, now=now) for now in (10, 15, 20)] == [
        [("a", 1, "period", 0, True)], [], [("a", 1, "period", 1, True)],
    ]  # fmt: skip


def test_on_update_at_most_every_so_often():
    windows = OpenWindows(GLOBAL, OnUpdate(batch="5s"))
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows, now=1) == [("a", 1, "update", 0, True)]
    for now in (2, 3, 5.9):
        windows.add_rows(rows((1, "a")))
        assert emitted_after(windows, now=now) == []
    assert emitted_after(windows, now=6) == [("a", 4, "update", 1, True)]
    assert emitted_after(windows, now=20) == []
    windows.add_rows(rows((1, "b")))
    assert emitted_after(windows, now=20) == [("b", 1, "update", 0, True)]


def test_after_count_and_discarding():
    windows = OpenWindows(FRAME, AfterCount(2, mode="discarding"))
    windows.add_rows(rows((1, "a"), (1, "b"), (2, "a"), (3, "a")))
    assert emitted_after(windows) == [("a", 3, "count", 0, True)]
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows) == []
    assert emitted_after(windows, 10) == [("a", 1, "close", 1, False), ("b", 1, "close", 0, False)]


def test_a_changelog_retracts_what_it_said():
    windows = OpenWindows(FRAME, OnUpdate(mode="changelog", having="n >= 2 AND n < 4"))
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows) == []
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows) == [("a", 2, "update", 0, True, 1)]
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows) == [("a", 2, "update", 0, True, -1), ("a", 3, "update", 1, True, 1)]
    windows.add_rows(rows((1, "a")))
    assert emitted_after(windows, 5) == [("a", 3, "update", 1, True, -1)]
    assert emitted_after(windows, 10) == []


@pytest.mark.parametrize("clock", ["arrival", "event"])
@pytest.mark.parametrize("only", [False, True])
def test_keys_expire(clock, only):
    windows = OpenWindows(GLOBAL, AfterKeyExpire("30s", maxspan="5s", only=only, clock=clock))
    emitted_after(windows, 0, 0)
    windows.add_rows(rows((1, "a"), (7, "a"), (3, "b"), (8, "b")))
    windows = OpenWindows.from_ipc(windows.to_ipc())
    assert emitted_after(windows, 10, 10) == []
    windows.add_rows(rows((20, "c")))
    assert emitted_after(windows, 36, 35) == []
    emitted = windows.advance(39 * SECOND, 40 * SECOND)
    got = windows.results(emitted).to_pylist()
    expected = [("a", 2, "over_span", 6)] + [("b", 2, "expired", 5)] * (not only)
    assert [(r["k"], r["n"], r["reason"], r["span"].total_seconds()) for r in got] == expected
    windows.add_rows(rows((50, "a")))
    assert emitted_after(windows, 45, 45) == []
    assert windows.progress.keys == 2
    assert emitted_after(windows, 100, 100) == (
        [] if only else [("a", 1, "expired", 0, False), ("c", 1, "expired", 0, False)]
    )
    assert windows.progress.keys == 0


def test_a_span_of_another_column():
    windows = OpenWindows(GLOBAL, AfterKeyExpire("30s", span_of="at", maxspan="1h"))
    emitted_after(windows, now=0)
    at = pa.array([0, 3_000, None, 500], pa.int64())  # milliseconds
    windows.add_rows(rows((1, "a"), (2, "a"), (3, "a"), (4, "b")).append_column("at", at))
    emitted_after(windows, now=1)
    spans = windows.advance(now=31 * SECOND).column("span").to_pylist()
    assert [span.total_seconds() for span in spans] == [3, 0]


def test_states_made_elsewhere_are_taken():
    windows, other = OpenWindows(FRAME, AfterCount(3)), OpenWindows(FRAME, AfterCount(3))
    rows_with_late = rows((1, "a"), (2, "a"), (11, "b"), (3, "a"))
    parts = [reduce_rows(rows_with_late.slice(at, 2), windows.partial_frame) for at in (0, 2)]
    windows.add(merge_panes(pa.concat_tables(parts), windows.partial_frame))
    other.add_rows(rows_with_late)
    assert windows.advance(5 * SECOND).equals(other.advance(5 * SECOND))
    assert windows.progress == other.progress
    with pytest.raises(ValueError, match="no column '__rows'"):
        OpenWindows(TiltFrame(["1s"], "ts", {"sum": aggr.sum("x")})).add(parts[0])


def test_states_older_than_a_buffer_are_moved():
    for older, counts in (("oldest", [2, 1]), ("drop", [1, 1])):
        windows = OpenWindows(FRAME, late=Buffer(1, older))
        for second in (25, 12, 3):
            windows.add(reduce_rows(rows((second, "a")), windows.partial_frame))
        assert [n for _, n, *_ in emitted_after(windows, 100)] == counts
        assert (windows.progress.moved_rows, windows.progress.late_rows) == ((1, 0) if older == "oldest" else (0, 1))


def test_bounds_on_keys():
    windows = OpenWindows(FRAME, max_keys=2)
    windows.add_rows(rows((1, "a"), (1, "b")))
    before = windows.to_ipc()
    with pytest.raises(ValueError, match=r"3 keys in open windows, and the limit is max_keys=2"):
        windows.add_rows(rows((1, "a"), (2, "c")))
    assert windows.to_ipc() == before
    windows = OpenWindows.from_ipc(before, beyond="drop")
    windows.add_rows(rows((1, "a"), (2, "c"), (3, "c")))
    assert windows.progress.refused_rows == 2
    assert emitted_after(windows, 10) == [("a", 2, "close", 0, False), ("b", 1, "close", 0, False)]
    windows.add_rows(rows((11, "c")))
    assert windows.progress.keys == 1


def test_a_restart_takes_more_measures_and_refuses_other_frames():
    windows = OpenWindows(FRAME, Periodic("1m"), Drop("5s"), max_keys=9)
    windows.add_rows(rows((1, "a"), (2, "b")))
    state = windows.to_ipc()
    more = TiltFrame(["10s"], "ts", {**FRAME.measures, "max": aggr.max("x")}, ["k"])
    grown = OpenWindows.from_ipc(state, more)
    assert (grown.emit, grown.late, grown.max_keys) == (windows.emit, windows.late, 9)
    grown.add_rows(rows((3, "a"), (4, "c")))
    got = grown.results(grown.advance(10 * SECOND)).select(["k", "n", "sum", "max"]).to_pylist()
    assert got == [
        {"k": "a", "n": 2, "sum": 2.0, "max": None},  # had a row before
        {"k": "b", "n": 1, "sum": 1.0, "max": None},
        {"k": "c", "n": 1, "sum": 1.0, "max": 1.0},
    ]
    fewer = OpenWindows.from_ipc(state, TiltFrame(["10s"], "ts", {"n": aggr.count()}, ["k"]))
    counts = fewer.results(fewer.advance(10 * SECOND)).select(["k", "n"]).to_pylist()
    assert counts == [{"k": "a", "n": 1}, {"k": "b", "n": 1}]
    other_frames = {
        "levels is": TiltFrame(["20s"], "ts", FRAME.measures, ["k"]),
        "measure 'sum' is": TiltFrame(["10s"], "ts", {**FRAME.measures, "sum": aggr.sum("y")}, ["k"]),
    }
    for message, frame in other_frames.items():
        with pytest.raises(ValueError, match=message):
            OpenWindows.from_ipc(state, frame)
    with pytest.raises(ValueError, match="mode accumulating, and the mode is now changelog"):
        OpenWindows.from_ipc(state, emit="periodic(1m, mode=changelog)")
    for bad in (b"", b"x" * 100, None, state[:100]):
        with pytest.raises(ValueError, match="not a saved state of open windows"):
            OpenWindows.from_ipc(bad)
    for at in range(0, len(state), 7):
        damaged = bytearray(state)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ValueError, match="checksum"):
            OpenWindows.from_ipc(bytes(damaged))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("after_close", AfterClose()),
        ("after_close(delay=10s, timeout=5m)", AfterClose(delay="10s", timeout="300s")),
        ("periodic(1m, repeat, having='n > 3 AND k = ''a, b''')", Periodic("1m", True, having="n > 3 AND k = 'a, b'")),
        ("on_update(batch=2s, mode=changelog, clock=event)", OnUpdate("2s", mode="changelog", clock="event")),
        ("after_count(5)", AfterCount(5)),
        ("on_update(latest)", OnUpdate(latest=True)),
        ("after_key_expire(1m, maxspan=5m, only)", AfterKeyExpire("1m", maxspan="5m", only=True)),
        ("after_key_expire(1m, span_of='my column')", AfterKeyExpire("1m", span_of="my column")),
    ],
)  # fmt: skip
def test_emit_policies_as_text(text, policy):
    assert read_emit(text) == policy
    assert read_emit(str(policy)) == policy
    assert eval(repr(policy)) == policy


@pytest.mark.parametrize("policy", [TrueWindow(), Drop(), Drop("5m"), Buffer(), Buffer(3, "drop")])
def test_late_policies_as_text(policy):
    assert read_late(str(policy)) == policy
    assert eval(repr(policy)) == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("periodic", "missing a required argument: 'every'; periodic takes every, repeat"),
        ("periodic(0s)", "every must be longer than 0"),
        ("periodic(1x)", "cannot read the every '1x'"),
        ("periodic(1m, every=2m)", "multiple values for argument 'every'"),
        ("periodic(1m, false, 3)", "too many arguments; periodic takes every"),
        ("aftr_close", "did you mean 'after_close'"),
        ("after_close(lateness=1s)", "there is no parameter 'lateness'; after_close takes delay"),
        ("after_close(mode=all)", "mode must be one of accumulating"),
        ("after_close(having='n >')", "cannot read|n >"),
        ("after_count(0)", "rows must be a whole number of at least 1"),
        ("after_key_expire", "needs timeout"),
        ("after_key_expire(1m, only)", "pass maxspan"),
        ("on_update(1s, clock=wall)", "clock must be one of arrival, event"),
        ("after_close(", "cannot read"),
        (7, "cannot read 7 as emit policy"),
    ],
)
def test_bad_policies_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_emit(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"late": "buffer(-1)"}, "windows must be a whole number from 0 to 100,000"),
        ({"late": "buffer(1, older=newest)"}, "older must be one of oldest, drop"),
        ({"late": "buffer", "levels": ["session(1m)"]}, "a buffer needs windows that follow each other"),
        ({"emit": "after_key_expire(1m)"}, r"levels=\['all'\]; its levels are \['10s'\]"),
        ({"max_keys": 0}, "max_keys must be a whole number of at least 1"),
        ({"beyond": "ignore"}, "beyond must be one of error, drop"),
        ({"emit": "after_close(mode=changelog)", "keys": ["change"]}, "'change' is a column of the emitted rows"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(arguments, message):
    frame = TiltFrame(arguments.pop("levels", ["10s"]), "ts", {"n": aggr.count()}, arguments.pop("keys", []))
    with pytest.raises(ValueError, match=message):
        OpenWindows(frame, **arguments)


def test_bad_input_changes_nothing():
    windows = OpenWindows(FRAME)
    windows.add_rows(rows((1, "a")))
    before = windows.to_ipc()
    bad = {
        "no column 'k'": rows((1, "a")).drop_columns(["k"]),
        "no event time": rows((1, "a")).set_column(0, "ts", pa.nulls(1, pa.timestamp("us"))),
        "is int64 in this batch and string in earlier batches": rows((1, "a")).set_column(1, "k", pa.array([1])),
    }
    for message, bad_input in bad.items():
        with pytest.raises(ValueError, match=message):
            windows.add_rows(bad_input)
    whole_number = "must be a whole number"
    for arguments, message in (
        ({"watermark": 1.5}, "must be a datetime with a zone"),
        ({"now": -1}, whole_number),
        ({"watermark": 2**63}, whole_number),
    ):
        with pytest.raises(ValueError, match=message):
            windows.advance(**arguments)
    assert windows.to_ipc() == before


def test_no_rows_yet():
    windows = OpenWindows(FRAME)
    assert windows.advance(5, 5).num_rows == 0
    again = OpenWindows.from_ipc(windows.to_ipc())
    again.add_rows(rows())
    assert again.advance(6, 6).column_names == [
        "level", "window_start", "window_end", "k", "n", "sum", "reason", "revision", "partial",
    ]  # fmt: skip
    assert OpenWindows.from_ipc(again.to_ipc()).progress == again.progress


def test_keys_by_expression_and_by_element():
    frame = TiltFrame(["10s"], "ts", {"n": aggr.count()}, {"k": "upper(k)", "tag": aggr.each("tags")})
    windows = OpenWindows(frame)
    tags = pa.array([["x", "y"], ["x"]])
    windows.add_rows(rows((1, "a"), (2, "b")).append_column("tags", tags))
    windows = OpenWindows.from_ipc(windows.to_ipc(), frame)
    got = windows.results(windows.advance(10 * SECOND)).select(["k", "tag", "n"]).to_pylist()
    assert [tuple(row.values()) for row in got] == [("A", "x", 1), ("A", "y", 1), ("B", "x", 1)]
    late = windows.add_rows(rows((3, "a"), (11, "b")).append_column("tags", tags))
    assert late.column("tags").to_pylist() == [["x", "y"]]
    assert windows.progress.late_rows == 1
