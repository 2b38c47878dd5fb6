"""Merged states and results of parts that a store in a folder keeps in memory: queries read only new and changed parts,
and their results equal those of a store that keeps nothing.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe import FrameStore, Query, TiltFrame, rollup
from tiltframe.store.backends import set_cache_memory
from tiltframe.store.backends.cache_memory import cache_memory
from tiltframe.store.backends.delta import backend as delta_backend
from tiltframe.store.backends.delta import files
from tiltframe.store.backends.delta.backend import DeltaBackend
from tiltframe.store.backends.delta.file_cache import FileCache
from tiltframe.store.query import kept_merges, kept_results
from tiltframe.store.testing import MemoryBackend
from windows import window

pytestmark = pytest.mark.store

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
BEGIN, MINUTE, HOUR, DAY = 1_714_521_600_000, 60_000, 3_600_000, 86_400_000  # 2024-05-01, in milliseconds
MEASURES = {
    "n": aggr.count(),
    "mean": aggr.avg("x"),
    "spread": aggr.stdev("x"),
    "high": aggr.max("x"),
    "p": aggr.dds("x", [0.5, 0.99]),
    "hosts": aggr.approx_count_distinct("host"),
    "last": aggr.last("x"),
}
FRAME = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host", "code"])
MERGED = Query("1m", keys=[])
SINGLE = Query("1m")  # one stored row for each result
both_queries = pytest.mark.parametrize("query", [MERGED, SINGLE], ids=["merged", "single rows"])


@pytest.fixture(autouse=True)
def keep_small_parts(monkeypatch):
    monkeypatch.setattr(kept_merges, "_MIN_ROWS", 1)


@pytest.fixture
def parts_read(monkeypatch):
    """The names of the parts whose states stores in folders read, or from whose states they compute results."""
    names: list[str] = []
    read = DeltaBackend.read
    read_results = DeltaBackend.read_results

    def recorded_read(self, parts, columns, where=None):
        names.extend(part.name for part, _ in parts)
        return read(self, parts, columns, where)

    def recorded_read_results(self, parts, columns, functions, where=None):
        names.extend(part.name for part, _ in parts)
        return read_results(self, parts, columns, functions, where=where)

    monkeypatch.setattr(DeltaBackend, "read", recorded_read)
    monkeypatch.setattr(DeltaBackend, "read_results", recorded_read_results)
    return names


def rows_of(draws: random.Random, first: int, minutes: int, hosts: int = 8) -> pa.Table:
    """One to three rows of each host in most minutes of a range, with values whose sums must be rounded."""
    events = [
        (BEGIN + (first + minute) * MINUTE + draws.randrange(MINUTE), f"h{host}", draws.randrange(3))
        for minute in range(minutes)
        for host in range(hosts)
        for _ in range(draws.randrange(4))
    ]
    return pa.table(
        {
            "ts": [ts for ts, _, _ in events],
            "host": [host for _, host, _ in events],
            "code": [code for _, _, code in events],
            "x": [draws.choice([0.1, -1e18, 5e-324, draws.expovariate(0.01)]) for _ in events],
        }
    )


def bits_of(store: FrameStore, query: Query) -> object:
    results = store.ask(query).table()
    return results.schema, [digest(column.combine_chunks()) for column in results.columns]


def drawn_query(draws: random.Random) -> Query:
    options: dict[str, object] = {"keys": draws.choice([[], ["host"], ["code"], ["code", "host"]])}
    if draws.random() < 0.5:
        options["where"] = draws.choice(["host = 'h3'", "code <> 1", "host IN ('h1', 'h2') OR code = 0"])
    if draws.random() < 0.5:
        low = BEGIN + draws.randrange(48 * 60) * MINUTE
        options["within"] = draws.choice([(low, low + draws.randrange(1, 30) * HOUR), (low, None), (None, low)])
    if draws.random() < 0.5:
        options["measures"] = draws.choice([["n"], ["p", "mean"], {"q": aggr.dds("x", [0.25]), "v": aggr.var("x")}])
    if draws.random() < 0.3:
        options["timezone"] = draws.choice(["Europe/Berlin", "Asia/Kolkata"])
    if draws.random() < 0.2:
        options |= draws.choice([{"latest": True}, {"fill": True}, {"running": True}, {"flat": True}])
    per = draws.choice(["1h", "2h", "1d"] if "timezone" in options else ["1m", "10m", "1h", "6h", "1d", "2d", "all"])
    if per == "all" or options.get("timezone") == "Asia/Kolkata":
        options.pop("running", None)
        options.pop("fill", None)
        per = "30m" if options.get("timezone") == "Asia/Kolkata" else per
    return Query(per, now=BEGIN + 40 * HOUR, **options)


@pytest.mark.parametrize("trial", range(3))
def test_random_queries_have_the_results_of_a_store_that_keeps_nothing(tmp_path, monkeypatch, trial):
    draws = random.Random(f"{SEED} {trial}")
    monkeypatch.setattr(kept_merges, "_MIN_ROWS", draws.choice([1, 300, 1 << 15]))
    monkeypatch.setattr(kept_merges, "_MAX_SHARE", draws.choice([0.25, 1.0]))
    stores = [FrameStore(str(tmp_path / "st"), FRAME), FrameStore(MemoryBackend(f"kept {SEED} {trial}"), FRAME)]
    earlier: list[Query] = []
    for commit in range(5):
        rows = rows_of(draws, first=draws.choice([commit * 500, draws.randrange(2500)]), minutes=draws.choice([5, 60]))
        for store in stores:
            if commit == 3:
                store.evolve(FRAME.with_measures({"low": aggr.min("x")}), row_schema=rows.schema)
            store.append_rows(rows, "w", commit)
        if draws.random() < 0.4:
            stores[0].compact()
        queries = [drawn_query(draws) for _ in range(8)]
        for query in [*queries, *earlier]:
            assert bits_of(stores[0], query) == bits_of(stores[1], query), (SEED, trial, commit, query)
        earlier = queries


@both_queries
def test_a_repeated_query_reads_only_new_parts(tmp_path, parts_read, query):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    store.append_rows(rows_of(random.Random(SEED), 0, 60), "w", 1)
    expected = bits_of(store, query)
    assert parts_read
    parts_read.clear()
    assert bits_of(store, query) == expected
    assert bits_of(FrameStore(str(tmp_path / "st")), query) == expected  # all stores of a process share the memory
    bits_of(store, replace(query, within=(BEGIN + 10 * MINUTE, None)))
    assert not parts_read
    old = {part.name for part in store.at().snapshot.parts}
    # Results of parts that overlap are computed together, so the new part begins after the first one.
    store.append_rows(rows_of(random.Random(SEED + 1), 30 if query is MERGED else 90, 60), "w", 2)
    parts_read.clear()
    bits_of(store, query)
    assert parts_read
    assert not old & set(parts_read)


def test_small_parts_are_kept_together(tmp_path, monkeypatch, parts_read):
    monkeypatch.setattr(kept_merges, "_MIN_ROWS", 1 << 15)
    store = FrameStore(str(tmp_path / "st"), FRAME)
    for commit in range(3):
        store.append_rows(rows_of(random.Random(SEED + commit), 30 * commit, 60), "w", commit)
    expected = bits_of(store, MERGED)
    assert len({*parts_read}) == 3
    parts_read.clear()
    assert bits_of(store, MERGED) == expected
    assert not parts_read


def test_queries_with_other_conditions_keys_or_zones_are_not_answered_from_the_same_states(tmp_path):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    store.append_rows(rows_of(random.Random(SEED), 0, 120), "w", 1)
    queries = [
        Query("1h", keys=[]),
        Query("1h", keys=[], where="host = 'h1'"),
        Query("1h", keys=["code"]),
        Query("1h", keys=["host"]),
        Query("2h", keys=[]),
        Query("1h", keys=[], measures=["n"]),
        Query("1h", keys=[], timezone="Europe/Berlin"),
        Query("6h", keys=[], timezone="Europe/Berlin"),
        Query(window("6h"), keys=[], timezone="Europe/Berlin"),  # windows in UTC
        Query("1h", keys=[], within=(BEGIN + HOUR, BEGIN + 2 * HOUR)),
        SINGLE,
        Query("1h"),
        Query("1m", keys=["code", "host"]),
        Query("1m", where="host = 'h1'"),
        Query("1m", measures=["n"]),
        Query("1m", measures={"p": aggr.dds("x", [0.25])}),
        Query("1m", measures={"p": aggr.dds("x", [0.75])}),
        Query("1m", timezone="Europe/Berlin"),
        Query("1m", within=(BEGIN + HOUR, BEGIN + 2 * HOUR)),
        Query("1m", latest=True),
        Query("1m", fill=True, within=(BEGIN, BEGIN + HOUR)),
    ]
    fresh = FrameStore(MemoryBackend(f"other {SEED}"), FRAME)
    fresh.append_rows(rows_of(random.Random(SEED), 0, 120), "w", 1)
    for query in [*queries, *queries]:
        assert bits_of(store, query) == bits_of(fresh, query), (SEED, query)


def test_retracted_rows_are_not_in_later_results(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, ["host", "code"])
    stores = [FrameStore(str(tmp_path / "st"), frame), FrameStore(MemoryBackend(f"retracted {SEED}"), frame)]
    first, second = (rows_of(random.Random(SEED + i), 10 * i, 60) for i in range(2))
    for store in stores:
        store.append_rows(first, "w", 1)
        store.append_rows(second, "w", 2)
        bits_of(store, MERGED)
        store.retract(rollup(first, frame), "w", 3)
    assert bits_of(stores[0], MERGED) == bits_of(stores[1], MERGED)


@both_queries
def test_a_changed_file_is_read_again(tmp_path, parts_read, query):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    store.append_rows(rows_of(random.Random(SEED), 0, 60), "w", 1)
    expected = bits_of(store, query)
    (part,) = store.at().snapshot.of("1m")
    (path,) = (tmp_path / "st").rglob(part.name.rpartition("/")[2])
    os.utime(path, ns=(1, 1))  # a program that changes a file also changes its time
    parts_read.clear()
    assert bits_of(FrameStore(str(tmp_path / "st")), query) == expected
    assert part.name in parts_read


@both_queries
def test_a_view_whose_parts_were_replaced_reads_those_that_replaced_them(tmp_path, query):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    draws = random.Random(SEED)
    for commit in range(3):
        store.append_rows(rows_of(draws, commit * 10, 60), "w", commit)
    expected = bits_of(store, query)
    view = store.at()
    FrameStore(str(tmp_path / "st")).compact()
    FrameStore(str(tmp_path / "st")).vacuum("0s")
    for _ in range(2):
        results = view.ask(query).table()
        assert (results.schema, [digest(column.combine_chunks()) for column in results.columns]) == expected


def test_states_that_are_hardly_merged_are_not_kept_and_are_read_once(tmp_path, parts_read):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    hosts = [f"h{i}" for i in range(1000)]
    for commit in range(3):
        times = [BEGIN + commit * MINUTE] * len(hosts)
        rows = {"ts": times, "host": hosts, "code": [1] * len(hosts), "x": [0.5] * len(hosts)}
        store.append_rows(pa.table(rows), "w", commit)
    query = Query("1m", keys=["host"])
    expected = bits_of(store, query)
    assert len({*parts_read}) == 3
    for _ in range(2):
        parts_read.clear()
        assert bits_of(store, query) == expected
        assert len(parts_read) == len({*parts_read}) == 3


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_part_of_which_a_small_range_is_read(tmp_path, monkeypatch, parts_read, share):
    monkeypatch.setattr(kept_merges, "_MAX_SHARE", share)
    store = FrameStore(str(tmp_path / "st"), FRAME)
    store.append_rows(rows_of(random.Random(SEED), 0, 600), "w", 1)
    query = Query("1m", keys=["host", "code"], where="host = 'h1'", within=(BEGIN, BEGIN + 10 * MINUTE))
    merging = Query("1m", keys=["host"], where="host = 'h1'", within=(BEGIN, BEGIN + 10 * MINUTE))
    for _ in range(2):
        parts_read.clear()
        bits_of(store, merging)
    # Ten minutes of one host have about as many windows as rows, in a part of many more rows.
    assert bool(parts_read) == (share < 1.0)
    bits_of(store, query)


def test_without_memory_all_parts_are_read_at_once(tmp_path, parts_read):
    store = FrameStore(str(tmp_path / "st"), FRAME)
    for commit in range(3):
        store.append_rows(rows_of(random.Random(SEED + commit), 30 * commit, 60), "w", commit)
    expected = bits_of(store, MERGED)
    most_bytes = cache_memory()
    set_cache_memory(0)
    try:
        for _ in range(2):
            parts_read.clear()
            assert bits_of(store, MERGED) == expected
            assert len(parts_read) == 3
    finally:
        set_cache_memory(most_bytes)


def test_results_of_a_small_range_do_not_read_the_rest_of_a_part(tmp_path, monkeypatch):
    row_counts: list[int] = []
    read_results = DeltaBackend.read_results

    def recorded_read_results(self, parts, columns, functions, where=None):
        results = read_results(self, parts, columns, functions, where=where)
        row_counts.append(results.num_rows)
        return results

    monkeypatch.setattr(DeltaBackend, "read_results", recorded_read_results)
    store = FrameStore(str(tmp_path / "st"), FRAME)
    store.append_rows(rows_of(random.Random(SEED), 0, 600), "w", 1)
    all_results = FrameStore(MemoryBackend(f"small ranges {SEED}"), FRAME)
    all_results.append_rows(rows_of(random.Random(SEED), 0, 600), "w", 1)
    (part,) = store.at().snapshot.of("1m")

    def assert_read(low: int, high: int, reads: bool) -> None:
        row_counts.clear()
        query = Query("1m", within=(BEGIN + low * MINUTE, BEGIN + high * MINUTE))
        assert bits_of(store, query) == bits_of(all_results, query), (SEED, low, high)
        assert len(row_counts) == reads, (low, high)
        assert all(count < part.rows / 10 for count in row_counts)

    # Ranges within the last range that was read are in memory.
    assert_read(20, 40, True)
    for low, high, reads in [(20, 40, False), (21, 40, False), (30, 31, False), (39, 40, False), (20, 39, False)]:
        assert_read(low, high, reads)
    for low, high, reads in [(19, 21, True), (20, 40, True), (39, 41, True), (20, 40, True), (60, 70, True)]:
        assert_read(low, high, reads)
    small = Query("1m", within=(BEGIN, BEGIN + 10 * MINUTE))
    expected = bits_of(store, small)
    row_counts.clear()
    bits_of(store, Query("1m", within=(BEGIN, BEGIN + 500 * MINUTE)))
    assert row_counts == [part.rows]
    # Once the results of the complete part are in memory, they serve a small range as well.
    assert bits_of(store, small) == expected
    bits_of(store, SINGLE)
    assert row_counts == [part.rows]


def test_a_part_that_overlaps_kept_results_is_merged_with_them(tmp_path):
    stores = [FrameStore(str(tmp_path / "st"), FRAME), FrameStore(MemoryBackend(f"overlap {SEED}"), FRAME)]
    # Ranges with the first part alone, with the second part alone, in which the two overlap, and with both
    bounds = [(0, 30), (65, 105), (40, 60), (0, 90), (0, 150)]
    ranges = [(BEGIN + low * MINUTE, BEGIN + high * MINUTE) for low, high in bounds]
    for commit in range(3):
        for store in stores:
            store.append_rows(rows_of(random.Random(SEED + commit), 45 * commit, 60), "w", commit)
        for within in [*ranges, *reversed(ranges)]:
            query = Query("1m", within=within)
            assert bits_of(stores[0], query) == bits_of(stores[1], query), (SEED, commit, within)


@pytest.mark.parametrize("compacts", [True, False])
def test_the_memory_of_a_store_that_grows_does_not_contain_outdated_tables(tmp_path, monkeypatch, compacts):
    """All rows are in the same hour of the same keys, so the tables that the queries need do not grow."""
    cache = FileCache(cache_memory)
    monkeypatch.setattr(delta_backend, "CACHE", cache)
    monkeypatch.setattr(files, "CACHE", cache)
    store = FrameStore(str(tmp_path / "st"), FRAME)
    rows = rows_of(random.Random(SEED), 0, 60)
    kept_bytes: list[int] = []
    for commit in range(24):
        store.append_rows(rows, "w", commit)
        if compacts:
            store.compact()
        # Merged states are kept for each part, so without compaction there are more and more of them.
        for query in (SINGLE, Query("1h"), *([MERGED] if compacts else [])):
            bits_of(store, query)
        kept_bytes.append(
            sum(
                entry.byte_count
                for key, entry in cache._entries.items()
                if isinstance(key[1], (tuple, kept_results._Description))
            )
        )
    assert kept_bytes[0]
    assert kept_bytes[-1] < 1.3 * kept_bytes[0]


def test_conditions_on_times_are_kept_by_zone(tmp_path):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["day"])
    stores = [FrameStore(str(tmp_path / "st"), frame), FrameStore(MemoryBackend(f"zone {SEED}"), frame)]
    days = pa.array([BEGIN + hour * HOUR for hour in range(48)], pa.timestamp("ms", "UTC"))
    for store in stores:
        store.append_rows(pa.table({"ts": [BEGIN] * len(days), "day": days}), "w", 1)
    for zone in ("UTC", "Europe/Berlin", "UTC"):
        query = Query(window("1m"), where="day >= '2024-05-02 00:00'", timezone=zone)
        assert bits_of(stores[0], query) == bits_of(stores[1], query), zone


def test_kept_results_of_small_parts_do_not_keep_the_results_of_other_parts(tmp_path, monkeypatch):
    kept_tables: list[pa.Table] = []
    monkeypatch.setattr(DeltaBackend, "keep_table", lambda self, parts, key, table: kept_tables.append(table))
    store = FrameStore(str(tmp_path / "st"), FRAME)
    for commit in range(5):
        store.append_rows(rows_of(random.Random(SEED + commit), 10 * commit, 10), "w", commit)
    bits_of(store, SINGLE)
    assert len(kept_tables) == 5
    assert all(table.get_total_buffer_size() < 1.5 * table.nbytes + 10_000 for table in kept_tables)
    assert sum(table.num_rows for table in kept_tables) == store.query("1m").num_rows
