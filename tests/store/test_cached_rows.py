"""The rows of small files in memory: a process does not read what it has written, and forgets what it has compacted."""

from __future__ import annotations

import datetime
import gc
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store import StoreError
from tiltframe.store.backends import set_cache_memory

pytestmark = pytest.mark.store
FRAME = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "q": aggr.dds("x")}, ["host"])
CACHE_BYTES = 1 << 28


@pytest.fixture(autouse=True)
def empty_cache():
    """Begin with an empty cache, and give it its default size again at the end."""
    set_cache_memory(CACHE_BYTES)
    yield
    set_cache_memory(5 << 28)


def rows_of(number: int, count: int = 40) -> pa.Table:
    rng = np.random.default_rng(number)
    return pa.table(
        {
            "ts": pa.array(number * 1_000_000 + rng.integers(0, 10**6, count), pa.timestamp("us", "UTC")),
            "host": [f"h{host}" for host in rng.integers(0, 20, count)],
            "x": rng.lognormal(3, 2, count),
        }
    )


def clear_cache(store: FrameStore) -> None:
    """Remove everything from the cache. A limit of memory applies when a file is read."""
    set_cache_memory(0)
    store.query("1m")
    set_cache_memory(CACHE_BYTES)


def overwrite_files(folder: Path) -> None:
    """Replace the bytes of all data files by zeros. Sizes and times of the files stay, so that no reader notices it
    before it reads them.
    """
    for path in folder.rglob("*.parquet"):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("query", [{"per": "1m"}, {"per": "10s", "keys": []}, {"per": "1m", "measures": ["q"]}])
def test_a_process_does_not_read_the_small_files_that_it_has_written(tmp_path, query):
    stores = [FrameStore(tmp_path / name, FRAME) for name in ("a", "b")]
    for number in range(1, 4):
        for store in stores:
            store.append_rows(rows_of(number), "w", number)
    expected = stores[1].query(**query)
    overwrite_files(tmp_path / "a")
    assert stores[0].query(**query) == expected
    set_cache_memory(0)
    with pytest.raises(StoreError, match="damaged"):
        stores[0].query(**query)


def test_columns_are_read_once_for_queries_of_different_measures(tmp_path):
    store = FrameStore(tmp_path / "a", FRAME)
    for number in range(1, 4):
        store.append_rows(rows_of(number), "w", number)
    clear_cache(store)
    expected = [store.query("1m", keys=[], measures=[name]) for name in ("n", "s", "q")]
    overwrite_files(tmp_path)
    assert [store.query("1m", keys=[], measures=[name]) for name in ("n", "s", "q")] == expected
    assert store.query("1m", keys=[]).column("q") == expected[2].column("q")


def test_queries_while_the_cache_is_too_small_for_all_columns(tmp_path):
    """A limit at which a column that a query has found in the cache is removed while the query reads the others."""
    store = FrameStore(tmp_path / "a", FRAME)
    for number in range(1, 4):
        store.append_rows(rows_of(number), "w", number)
    expected = store.query("1m", keys=[])
    for limit in (*range(5_000, 100_000, 5_000), 0):
        clear_cache(store)
        set_cache_memory(limit)
        for measures in (["n"], ["s"], ["n", "s"], ["q", "n"], ["n", "s", "q"]):
            columns = ["window_start", "window_end", *measures]
            results = store.query("1m", keys=[], measures=measures)
            assert results.select(columns) == expected.select(columns)


KEYS = {
    "u8": pa.array([1, 255, None], pa.uint8()),
    "u64": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "time": pa.array([datetime.time(1), datetime.time(23, 59), None], pa.time32("s")),
    "duration": pa.array([1, 2, None], pa.duration("ns")),
    "nanoseconds": pa.array([1, 1_999, None], pa.timestamp("ns", "Asia/Tokyo")),
    "decimal": pa.array([Decimal("1.5"), Decimal("-2.5"), None], pa.decimal256(50, 1)),
    "binary": pa.array([b"", b"\0", None]),
    "struct": pa.array([{"a": 1, "b": None}, {"a": None, "b": "x"}, None], pa.struct([("a", "u2"), ("b", "string")])),
    "double": pa.array([float("nan"), -0.0, None]),
}


@pytest.mark.parametrize("key", KEYS)
def test_rows_that_were_written_equal_those_that_are_read(tmp_path, key):
    """The states of all levels, with keys of all kinds of stored types: from memory, and from the files."""
    measures = {
        "n": aggr.count(),
        "s": aggr.sum("x"),
        "q": aggr.dds("x"),
        "least": aggr.min("k"),
        "last": aggr.last("k"),
        "all": aggr.collect("k"),
        "different": aggr.count_distinct("k"),
    }
    if key == "struct":
        measures = {"n": aggr.count(), "s": aggr.sum("x"), "q": aggr.dds("x")}
    frame = TiltFrame(["10s", "1m"], "ts", measures, ["k"])
    store = FrameStore(tmp_path / "a", frame)
    table = pa.table({"ts": pa.array([0, 1, 2], pa.timestamp("us", "UTC")), "k": KEYS[key], "x": [1.5, None, -3.0]})
    store.append_rows(table, "w", 1)
    from_memory = [store.at().states(Query(per=level)).table() for level in ("10s", "1m")]
    clear_cache(store)
    from_files = [store.at().states(Query(per=level)).table() for level in ("10s", "1m")]
    for memory, file in zip(from_memory, from_files, strict=True):
        assert memory.schema == file.schema
        assert repr(memory.to_pylist()) == repr(file.to_pylist())


@pytest.mark.parametrize("only_small", [True, False])
def test_rows_of_compacted_files_leave_the_memory(tmp_path, only_small):
    store = FrameStore(tmp_path / "a", FRAME)
    commits = 150
    store.append_rows(rows_of(0), "w", 1)
    gc.collect()
    before = pa.total_allocated_bytes()
    written = 0
    for number in range(1, commits):
        names_before = {part.name for part in store.at().snapshot.parts}
        store.append_rows(rows_of(number), "w", number + 1)
        written += sum(part.bytes for part in store.at().snapshot.parts if part.name not in names_before)
        if number % 10 == 0:
            store.compact("2100-01-01", only_small=only_small)
            store.query("1m", keys=[])
    gc.collect()
    # Without the removal, the cache would have the rows of all files. A file needs more memory than its bytes on the
    # disk if its rows are in memory.
    assert pa.total_allocated_bytes() - before < written / 4


def test_a_process_that_only_writes_keeps_few_rows(tmp_path):
    """Tasks of batch jobs write many files, and do not read them."""
    frame = TiltFrame(["10s", "1m"], "ts", {"all": aggr.collect("x")}, ["host"])
    store = FrameStore(tmp_path / "a", frame)
    rows = rows_of(1, 6_000)
    gc.collect()
    before = pa.total_allocated_bytes()
    for number in range(1, 181):
        store.append_rows(rows, "w", number)
    gc.collect()
    written = sum(part.bytes for part in store.at().snapshot.parts)
    assert written > 2 * 10**7
    assert pa.total_allocated_bytes() - before < 1.8e7
