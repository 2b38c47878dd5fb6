"""Rollups in several threads: the same states and parts as in one thread, and no parts of a failed rollup."""

from __future__ import annotations

import random
import weakref

import pyarrow as pa
import pytest

import aggr
import tiltframe.spilled_states as spilled_states
from aggr.arrow.bit_equality import same_bits
from aggr.tables import partial_aggregation
from aggr.workers import Workers
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.changes import commit
from tiltframe.store.testing import MemoryBackend

SEED = random.randrange(10**6)
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "p": aggr.dds("x", quantiles=[0.5]), "last": aggr.last("x")}
FRAME = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"])


@pytest.fixture(autouse=True)
def many_small_calls(monkeypatch):
    """Reduce, spill and write a few rows at a time, so that every thread has work."""
    for name in ("_FIRST_ROWS", "REDUCE_ROWS", "_MOST_ROWS"):
        monkeypatch.setattr(partial_aggregation, name, 100)
    monkeypatch.setattr(partial_aggregation, "_MERGE_BYTES", 1)
    monkeypatch.setattr(spilled_states, "_BLOCK_BYTES", 4000)
    monkeypatch.setattr(commit, "_WRITTEN_BYTES", 1000)


def drawn(seed: int) -> pa.Table:
    draws = random.Random(seed)
    times = [1_700_000_000_000 + draws.randrange(3 * 86_400_000) for _ in range(1500)]
    if draws.random() < 0.5:
        times.sort()
    values = [draws.choice([draws.uniform(-1e9, 1e9), 0.1, -0.0, 1e300, None]) for _ in times]
    hosts = [draws.choice(["a", "b", None]) for _ in times]
    return pa.table(
        {"ts": pa.array(times, pa.timestamp("ms", "UTC")), "host": hosts, "x": pa.array(values, pa.float64())}
    )


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_states_and_order_do_not_depend_on_the_number_of_threads(jobs):
    rows = drawn(SEED)
    expected = rollup(rows, FRAME)
    store = FrameStore(MemoryBackend(), FRAME)
    store.append_rows(rows, "w", 1, max_bytes=20_000, jobs=jobs)
    for level in FRAME.levels:
        parts = store.backend.snapshot().of(level.name)
        columns = [name for name in expected.column_names[1:] if name != "window_end"]
        stored = store.backend.read([(part, part.range) for part in parts], columns)
        order = [("window_start", "ascending"), ("host", "ascending")]
        stored = stored.sort_by(order)
        of_level = expected.filter(pa.compute.equal(expected["level"], level.name)).sort_by(order)
        assert stored.num_rows == of_level.num_rows, SEED
        for name in columns:
            assert same_bits(stored[name].combine_chunks(), of_level[name].combine_chunks()), (SEED, name)
    assert not store.append(expected, "w", 1)  # the digests of the commit are equal


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_of_one_thread_leaves_no_part(error, monkeypatch):
    write, calls = MemoryBackend.write, list[int]()

    def failing(backend, level, states):
        calls.append(states.num_rows)
        if len(calls) == 4:
            raise error
        return write(backend, level, states)

    monkeypatch.setattr(MemoryBackend, "write", failing)
    backend = MemoryBackend()
    store = FrameStore(backend, FRAME)
    with pytest.raises(type(error)):
        store.append_rows(drawn(SEED), "w", 1, max_bytes=20_000, jobs=3)
    assert len(calls) >= 4
    assert not backend.tables.rows
    assert not store.has_commit("w", 1)


def test_results_are_in_order_and_later_calls_do_not_begin_after_an_error():
    begun = list[int]()

    def inverse(number: int) -> float:
        begun.append(number)
        return 1 / number

    with Workers(3) as workers:
        assert list(workers.map(abs, range(-50, 0))) == list(range(50, 0, -1))
    with pytest.raises(ZeroDivisionError), Workers(3) as workers:
        list(workers.map(inverse, [4, 2, 0, *range(1, 1000)]))
    assert len(begun) <= 10


def test_a_number_of_threads_below_1_is_refused():
    with pytest.raises(ValueError, match="jobs"):
        FrameStore(MemoryBackend(), FRAME).append_rows(drawn(SEED), "w", 1, jobs=0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_keep_no_item_that_they_have_finished(jobs):
    class Item:
        """An object that can be watched."""

    watched = list[weakref.ref[Item]]()

    def items():
        for _ in range(10):
            item = Item()
            watched.append(weakref.ref(item))
            yield item
            del item

    with Workers(jobs) as workers:
        for number, _ in enumerate(workers.map(lambda item: None, items())):
            assert number < 6 or (watched[0](), watched[1]()) == (None, None)
