"""Tilt frames: their checks, their plan, and rollups compared with a naive evaluation."""

from __future__ import annotations

import datetime as dt
import importlib
import math
import pickle
import subprocess
import sys
import threading
from collections import defaultdict
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.tables import partial_aggregation
from tests.conftest import conformance, needs_a_buffer
from tiltframe import TiltFrame, finish, rollup
from tiltframe.event_time import event_times
from tiltframe.level_chain import climb, join_levels, with_level_column
from tiltframe.merged_windows import merge_level, merge_panes
from tiltframe.reducing import partial_states, reduce_rows
from tiltframe.rolling_up import rollup_batches

COUNT = {"n": aggr.count()}


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (
            ["10s", "45s", "1h"],
            "windows of 45s have an edge at [-0-9T:]+ UTC, inside the window of 10s that begins at [-0-9T:]+;",
        ),
        (
            ["1w", "1mo"],
            "1w: windows of 1mo have an edge at [-0-9]+ UTC, inside the window of 1w",
        ),
        (["1h", "10s"], "10s does not consist of whole windows of 1h: 1h is longer"),
        (["2d", "1w"], "windows of 1w have an edge at [-0-9]+ UTC, inside the window of 2d"),
        (["5d", "1mo"], "windows of 1mo have an edge at [-0-9]+ UTC, inside the window of 5d"),
        (["60s", "1m"], "60s and 1m have the same size"),
        (["3mo", "1q"], "the same size"),
        (["1h", "1h"], "1h and 1h have the same size"),
        ([], "levels must be a list"),
        ("1h", "levels must be a list"),
        (["1 fortnight"], "cannot read '1 fortnight' as a window"),
    ],
)
def test_levels_that_do_not_nest_are_refused(levels, message):
    with pytest.raises(ValueError, match=message):
        TiltFrame(levels, "ts", COUNT)


@pytest.mark.parametrize(
    "levels", [["1h", "1d", "1mo", "1y"], ["1d", "1mo", "1y"], ["2d", "2w"], ["10s", "1m", "10m", "1h"], ["1d", "1w"]]
)
def test_levels_that_nest(levels):
    assert [level.name for level in TiltFrame(levels, "ts", COUNT, timezone="Europe/Paris").levels] == levels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": {}}, "at least one measure"),
        ({"measures": {"n": "count()"}}, "must be made by aggr"),
        ({"measures": {"level": aggr.count()}}, "'level' is reserved"),
        ({"keys": ["n"]}, "'n' is used twice"),
        ({"keys": ["a", "a"]}, "'a' is listed twice"),
        ({"keys": "host"}, r"write \['host'\]"),
        ({"keys": [1]}, "each of them text that is not blank; got 1"),
        ({"time": ""}, "the column of event times, must be a name"),
        ({"timezone": "Mars"}, "there is no time zone 'Mars'"),
    ],
)
def test_bad_frames_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TiltFrame(**{"levels": ["1h"], "time": "ts", "measures": COUNT, **arguments})


def test_measures_share_states():
    frame = TiltFrame(
        ["1h"],
        "ts",
        {
            "n": aggr.count("x"),
            "mean": aggr.avg("x"),
            "sd": aggr.stdev("x"),
            "total": aggr.sum("x"),
            "other": aggr.sum("x", where="y > 1"),
            "p50": aggr.dds("x", [0.5]),
            "p99": aggr.dds("x", [0.99]),
            "fine": aggr.dds("x", [0.99], relative_accuracy=0.001),
            "sum_y": aggr.sum("y"),
            "mean_y": aggr.avg("y"),
            "rows": aggr.count(),
        },
    )
    assert [c.serves for c in frame.states] == [
        ("n", "mean", "sd", "total"), ("other",), ("p50", "p99"), ("fine",), ("sum_y", "mean_y"), ("rows",),
    ]  # fmt: skip
    data = pa.table({"ts": [0, 1, 2], "x": [1.0, None, 4.0], "y": [1, 2, 3]})
    result = finish(rollup(data, frame), frame).to_pylist()[0]
    assert (result["n"], result["mean"], result["total"], result["other"]) == (2, 2.5, 5.0, 4.0)
    assert result["sd"] == math.sqrt(4.5)
    assert (result["sum_y"], result["mean_y"], result["rows"]) == (6, 2.0, 3)
    assert list(result["p50"]["quantiles"]) == ["0.5"]
    assert list(result["p99"]["quantiles"]) == ["0.99"]


def test_frames_travel_and_compare():
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "d": aggr.dds("x", [0.5])}, ["k"], "Asia/Tokyo")
    for other in (pickle.loads(pickle.dumps(frame)), TiltFrame.from_dict(frame.describe())):
        assert other == frame
        assert hash(other) == hash(frame)
    assert frame.difference(frame) is None
    coarser = TiltFrame(["1m"], "ts", {"n": aggr.count(), "d": aggr.dds("x", [0.9])}, ["k"], "Asia/Tokyo")
    assert "levels" in frame.difference(coarser)
    fewer = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["k"], "Asia/Tokyo")
    assert "'d' is dds('x', quantiles=[0.5]) here and missing there" in frame.difference(fewer)
    assert repr(frame) == "TiltFrame(1m → 1h in Asia/Tokyo by k; n=count(), d=dds('x', quantiles=[0.5]))"


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"t": [1], "x": [1]}, ValueError, "no column 'ts'"),
        ({"ts": [1], "X": [1]}, ValueError, "no column 'x'"),
        ({"ts": [1], "x": ["a"]}, TypeError, r"total: sum cannot take a column of type string.*the input is 'x'"),
        ({"ts": [True], "x": [1]}, TypeError, "time column 'ts' has type bool"),
        ({"ts": [1, None, None], "x": [1, 2, 3]}, ValueError, "2 of 3 rows have no event time in 'ts'"),
        ({"ts": ["yesterday"], "x": [1]}, ValueError, "cannot read the time column 'ts'"),
        ({"ts": [2**62], "x": [1]}, ValueError, r"in the years 2 to 9998; got the number 4,611,686,018,427,387,904 in"),
        ({"ts": pa.array([-(2**53)], pa.timestamp("s")), "x": [1]}, ValueError, r"got the number -9,007,199,254,740,9"),
        ({"ts": pa.array([2**30], pa.int32()).cast(pa.date32()), "x": [1]}, ValueError, r"got the number 1,073,741,82"),
    ],
)
def test_data_that_does_not_fit_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        rollup(pa.table(data), TiltFrame(["1h"], "ts", {"total": aggr.sum("x")}))


@pytest.mark.parametrize(
    ("values", "kind", "micros"),
    [
        ([1500], pa.int64(), 1_500_000),
        ([1], pa.timestamp("s"), 1_000_000),
        ([1], pa.timestamp("ms", "Asia/Tokyo"), 1000),
        ([1999], pa.timestamp("ns", "UTC"), 1),
        ([1], pa.date32(), 86_400_000_000),
        (["1970-01-01T00:00:01Z"], pa.string(), 1_000_000),
        (["1970-01-01 00:00:01.5"], pa.string(), 1_500_000),
        (["1970-01-01T05:30:00+05:30"], pa.string(), 0),
        (["1970-01-02"], pa.string(), 86_400_000_000),
    ],
)
def test_event_times(values, kind, micros):
    column = pa.array(values, pa.string()) if kind == pa.string() else pa.array(values, pa.int64())
    if kind == pa.date32():
        column = column.cast(pa.int32())
    assert event_times(column.cast(kind), "ts").tolist() == [micros]


def events(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = dt.datetime(2013, 10, 25, tzinfo=dt.UTC).timestamp()
    return pa.table(
        {
            "ts": pa.array((start + rng.uniform(0, 20 * 86400, n)) * 1e6, pa.float64())
            .cast(pa.int64(), safe=False)
            .cast(pa.timestamp("us", "UTC")),
            "host": pa.array([None if k == 0 else f"h{k}" for k in rng.integers(0, 3, n)]),
            "x": pa.array(rng.lognormal(0, 20, n), mask=rng.random(n) < 0.1),
            "i": rng.integers(-5, 1000, n),
        }
    )


MEASURES = {
    "rows": aggr.count(),
    "n": aggr.count("x"),
    "lo": aggr.min("x"),
    "hi": aggr.max("i"),
    "total": aggr.sum("x"),
    "whole": aggr.sum("i"),
    "mean": aggr.avg("x"),
    "first": aggr.first("i"),
    "last": aggr.last("i"),
    "few": aggr.count(where="i < 100 AND host = 'h1'"),
}


def naive(table: pa.Table, zone: str, label) -> dict:
    """Group rows by a label of their local time and host, and compute with Python's own numbers."""
    groups = defaultdict(list)
    for row in table.to_pylist():
        groups[label(row["ts"].astimezone(ZoneInfo(zone))), row["host"]].append(row)
    results = {}
    for key, rows in groups.items():
        xs = [r["x"] for r in rows if r["x"] is not None]
        exact = sum(map(Fraction, xs))
        results[key] = {
            "rows": len(rows),
            "n": len(xs),
            "lo": min(xs, default=None),
            "hi": max(r["i"] for r in rows),
            "total": float(exact) if xs else None,
            "whole": sum(r["i"] for r in rows),
            "mean": float(exact / len(xs)) if xs else None,
            "first": min(rows, key=lambda r: (r["ts"], r["i"]))["i"],
            "last": max(rows, key=lambda r: (r["ts"], r["i"]))["i"],
            "few": sum(r["i"] < 100 and r["host"] == "h1" for r in rows),
        }
    return results


LABELS = {
    "1d": lambda t: t.date(),
    "1w": lambda t: t.isocalendar()[:2],
    "1mo": lambda t: (t.year, t.month),
    "1y": lambda t: t.year,
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
@pytest.mark.parametrize("levels", [["1h", "1d", "1mo", "1y"], ["10m", "1d", "1w"]], ids="→".join)
def test_rollup_against_a_naive_evaluation(zone, levels):
    table = events(3000)
    frame = TiltFrame(levels, "ts", MEASURES, ["host"], zone)
    results = finish(rollup(table, frame), frame).to_pylist()
    for level in levels[1:]:
        expected = naive(table, zone, LABELS[level])
        actual = {
            (LABELS[level](r["window_start"].astimezone(ZoneInfo(zone))), r["host"]): {m: r[m] for m in MEASURES}
            for r in results
            if r["level"] == level
        }
        assert actual == expected


def sketchy(levels) -> TiltFrame:
    sketches = {"d": aggr.dds("x"), "h": aggr.hdr("x", unit=1e-9, where="x < 1000"), "sd": aggr.stdev("x")}
    return TiltFrame(levels, "ts", {**MEASURES, **sketches}, ["host"], "America/New_York")


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_batches_and_their_order_do_not_show(seed, cuts, merge_early):
    table, frame = events(400, seed % 7), sketchy(["1h", "1d", "1mo"])
    rng = np.random.default_rng(seed)
    shuffled = table.take(pa.array(rng.permutation(len(table))))
    edges = np.sort(rng.integers(0, len(table) + 1, cuts))
    pieces = [shuffled.slice(a, b - a) for a, b in zip([0, *edges], [*edges, len(table)], strict=True)]
    if merge_early:
        partials = [
            next(partial_states(p.to_batches() or [pa.RecordBatch.from_pylist([], p.schema)], frame)) for p in pieces
        ]
        states = join_levels(climb(merge_level(pa.concat_tables(partials), frame, frame.levels[0]), frame), frame)
    else:
        states = rollup_batches([b for p in pieces for b in p.to_batches()], frame)
    unsplit = rollup(table, frame)
    assert all(same_bits(states.column(name), unsplit.column(name)) for name in unsplit.column_names)


def test_every_level_is_the_rows_reduced_at_that_level():
    table, levels = events(2000), ["1h", "1d", "1mo", "1y"]
    states = rollup(table, sketchy(levels))
    for level in levels:
        frame = sketchy([level])
        alone = rollup(table, frame)
        merged = states.filter(pa.compute.equal(states["level"], level))
        assert all(same_bits(merged.column(c), alone.column(c)) for c in alone.column_names)


def test_many_partial_states_are_merged_as_they_come(monkeypatch):
    module = importlib.import_module("aggr.tables.partial_aggregation")
    monkeypatch.setattr(module, "REDUCE_ROWS", 100)
    monkeypatch.setattr(module, "_FIRST_ROWS", 100)
    monkeypatch.setattr(module, "_MERGE_BYTES", 20_000)
    table, frame = events(3000), sketchy(["1h", "1d"])
    batches = table.to_batches(max_chunksize=40)
    unsplit = rollup(table, frame)
    states = rollup_batches(batches, frame)
    assert all(same_bits(states.column(c), unsplit.column(c)) for c in unsplit.column_names)
    handed_on = list(partial_states(batches, frame, max_bytes=25_000))
    assert len(handed_on) > 3
    level = frame.levels[0]
    merged = with_level_column(merge_level(pa.concat_tables(handed_on), frame, level), frame, level)
    finest = unsplit.filter(pa.compute.equal(unsplit["level"], "1h"))
    assert all(same_bits(merged.column(c), finest.column(c)) for c in finest.column_names)


def test_no_rows_and_no_keys():
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")})
    empty = pa.table({"ts": pa.array([], pa.int64()), "x": pa.array([], pa.float64())})
    states = rollup(empty, frame)
    assert states.num_rows == 0
    assert states.schema == frame.states_schema(empty.schema)
    assert finish(states, frame).schema == frame.results_schema(states.schema)
    results = finish(rollup(pa.table({"ts": [0, 60_000], "x": [1.0, 2.0]}), frame), frame)
    assert results["n"].to_pylist() == [1, 1, 2]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1.0, -0.0, 0.0, float("nan"), float("nan")]),
        pa.array([None, True, False, None, True]),
        pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
        pa.array([1, 1, 2**62, -(2**62), None]),
        pa.array([b"a", b"", None, b"a", b""]),
        pa.array([dt.date(2020, 1, 1)] * 4 + [None]),
    ],
    ids=["float", "bool", "dictionary", "int", "bytes", "date"],
)
def test_keys_of_any_type(keys):
    frame = TiltFrame(["1h"], "ts", COUNT, ["k"])
    results = finish(rollup(pa.table({"ts": [0] * 5, "k": keys}), frame), frame)
    expected = defaultdict(int)
    for key in keys.to_pylist():
        expected[repr(key + 0.0) if isinstance(key, float) else repr(key)] += 1
    assert {repr(r["k"]): r["n"] for r in results.to_pylist()} == dict(expected)


SIDDHI = ["second", "minute", "hour", "day", "month", "year"]


@conformance("siddhi.json", lambda case: not needs_a_buffer(case))
def test_siddhi(case):
    """Each row expected is there, to the last bit. (A case lists what its own query selected, not every window.)"""
    measures = {name: aggr.caller(f)(*[column] * bool(column)) for name, (f, column) in case["measures"].items()}
    frame = TiltFrame(SIDDHI, "ts_ms", measures, case["keys"], case["timezone"])
    results = finish(rollup(pa.Table.from_pylist(case["rows"]), frame), frame).to_pylist()
    for name, expected in case["expected"].items():
        level = frame.level(name).name
        rows = [
            {**row, "window_start_ms": int(row["window_start"].timestamp() * 1000)}
            for row in results
            if row["level"] == level
        ]
        starts = {row["window_start_ms"] for row in expected}
        matched = [next((r for r in rows if all(r[k] == v for k, v in want.items())), None) for want in expected]
        assert None not in matched
        assert len({id(r) for r in matched}) == len(expected)
        assert starts <= {row["window_start_ms"] for row in rows}


def test_keys_may_come_as_dictionaries_of_any_kind():
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["k"])
    texts = ["b", None, "a", "b"]
    plain = pa.table({"ts": [0, 1, 2, 3], "k": texts})
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["b", None, "a"]))
    twice = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 2]), pa.array(["b", "a", "b"]))
    expected = rollup(plain, frame)
    assert expected["k"].to_pylist() == ["a", "b", None]
    for coded in (with_null, twice, pa.array(texts).dictionary_encode()):
        table = pa.table({"ts": [0, 1, 2, 3], "k": coded})
        other = pa.table({"ts": [0], "k": pa.array(["c"]).dictionary_encode()}).slice(0, 0)
        assert rollup(table, frame) == expected
        batches = [*table.slice(0, 2).to_batches(), *other.to_batches(), *table.slice(2).to_batches()]
        assert rollup_batches(batches, frame) == expected


def test_rows_are_fetched_one_table_ahead_and_their_errors_arrive(monkeypatch):
    monkeypatch.setattr("aggr.tables.partial_aggregation.REDUCE_ROWS", 10)
    monkeypatch.setattr("aggr.tables.partial_aggregation._FIRST_ROWS", 10)
    batch = pa.RecordBatch.from_pydict({"ts": [0] * 10, "x": [1.5] * 10})
    frame, fetched = TiltFrame(["1s"], time="ts", measures={"n": aggr.count()}), []

    def batches(failing):
        for number in range(6):
            if number == failing:
                raise OSError("the disk is gone")
            fetched.append(number)
            yield batch

    partial = partial_states(batches(None), frame, max_bytes=1)
    monkeypatch.setattr("aggr.tables.partial_aggregation._MERGE_BYTES", 1)
    next(partial)
    del partial  # nobody reads on
    assert 1 <= len(fetched) <= 3
    with pytest.raises(OSError, match="the disk is gone"):
        list(partial_states(batches(4), frame))


EXIT_WHILE_A_TABLE_IS_READ = """
import io, sys, time
import numpy as np
import pyarrow as pa
import aggr
from tiltframe import TiltFrame
from tiltframe.rolling_up import partial_states

class Slow(io.BytesIO):
    def read(self, size=-1):
        if size > 1_000_000 and self.seek(0, 1) > 1_000_000:  # the values of the second batch or of a later one
            print("reading", file=sys.stderr, flush=True)
            for _ in range(500):
                time.sleep(0.002)
        return super().read(size)

batch = pa.RecordBatch.from_pydict({"ts": np.arange(1 << 19)})
content = io.BytesIO()
with pa.ipc.new_stream(content, batch.schema) as writer:
    for _ in range(5):
        writer.write_batch(batch)
source = pa.ipc.open_stream(pa.PythonFile(Slow(content.getvalue()), "r"))
states = partial_states(source, TiltFrame(["1s"], "ts", {"n": aggr.count()}), max_bytes=1)
next(states)
sys.exit(3)
"""


@pytest.mark.slow
def test_a_process_can_exit_while_a_thread_reads_the_next_table():
    done = subprocess.run([sys.executable, "-c", EXIT_WHILE_A_TABLE_IS_READ], capture_output=True, text=True)
    assert "reading" in done.stderr
    assert done.returncode == 3, done.stderr


def test_rows_that_fit_into_one_table_are_fetched_without_a_thread(monkeypatch):
    started = []

    class Counted(threading.Thread):
        def start(self):
            started.append(self.name)
            super().start()

    monkeypatch.setattr("aggr.tables.partial_aggregation.threading.Thread", Counted)
    monkeypatch.setattr("aggr.tables.partial_aggregation.REDUCE_ROWS", 10)
    frame = TiltFrame(["1s"], time="ts", measures={"n": aggr.count()})
    for rows, threads in ((0, 0), (1, 0), (7, 0), (8, 1), (35, 1)):
        started.clear()
        (states,) = partial_states([pa.RecordBatch.from_pydict({"ts": pa.array([0] * rows, pa.int64())})], frame)
        results = finish(with_level_column(states, frame, frame.levels[0]), frame)
        assert results.column("n").to_pylist() == [rows] * (rows > 0)
        assert len(started) == threads, rows


def test_batches_that_are_almost_long_enough_are_not_joined(monkeypatch):
    monkeypatch.setattr("aggr.tables.partial_aggregation.REDUCE_ROWS", 100)
    reduced = list[int]()

    def reduce(table):
        reduced.append(table.num_rows)
        return table.slice(0, 1)

    for sizes, expected in (([100, 90, 100, 90], [100, 90, 100, 90]), ([74, 1, 75, 40, 34, 3], [75, 75, 77])):
        reduced.clear()
        batches = [pa.RecordBatch.from_pydict({"x": [0] * size}) for size in sizes]
        list(partial_aggregation.partial_states(batches, reduce, lambda states: states))
        assert reduced == expected


def test_partial_states_of_windows_that_hardly_meet_stay_as_they_are():
    frame = TiltFrame(["1s"], time="ts", measures={"n": aggr.count()})
    apart = [pa.RecordBatch.from_pydict({"ts": [n * 1000 + 1]}) for n in (0, 1, 2, 2)]
    parts = pa.concat_tables([next(partial_states([batch], frame)) for batch in apart])
    assert merge_panes(parts, frame, max_ratio=0.7) is parts
    assert merge_panes(parts, frame, max_ratio=0.8).num_rows == 3
    assert merge_panes(parts, frame).num_rows == 3


def test_rows_of_several_keys_keep_the_times_that_are_given_for_them():
    """As rows are that come late: each counts in the window of another time, and first is by its own."""
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count(), "first": aggr.first("x")}, {"tag": "each(tags)"})
    rows = pa.table({"ts": [0, 0, 0], "tags": [["a", "b"], [], ["b"]], "x": [1, 2, 3]})
    times, placed = np.array([900, 100, 200]) * 1000, np.array([3000, 1000, 3000]) * 1000
    for at, second in ((None, 0), (placed, 3)):
        results = finish(with_level_column(reduce_rows(rows, frame, times, at), frame, frame.levels[0]), frame)
        begin = dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC)
        rows_of_results = [(row["window_start"], row["tag"], row["n"], row["first"]) for row in results.to_pylist()]
        assert rows_of_results == [(begin, "a", 1, 1), (begin, "b", 2, 3)]
