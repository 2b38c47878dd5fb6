"""Running results, compared with naive evaluators: unordered rows, ties, nulls, ticks at clock changes, batches."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import re
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from aggr.fields import ScaledExact
from aggr.function import input_rule
from tiltframe import OrderedFrame, RunningAggregation, TiltFrame, finish_ordered, ordered_rollup, running
from windows import ordered

STARTS = {
    "dst": dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),
    "leap": dt.datetime(2024, 2, 28, 21, 0, tzinfo=dt.UTC),
    "year": dt.datetime(2023, 12, 31, 20, 0, tzinfo=dt.UTC),
    "early": dt.datetime(1965, 12, 30, 23, 0, tzinfo=dt.UTC),
}
WINDOWS = [
    "running()",
    "since('n > 6')",
    "since(hourly())",
    "since('n > 6', daily('Europe/Paris'))",
    "sliding(3)",
    "sliding(2, 'n > 6')",
    "sliding(2, monthly('America/New_York'))",
    "sliding(2, weekly('Europe/Paris'))",
    "sliding(3, min_rows=3)",
    "since('n > 6', hourly(), min_rows=1)",
    "running(min_rows=2)",
    "count(3)",
    "weighted_count(9, 'w')",
    "interval('3h')",
    "session('90m', max='5h', start='n > 2', end='n > 7', bounds='[)')",
    "emit_when('n > 6', include=False)",
]
MEASURES = {
    "total": aggr.sum("n"),
    "big": aggr.count("n", where="n > 4"),
    "rows": aggr.count(),
    "newest": aggr.last("w"),
    "typical": aggr.dds("w", [0.5]),
    "spread": aggr.stdev("x"),
}


def rows(seed, n=150, start="dst"):
    rng = np.random.default_rng(seed)
    times = [STARTS[start] + dt.timedelta(minutes=int(m)) for m in rng.integers(0, 60 * 30, n) // 20 * 20]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "key": pa.array([None if k == 3 else "abc"[k] for k in rng.integers(0, 4, n)]),
            "n": pa.array([None if v == 0 else int(v) for v in rng.integers(0, 10, n)], pa.int64()),
            "w": pa.array(rng.integers(0, 6, n)),
            "x": pa.array(rng.normal(size=n)),
            "arrival": pa.array(np.arange(n)),
        }
    )


def sequence(table, window):
    """List each key's rows in order of time and arrival, ticks among them, as dicts; None for a tick's values."""
    rows = table.to_pylist()
    end = max(row["ts"] for row in rows)
    ticks_by_key = {}
    for key in sorted({row["key"] for row in rows}, key=lambda k: (k is None, k)):
        own = sorted((row for row in rows if row["key"] == key), key=lambda row: row["ts"])
        ticks = [{"ts": at, "tick": True} for at in tick_times(window, own[0]["ts"], end)]
        ticks_by_key[key] = sorted([*own, *ticks], key=lambda row: (row["ts"], "tick" in row))
    return ticks_by_key


def tick_times(window, low, high):
    """Walk the clock minute by minute: the ticks in [low, high]."""
    reads = [read for read in window.reads if isinstance(read, ordered.Tick)]
    at, ticks = low.replace(second=0, microsecond=0), []
    while at <= high and reads:
        local, before = (t.astimezone(ZoneInfo(reads[0].timezone)) for t in (at, at - dt.timedelta(minutes=1)))
        begins = {
            "hourly": local.minute == 0,
            "daily": local.date() != before.date(),
            "weekly": local.date() != before.date() and local.weekday() == 0,
            "monthly": (local.year, local.month) != (before.year, before.month),
        }
        if begins[reads[0].name] and at >= low:
            ticks.append(at)
        at += dt.timedelta(minutes=1)
    return ticks


def summed(part):
    values = [row["n"] for row in part if row.get("n") is not None]
    own = [row for row in part if "tick" not in row]
    return {
        "total": sum(values) if values else None,
        "big": sum(value > 4 for value in values),
        "rows": len(own),
        "newest": own[-1]["w"] if own else None,
    }


def true(row, bound):
    return row.get("n") is not None and row["n"] > bound


def per_row(entries, resets, n):
    begins = [0]
    for i, row in enumerate(entries):
        yield row, entries[begins[max(len(begins) - n, 0)] : i + 1]
        if resets(row):
            begins.append(i + 1)


def one_by_one(entries, text):
    """Cut a key's rows as each kind of window says."""
    window, weight, opened = [], 0, None
    for i, row in enumerate(entries):
        if text.startswith("count"):
            window.append(row)
            if len(window) == 3:
                yield row, window
                window = []
        elif text.startswith("weighted"):
            window.append(row)
            weight += row["w"]
            if weight >= 9:
                yield row, window
                window, weight = [], weight - 9
        elif text.startswith("interval"):
            if window and row["ts"] - window[0]["ts"] >= dt.timedelta(hours=3):
                yield row, window
                window = []
            window.append(row)
        elif text.startswith("emit_when"):
            if true(row, 6) and window:
                yield row, window
                window = []
            window.append(row)
        else:
            late = window and (
                row["ts"] - entries[i - 1]["ts"] > dt.timedelta(minutes=90)
                or row["ts"] - opened >= dt.timedelta(hours=5)
            )
            if window and (late or true(row, 7)):
                yield row, window
                window = []
            if window or true(row, 2):
                opened = row["ts"] if not window else opened
                window.append(row)


def expected(table, text):
    window = ordered.read_ordered(text)
    resets = {
        "running()": (lambda row: False, 1),
        "since('n > 6')": (lambda row: true(row, 6), 1),
        "since(hourly())": (lambda row: "tick" in row, 1),
        "since('n > 6', daily('Europe/Paris'))": (lambda row: "tick" in row or true(row, 6), 1),
        "sliding(3)": (lambda row: True, 3),
        "sliding(2, 'n > 6')": (lambda row: true(row, 6), 2),
        "sliding(2, monthly('America/New_York'))": (lambda row: "tick" in row, 2),
        "sliding(2, weekly('Europe/Paris'))": (lambda row: "tick" in row, 2),
        "since('n > 6', hourly())": (lambda row: "tick" in row or true(row, 6), 1),
    }
    text, _, min_rows = re.fullmatch(r"(.*?)((?:, )?min_rows=(\d+))?\)", text).groups()
    text, min_rows = f"{text})", int(min_rows or 0)
    for key, entries in sequence(table, window).items():
        outputs = per_row(entries, *resets[text]) if text in resets else one_by_one(entries, text)
        for row, part in outputs:
            enough = sum("tick" not in row for row in part) >= min_rows
            yield {"key": key, "ts": row["ts"], **{n: v if enough else None for n, v in summed(part).items()}}


@pytest.mark.slow
@pytest.mark.parametrize("text", WINDOWS)
@pytest.mark.parametrize("start", STARTS)
def test_a_naive_evaluator_agrees(text, start):
    for seed, n in enumerate((1, 2, 40, 150)):
        table = rows(seed, n, start)
        actual = running(table, MEASURES, text, time="ts", keys=["key"])
        names = ["key", "ts", "total", "big", "rows", "newest"]
        assert actual.select(names).to_pylist() == list(expected(table, text))


def bits(table):
    table = table.combine_chunks()
    return [digest(column) for column in table.columns]


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["rows", "final"])
@pytest.mark.parametrize("text", WINDOWS)
@pytest.mark.long
def test_batches_of_one_and_seven_give_the_same_bits(text, emit):
    table = rows(7, 24).sort_by([("ts", "ascending"), ("arrival", "ascending")])
    options = {"time": "ts", "keys": ["key"], "emit": emit}
    measures = {name: MEASURES[name] for name in ("total", "big", "newest", "typical")}
    unsplit = running(table, measures, text, **options)
    for size in (1, 7):
        batches = [table.slice(i, size).combine_chunks().to_batches()[0] for i in range(0, table.num_rows, size)]
        parts = running(batches, measures, text, **options)
        order = [("key", "ascending"), ("ts", "ascending")]
        tick = [("tick", "ascending")] if "tick" in unsplit.column_names else []
        row = [("arrival", "ascending")] if "arrival" in unsplit.column_names else []
        assert bits(parts.sort_by([*order, *tick, *row])) == bits(unsplit.sort_by([*order, *tick, *row]))


@pytest.mark.slow
@pytest.mark.long
def test_every_function_runs_and_slides():
    n = 40
    values = np.random.default_rng(1).integers(1, 50, n)
    times = pa.array(range(n), pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "value": values, "odd": values % 2 == 1, "other": [1, 2] * (n // 2)})
    for name in aggr.names():
        function = aggr.get(name)
        other_columns = tuple(None if role == "time" else "other" for role in function.inputs[1:])
        takes_integers = input_rule(function, function.inputs[0]).allows(pa.int64())
        column = "value" if takes_integers and name != "duration_in" else "odd"
        function_of_test = function(steps=[1, 2]) if name == "funnel" else function()
        measure = aggr.Measure(function_of_test, column, others=other_columns)
        for text, low in (("running()", lambda i: 0), ("sliding(7)", lambda i: max(i - 6, 0))):
            result_column = running(table, {"r": measure}, text, time="ts").column("r")
            for i in (0, 5, 6, 7, 39):
                rows_in = table.slice(low(i), i + 1 - low(i))
                alone = running(rows_in, {"r": measure}, time="ts", emit="final").column("r")
                assert digest(alone) == digest(result_column.slice(i, 1)), (name, text, i)


def test_a_row_without_its_value_and_a_table_without_rows():
    empty = rows(1, 5).slice(0, 0)
    for text in WINDOWS:
        for emit in ("rows", "final"):
            assert running(empty, MEASURES, text, time="ts", keys=["key"], emit=emit).num_rows == 0
    alone = pa.table({"ts": [0], "n": pa.array([None], pa.int64())})
    assert running(alone, {"s": aggr.sum("n")}, time="ts").column("s").to_pylist() == [None]


def test_ties_go_by_arrival_or_by_what_is_named():
    table = pa.table({"ts": [5, 5, 5, 1], "n": [1, 2, 3, 4], "rank": [3, 1, 2, 9]})
    measures = {"newest": aggr.last("n"), "oldest": aggr.first("n")}
    assert running(table, measures, time="ts").column("newest").to_pylist() == [4, 1, 2, 3]
    by_rank = running(table, measures, time="ts", order=["rank"])
    assert by_rank.column("newest").to_pylist() == [4, 2, 3, 1]
    assert by_rank.column("oldest").to_pylist() == [4, 4, 4, 4]


def test_results_at_ticks_only():
    table = pa.table({"ts": [0, 60_000, 200_000], "n": [1, 2, 4]})
    values = running(table, {"s": aggr.sum("n")}, time="ts", ticks=ordered.minutely(), emit="ticks")
    assert values.column("s").to_pylist() == [1, 3, 3, 3]
    assert [at.minute for at in values.column("ts").to_pylist()] == [0, 1, 2, 3]
    assert values.column("tick").to_pylist() == [True] * 4


def test_results_are_rows_of_another_query_to_any_depth():
    table = pa.table({"ts": [0, 1, 2, 3], "n": [5, 2, 13, 4]})
    sums = running(table, {"total": aggr.sum("n")}, time="ts")
    means = running(sums, {"mean": aggr.avg("n")}, time="ts")
    assert means.column("mean").to_pylist() == [5, 3.5, pytest.approx(20 / 3), 6]
    deep = running(means, {"highest": aggr.max("mean")}, time="ts")
    assert deep.column("highest").to_pylist() == pytest.approx([5, 5, 20 / 3, 20 / 3])


def test_sorted_rows_stay_where_they_are():
    table = rows(3).combine_chunks()
    by = [("key", "ascending"), ("ts", "ascending")]
    for table_in_order, is_unchanged in ((table.sort_by(by).combine_chunks(), True), (table, False)):
        counts = running(table_in_order, {"r": aggr.count()}, time="ts", keys=["key"])
        places = [table_of_rows.column("x").chunk(0).buffers()[1].address for table_of_rows in (table_in_order, counts)]
        assert (places[0] == places[1]) == is_unchanged


def test_a_batch_that_goes_back_is_refused_and_not_taken():
    aggregation = RunningAggregation({"s": aggr.sum("n")}, time="ts", keys=["k"])
    aggregation.add(pa.table({"k": ["a"], "ts": [5], "n": [1]}))
    with pytest.raises(ValueError, match="across all batches"):
        aggregation.add(pa.table({"k": ["b", "a"], "ts": [0, 4], "n": [1, 7]}))
    assert aggregation.add(pa.table({"k": ["a", "b"], "ts": [5, 0], "n": [2, 9]})).column("s").to_pylist() == [3, 9]
    aggregation.finish()
    with pytest.raises(ValueError, match="finished"):
        aggregation.add(pa.table({"k": ["a"], "ts": [6], "n": [1]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": "since('price > 5')"}, "price"),
        ({"window": "since('n >')"}, "n >"),
        ({"window": "weighted_count(3, 'v')"}, "no column 'v'"),
        ({"window": "weighted_count(3, 'x')"}, "whole numbers"),
        ({"window": "1h"}, "cannot read '1h'"),
        ({"window": {"other": "running()"}}, "not a measure"),
        ({"window": {"s": "count(2)", "t": "running()"}}, "different windows"),
        ({"window": "count(2)", "ticks": "hourly()"}, "leave out ticks"),
        ({"emit": "all"}, "emit must be one of"),
        ({"emit": "ticks"}, "needs ticks"),
        ({"keys": "n"}, "list of column names"),
        ({"keys": ["n", "n"]}, "twice"),
        ({"keys": ["ts"]}, "is used as the time and as a key"),
        ({"keys": ["m"]}, "no column 'm'"),
        ({"time": "at"}, "no column 'at'"),
        ({"time": ""}, "column of event times, must be a name"),
        ({"order": ["m"]}, "no column 'm'"),
        ({"measures": {}}, "at least one"),
        ({"measures": {"s": "sum"}}, "must be a function of aggr"),
        ({"measures": {"n": aggr.sum("n")}}, "used twice"),
        ({"measures": {"s": aggr.sum("m")}}, "no column 'm'"),
        ({"measures": {"tick": aggr.sum("n")}, "ticks": "hourly()"}, "used twice"),
    ],
)
def test_what_is_refused(change, message):
    table = pa.table({"ts": [0], "n": [1], "x": [0.5]})
    arguments = {"measures": {"s": aggr.sum("n"), "t": aggr.sum("n")}, "time": "ts"} | change
    with pytest.raises((ValueError, TypeError), match=message):
        running(table, arguments.pop("measures"), arguments.pop("window", None), **arguments)


def test_a_tilt_frame_takes_no_ordered_windows():
    for level in ("count(2)", ordered.count(2)):
        with pytest.raises(ValueError, match=r"ordered windows, such as .* can be used only in"):
            TiltFrame([level], time="ts", measures={"n": aggr.count()})


def test_an_aggregation_is_saved_and_goes_on():
    aggregation = RunningAggregation({"s": aggr.sum("n")}, "sliding(2)", time="ts")
    aggregation.add(pa.table({"ts": [0, 1], "n": [1, 2]}))
    again = pickle.loads(pickle.dumps(aggregation))
    assert again.add(pa.table({"ts": [2], "n": [4]})).column("s").to_pylist() == [6]


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="weights must be at least 0; the column 'w' has -1"):
        running(pa.table({"ts": [0], "w": [-1]}), {"n": aggr.count()}, "weighted_count(3, 'w')", time="ts")


@pytest.mark.slow
def test_a_chain_in_batches_gives_the_same_bits():
    table = rows(5, 50).sort_by([("ts", "ascending"), ("arrival", "ascending")])
    frame = OrderedFrame(["interval('2h')", "count(3)"], "ts", MEASURES, ["key"])
    order = [("level", "ascending"), ("key", "ascending"), ("ts", "ascending")]
    unsplit = ordered_rollup(table, frame)
    assert unsplit.filter(pa.compute.equal(unsplit.column("level"), "count(3)")).num_rows
    for size in (1, 7):
        batches = [table.slice(i, size).combine_chunks().to_batches()[0] for i in range(0, table.num_rows, size)]
        assert bits(ordered_rollup(batches, frame).sort_by(order)) == bits(unsplit.sort_by(order))


def test_a_hundred_times_the_rows_in_a_window_cost_no_more_merges(monkeypatch):
    """Of any function that has no faster way of its own; `benchmarks/running.py` has the time, function by function."""
    table = pa.table({"ts": range(3000), "x": np.random.default_rng(4).normal(size=3000)})
    merged = 0
    merge = ScaledExact.merge

    def counted(self, sums, groups):
        nonlocal merged
        merged += len(sums)
        return merge(self, sums, groups)

    monkeypatch.setattr(ScaledExact, "merge", counted)
    counts = []
    for n in (10, 1000):
        merged = 0
        running(table, {"p": aggr.dds("x")}, f"sliding({n})", time="ts")
        counts.append(merged)
    assert 0 < counts[1] <= 3 * counts[0]


def test_a_chain_waits_for_as_many_outputs():
    levels = {"twos": "count(2)", "moving": "sliding(2, min_rows=2)"}
    frame = OrderedFrame(levels, time="ts", measures={"n": aggr.sum("n")})
    table = pa.table({"ts": range(6), "n": [5, 2, 13, 4, 7, 1]})
    values = finish_ordered(ordered_rollup(table, frame), frame).to_pydict()
    assert values["n"] == [7, 17, 8, None, 24, 25]


def test_windows_that_never_have_so_many_rows_are_refused():
    with pytest.raises(ValueError, match="min_rows must be at most 3, the number of rows in a window; got 4"):
        ordered.sliding(3, min_rows=4)
    assert str(ordered.sliding(3, "n > 6", min_rows=4)) == "sliding(3, 'n > 6', min_rows=4)"


@pytest.mark.parametrize("trial", range(30))
def test_weights_beyond_int64(trial):
    draw = random.Random(trial)
    n = draw.choice([1, 10, 2**40])
    weights = [draw.choice([0, 1, 2**61, 2**62, 2**63 - 1, n - 1, n]) for _ in range(draw.randrange(1, 15))]
    expected, total, opened = [], 0, 0
    for row, weight in enumerate(weights):
        total += weight
        if total >= n:
            expected.append((opened, row))
            opened, total = row + 1, total - n
    rows = pa.table({"ts": range(len(weights)), "w": weights, "i": range(len(weights))})
    measures = {"first": aggr.min("i"), "last": aggr.max("i")}
    windows = RunningAggregation(measures, f"weighted_count({n}, w)", time="ts")
    cut = draw.randrange(len(weights) + 1)
    results = [row for part in (rows.slice(0, cut), rows.slice(cut)) for row in windows.add(part).to_pylist()]
    assert [(row["first"], row["last"]) for row in results] == expected


def test_a_weight_that_is_no_int64_is_named():
    rows = pa.table({"ts": [0], "w": pa.array([2**63], pa.uint64())})
    with pytest.raises(ValueError, match="column 'w' has 9223372036854775808"):
        running(rows, {"n": aggr.count()}, "weighted_count(3, 'w')", time="ts")
