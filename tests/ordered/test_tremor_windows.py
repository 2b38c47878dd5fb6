"""Expected results from Tremor's own tests, for windows that begin with the first event and for chains of windows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

import aggr
from aggr.functions.python_function import PerGroup
from aggr.measure import Measure
from tests.conftest import conformance
from tiltframe import OrderedFrame, finish_ordered, ordered_rollup
from windows.ordered import count, interval
from windows.ordered.kinds.interval import Interval


@dataclass(frozen=True)
class Texts(PerGroup):
    """All values, in the order of their row numbers."""

    name = "texts"
    keeps = returns = "the values"
    guarantee = "exact"
    inputs = ("value", "place")
    state_kind = pa.list_(pa.struct([("place", pa.int64()), ("value", pa.string())]))
    result_kind = pa.list_(pa.string())

    def start(self):
        return []

    def add(self, state, value):
        return self.combine(state, [value])

    def combine(self, a, b):
        return sorted([*a, *b], key=lambda event: event["place"])

    def result(self, state):
        return [event["value"] for event in state]


def level_of(spec):
    if "count" in spec:
        return count(spec["count"])
    return Interval(spec["interval_ns"])  # a nanosecond of theirs is a microsecond here


def events_of(case):
    """Read the events of a case as a table: its time, their fields, and the number of each."""
    rows = [
        {"ts": i["ingest_ns"], "row": n, **(i["event"] if isinstance(i["event"], dict) else {})}
        for n, i in enumerate(case["input"])
    ]
    table = pa.Table.from_pylist(rows, schema=pa.Table.from_pylist(rows).schema)
    return table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us")))


def emitted(table, frame):
    """Roll up one row at a time, so that what an event emits is known: the finest level first."""
    batches = [table.slice(row, 1).combine_chunks().to_batches()[0] for row in range(table.num_rows)]
    results = finish_ordered(ordered_rollup(batches, frame), frame)
    unsplit = finish_ordered(ordered_rollup(table, frame), frame)
    by = [("level", "ascending"), *((name, "ascending") for name in results.column_names if name in ("ts", "g"))]
    assert results.sort_by(by) == unsplit.sort_by(by)
    return results.to_pylist()


@conformance("tremor_windows.json", lambda case: case["name"] == "tremor-window_by_two")
def test_collecting_by_two(case):
    table = events_of(case)
    levels = [level_of(level) for level in case["windows"]["levels"]]
    frame = OrderedFrame(levels, "ts", {"guids": Measure(Texts(), "guid", others=("row",))})
    groups = [[{"guid": guid} for guid in row["guids"]] for row in emitted(table, frame)]
    assert groups == case["expected"]


@conformance("tremor_windows.json", lambda case: case["name"] == "tremor-window_mixed_1")
def test_a_mixed_chain(case):
    levels = {f"level {n}": level_of(level) for n, level in enumerate(case["windows"]["levels"])}
    frame = OrderedFrame(levels, "ts", {"count": aggr.count(), "sum": aggr.sum("num")}, keys=["g"])
    actual = [{"count": r["count"], "group": r["g"], "sum": r["sum"]} for r in emitted(events_of(case), frame)]
    assert actual == case["expected"]


@pytest.mark.slow
@conformance("tremor_windows.json", lambda case: case["name"] == "tremor-group_by_size")
def test_windows_by_group(case):
    frame = OrderedFrame([level_of(level) for level in case["windows"]["levels"]], "ts", {"c": aggr.sum("c")}, ["g"])
    actual = [{"g": [row["g"], f"[{row['g']}]"], "c": float(row["c"])} for row in emitted(events_of(case), frame)]
    assert actual == case["expected"]


@conformance("tremor_windows.json", lambda case: "steps" in case)
def test_steps_of_a_tilt_frame(case):
    levels = {spec["name"]: interval(f"{spec['interval_s']}s") for spec in case["spec"]["frames"]}
    frame = OrderedFrame(levels, "ts", {"n": aggr.count()})
    seconds = [step["at_s"] for step in case["steps"]]
    table = pa.table({"ts": pa.array(seconds).cast(pa.timestamp("s"))})
    emitted_rows = emitted(table, frame)
    for step in case["steps"]:
        at = [row["n"] for row in emitted_rows if row["ts"].timestamp() == step["at_s"]]
        assert at == step["emits"]


def test_three_of_two_are_every_third_emission():
    frame = OrderedFrame(["count(2)", "count(3)"], "ts", {"n": aggr.sum("n")})
    rows = finish_ordered(ordered_rollup(pa.table({"ts": range(14), "n": range(14)}), frame), frame).to_pylist()
    assert [row["n"] for row in rows if row["level"] == "count(3)"] == [sum(range(6)), sum(range(6, 12))]


def test_a_moving_total_of_intervals():
    frame = OrderedFrame(["interval('10ms')", "sliding(2)"], "ts", {"n": aggr.count()})
    table = pa.table({"ts": [0, 1, 10, 11, 12, 20, 30, 40]})
    rows = finish_ordered(ordered_rollup(table, frame), frame).to_pylist()
    assert [row["n"] for row in rows] == [2, 3, 1, 1, 2, 5, 4, 2]


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["running()", "count(2)"], "overlap"),
        (["count(2)", "emit_when('n > 5')"], "need conditions, weights or ticks of rows"),
        (["count(2)", "weighted_count(5, 'n')"], "need conditions, weights or ticks of rows"),
        (["count(2)", "count(2)"], "two levels are called"),
        (["since(hourly())"], "emits at ticks"),
        (["1h"], "cannot read '1h'"),
        ([], "levels must be a list"),
        ("count(2)", "levels must be a list"),
        ([1], "must be an ordered window"),
    ],
)
def test_what_is_refused(levels, message):
    with pytest.raises(ValueError, match=message):
        OrderedFrame(levels, "ts", {"n": aggr.count()})
