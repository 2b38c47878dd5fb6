"""Running queries: each window also contains the earlier windows of its key in the range."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame

pytestmark = pytest.mark.store

YEAR = 365 * 86_400_000
MEASURES = {"total": aggr.sum("n"), "rows": aggr.count(), "p": aggr.dds("n", [0.5]), "values": aggr.collect("n")}


def store_of(folder, rows: list[tuple[int, str, int]]) -> FrameStore:
    store = FrameStore(folder, TiltFrame(["1h", "1d"], "ts", {**MEASURES, "mean": "total / rows"}, keys=["k"]))
    columns = dict(zip(["ts", "k", "n"], map(list, zip(*rows, strict=True)), strict=True))
    for commit in range(min(3, len(rows))):
        store.append_rows(
            pa.table({name: column[commit::3] for name, column in columns.items()}), writer="w", commit=commit
        )
    return store


def test_sums_of_all_that_came_before_at_each_window(tmp_path):
    """Kaskada: sum() at each window of 7, 13 and 4 is 7, 20, 24."""
    store = store_of(tmp_path / "store", [(0, "a", 5), (0, "a", 2), (86_400_000, "a", 13), (2 * 86_400_000, "a", 4)])
    assert store.query("1d", running=True)["total"].to_pylist() == [7, 20, 24]
    assert store.query("1d", ("1970-01-02", None), running=True)["total"].to_pylist() == [13, 17]
    assert Query.from_json(Query("1d", running=True).to_json()) == Query("1d", running=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_each_window_is_a_query_of_all_windows_up_to_it(tmp_path, seed):
    draws = random.Random(seed)
    rows = [(draws.randrange(200) * 3_600_000, draws.choice("abc"), draws.randrange(20)) for _ in range(60)]
    store = store_of(tmp_path / "store", rows)
    for per in ("1h", "1d", "12h"):
        running = store.query(per, running=True)
        for row in running.to_pylist()[:: draws.randint(3, 9)]:
            within = (None, row["window_end"].isoformat())
            (expected,) = store.query("all", within, where=f"k = '{row['k']}'").to_pylist()
            assert [row[name] for name in (*MEASURES, "mean")] == [expected[name] for name in (*MEASURES, "mean")]
    latest = store.query("1d", running=True, latest=True)
    assert latest.sort_by("k").select(["k", "total"]).equals(store.query("all").select(["k", "total"]))
    partly = store.query("1d", running=True, keys=[], having="total > 100")["total"].to_pylist()
    assert partly == [total for total in store.query("1d", running=True, keys=[])["total"].to_pylist() if total > 100]


def test_windows_without_events_carry_the_total(tmp_path):
    store = store_of(tmp_path / "store", [(0, "a", 5), (3 * 86_400_000, "a", 4), (0, "b", 1)])
    filled = store.query("1d", running=True, fill=True, now="1970-01-10T00Z", within=("1970-01-01", "1970-01-06"))
    of_a = [(row["total"], row["filled"]) for row in filled.to_pylist() if row["k"] == "a"]
    assert of_a == [(5, False), (5, True), (5, True), (9, False), (9, True)]


def test_an_unknown_state_makes_later_totals_unknown(tmp_path):
    store = store_of(tmp_path / "store", [(0, "a", 5), (86_400_000, "b", 2)])
    store.evolve(store.frame.with_measures({"most": aggr.max("n")}), row_schema=pa.schema([("n", pa.int64())]))
    store = FrameStore(tmp_path / "store")
    store.append_rows(pa.table({"ts": [2 * 86_400_000] * 2, "k": ["a", "c"], "n": [7, 8]}), writer="w", commit=9)
    with pytest.warns(UserWarning, match="most was added"):
        running = store.query("1d", running=True, measures=["most"])
    assert [(row["k"], row["most"]) for row in running.to_pylist()] == [("a", None), ("b", None), ("a", None), ("c", 8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "all"}, "running needs windows that follow each other"),
        ({"per": "hopping(2h, 1h)"}, "running needs windows that follow each other"),
        ({"per": "1h", "edges": "1h"}, "leave out one of them"),
        ({"per": "1h", "running": "yes"}, "running must be True or False"),
    ],
)
def test_queries_that_cannot_be_running(tmp_path, arguments, message):
    store = store_of(tmp_path / "store", [(0, "a", 5)])
    with pytest.raises(ValueError, match=message):
        store.query(**{"running": True, **arguments})


def test_the_command_line_has_running_totals(tmp_path, capfd):
    store_of(tmp_path / "store", [(0, "a", 7), (86_400_000, "a", 13), (2 * 86_400_000, "a", 4)])
    command = ["query", tmp_path / "store", "--per", "1d", "--measure", "total", "--running", "--format", "json"]
    status, output, error = call(capfd, *command)
    assert status == 0, error
    assert [json.loads(line)["total"] for line in output.splitlines()] == [7, 20, 24]
