"""Ordered windows in shards, called as by Spark but without Spark: batches, partitions and restarts do not change
results.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.ordered.test_running import MEASURES, WINDOWS, rows
from tests.streaming.test_ordered_stream import MINUTE, without
from tests.streaming.test_stream_shards import BothClocks, Shards
from tiltframe import OrderedFrame, OrderedRollup, RunningAggregation, finish_ordered, ordered_rollup

pytest.importorskip("pyspark.sql.streaming.tws_tester", reason="this PySpark has no TwsTester")
from spark_udaf.streaming.ordered_job import OrderedJob
from spark_udaf.streaming.shards import EVENT_TIME

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", "2"))
BEGIN = 10**15  # Spark knows no watermark before 1970


class OrderedShards(Shards):
    """A stream of ordered windows in shards."""

    def __init__(self, schema: pa.Schema, windows, shards: int, *, returns_states: bool = False) -> None:
        self.job = OrderedJob(schema, type(windows), windows.query, shards, returns_states=returns_states)
        self.timers = EVENT_TIME
        self.tester: BothClocks = self._tester()
        self.numbers = {}
        self.tester._currentProcessingTimeMs = 10**12


def streamed(stream: OrderedShards, table: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Give rows as they come; return what is emitted, and the rows that were late."""
    times, lag = table.column("ts").cast(pa.int64()).to_numpy(), int(rng.choice([20, 400])) * MINUTE
    at, current_watermark, previous_watermark, emitted, late = 0, -(2**62), -(2**62), [], []
    while at < len(table):
        batch = table.slice(at, int(rng.integers(1, 30)))
        late += [
            batch.slice(row, 1) for row in range(len(batch)) if times[at + row] < previous_watermark
        ]  # as the batch before knew
        emitted.append(stream.batch(batch, partitions=int(rng.integers(1, 4))))
        at, previous_watermark = at + len(batch), current_watermark  # the next one is judged by what this one was told
        current_watermark = (int(times[:at].max()) - lag) // 1000 * 1000
        stream.tell(watermark=current_watermark)
        if rng.random() < 0.3:
            emitted.append(stream.batch())
            previous_watermark = current_watermark
        if rng.random() < 0.3:
            stream.restart()
    stream.tell(watermark=int(times.max()) + MINUTE)
    emitted.append(stream.batch())
    assert (stream.numbers["rows"], stream.numbers["late_rows"]) == (len(table), len(late))
    return pa.concat_tables(emitted), pa.concat_tables([table.slice(0, 0), *late])


def arriving(seed: int, rng: np.random.Generator) -> pa.Table:
    """Make rows in a disorder of up to some hours."""
    table = rows(seed, 60).sort_by("arrival")
    at = table.column("ts").cast(pa.int64()).to_numpy() % (1000 * MINUTE) // 1000 * 1000 + BEGIN
    table = table.set_column(table.column_names.index("ts"), "ts", pa.array(at).cast(pa.timestamp("us", "UTC")))
    return table.take(pa.array(np.argsort(at + rng.integers(0, rng.choice([1, 300]), len(at)) * MINUTE, kind="stable")))


@pytest.mark.slow
@pytest.mark.parametrize("text", WINDOWS)
def test_what_shards_emit_is_what_a_batch_job_computes(text):
    for trial in range(TRIALS):
        rng = np.random.default_rng([SEED, trial])
        table, order = arriving(SEED + trial, rng), ["arrival"] * (trial % 2)  # without one, ties go by their arrival
        aggregation = RunningAggregation(MEASURES, text, time="ts", keys=["key"], order=order)
        emitted, late = streamed(OrderedShards(table.schema, aggregation, shards=int(rng.integers(1, 4))), table, rng)
        last = int(table.column("ts").cast(pa.int64()).to_numpy().max()) + MINUTE
        batch_aggregation = RunningAggregation.for_query(aggregation.query)
        expected = batch_aggregation.add(without(table, late), until=last)
        assert len(emitted) == len(expected), (SEED, trial)
        for key in ("a", "b", "c", None):
            emitted_of_key, expected_of_key = (
                table.filter(pa.array([k == key for k in table.column("key").to_pylist()], pa.bool_()))
                for table in (emitted, expected)
            )
            for name in expected.column_names:
                kind = emitted_of_key.column(name).type
                assert same_bits(emitted_of_key.column(name), expected_of_key.column(name).cast(kind)), (
                    SEED,
                    trial,
                    key,
                    name,
                )


@pytest.mark.long
@pytest.mark.slow
def test_a_chain_in_shards_emits_states_and_results_and_computes_keys():
    frame = OrderedFrame(
        ["count(2)", "sliding(3)"], "ts", {"n": aggr.count(), "d": aggr.dds("w")}, {"k": "upper(key)"}, ["arrival"]
    )
    for trial in range(TRIALS):
        for states in (True, False):
            rng = np.random.default_rng([SEED, trial])
            table = arriving(SEED + trial, rng)
            emitted, late = streamed(
                OrderedShards(table.schema, OrderedRollup(frame), 3, returns_states=states), table, rng
            )
            batch_states = ordered_rollup(without(table, late), frame)
            expected = batch_states if states else finish_ordered(batch_states, frame)
            names = ["level", "k", "ts", "n"]
            actual = sorted(map(repr, emitted.select(names).to_pylist()))
            assert actual == sorted(map(repr, expected.select(names).to_pylist())), (SEED, trial)


def test_a_checkpoint_of_other_windows_or_shards_is_refused():
    table = arriving(SEED, np.random.default_rng(SEED))
    aggregation = RunningAggregation(MEASURES, "count(2)", time="ts", keys=["key"])
    stream = OrderedShards(table.schema, aggregation, 2)
    stream.batch(table.slice(0, 9))
    other = RunningAggregation(MEASURES, "count(3)", time="ts", keys=["key"])
    for message, job in {
        "another stream: windows is": OrderedJob(table.schema, type(other), other.query, 2),
        "has 2 shards of keys, and this stream has 5": OrderedJob(
            table.schema, type(aggregation), aggregation.query, 5
        ),
    }.items():
        stream.restart(job)
        with pytest.raises(ValueError, match=message):
            stream.batch(table.slice(9, 3))
        stream.restart(OrderedJob(table.schema, type(aggregation), aggregation.query, 2))
