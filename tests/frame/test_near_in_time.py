"""Unordered batches are split into batches of shorter time ranges, which have the same rows and give the same
states.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.versions import set_column
from tiltframe import TiltFrame, near_in_time, rollup

HOUR, MAX_ROWS = 3_600_000_000, 100_000
FRAME = TiltFrame(["10s", "1h"], "ts", {"n": aggr.count(), "d": aggr.dds("x"), "l": aggr.last("x")}, ["k"])


def batches_of(count: int, rows: int, seed: int, ordered: bool = False, unit: str = "us") -> list[pa.RecordBatch]:
    draws = np.random.default_rng(seed)
    times = draws.integers(0, HOUR, count * rows)
    times = np.sort(times) if ordered else times
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False),
            "k": pa.array(draws.choice(list("abc"), count * rows)).dictionary_encode(),
            "x": pa.array(draws.normal(size=count * rows), mask=draws.random(count * rows) < 0.1),
            "list": pa.array([[number] for number in range(count * rows)]),
        }
    )
    return table.combine_chunks().to_batches(max_chunksize=rows)


def always(batch: pa.RecordBatch) -> bool:
    return True


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_same_rows_come_part_after_part(unit):
    batches = batches_of(9, 1000, 1, unit=unit)
    cut_batches = list(near_in_time.partition_by_time(iter(batches), "ts", always, MAX_ROWS))
    assert sorted(row for batch in cut_batches for row in batch["list"].to_pylist()) == [[n] for n in range(9000)]
    by_list = {row["list"][0]: row for batch in batches for row in batch.to_pylist()}
    assert all(row == by_list[row["list"][0]] for batch in cut_batches for row in batch.to_pylist())
    spans = [np.ptp(batch["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()) for batch in cut_batches]
    assert near_in_time.PARTS <= len(cut_batches) <= 3 * near_in_time.PARTS
    assert max(spans) < 2 * HOUR / near_in_time.PARTS + 1_000_000


def test_rows_in_order_stay_as_they_are():
    batches = batches_of(9, 1000, 2, ordered=True)
    assert list(map(id, near_in_time.partition_by_time(iter(batches), "ts", always, MAX_ROWS))) == list(
        map(id, batches)
    )


def test_what_is_dear_to_part_stays_as_it_is():
    batches = batches_of(4, 1000, 3)
    large = pa.array([str(n) for n in range(1000)]).dictionary_encode()
    missing = pa.array([None] * 1000, batches[0]["ts"].type)
    odd = [
        set_column(batches[1], 1, "k", large),
        set_column(batches[1], 0, "ts", missing),
        batches[1].slice(0, 0),
    ]
    cut_batches = list(near_in_time.partition_by_time(iter([*batches, *odd]), "ts", always, MAX_ROWS))
    assert all(any(batch is odd_batch for batch in cut_batches) for odd_batch in odd)
    assert sum(batch.num_rows for batch in cut_batches) == 6000
    assert list(near_in_time.partition_by_time(iter(batches), "ts", lambda batch: False, MAX_ROWS)) == batches


@pytest.mark.parametrize("seed", range(8))
def test_states_are_those_of_the_rows_in_order(seed, monkeypatch):
    monkeypatch.setattr("tiltframe.reducing._FEW_ROWS", 1000)
    monkeypatch.setattr("tiltframe.reducing._MAX_BUFFERED_BYTES", MAX_ROWS)
    batches = batches_of(int(np.random.default_rng(seed).integers(2, 12)), 1000, seed)
    together = pa.Table.from_batches(batches).sort_by("ts")
    in_no_order = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    assert rollup(in_no_order, FRAME).equals(rollup(together, FRAME))
