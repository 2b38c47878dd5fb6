"""Results of stored rows, which a store in a folder keeps in memory, equal those of merged states, bit for bit."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store.backends import set_cache_memory
from tiltframe.store.backends.cache_memory import cache_memory
from tiltframe.store.backends.delta import row_groups
from tiltframe.store.query import execution, extended_ranges, kept_merges
from tiltframe.store.testing import MemoryBackend

pytestmark = pytest.mark.store

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
BEGIN, MINUTE, HOUR = 1_714_521_600_000, 60_000, 3_600_000  # 2024-05-01, in milliseconds
MEASURES = {
    "n": aggr.count(),
    "total": aggr.sum("x"),
    "mean": aggr.avg("y"),
    "spread": aggr.stdev("y"),
    "low": aggr.min("y"),
    "p": aggr.dds("y", [0.5, 0.99]),
    "kinds": aggr.approx_count_distinct("x"),
    "rate": "total / n",
}
WHERE = [
    "host = 'h3'",
    "host IN ('h1', 'h10', 'none')",
    "host > 'h2' AND code <> 1",
    "host IS NULL OR code < 2",
    "code BETWEEN 1 AND 2",
    "NOT (host = 'h1')",
    "host = 'none'",
]


@pytest.fixture
def small_row_groups(monkeypatch):
    monkeypatch.setattr(row_groups, "_MIN_ROWS", 16)
    monkeypatch.setattr(row_groups, "_GROUP_BYTES", 1 << 12)


def drawn_rows(draws: random.Random, first: int, hours: int) -> pa.Table:
    """Rows of twelve hosts, whose times lie in some hours after the minute ``first``."""
    count = draws.choice([40, 400])
    return pa.table(
        {
            "ts": [BEGIN + first * MINUTE + draws.randrange(hours * HOUR) for _ in range(count)],
            "host": pa.array([draws.choice([None, *(f"h{i}" for i in range(12))]) for _ in range(count)], pa.string()),
            "code": pa.array([draws.choice([None, 0, 1, 2, 3]) for _ in range(count)], pa.int64()),
            "x": pa.array([draws.choice([None, draws.randrange(-(10**15), 10**15)]) for _ in range(count)], pa.int64()),
            "y": [draws.choice([0.1, -1e300, float("nan"), draws.expovariate(0.01)]) for _ in range(count)],
        }
    )


def drawn_query(draws: random.Random) -> Query:
    options: dict[str, object] = {}
    if draws.random() < 0.6:
        options["where"] = draws.choice(WHERE)
    if draws.random() < 0.6:
        low = BEGIN + draws.randrange(30 * 60) * MINUTE
        options["within"] = draws.choice([(low, low + draws.randrange(1, 20) * HOUR), (low, None), (None, low)])
    if draws.random() < 0.5:
        options["measures"] = draws.sample(list(MEASURES), draws.randrange(1, len(MEASURES)))
    elif draws.random() < 0.5:
        options["measures"] = {"q": aggr.dds("y", [0.25]), "both": "total + n", "squared": aggr.var("y", ddof=0)}
    further = {"latest": True, "closed": True, "flat": True, "limit": draws.randrange(1, 40)}
    options |= {name: value for name, value in further.items() if draws.random() < 0.2}
    keys = draws.choice([["host", "code"], ["code", "host"], ["host"], []])
    return Query(draws.choice(["1m", "1h", "1d", "2h"]), keys=keys, now=BEGIN + 20 * HOUR, **options)


def answer_of(store: FrameStore, query: Query) -> object:
    """The names, the types and the bits of the results, or the text of the error."""
    try:
        results = store.ask(query).table()
    except ValueError as error:
        return str(error)
    return results.schema, [digest(column.combine_chunks()) for column in results.columns]


@pytest.mark.parametrize("trial", range(4))
def test_random_results_equal_those_of_merged_states(tmp_path, small_row_groups, monkeypatch, trial):
    draws = random.Random(f"{SEED} {trial}")
    monkeypatch.setattr(execution, "ROWS_AT_ONCE", 60)
    monkeypatch.setattr(kept_merges, "_MIN_ROWS", draws.choice([1, 100, 1000]))
    monkeypatch.setattr(kept_merges, "_MAX_SHARE", draws.choice([0.25, 10.0]))
    monkeypatch.setattr(execution, "_RESULTS_AT_ONCE", draws.choice([300, 100_000]))
    monkeypatch.setattr(extended_ranges, "_MIN_SHARE", draws.choice([0.0, 0.5, 0.9]))
    frame = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host", "code"])
    jobs = draws.choice([1, 2])
    # A store in memory reads and merges states.
    stores = [FrameStore(str(tmp_path / "st"), frame, jobs=jobs), FrameStore(MemoryBackend(f"{SEED} {trial}"), frame)]
    earlier: list[Query] = []
    for commit in range(draws.randrange(1, 6)):
        # Some commits overlap earlier ones, so that some windows have several rows.
        rows = drawn_rows(draws, first=draws.choice([commit * 360, draws.randrange(1800)]), hours=draws.choice([1, 6]))
        for store in stores:
            store.append_rows(rows, "w", commit)
        if draws.random() < 0.3:
            stores[0].compact()
        queries = [drawn_query(draws) for _ in range(12)]
        # The same queries for all windows, and for other ranges
        queries += [replace(query, within=drawn_query(draws).within) for query in queries]
        for query in [*queries, *earlier]:
            expected = answer_of(stores[1], query)
            for _ in range(2):  # The second answer comes from memory.
                assert answer_of(stores[0], query) == expected, (SEED, trial, commit, query)
        earlier = queries


def test_results_do_not_depend_on_the_memory_of_caches(tmp_path, small_row_groups):
    store = FrameStore(str(tmp_path / "st"), TiltFrame(["1m", "1h"], "ts", MEASURES, ["host", "code"]))
    store.append_rows(drawn_rows(random.Random(SEED), 0, 6), "w", 1)
    queries = [drawn_query(random.Random(f"{SEED} {i}")) for i in range(20)]
    most_bytes, expected = cache_memory(), [answer_of(store, query) for query in queries]
    try:
        for memory in (0, 20_000):
            set_cache_memory(memory)
            assert [answer_of(store, query) for query in queries] == expected, (SEED, memory)
    finally:
        set_cache_memory(most_bytes)


def test_a_result_that_cannot_be_computed_is_an_error_only_if_a_query_includes_it(tmp_path):
    frame = TiltFrame(["1m"], "ts", {"total": aggr.sum("x", dtype="float64")}, ["host"])
    store = FrameStore(str(tmp_path / "st"), frame)
    x = pa.array([2**62, 2**62, 7], pa.int64())
    store.append_rows(pa.table({"ts": [BEGIN, BEGIN, BEGIN], "host": ["a", "a", "b"], "x": x}), "w", 1)
    for _ in range(2):
        results = store.query("1m", where="host = 'b'", measures={"total": aggr.sum("x")})
        assert results["total"].to_pylist() == [7]
        with pytest.raises(OverflowError, match=r"host='a'.* does not fit into int64"):
            store.query("1m", measures={"total": aggr.sum("x")})


def test_a_second_query_reads_no_states(tmp_path, small_row_groups):
    store = FrameStore(str(tmp_path / "st"), TiltFrame(["1m"], "ts", MEASURES, ["host", "code"]))
    store.append_rows(drawn_rows(random.Random(SEED), 0, 6), "w", 1)
    store.query("1m", measures=["n", "p"])
    read_before = _bytes_read()
    store.query("1m", where="host = 'h3'", measures=["p"])
    of_cached = _bytes_read() - read_before
    store.query("1m", where="host = 'h3'", measures=["spread"])
    assert of_cached < (_bytes_read() - read_before) - of_cached


def _bytes_read() -> int:
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])
