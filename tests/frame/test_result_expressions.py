"""Expressions over results as measures: in rollups, streams, ordered windows, stores and the command line."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import (
    FrameStore,
    OrderedFrame,
    RunningAggregation,
    TiltFrame,
    finish,
    finish_ordered,
    ordered_rollup,
    rollup,
)
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.ordered_stream import OrderedStream

MEASURES = {
    "span_ms": "date_diff('ms', first, last)",
    "first": aggr.min("ts"),
    "last": aggr.max("ts"),
    "n": aggr.count(),
    "errors": aggr.count(where="status >= 500"),
    "percent": "rate * 100",
    "rate": "errors / n",
    "p": aggr.dds("ms", [0.5]),
    "above": "p_mean > 15",
    "name": "upper(trace)",
}
FRAME = TiltFrame(["1s", "1m"], "ts", MEASURES, keys=["trace"])
ROWS = pa.table(
    {
        "ts": pa.array([0, 250, 900, 1500, 61_000], pa.timestamp("ms", "UTC")),
        "trace": ["a", "a", "a", "a", "b"],
        "status": [200, 500, 503, 200, 200],
        "ms": [10.0, 20.0, 30.0, 10.0, 10.0],
    }
)
EXPECTED = [
    ("1s", "a", 900, 3, 2, 2 / 3 * 100, 2 / 3, True, "A"),
    ("1s", "a", 0, 1, 0, 0.0, 0.0, False, "A"),
    ("1s", "b", 0, 1, 0, 0.0, 0.0, False, "B"),
    ("1m", "a", 1500, 4, 2, 50.0, 0.5, True, "A"),
    ("1m", "b", 0, 1, 0, 0.0, 0.0, False, "B"),
]
NAMES = ("level", "trace", "span_ms", "n", "errors", "percent", "rate", "above", "name")


def shown(results: pa.Table) -> list[tuple]:
    return [tuple(row[name] for name in NAMES) for row in results.to_pylist()]


def test_results_are_computed_from_results_of_the_same_window():
    results = finish(rollup(ROWS, FRAME), FRAME)
    assert shown(results) == EXPECTED
    assert results.column_names == ["level", "window_start", "window_end", "trace", *MEASURES]
    assert results.schema.equals(
        FRAME.results_schema(FRAME.states_schema(ROWS.schema))
        .set(1, results.schema.field(1))
        .set(2, results.schema.field(2))
    )
    assert [column.name for column in FRAME.states] == ["first", "last", "n", "errors", "p"]


def test_frames_with_expressions_travel():
    for other in (pickle.loads(pickle.dumps(FRAME)), TiltFrame.from_dict(json.loads(json.dumps(FRAME.describe())))):
        assert other == FRAME
        assert list(other.results) == list(MEASURES)
    assert "rate='errors / n'" in repr(FRAME)
    changed = FRAME.with_results({**MEASURES, "rate": "errors / (n + 1)"})
    assert changed.difference(FRAME) == "measure 'rate' is errors / (n + 1) here and errors / n there"
    assert changed.states == FRAME.states


@pytest.mark.parametrize(
    "emit", ["after_close", "on_update(having='rate > 0')", "on_update(mode=changelog, changed=result)"]
)
def test_streams_emit_expressions(emit):
    windows = OpenWindows(FRAME, emit)
    emitted = []
    for row in range(len(ROWS)):
        windows.add_rows(ROWS.slice(row, 1))
        emitted += windows.results(windows.advance(ROWS["ts"][row].as_py())).to_pylist()
        windows = OpenWindows.from_ipc(windows.to_ipc())
    emitted += windows.results(windows.close()).to_pylist()
    last = {
        (r["level"], r["window_start"], r["trace"]): tuple(r[n] for n in NAMES)
        for r in emitted
        if r.get("change", 1) > 0
    }
    expected = [row for row in EXPECTED if "having" not in emit or row[6] > 0]
    assert sorted(last.values()) == sorted(expected)


def test_ordered_windows_have_expressions():
    measures = {"mean": "total / n", "n": aggr.count(), "total": aggr.sum("x")}
    rows = pa.table({"ts": [0, 1, 2, 3], "x": [5, 2, 13, 4]})
    stream = OrderedStream(RunningAggregation(measures, "sliding(2)", time="ts"))
    stream.add_rows(rows)
    results = stream.results(stream.close())
    assert results.column_names == ["ts", "x", "mean", "n", "total"]
    assert results["mean"].to_pylist() == [5.0, 3.5, 7.5, 8.5]
    chain = OrderedFrame(["count(2)"], "ts", measures)
    assert finish_ordered(ordered_rollup(rows, chain), chain)["mean"].to_pylist() == [3.5, 8.5]
    assert "mean='total / n'" in repr(chain)


@pytest.mark.store
def test_a_store_keeps_expressions_and_queries_read_them(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    store.append_rows(ROWS, writer="w", commit=1)
    store = FrameStore(tmp_path / "store")
    assert store.frame == FRAME
    assert sorted(shown(store.query(["1s", "1m"]))) == sorted(EXPECTED)
    totals = store.query("all", keys=[], measures=["percent", "n"])
    assert totals.select(["percent", "n"]).to_pylist() == [{"percent": 40.0, "n": 5}]
    more = {"share": "percent / 100", "q": aggr.dds("ms", [0.9]), "again": "rate"}
    assert store.query("all", keys=[], measures=more)["share"].to_pylist() == [0.4]
    assert store.query("1m", having="percent > 10", order_by="percent desc")["trace"].to_pylist() == ["a"]
    with pytest.raises(ValueError, match="'n' is another measure in this query"):
        store.query("1m", measures={"n": aggr.count(where="status >= 500"), "rate": "rate"})
    with pytest.raises(ValueError, match="the frame has no measure 'percents'; did you mean 'percent'"):
        store.query("1m", measures=["percents"])
    joined = store.join(pa.table({"trace": ["a"]}), "trace", per="1m", measures=["rate"])
    assert joined["rate"].to_pylist() == [0.5]
    store.evolve(store.frame.with_measures({"double": "n * 2"}))
    assert FrameStore(tmp_path / "store").query("all", keys=[])["double"].to_pylist() == [10]
    dropped = {name: result for name, result in store.frame.results.items() if name != "double"}
    store.evolve(store.frame.with_results(dropped))
    assert FrameStore(tmp_path / "store").frame == FRAME


def test_saved_windows_continue_with_other_measures_and_expressions():
    windows = OpenWindows(FRAME)
    windows.add_rows(ROWS.slice(0, 2))
    fewer = {"last": MEASURES["last"], "first": MEASURES["first"], "span_s": "date_diff('s', first, last)"}
    fewer |= {"greatest": aggr.max("ms"), "mean": aggr.avg("ms")}
    windows = OpenWindows.from_ipc(windows.to_ipc(), TiltFrame(["1s", "1m"], "ts", fewer, keys=["trace"]))
    windows.add_rows(ROWS.slice(2, 3))
    windows = OpenWindows.from_ipc(windows.to_ipc())
    results = windows.results(windows.close()).select(["level", "trace", *fewer]).to_pylist()
    assert [(r["level"], r["trace"], r["span_s"], r["greatest"], r["mean"]) for r in results] == [
        ("1s", "a", 0, None, None), ("1s", "a", 0, 10.0, 10.0), ("1s", "b", 0, 10.0, 10.0),
        ("1m", "a", 1, None, None), ("1m", "b", 0, 10.0, 10.0),
    ]  # fmt: skip


def test_a_removed_measure_leaves_the_states_that_others_share():
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count("ms"), "mean": aggr.avg("ms")})
    windows = OpenWindows(frame)
    windows.add_rows(ROWS.slice(0, 2))
    windows = OpenWindows.from_ipc(windows.to_ipc(), TiltFrame(["1m"], "ts", {"mean": aggr.avg("ms")}))
    windows.add_rows(ROWS.slice(2, 1))
    assert windows.results(windows.close())["mean"].to_pylist() == [20.0]
    wider = OpenWindows.from_ipc(OpenWindows(frame).to_ipc(), frame.with_measures({"var": aggr.var("ms")}))
    wider.add_rows(ROWS)
    assert wider.results(wider.close())["var"].to_pylist() == [pytest.approx(275 / 3), None]


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ({"n": aggr.count(), "rate": "errors / n"}, "rate reads 'errors', which is not a result; there are n; .*sum"),
        ({"n": aggr.count(), "rate": "m / 2"}, "rate reads 'm'"),
        ({"n": aggr.count(), "a": "b + 1", "b": "a + 1"}, "the expressions .* read each other"),
        ({"n": aggr.count(), "a": "a + 1"}, "read each other"),
        (
            {"n": aggr.count(), "a": "count()"},
            "must be made by aggr, such as .* or be an expression .* got 'count\\(\\)'",
        ),
        ({"a": "trace"}, "a frame needs at least one measure"),
        ({"n": aggr.count(), "N": "n + 1"}, "differ only by case"),
    ],
)
def test_expressions_that_cannot_be_computed(measures, message):
    with pytest.raises(ValueError, match=message):
        TiltFrame(["1m"], "ts", measures, keys=["trace"])


def test_types_are_checked_before_rows_are_read():
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "x": "n || trace || n.field"}, keys=["trace"])
    with pytest.raises(ValueError, match="cannot compute x:"):
        rollup(ROWS, frame)


@pytest.mark.store
def test_the_command_line_reads_expressions(capfd, tmp_path):
    lines = [{**row, "ts": row["ts"].isoformat()} for row in ROWS.to_pylist()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    measures = ["first=min(ts)", "last=max(ts)", "span_ms=date_diff('ms', first, last)", "n=count()", "rate=errors / n",
                "errors=count(where='status >= 500')"]  # fmt: skip
    options = ["--time", "ts", "--key", "trace", "--levels", "1s,1m", *(f"--measure={text}" for text in measures)]
    options += ["--type", "ts=timestamp"]
    store = tmp_path / "store"
    status, _, error = call(capfd, "rollup", tmp_path / "rows.jsonl", *options, "--store", store)
    assert status == 0, error
    query = ["query", store, "--per", "1m", "--format", "json", "--measure", "rate", "--measure", "span_ms"]
    status, output, error = call(capfd, *query)
    assert status == 0, error
    assert [(row["span_ms"], row["rate"]) for row in map(json.loads, output.splitlines())] == [(1500, 0.5), (0, 0.0)]
    assert call(capfd, "evolve", store, "--measure", "double=n * 2", "--drop", "rate")[0] == 0
    assert list(FrameStore(store).frame.results)[-1] == "double"
    assert "rate" not in FrameStore(store).frame.results
    options += ["--measure", "x=nope * 2", "--store", store]
    status, _, error = call(capfd, "rollup", tmp_path / "rows.jsonl", *options)
    assert (status, "x reads 'nope', which is not a result" in error) == (2, True)
