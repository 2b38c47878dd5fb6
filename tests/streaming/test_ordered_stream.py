"""Ordered windows of a stream, compared with the naive evaluator of `tests.ordered.test_running`, for rows in any
order.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.ordered.test_running import MEASURES, STARTS, WINDOWS, expected, rows
from tiltframe import OrderedFrame, OrderedRollup, RunningAggregation, TiltFrame, ordered_rollup
from tiltframe.streaming import OpenWindows, OrderedStream

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
MINUTE = 60_000_000


def streamed(stream: OrderedStream, table: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Give rows in a disorder of up to some hours; return what is emitted, and the rows that were late."""
    times = table.column("ts").cast(pa.int64()).to_numpy()
    arrival = np.argsort(times + rng.integers(0, rng.choice([1, 300]), len(times)) * MINUTE, kind="stable")
    table, times, lag = table.take(pa.array(arrival)), times[arrival], int(rng.choice([0, 20, 400])) * MINUTE
    emitted, late, at = [], [], 0
    while at < len(table):
        size = int(rng.integers(1, 30))
        late.append(stream.add_rows(table.slice(at, size)))
        at += size
        emitted.append(stream.advance(int(times[:at].max()) - lag))
        if rng.random() < 0.3:
            windows = stream._windows
            stream = OrderedStream.from_ipc(stream.to_ipc(), type(windows).for_query(windows.query))
    emitted.append(stream.close())
    assert stream.progress.rows == len(table)
    assert stream.progress.late_rows == sum(map(len, late))
    assert stream.progress.emitted_rows == sum(map(len, emitted))
    return pa.concat_tables(emitted), pa.concat_tables(late)


def without(table: pa.Table, late: pa.Table) -> pa.Table:
    late_arrivals = set(late.column("arrival").to_pylist())
    return table.filter(pa.array([at not in late_arrivals for at in table.column("arrival").to_pylist()]))


@pytest.mark.slow
@pytest.mark.parametrize("text", WINDOWS)
def test_what_comes_is_what_the_naive_evaluator_says(text):
    for number, start in enumerate(STARTS):
        rng = np.random.default_rng([SEED, number])
        table = rows(SEED + number, 60, start).sort_by("arrival")
        aggregation = RunningAggregation(MEASURES, text, time="ts", keys=["key"], order=["arrival"])
        emitted, late = streamed(OrderedStream(aggregation), table, rng)
        names = ["key", "ts", "total", "big", "rows", "newest"]
        accepted = without(table, late)
        actual = emitted.select(names).to_pylist()
        for key in ("a", "b", "c", None):
            expected_rows = [row for row in expected(accepted, text) if row["key"] == key]
            assert [row for row in actual if row["key"] == key] == expected_rows, (SEED, start)


@pytest.mark.long
@pytest.mark.slow
def test_a_chain_of_a_stream_is_that_of_its_rows_in_order():
    frame = OrderedFrame(
        ["count(2)", "sliding(3)"], "ts", {"n": aggr.count(), "d": aggr.dds("w")}, ["key"], ["arrival"]
    )
    for number in range(10):
        table = rows(SEED + number, 60)
        stream = OrderedStream(OrderedRollup(frame))
        emitted, late = streamed(stream, table, np.random.default_rng([SEED, number]))
        batch_states = ordered_rollup(without(table, late), frame)
        for key in ("a", "b", "c", None):
            for level in frame.levels:
                parts = [
                    table.filter(pa.array([(k, n) == (key, level) for k, n in zip(*names, strict=True)], pa.bool_()))
                    for table in (emitted, batch_states)
                    for names in [(table.column("key").to_pylist(), table.column("level").to_pylist())]
                ]
                assert all(same_bits(parts[0].column(name), parts[1].column(name)) for name in ("ts", "n", "d")), SEED
        assert stream.results(emitted).num_rows == batch_states.num_rows


def test_ticks_come_with_the_watermark_though_no_row_does():
    aggregation = RunningAggregation({"n": aggr.count()}, "since(minutely())", time="ts", keys=["k"])
    stream = OrderedStream(aggregation)
    assert stream.advance(0).num_columns == 0
    stream.add_rows(pa.table({"ts": [10_000], "k": ["a"]}))
    ticks = [stream.advance(at * MINUTE).select(["tick", "n"]).to_pydict() for at in (1, 2, 3)]
    assert ticks == [
        {"tick": [False], "n": [1]},
        {"tick": [True], "n": [1]},  # a row of the full minute itself would have come before its tick
        {"tick": [True], "n": [0]},
    ]
    stream = OrderedStream.from_ipc(stream.to_ipc(), RunningAggregation.for_query(aggregation.query))
    assert stream.advance(4 * MINUTE).column("n").to_pylist() == [0]
    null = RunningAggregation({"n": aggr.sum("x")}, "since(minutely(), min_rows=1)", time="ts", keys=["k"])
    stream_of_null = OrderedStream(null)  # of a window without rows null, if that is asked for
    stream_of_null.add_rows(pa.table({"ts": [10_000], "k": ["a"], "x": [7]}))
    assert stream_of_null.advance(3 * MINUTE).select(["tick", "n"]).to_pydict() == {
        "tick": [False, True, True],
        "n": [7, 7, None],
    }
    with pytest.raises(ValueError, match="no column 'k'"):
        OrderedStream(RunningAggregation({"n": aggr.count()}, time="ts", keys=["k"])).add_rows(pa.table({"ts": [1]}))
    with pytest.raises(ValueError, match="must have the same columns"):
        stream.add_rows(pa.table({"ts": [200_000]}))


def test_a_saved_stream_goes_on_with_the_same_windows_alone():
    table = pa.table({"ts": [1000, 2000, 3000], "k": ["a", "b", "a"], "x": [1, 2, 3]})

    def aggregation(window="sliding(2)", emit="rows", **measures):
        return RunningAggregation(measures or {"n": aggr.sum("x")}, window, time="ts", keys=["k"], emit=emit)

    stream = OrderedStream(aggregation())
    stream.add_rows(table)
    stream.advance(2_500_000)
    saved = stream.to_ipc()
    assert OrderedStream.from_ipc(saved, aggregation()).close().column("n").to_pylist() == [4]
    other_aggregations = [
        (aggregation("sliding(3)"), "windows"),
        (aggregation(m=aggr.avg("x")), "states"),
        (aggregation(emit="final"), "emit"),
    ]
    for other, what in other_aggregations:
        with pytest.raises(ValueError, match=f"another stream: {what} is"):
            OrderedStream.from_ipc(saved, other)
    with pytest.raises(ValueError, match="a stream of time windows"):
        OrderedStream.from_ipc(OpenWindows(TiltFrame(["1s"], "ts", {"n": aggr.count()})).to_ipc(), aggregation())
    with pytest.raises(ValueError, match="checksum"):
        OrderedStream.from_ipc(saved[:-9] + b"x" + saved[-8:], aggregation())
    final = OrderedStream(aggregation("running()", "final"))
    final.add_rows(table)
    final.advance(2_500_000)
    again = OrderedStream.from_ipc(final.to_ipc(), aggregation("running()", "final"))
    assert again.close().select(["k", "n"]).to_pylist() == [{"k": "a", "n": 4}, {"k": "b", "n": 2}]
