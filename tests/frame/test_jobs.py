"""Rollups in several threads: the same states and parts as in one thread, and no parts of a failed rollup."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

import aggr
import tiltframe.spilled_states as spilled_states
from aggr.arrow.bit_equality import same_bits
from aggr.tables import partial_aggregation
from aggr.workers import map_in_threads
from tiltframe import FrameStore, TiltFrame, finish, results, rollup
from tiltframe.store.changes import commit
from tiltframe.store.query import merging
from tiltframe.store.testing import MemoryBackend

SEED = random.randrange(10**6)
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "p": aggr.dds("x", quantiles=[0.5]), "last": aggr.last("x")}
FRAME = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"])


@pytest.fixture(autouse=True)
def many_small_calls(monkeypatch):
    """Reduce, spill and write a few rows at a time, so that every thread has work."""
    for name in ("_FIRST_ROWS", "REDUCE_ROWS", "_MAX_REDUCE_ROWS"):
        monkeypatch.setattr(partial_aggregation, name, 100)
    monkeypatch.setattr(partial_aggregation, "_MERGE_BYTES", 1)
    monkeypatch.setattr(spilled_states, "_BLOCK_BYTES", 4000)
    monkeypatch.setattr(commit, "_MIN_WRITE_BYTES", 1000)


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
    store = FrameStore(MemoryBackend(), FRAME, jobs=jobs)
    store.append_rows(rows, "w", 1, max_bytes=20_000)
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


@pytest.mark.parametrize("jobs", [2, 5])
def test_rollup_and_finish_do_not_depend_on_the_number_of_threads(jobs, monkeypatch):
    monkeypatch.setattr(results, "_MIN_ROWS_PER_THREAD", 7)
    rows, sizes = drawn(SEED), list[int]()
    finished = results._finish_measures

    def finish_part(states, frame):
        sizes.append(states.num_rows)
        return finished(states, frame)

    monkeypatch.setattr(results, "_finish_measures", finish_part)
    frame = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES | {"share": "n / (n + 1)"}, ["host"])
    expected_states = rollup(rows, frame, jobs=1)
    states = rollup(pa.Table.from_batches(rows.to_batches(max_chunksize=50)), frame, jobs=jobs)
    assert states.equals(expected_states), SEED
    for name in states.column_names:
        assert same_bits(states[name].combine_chunks(), expected_states[name].combine_chunks()), (SEED, name)
    expected = finish(states, frame, jobs=1)
    sizes.clear()
    actual = finish(states, frame, jobs=jobs)
    assert len(sizes) == jobs
    assert actual.schema == expected.schema
    for name in actual.column_names:
        assert same_bits(actual[name].combine_chunks(), expected[name].combine_chunks()), (SEED, name)
    assert finish(states.slice(0, 0), frame, jobs=jobs).equals(expected.slice(0, 0))


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_first_result_that_cannot_be_computed_is_named(jobs, monkeypatch):
    monkeypatch.setattr(results, "_MIN_ROWS_PER_THREAD", 2)
    rows = pa.table({"ts": [0, 1, 2, 2, 3, 4, 5, 5, 6], "x": [1, 1, 2**63 - 1, 1, 5, 6, 2**63 - 1, 1, 3]})
    frame = TiltFrame(["1ms"], "ts", {"s": aggr.sum("x")})
    with pytest.raises(OverflowError, match=r"at level='1ms', window_start=1970-01-01T00:00:00.002"):
        finish(rollup(rows, frame, jobs=jobs), frame, jobs=jobs)


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
    store = FrameStore(backend, FRAME, jobs=3)
    with pytest.raises(type(error)):
        store.append_rows(drawn(SEED), "w", 1, max_bytes=20_000)
    assert len(calls) >= 4
    assert not backend.tables.rows
    assert not store.has_commit("w", 1)


@pytest.fixture
def small_pieces(monkeypatch):
    """Read, merge and compare a few rows at a time, so that every thread has work."""
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 200)


def store_of_two_commits(folder, jobs: int) -> FrameStore:
    """Return a store in a folder with the same rows for every number of threads. Each window has two parts."""
    store = FrameStore(folder / f"with {jobs} threads", FRAME, jobs=jobs)
    for commit_number in (1, 2):
        store.append_rows(drawn(SEED + commit_number), "w", commit_number)
    return store


QUERIES = (
    {"per": "1m"},
    {"per": "10m", "keys": []},
    {"per": "1h", "where": "host = 'a'"},
    {"per": "1d", "latest": True},
    {"per": "all"},
    {"per": "hopping(2h, 1h)"},
    {"per": "1h", "fill": True, "running": True},
    {"per": ["1h", "1d"], "order_by": "n desc", "limit": 7},
)


def test_queries_compaction_and_verification_do_not_depend_on_the_number_of_threads(tmp_path, small_pieces):
    """Compare stores in which one, two and five threads work, before and after a compaction, and after damage."""
    outcomes = []
    for jobs in (1, 2, 5):
        store = store_of_two_commits(tmp_path, jobs)
        before = [store.query(**query) for query in QUERIES]
        states = store.states("1h")
        progress = list[tuple[int, int]]()
        compacted = store.compact(progress=lambda done, total, into=progress: into.append((done, total)))
        after = [store.query(**query) for query in QUERIES]
        report = store.verify()
        assert report.ok, (SEED, report.problems)
        assert all(first.equals(second) for first, second in zip(before, after, strict=True)), SEED
        parts = store.backend.snapshot(()).of("1h")
        (damaged,) = (tmp_path / f"with {jobs} threads").rglob(parts[0].name.rpartition("/")[2])
        damaged.write_bytes(damaged.read_bytes()[:-50])
        problems = [problem.split(":")[0] for problem in FrameStore(store.uri, jobs=jobs).verify().problems]
        outcomes.append((before, states, compacted, progress, (report.levels, report.parts, report.rows), problems))
    assert len(outcomes[0][-1]) == 1
    for outcome in outcomes[1:]:
        for expected, result in zip(outcomes[0][0], outcome[0], strict=True):
            assert all(
                same_bits(expected[name].combine_chunks(), result[name].combine_chunks())
                for name in expected.column_names
            ), SEED
        assert outcome[1].equals(outcomes[0][1]), SEED
        assert outcome[2:] == outcomes[0][2:], SEED


def test_results_are_in_order_and_later_calls_do_not_begin_after_an_error():
    begun = list[int]()

    def inverse(number: int) -> float:
        begun.append(number)
        return 1 / number

    assert list(map_in_threads(abs, range(-50, 0), 3)) == list(range(50, 0, -1))
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(inverse, [4, 2, 0, *range(1, 1000)], 3))
    assert len(begun) <= 10


@pytest.mark.parametrize("is_large", [True, False])
def test_the_first_call_starts_before_the_second_item_is_fetched_if_the_first_item_is_large(is_large):
    is_started = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert is_started.wait(10.0 if is_large else 0.05) == is_large
        yield 2

    def call(item: int) -> int:
        is_started.set()
        return -item

    assert list(map_in_threads(call, items(), 2, lambda item: is_large)) == [-1, -2]


@pytest.mark.parametrize("is_large", [True, False])
def test_a_single_item_is_processed_in_the_calling_thread_unless_it_is_large(is_large):
    (thread,) = map_in_threads(lambda item: threading.current_thread(), [1], 2, lambda item: is_large)
    assert (thread is threading.current_thread()) != is_large
    assert list(map_in_threads(abs, [], 2, lambda item: is_large)) == []


def test_a_number_of_threads_below_1_is_refused():
    with pytest.raises(ValueError, match="jobs"):
        FrameStore(MemoryBackend(), FRAME, jobs=0)


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

    for number, _ in enumerate(map_in_threads(lambda item: None, items(), jobs)):
        assert number < 6 or (watched[0](), watched[1]()) == (None, None)
