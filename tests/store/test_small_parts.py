"""Compaction of small parts only: the same results, few parts, and few rows written again."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = pytest.mark.store
FRAME = TiltFrame(
    ["10s", "1m"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "q": aggr.dds("x", [0.5, 0.99])}, ["host"]
)
COMMITS = 120


def rows_of(rng: np.random.Generator, number: int) -> pa.Table:
    """Return the rows of a commit: those of about its own second, of a few of forty hosts."""
    count = int(rng.integers(1, 60))
    return pa.table(
        {
            "ts": number * 1000 + rng.integers(-5000, 5000, count) + 10_000,
            "host": [f"h{host}" for host in rng.integers(0, 40, count)],
            "x": rng.lognormal(3, 2, count),
        }
    )


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Fill two stores with the same commits. One store is compacted after each fifth commit. Return both stores and, by
    level, the maximum number of parts and the number of rows that compactions wrote.
    """
    rng, folder = np.random.default_rng(7), tmp_path_factory.mktemp("small")
    store, untouched = FrameStore(folder / "a", FRAME), FrameStore(folder / "b", FRAME)
    most_parts, written = dict.fromkeys(("10s", "1m"), 0), dict.fromkeys(("10s", "1m"), 0)
    for number in range(1, COMMITS + 1):
        rows = rows_of(rng, number)
        store.append_rows(rows, "w", number)
        untouched.append_rows(rows, "w", number)
        if number % 5:
            continue
        before = {part.name for part in store.at().snapshot.parts}
        store.compact("2100-01-01", only_small=True)
        for part in store.at().snapshot.parts:
            written[part.level] += part.rows * (part.name not in before)
        for level in most_parts:
            most_parts[level] = max(most_parts[level], len(store.at().snapshot.of(level)))
    return {"store": store, "untouched": untouched, "most_parts": most_parts, "written": written}


@pytest.mark.parametrize("query", [{"per": "10s"}, {"per": "1m", "keys": []}, {"per": "1m", "keys": ["host"]}])
def test_results_are_those_of_a_store_that_was_never_compacted(compacted, query):
    results = compacted["store"].query(**query)
    assert results.num_rows > 2
    assert results == compacted["untouched"].query(**query)


@pytest.mark.parametrize("level", ["10s", "1m"])
def test_the_number_of_parts_grows_with_the_logarithm_of_the_commits(compacted, level):
    assert len(compacted["untouched"].at().snapshot.of(level)) >= COMMITS
    assert compacted["most_parts"][level] <= math.log2(COMMITS)


@pytest.mark.parametrize("level", ["10s", "1m"])
def test_a_row_is_written_again_a_logarithmic_number_of_times(compacted, level):
    rows = sum(part.rows for part in compacted["untouched"].at().snapshot.of(level))
    assert compacted["written"][level] <= rows * math.log2(COMMITS)


def test_a_large_part_waits_until_it_has_received_small_ones(address):
    store = FrameStore(address(), TiltFrame(["10s"], "ts", {"n": aggr.count()}, ["host"]))
    hosts = [f"h{i}" for i in range(200)]
    store.append_rows(pa.table({"ts": [0] * 200, "host": hosts}), "w", 1)
    (large,) = store.at().snapshot.parts
    for number in range(2, 8):
        store.append_rows(pa.table({"ts": [0] * 5, "host": hosts[:5]}), "w", number)
    assert store.compact("2100-01-01", only_small=True) == {"10s": (6, 1)}
    assert {part.rows for part in store.at().snapshot.parts} == {200, 5}
    assert large in store.at().snapshot.parts
    with pytest.raises(ValueError, match="only_small must be a bool; got 'yes'"):
        store.compact("2100-01-01", only_small="yes")
    assert store.compact("2100-01-01") == {"10s": (2, 1)}
    assert sum(store.query("10s").column("n").to_pylist()) == 230
